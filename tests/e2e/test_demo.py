"""`make demo` of a user who may run no real node; tests/e2e/node/test_demo.py has that of root."""

from __future__ import annotations

from tests.e2e.node.test_demo import printed_by
from tests.support.paths import ROOT
from tests.support.pictures import DEMO

# Runs it as a user who may run no real node.
_AS_USER = """
import sys
from tests.e2e import demo

demo.reason_to_skip = lambda: "needs root"
sys.exit(demo.main())
"""


def test_the_demo_shows_the_same_on_nodes_that_are_objects() -> None:
    """It says so; the pod that would run is bound to the same node."""
    first, _, rest = printed_by("-c", _AS_USER).partition("\n\n")

    assert first == "# Nodes are objects, and no pod starts on them: a real node needs root."
    assert rest.replace("train   Pending   gpu-1", "train   Running   gpu-1") == (ROOT / DEMO).read_text(
        "utf-8"
    )
