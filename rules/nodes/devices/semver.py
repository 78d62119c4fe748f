"""Semantic versions, as attributes of devices and CEL selectors have them.

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
# Maximum characters of a version that is a value of an attribute, and of one in an expression.
MAX_LENGTH: Final = 64
# Sorts after the identifiers of each pre-release.
_RELEASE: Final = ((2, 0, ""),)


class Semver(NamedTuple):
    """A semantic version without build metadata, which compares by precedence.

    rank: the identifiers of the pre-release as they compare: numbers first; a release is after all of them.
    """

    major: int
    minor: int
    patch: int
    rank: tuple[tuple[int, int, str], ...] = _RELEASE

    def __str__(self) -> str:
        pre = ".".join(text or str(number) for _, number, text in self.rank)
        return f"{self.major}.{self.minor}.{self.patch}" + (f"-{pre}" if self.rank != _RELEASE else "")


@lru_cache(maxsize=1024)
def _parse(text: str) -> Semver | None:
    found = _SEMVER.fullmatch(text)
    if found is None:
        return None
    major, minor, patch = (int(found[group]) for group in (1, 2, 3))
    rank: tuple[tuple[int, int, str], ...] = _RELEASE
    if found[4]:
        identifiers = found[4].split(".")
        if any(each.isdigit() and not _NUMERIC.fullmatch(each) for each in identifiers):
            return None
        rank = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in identifiers)
    if max(major, minor, patch, *(number for _, number, _ in rank)) > _MAX:
        return None
    return Semver(major, minor, patch, rank)


def parse_semver(text: str) -> Semver | None:
    """Return the version, or None if the text is not a semantic version or is longer than MAX_LENGTH."""
    return _parse(text) if len(text) <= MAX_LENGTH else None


def normalized(text: str) -> str:
    """Return a version such as `v1.02` as the semantic version that it stands for: `1.2.0`."""
    parts = text.removeprefix("v").split(".", 2)
    for place, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[place] = bare if bare[:1].isdigit() else f"0{bare}"
    if len(parts) < 3 and not any(sign in parts[-1] for sign in "+-"):
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)
