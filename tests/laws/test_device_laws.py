"""The work of a decision depends on the kinds of devices in a cluster, not on how many nodes have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rules.compatibility import node_evaluation
from rules.nodes.devices import devices, selectors
from rules.nodes.inventory_document import inventory_of
from rules.nodes.label_index import LabelIndex
from tests.support.builders import pod
from tests.support.dra_clusters import (
    A100_NAME,
    DRIVER,
    H100_NAME,
    T4_NAME,
    bare_node,
    claim_template,
    device_class,
    gpus_of,
)
from tests.support.node_builders import gpu_pod, judged, shipped

KINDS = ((T4_NAME, "12.2"), (A100_NAME, "12.4"), (H100_NAME, "13.0"))
FITS = f'device.attributes["{DRIVER}"].cudaDriverVersion.compareTo(semver("12.4.0")) >= 0'
IMAGE = "team/app:cuda12.4"
MAIN = {"name": "main", "image": IMAGE, "resources": {"claims": [{"name": "gpu"}]}}
CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
PODS = {
    "resource": gpu_pod(IMAGE),
    "claim": pod(MAIN, resourceClaims=CLAIMS),
    "denied": gpu_pod("a:cuda13.1"),
}


def cluster(size: int) -> list[dict[str, Any]]:
    """Return so many nodes with eight GPUs each, and a label that names each of them."""
    objects = [device_class(), claim_template("gpu", FITS)]
    for number in range(size):
        name = f"node-{number}"
        labels = {"instance-id": f"i-{number}", "pool": f"pool-{number % len(KINDS)}"}
        objects += [bare_node(name, **labels), gpus_of(name, *KINDS[number % len(KINDS)])]
    return objects


class Counted:
    """Counts calls of functions, and what iterators of a function yield."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: Counter[str] = Counter()
        self._monkeypatch = monkeypatch
        self._wrap(selectors.Selector, "_evaluate", self._calls)
        self._wrap(node_evaluation, "check_on_node", self._calls)  # of nodes and of claims
        self._wrap(LabelIndex, "values", self._items)

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Callable[..., Any]]) -> None:
        self._monkeypatch.setattr(owner, name, wrapper(f"{owner.__name__}.{name}", getattr(owner, name)))

    def _calls(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.numbers[name] += 1
            return function(*arguments)

        return call

    def _items(self, name: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def call(*arguments: Any) -> Iterator[Any]:
            for element in function(*arguments):
                self.numbers[name] += 1
                yield element

        return call


@pytest.mark.parametrize("case", PODS)
def test_a_decision_makes_no_more_evaluations_for_many_nodes_than_for_few(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the inventory; each node has a label of its own."""
    counted = Counted(monkeypatch)
    numbers, decisions = [], []
    for size in (99, 396):
        selectors._compiled.cache_clear()
        devices._facts.cache_clear()
        counted.numbers.clear()
        inventory = inventory_of(cluster(size))
        numbers.append(counted.numbers.copy())
        decisions.append(judged(shipped(), inventory, PODS[case]))
        numbers.append(counted.numbers.copy())

    assert (decisions[0].allowed, decisions[0].patch) == (decisions[1].allowed, decisions[1].patch)
    assert numbers[2] <= numbers[0]
    assert numbers[3] <= numbers[1]
    assert numbers[1].total() > 0
