"""The cost of a change of one node in a large cluster or of one rule, and the memory of the nodes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any, Final

import msgspec

from rules.model.rule import RuleSet
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.nodes.node_selector import candidates
from rules.schema.config_map import Loaded
from rules.schema.loader import load_rules
from tests.bench.cases import OWN_AFFINITY, additional_rule, builtin, cluster, node_of, with_additional
from tests.bench.figures import Effort, Section, Table, Target, measure
from tests.support.node_builders import GPU
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.inventory_sync import Node

TITLE: Final = "Changes of nodes and rules"
_CHANGE_US: Final = 1_000.0
_NODE_KB: Final = 6.0
_EVENT: Final = "decoding its event"


def run(effort: Effort) -> Section:
    """Return the cost of a node event, of a rule edit, and of the memory of nodes."""
    nodes = effort.nodes[-1]
    events, slowest = _events(nodes, effort)
    counted = effort.nodes[1]
    kilobytes = _memory_kb(counted)
    rows = ((f"{counted:,} nodes", f"{kilobytes / counted:.2f}", f"{kilobytes / 1e3:.1f}"),)
    targets = (
        Target(
            f"a change of one node of {nodes:,}: less than 1 ms", f"{slowest:,.0f} µs", slowest < _CHANGE_US
        ),
        Target(
            "a node in memory: less than 6 KB",
            f"{kilobytes / counted:.2f} KB",
            kilobytes / counted < _NODE_KB,
        ),
    )
    memory = Table("Memory of an inventory", ("", "KB a node", "MB"), rows)
    return Section((events, _queries(effort), _edits(effort), memory), targets)


def _events(nodes: int, effort: Effort) -> tuple[Table, float]:
    """Return the cost of a node event until the new inventory is used, and the slowest in microseconds."""
    inventory = cluster(nodes)
    handler = AdmissionHandler(builtin(), inventory=inventory)
    same, fresh = node_of(5), node_of(nodes)
    moved = node_of(5)
    moved["metadata"]["labels"]["nvidia.com/cuda.runtime-version.minor"] = "8"
    versioned = same["metadata"] | {"resourceVersion": "1"}
    line = msgspec.json.encode({"type": "MODIFIED", "object": same | {"metadata": versioned}})
    changes: dict[str, Callable[[], Inventory]] = {
        "a heartbeat, no relevant change": partial(inventory.with_node, same),
        "a label changes": partial(inventory.with_node, moved),
        "a node joins": partial(inventory.with_node, fresh),
        "a node leaves": partial(inventory.without_node, same["metadata"]["name"]),
    }
    cases: dict[str, Callable[[], object]] = {
        name: partial(_set_inventory, handler, change) for name, change in changes.items()
    }
    cases[_EVENT] = partial(msgspec.json.Decoder(dict[str, Node | str]).decode, line)
    samples = measure(cases, effort)
    rows = tuple((name, str(samples.of(name)), str(samples.ratio(name, _EVENT))) for name in cases)
    table = Table(f"One node event at {nodes:,} nodes, until in effect", ("", "µs", f"÷ {_EVENT}"), rows)
    return table, max(samples.median(name) for name in changes)


def _set_inventory(handler: AdmissionHandler, change: Callable[[], Inventory]) -> None:
    handler.set_inventory(change())


def _queries(effort: Effort) -> Table:
    """Return the cost of finding the candidate nodes of a pod, by the number of nodes."""

    def found(inventory: Inventory) -> int:
        return candidates(inventory, OWN_AFFINITY) & inventory.nodes_offering(GPU)

    cases: dict[str, Callable[[], object]] = {
        f"{size:,} nodes": partial(found, cluster(size)) for size in effort.nodes
    }
    samples = measure(cases, effort)
    smallest = next(iter(cases))
    rows = tuple((name, str(samples.of(name)), str(samples.ratio(name, smallest))) for name in cases)
    title = "Candidates by a nodeSelector, two affinity terms and a resource; not cached"
    return Table(title, ("", "µs", f"÷ {smallest}"), rows)


def _edits(effort: Effort) -> Table:
    """Return the cost of an edited rule: load it, and compile all rules again."""
    defaults = cycle(["1", "2"])
    number = 0

    def edited() -> Loaded:
        return load_rules([("edited.yaml", additional_rule(number, next(defaults)))])

    cases: dict[str, Callable[[], object]] = {"loading the edited rule": edited}
    handler = AdmissionHandler(builtin())
    for additional in (0, 100, 1_000):
        others: tuple[Any, ...] = tuple(with_additional(additional))

        def edit(others: tuple[Any, ...] = others) -> None:
            handler.set_rules(Loaded(RuleSet.of([*others, *edited().rules])))

        cases[f"in effect with {len(others):,} other rules"] = edit
    samples = measure(cases, effort)
    baseline = next(iter(cases))
    rows = tuple((name, str(samples.of(name)), str(samples.ratio(name, baseline))) for name in cases)
    note = "No request waits: the old rules decide until the new ones replace them."
    return Table("An edit of one rule", ("", "µs", f"÷ {baseline}"), rows, note)


def _memory_kb(nodes: int) -> float:
    """Return the kilobytes of an inventory, as counted by Python's allocator."""
    gc.collect()
    tracemalloc.start()
    inventory = inventory_of([node_of(number) for number in range(nodes)])
    gc.collect()
    kilobytes = tracemalloc.get_traced_memory()[0] / 1e3
    tracemalloc.stop()
    assert nodes == len(inventory)
    return kilobytes
