"""The server with uvicorn and h11, before it had its own connections: a baseline in the same run.

`python -m tests.bench.before` checks out its commit in a Git worktree and installs its locked dependencies in
a virtual environment; both are in `.venv-before`, once. Without them a benchmark has no rows of that server.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from typing import Final

from tests.bench.cases import ROOT

# The last commit with that server.
COMMIT: Final = "9422ec1"
_HOME: Final = ROOT / ".venv-before"
SOURCE: Final = _HOME / "source"
PYTHON: Final = str(_HOME / "bin/python")
HOW: Final = "not measured: run `python -m tests.bench.before`"
# Exists once all is complete, for the Python that runs the other servers.
_COMPLETE: Final = _HOME / f"{COMMIT}-{platform.python_version()}"


def available() -> bool:
    """Return whether the commit and its environment are complete."""
    return _COMPLETE.exists()


def make() -> None:
    """Make worktree and environment.

    Raises OSError without Git, CalledProcessError without the commit or the packages.
    """
    shutil.rmtree(_HOME, ignore_errors=True)
    # --force: a worktree that was only deleted is still registered.
    worktree = ["git", "worktree", "add", "--quiet", "--force", "--detach", str(SOURCE), COMMIT]
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        worktree,
        [sys.executable, "-m", "venv", str(_HOME)],
        [*install, "--requirement", str(SOURCE / "requirements.lock")],
        [*install, "hypothesis"],  # its benchmark imports its tests' examples
    ):
        subprocess.run(command, check=True, cwd=ROOT)
    _COMPLETE.touch()


def main() -> None:
    """Make what is missing; only say why that fails, because the other rows need none of it."""
    try:
        if not available():
            make()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"the server before is left out: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
