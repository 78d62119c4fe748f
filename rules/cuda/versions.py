"""Versions as values: CUDA, compute capability, driver. Exact, ordered, hashable; never a float or a text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, Self

# Two digits are more than any CUDA version has needed; longer ones are typing errors, such as 121 for 12.1.
_CUDA = re.compile(r"(\d{1,2})(?:\.(\d{1,2}))?(?:\.\d{1,9}){0,3}", re.ASCII)
# Capabilities go to 12.1 today. 80 and 86 are how compilers write 8.0 and 8.6, and not a capability.
_CAPABILITY = re.compile(r"(1?\d)(?:\.(\d))?", re.ASCII)
_DRIVER = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,3}", re.ASCII)


class MajorMinor(NamedTuple):
    """Two numbers in order: 12.10 is after 12.9. It compares with plain pairs."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class CudaVersion(MajorMinor):
    """A CUDA version, of a toolkit or of a driver's API. NVIDIA compares major and minor, never the patch."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the version that `12.4`, `12.4.1` or `12` (which is 12.0) names; None for any other text."""
        match = _CUDA.fullmatch(text.strip())
        return cls(int(match[1]), int(match[2] or 0)) if match else None


class ComputeCapability(MajorMinor):
    """What a GPU can execute, such as 8.0 (A100)."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the capability that `8.6` or `8` names; None for any other text, such as `sm_86` or `86`."""
        match = _CAPABILITY.fullmatch(text.strip())
        return cls(int(match[1]), int(match[2] or 0)) if match else None

    def runs(self, other: MajorMinor) -> bool:
        """Tell whether a GPU of this capability runs binary code for another: same major, no higher minor.

        Source: CUDA C++ Programming Guide, Binary Compatibility
        (https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility).
        """
        return self.major == other.major and self.minor >= other.minor


@dataclass(frozen=True, slots=True, order=True)
class DriverVersion:
    """A driver version such as 535.104.05; numbers compare, the text is as it was written."""

    numbers: tuple[int, ...]
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the version that `535.104.05` or `580` names; None for any other text."""
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
