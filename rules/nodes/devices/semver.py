"""Semantic versions, in attributes of devices and in CEL selectors.

Source: https://semver.org/spec/v2.0.0.html, and as Kubernetes reads them,
https://pkg.go.dev/k8s.io/apiserver/pkg/cel/library#SemverLib.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

_NUMBER: Final = r"0|[1-9][0-9]{0,19}"
_NUMERIC: Final = re.compile(_NUMBER)
_SEMVER: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_MAX: Final = 2**64 - 1  # of a number of a version
# Maximum characters of a version in an attribute or an expression.
MAX_LENGTH: Final = 64
# Sorts after the identifiers of each pre-release.
_RELEASE: Final = ((2, 0, ""),)


class Semver(NamedTuple):
    """A semantic version without build metadata; it compares by precedence."""

    major: int
    minor: int
    patch: int
    # The identifiers of the pre-release, in a form that sorts numbers before texts and a release last.
    rank: tuple[tuple[int, int, str], ...] = _RELEASE

    def __str__(self) -> str:
        pre = ".".join(text or str(number) for _, number, text in self.rank)
        return f"{self.major}.{self.minor}.{self.patch}" + (f"-{pre}" if self.rank != _RELEASE else "")


@lru_cache(maxsize=1024)
def _parse(text: str) -> Semver | None:
    match = _SEMVER.fullmatch(text)
    if match is None:
        return None
    major, minor, patch = (int(match[group]) for group in (1, 2, 3))
    rank: tuple[tuple[int, int, str], ...] = _RELEASE
    if match[4]:
        identifiers = match[4].split(".")
        if any(identifier.isdigit() and not _NUMERIC.fullmatch(identifier) for identifier in identifiers):
            return None
        rank = tuple((0, int(text), "") if text.isdigit() else (1, 0, text) for text in identifiers)
    if max(major, minor, patch, *(number for _, number, _ in rank)) > _MAX:
        return None
    return Semver(major, minor, patch, rank)


def parse_semver(text: str) -> Semver | None:
    """Return the version, or None if the text is not a semantic version or is longer than MAX_LENGTH."""
    return _parse(text) if len(text) <= MAX_LENGTH else None


def normalized(text: str) -> str:
    """Return the semantic version of a text such as `v1.02`: `1.2.0`."""
    parts = text.removeprefix("v").split(".", 2)
    for place, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[place] = bare if bare[:1].isdigit() else f"0{bare}"
    if len(parts) < 3 and not any(sign in parts[-1] for sign in "+-"):
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)
