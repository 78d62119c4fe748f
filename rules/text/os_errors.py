"""Texts of system errors: of files and ports."""

from __future__ import annotations

from typing import Final

from rules.text.i18n import Message, Text

# The texts of the system that users meet; Python asks for them in English in each locale.
_REASONS: Final = (
    Message("No such file or directory"),
    Message("Permission denied"),
    Message("Is a directory"),
    Message("Not a directory"),
    Message("File exists"),
    Message("File name too long"),
    Message("Input/output error"),
    Message("No space left on device"),
    Message("Read-only file system"),
    Message("Address already in use"),
    Message("Cannot assign requested address"),
)


def os_error_reason(error: OSError) -> Message:
    """Return the reason of a system error, without the error number and its file."""
    text = error.strerror or str(error)
    return next((reason for reason in _REASONS if reason.en == text), Text(text))


def os_error_text(error: OSError) -> Message:
    """Return the reason of a system error after its file, if it has one."""
    reason = os_error_reason(error)
    return reason if error.filename is None else Message("{file}: {why}", file=error.filename, why=reason)
