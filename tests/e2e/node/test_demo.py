"""`make demo` on real nodes: what it prints is what the README shows."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

import pytest

from tests.e2e.node.real_cluster import reason_to_skip
from tests.support.paths import ROOT
from tests.support.pictures import DEMO

# Of the schedulers of Kubernetes 1.36 and 1.30, and what that of 1.37 says instead.
_OLD_WORDS: Final = {
    " no new claims to deallocate,": "",
    "2 No preemption victims found for incoming pod.": (
        "1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    ),
}


def printed_by(*program: str) -> str:
    """Return what the demo prints with the newest Kubernetes, with one name for all pods of a Deployment."""
    done = subprocess.run(
        [sys.executable, *program],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stdout
    printed = done.stdout
    for old, new in _OLD_WORDS.items():
        printed = printed.replace(old, new)
    return re.sub(r"pretrain-\w+-\w+", "pretrain-7c5f9d8b6-x2x5k", printed).strip() + "\n"


def test_the_demo_shows_a_denial_a_placement_and_a_cause(request: pytest.FixtureRequest) -> None:
    """On real nodes; `--update-golden` writes it again, and `make pictures` its picture."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    printed = printed_by("-m", "tests.e2e.demo")
    if request.config.getoption("--update-golden"):
        (ROOT / DEMO).write_text(printed, "utf-8")

    assert printed == (ROOT / DEMO).read_text("utf-8")
