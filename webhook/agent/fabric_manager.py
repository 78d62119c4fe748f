"""NVIDIA Fabric Manager of this machine, which joins its GPUs over NVSwitch.

It does not start if its version differs from the driver's, and programs then fail.
Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
"""

from __future__ import annotations

import re
import subprocess
from shutil import which
from typing import Final

from rules.cuda.versions import DriverVersion

PROGRAM: Final = "nv-fabricmanager"
_VERSION: Final = re.compile(r"Fabric Manager version is\s*:\s*([\d.]+)")
_SECONDS: Final = 10


def fabric_manager_version(program: str = PROGRAM) -> DriverVersion | None:
    """Return the version of the installed Fabric Manager; None if it is not installed here, or unknown."""
    if (path := which(program)) is None:
        return None
    try:
        printed = subprocess.run(  # noqa: S603 - without a shell
            [path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(printed.stdout + printed.stderr)
    return DriverVersion.parse(version[1]) if version else None
