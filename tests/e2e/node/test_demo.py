"""`make demo`: what it prints is what the README shows, on real nodes and on nodes that are objects."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.e2e.node.real_cluster import reason_to_skip
from tests.support.paths import ROOT
from tests.support.pictures import DEMO

# Runs it as a user who may run no real node.
_AS_USER = """
import sys
from tests.e2e import demo

demo.reason_to_skip = lambda: "needs root"
sys.exit(demo.main())
"""


def _printed(*program: str) -> str:
    """Return what the demo prints, without the random part of the names of pods."""
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
    return re.sub(r"pretrain-\w+-\w+", "pretrain-7c5f9d8b6-x2x5k", done.stdout).strip() + "\n"


def test_the_demo_shows_a_denial_a_placement_and_a_cause(request: pytest.FixtureRequest) -> None:
    """On real nodes; `--update-golden` writes it again, and `make pictures` its picture."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    printed = _printed("-m", "tests.e2e.demo")
    if request.config.getoption("--update-golden"):
        (ROOT / DEMO).write_text(printed, "utf-8")

    assert printed == (ROOT / DEMO).read_text("utf-8")


def test_the_demo_shows_the_same_on_nodes_that_are_objects() -> None:
    """It says so; the pod that would run is bound to the same node."""
    first, _, rest = _printed("-c", _AS_USER).partition("\n\n")

    assert first == "# Nodes are objects, and no pod starts on them: a real node needs root."
    assert rest.replace("train   Pending   gpu-1", "train   Running   gpu-1") == (ROOT / DEMO).read_text(
        "utf-8"
    )
