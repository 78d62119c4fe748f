"""Default mode of NVIDIA Container Toolkit on nodes with NVML, from the source of its newest releases.

internal/info/auto.go has a constant for each mode, such as `JitCDIRuntimeMode = RuntimeMode("jit-cdi")`, and
returns `defaultMode`, one of them, or a text in `case info.PlatformNVML`:
https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/info/auto.go.
"""

from __future__ import annotations

import re
from typing import Final

from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.github import documents_of_releases

_CONSTANT: Final = re.compile(r'\b(\w+) = RuntimeMode\(("[a-z-]+")\)')
_DEFAULT: Final = re.compile(r"\bdefaultMode: +(\w+),")
_NVML: Final = re.compile(r"\bcase info\.PlatformNVML\b[^:]*:\s+return (\S+)")
_FIELD: Final = "m.defaultMode"


def find(get: Get) -> list[Document]:
    """Return the source of the newest release of each of the newest minor versions."""
    return documents_of_releases(get, "NVIDIA/nvidia-container-toolkit", "internal/info/auto.go")


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release. name: its tag and the name of the file. Raises ValueError."""
    text = data.decode("utf-8")
    (value,) = _NVML.findall(text)
    if value == _FIELD:
        (value,) = _DEFAULT.findall(text)
    mode = dict(_CONSTANT.findall(text)).get(value, value)
    if not re.fullmatch('"[a-z-]+"', mode):
        raise ValueError(f"{value} is not a mode")
    return [{"toolkit": name.split(maxsplit=1)[0].removeprefix("v"), "mode": mode.strip('"')}]
