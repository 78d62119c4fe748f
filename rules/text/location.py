"""A location in a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A location in a rule file; line and column count from 1, 0 if unknown.

    within: the key of a string in which line and column count, if the string is in no file.
    """

    file: str
    line: int = 0
    column: int = 0
    within: str = ""

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join([f"{self.file} {self.within}".rstrip(), *numbers])
