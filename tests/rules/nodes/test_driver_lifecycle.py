"""Until when NVIDIA supports driver branches, as of a month."""

from __future__ import annotations

import pytest

from rules.cuda.tables import BUILT_IN
from rules.nodes.driver_lifecycle import driver_support, support_lines, support_of
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Language


@pytest.mark.parametrize(
    ("branch", "month", "state", "text"),
    [
        (535, "2026-11", "ended", "out of support since 2026-06"),
        (535, "2026-06", "ending", "support ends 2026-06"),
        (595, "2026-11", "ending", "support ends 2027-03"),
        (595, "2026-09", "ending", "support ends 2027-03"),
        (595, "2026-08", "supported", None),
        (580, "2026-11", "supported", None),
        (615, "2026-11", None, None),
    ],
)
def test_the_end_of_support_is_said_six_months_before_and_ever_after(
    branch: int, month: str, state: str | None, text: str | None
) -> None:
    """The end is the last month of support; a new feature branch may have none."""
    support = driver_support(BUILT_IN, branch, month)

    assert support is not None
    assert (state, text) == (support.state, support.text.en if support.text else None)


def test_the_support_of_a_node_is_that_of_its_driver_or_of_its_cuda() -> None:
    """A newer branch than all known ones has none, nor has a node without labels."""
    nodes = (
        NodeCapabilities(driver="535.104.05"),
        NodeCapabilities(cuda=(12, 2)),
        NodeCapabilities(driver="700.10"),
        NodeCapabilities(),
    )
    supports = [support_of(node, "2026-11") for node in nodes]

    assert [535, 535, None, None] == [support and support.branch for support in supports]


def test_each_branch_has_one_line_in_order_if_its_support_ends() -> None:
    """In both languages; a branch that is supported for long has none."""
    supports = [driver_support(BUILT_IN, branch, "2026-11") for branch in (595, 535, 580, 535, 700)]
    lines = support_lines(supports)

    assert [
        "driver branch 535: out of support since 2026-06",
        "driver branch 595: support ends 2027-03",
    ] == [line.en for line in lines]
    assert "驱动分支 535：已于 2026-06 终止支持" == lines[0].in_language(Language("zh"))
