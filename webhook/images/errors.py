"""The error of an image that cannot be read, with a reason word for metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from rules.text.i18n import Message

# Longest text of a registry in a message, in characters.
_MAX_QUOTED: Final = 120


class Reason(StrEnum):
    """Why an image cannot be read; the values are labels of metrics."""

    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not-found"
    RATE_LIMITED = "rate-limited"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    BLOCKED = "blocked"
    TOO_LARGE = "too-large"
    DIGEST_MISMATCH = "digest-mismatch"
    INVALID = "invalid"


class ImageError(Exception):
    """An image cannot be read: by `reason`, the fault of the registry, the file or the reference.

    retry_after_s: seconds that the registry asks a client to wait; None if it does not.
    """

    def __init__(self, reason: Reason, text: Message, retry_after_s: float | None = None) -> None:
        super().__init__(text.en)
        self.reason = reason
        self.text = text
        self.retry_after_s = retry_after_s


def quoted(text: str) -> str:
    """Return an untrusted text for a message: one line, printable, at most 120 characters."""
    words = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * _MAX_QUOTED]).split()
    return " ".join(words)[:_MAX_QUOTED]
