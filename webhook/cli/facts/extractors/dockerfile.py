"""Base images of Dockerfiles: https://docs.docker.com/reference/dockerfile/#from."""

from __future__ import annotations

import re
from typing import Final

from rules.cuda.versions import CudaVersion
from webhook.cli.facts.extractors.base import Row

_INSTRUCTION: Final = re.compile(
    r"^(?:ARG +(\w+)=(\S+)|FROM +(?:--platform=\S+ +)?(\S+)(?: +AS +(\S+))?) *$", re.MULTILINE | re.IGNORECASE
)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_CUDA: Final = re.compile(r"(?:docker\.io/)?nvidia/cuda:((\d+\.\d+)\.\d+)-.+", re.ASCII)
# Names that a stage may lead through; a stage with the name of its own base ends there, too.
_MAX_STAGES: Final = 64


class Dockerfile:
    """The stages of a Dockerfile, with the defaults of its arguments.

    Raises ValueError: there is no stage.
    """

    def __init__(self, data: bytes) -> None:
        arguments: dict[str, str] = {}
        self.bases: dict[str, str] = {}  # the base of each stage by its name, in order; unnamed: its number
        for name, value, base, stage in _INSTRUCTION.findall(data.decode("utf-8")):
            if base:
                self.bases[stage or str(len(self.bases))] = _replaced(base, arguments)
            elif not self.bases:  # an argument of a stage is none of FROM
                arguments[name] = _replaced(value.strip("\"'"), arguments)
        if not self.bases:
            raise ValueError("no stages")

    def image(self, stage: str = "") -> str:
        """Return the image that a stage is built on. stage: its name; empty: the last one."""
        image = stage or [*self.bases][-1]
        for _ in range(_MAX_STAGES):
            if image not in self.bases:
                break
            image = self.bases[image]
        return image


def cuda_of(image: str) -> Row:
    """Return the columns `cuda` and `base` of an image of nvidia/cuda. Raises ValueError for another one."""
    if not (match := _CUDA.fullmatch(image)):
        raise ValueError(f"{image!r} is not an image of nvidia/cuda")
    return {"cuda": str(CudaVersion.parse(match[2])), "base": match[1]}


def _replaced(text: str, arguments: dict[str, str]) -> str:
    """Return a text with the values of arguments. Raises KeyError for an unknown one."""
    return _VARIABLE.sub(lambda match: arguments[match[1] or match[2]], text)
