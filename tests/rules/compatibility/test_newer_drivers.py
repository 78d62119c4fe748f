"""Drivers that no label gives a CUDA version, and drivers that are newer than all known ones."""

from __future__ import annotations

import pytest

from rules.compatibility.checks import check_on_node
from rules.model.check_result import Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.requirement_builders import needing

PHYSICAL = SharingPolicy()
NEWER = "driver branch 700 is unknown: at least CUDA 13.5, by 620"
NO_LABEL = "no label provides the driver's CUDA version"


def reasons(cuda: str, node: NodeCapabilities) -> list[str]:
    """Return why a container of a CUDA version may not run on a node."""
    return [result.reason.en for result in check_on_node(PHYSICAL, needing(cuda=cuda), node)]


@pytest.mark.parametrize(
    ("driver", "cuda"), [("570.124.06", "12.8"), ("620.70.06", "13.5"), ("700.10", "13.5"), ("700", "12.0")]
)
def test_a_driver_without_a_label_of_its_cuda_runs_what_its_branch_runs(driver: str, cuda: str) -> None:
    """A branch above the newest known one runs what that one runs."""
    assert [] == reasons(cuda, NodeCapabilities(driver=driver))


@pytest.mark.parametrize(
    ("driver", "cuda", "reason"),
    [
        ("535.104.05", "13.0", NO_LABEL),
        ("620.70.06", "14.0", NO_LABEL),
        ("596.1", "12.0", NO_LABEL),
        ("700.10", "13.6", NEWER),
        ("700.10", "14.0", NEWER),
    ],
)
def test_what_a_driver_does_not_certainly_run_is_unknown_without_a_label(
    driver: str, cuda: str, reason: str
) -> None:
    """It is never denied as a fact."""
    results = check_on_node(PHYSICAL, needing(cuda=cuda), NodeCapabilities(driver=driver))

    assert [(Level.UNKNOWN, reason)] == [(result.level, result.reason.en) for result in results]


def test_an_older_minor_version_of_a_known_branch_runs_with_limits() -> None:
    """As if a label had it."""
    node, labelled = (
        NodeCapabilities(driver="570.124.06"),
        NodeCapabilities(driver="570.124.06", cuda=(12, 8)),
    )
    policy = SharingPolicy(minor_versions=Level.UNSTABLE)

    results, expected = (
        check_on_node(policy, needing(cuda="12.9"), capabilities) for capabilities in (node, labelled)
    )

    assert expected == results
    assert Level.UNSTABLE is level_of(results)


@pytest.mark.parametrize("cuda", ["13.6", "14.0"])
def test_a_newer_branch_with_the_newest_known_cuda_may_have_a_newer_one(cuda: str) -> None:
    """`gpugate whatif` writes that label."""
    assert [NEWER] == reasons(cuda, NodeCapabilities(driver="700.10", cuda=(13, 5)))


def test_the_label_of_a_known_branch_is_a_fact() -> None:
    """As is that of a newer branch with another version."""
    nodes = (NodeCapabilities(driver="620.70.06", cuda=(13, 5)), NodeCapabilities(driver="700", cuda=(14, 1)))
    levels = [level_of(check_on_node(PHYSICAL, needing(cuda="15.0"), node)) for node in nodes]

    assert [Level.INCOMPATIBLE, Level.INCOMPATIBLE] == levels


def test_the_lowest_cuda_of_a_way_of_sharing_is_unknown_of_a_newer_branch() -> None:
    """The newest known branch may be older than what it needs."""
    policy = SharingPolicy(min_cuda=needing(cuda="13.6").cuda.version)  # type: ignore[union-attr]
    results = check_on_node(policy, needing(cuda="12.0"), NodeCapabilities(driver="700", cuda=(13, 5)))

    assert {(Level.UNKNOWN, NEWER)} == {(result.level, result.reason.en) for result in results}


def test_a_newer_branch_is_not_said_to_have_an_older_minor_version() -> None:
    """It may have that of the container, so nothing is said of limits."""
    policy = SharingPolicy(minor_versions=Level.UNSTABLE)
    results = check_on_node(policy, needing(cuda="13.6"), NodeCapabilities(driver="700.10"))

    assert [(Level.UNKNOWN, NEWER)] == [(result.level, result.reason.en) for result in results]
