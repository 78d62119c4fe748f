"""Version types: CUDA, compute capability, driver. Exact, ordered and hashable."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, Self

# CUDA versions have at most two digits per part; more are typing errors, such as 121 for 12.1.
_CUDA = re.compile(r"(\d{1,2})(?:\.(\d{1,2}))?(?:\.\d{1,9}){0,3}", re.ASCII)
# The highest capability is 12.1 today. 80 and 86 are the compilers' notation for 8.0 and 8.6.
_CAPABILITY = re.compile(r"(1?\d)(?:\.(\d))?", re.ASCII)
_DRIVER = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,3}", re.ASCII)


class MajorMinor(NamedTuple):
    """Two numbers that compare as numbers: 12.10 is after 12.9. Comparable with tuples."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class CudaVersion(MajorMinor):
    """A CUDA version, of a toolkit or of a driver's API. NVIDIA compares major and minor, never the patch."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the version of `12.4`, `12.4.1` or `12` (12.0); None for any other text."""
        match = _CUDA.fullmatch(text.strip())
        return cls(int(match[1]), int(match[2] or 0)) if match else None


class ComputeCapability(MajorMinor):
    """The compute capability of a GPU, such as 8.0 (A100)."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the capability of `8.6` or `8`; None for any other text, such as `sm_86` or `86`."""
        match = _CAPABILITY.fullmatch(text.strip())
        return cls(int(match[1]), int(match[2] or 0)) if match else None

    def runs(self, other: MajorMinor) -> bool:
        """Return whether a GPU of this capability runs binary code for another: same major, no higher minor.

        Source: CUDA C++ Programming Guide, Binary Compatibility
        (https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility).
        """
        return self.major == other.major and self.minor >= other.minor


@dataclass(frozen=True, slots=True, order=True)
class DriverVersion:
    """A driver version such as 535.104.05; it compares by numbers, text is the original notation."""

    numbers: tuple[int, ...]
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the version of `535.104.05` or `580`; None for any other text."""
        text = text.strip()
        if not _DRIVER.fullmatch(text):
            return None
        return cls(tuple(int(number) for number in text.split(".")), text)

    @property
    def branch(self) -> int:
        """The driver branch, the first number: 535."""
        return self.numbers[0]

    def __str__(self) -> str:
        return self.text
