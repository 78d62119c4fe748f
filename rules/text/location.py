"""A location in a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A location in a rule file; line and column count from 1, 0 if unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
