"""Makes the root file system that replaces the image's base: a Debian with Python, as python:*-slim is.

Run as `python -m tests.e2e.assets.base` it makes what is missing and prints the file, a tar that any engine
imports; it is kept next to the programs of build.py. It needs root, debootstrap and a mirror of Debian, and
does nothing where it is not root or there is no debootstrap.
"""
# ruff: noqa: T201 - a build prints its steps

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.e2e.assets import build

_DOCKERFILE: Final = Path(__file__).parents[3] / "Dockerfile"


def tag() -> str:
    """Return which tag of `python` the Dockerfile builds on, as "3.12.1-slim-trixie"; LookupError if none."""
    match = re.search(r"^ARG BASE=python:(\S+)$", _DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise LookupError(f"{_DOCKERFILE} has no base of Python's")
    return match[1]


def archive() -> Path:
    """Name the file for the Debian of that tag, whether it has been made or not."""
    return build.folder().parent / f"base-{tag().rpartition('-')[2]}.tar"


def make(target: Path) -> None:
    """Make it at target, which appears whole or not at all; CalledProcessError when a step fails.

    Python and pip are where python:*-slim has them, in /usr/local, and pip knows of nothing of Debian's.
    """
    suite = target.stem.rpartition("-")[2]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        root, unfinished = Path(folder, "root"), Path(folder, target.name)
        packages = "--include=ca-certificates,python3,python3-venv"
        for step in (
            ["debootstrap", "--variant=minbase", packages, suite, str(root)],
            ["chroot", str(root), "python3", "-m", "venv", "/usr/local"],
            ["rm", "-r", f"{root}/var/cache/apt", f"{root}/var/lib/apt/lists"],
            ["tar", "--directory", str(root), "--create", "--file", str(unfinished), "."],
        ):
            subprocess.run(step, check=True, stdout=subprocess.DEVNULL)
        unfinished.replace(target)


def main() -> int:
    """Make what is missing, printing that; exit as the step does that fails."""
    target = archive()
    if target.exists():
        print(f"{target.name}: kept")
    elif os.geteuid() or not shutil.which("debootstrap"):
        print(f"{target.name}: not made, which takes root and debootstrap; the image is not built then")
        return 0
    else:
        print(f"{target.name}: making a Debian with Python ...", flush=True)
        started = time.monotonic()
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            make(target)
        except subprocess.CalledProcessError as error:
            return error.returncode
        print(f"{target.name}: made in {time.monotonic() - started:.0f} s, ", end="")
        print(f"{target.stat().st_size / 2**20:.0f} MiB")
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
