"""Metrics of the GPU nodes of an inventory."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from rules.nodes.label_families import LabelNames
from tests.support.node_builders import T4, gfd, inventory, node
from webhook.telemetry.metrics import exposition

DRIVER = "nvidia.com/cuda.driver-version.full"


def _exposed(name: str, *nodes: dict[str, object]) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by the values of its labels, in the order of their names."""
    text = exposition(inventory([*nodes]), [LabelNames()]).decode()
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        if family.name == name
        for sample in family.samples
    }


def test_gpu_nodes_are_exposed_by_driver_branch_cuda_and_gpu() -> None:
    """Of this inventory, whatever was exposed before."""
    nodes = node("a", gfd("12.2", T4)), node("b", gfd("12.2", T4)), node("c", gfd("12.8", T4)), node("cpu")

    for given, expected in (
        (nodes, {("12.2", "535", "T4"): 2, ("12.8", "570", "T4"): 1}),
        (nodes[:1], {("12.2", "535", "T4"): 1}),
    ):
        assert expected == _exposed("gpugate_gpu_nodes", *given)


def test_the_end_of_support_is_that_of_the_last_month() -> None:
    """Only of the drivers of nodes, if it is announced."""
    nodes = node("a", gfd("12.2")), node("b", {DRIVER: "700.10"})

    end = datetime(2026, 7, 1, tzinfo=UTC).timestamp()
    assert {("535",): end} == _exposed("gpugate_driver_support_end_timestamp_seconds", *nodes)


def test_labels_of_nodes_make_at_most_a_hundred_series() -> None:
    """The rare ones are counted together."""
    common = [node(f"common-{at}", {DRIVER: "570.10"}) for at in range(2)]
    rare = [node(f"rare-{branch}", {DRIVER: f"{branch}.10"}) for branch in range(1000, 1200)]

    exposed = _exposed("gpugate_gpu_nodes", *common, *rare)

    assert (100, 202) == (len(exposed), sum(exposed.values()))
    assert (2, 102) == (exposed["12.8", "570", "unknown"], exposed["other", "other", "other"])
