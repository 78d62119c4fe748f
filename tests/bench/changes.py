"""What a change costs: of one node in a large cluster, of one rule; and what the nodes cost in memory."""

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
from rules.nodes.node_selector import candidates
from rules.schema.loader import Loaded, load_rules
from tests.bench.cases import OWN_AFFINITY, cluster, further_rule, node_of, shipped, with_further
from tests.bench.figures import Effort, Section, Table, Target, measure
from tests.support.node_builders import GPU
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.node_sync import Node

TITLE: Final = "Changes of nodes and rules"
_CHANGE_US: Final = 1_000.0
_NODE_KB: Final = 6.0
_EVENT: Final = "reading its event"


def run(effort: Effort) -> Section:
    """Return the cost of a node's event, of a rule's edit, and of keeping nodes."""
    nodes = effort.nodes[-1]
    events, dearest = _events(nodes, effort)
    counted = effort.nodes[1]
    kilobytes = _memory_kb(counted)
    rows = ((f"{counted:,} nodes", f"{kilobytes / counted:.2f}", f"{kilobytes / 1e3:.1f}"),)
    targets = (
        Target(
            f"one node's change at {nodes:,} nodes below 1 ms", f"{dearest:,.0f} µs", dearest < _CHANGE_US
        ),
        Target("a node is kept in 6 KB", f"{kilobytes / counted:.2f} KB", kilobytes / counted < _NODE_KB),
    )
    kept = Table("Memory that an inventory keeps", ("", "KB a node", "MB"), rows)
    return Section((events, _questions(effort), _edits(effort), kept), targets)


def _events(nodes: int, effort: Effort) -> tuple[Table, float]:
    """Return what the event of a node costs to take in, and the dearest in microseconds."""
    inventory = cluster(nodes)
    gate = AdmissionHandler(shipped(), inventory=inventory)
    same, fresh = node_of(5), node_of(nodes)
    moved = node_of(5)
    moved["metadata"]["labels"]["nvidia.com/cuda.runtime-version.minor"] = "8"
    versioned = same["metadata"] | {"resourceVersion": "1"}
    line = msgspec.json.encode({"type": "MODIFIED", "object": same | {"metadata": versioned}})
    changes: dict[str, Callable[[], Inventory]] = {
        "a heartbeat, nothing that counts": partial(inventory.with_node, same),
        "a label changes": partial(inventory.with_node, moved),
        "a node joins": partial(inventory.with_node, fresh),
        "a node leaves": partial(inventory.without_node, same["metadata"]["name"]),
    }
    cases: dict[str, Callable[[], object]] = {
        name: partial(_into_force, gate, change) for name, change in changes.items()
    }
    cases[_EVENT] = partial(msgspec.json.Decoder(dict[str, Node | str]).decode, line)
    samples = measure(cases, effort)
    rows = tuple((name, str(samples.of(name)), str(samples.ratio(name, _EVENT))) for name in cases)
    table = Table(f"The event of one node of {nodes:,}, into force", ("", "µs", f"÷ {_EVENT}"), rows)
    return table, max(samples.median(name) for name in changes)


def _into_force(gate: AdmissionHandler, change: Callable[[], Inventory]) -> None:
    gate.set_inventory(change())


def _questions(effort: Effort) -> Table:
    """Return what it costs to ask for the candidates of a pod, by the number of nodes."""

    def found(inventory: Inventory) -> int:
        return candidates(inventory, OWN_AFFINITY) & inventory.offering(GPU)

    cases: dict[str, Callable[[], object]] = {
        f"{size:,} nodes": partial(found, cluster(size)) for size in effort.nodes
    }
    samples = measure(cases, effort)
    smallest = next(iter(cases))
    rows = tuple((name, str(samples.of(name)), str(samples.ratio(name, smallest))) for name in cases)
    title = "Candidates by a nodeSelector, two affinity terms and a resource; nothing remembered"
    return Table(title, ("", "µs", f"÷ {smallest}"), rows)


def _edits(effort: Effort) -> Table:
    """Return what it costs to bring an edited rule into force: read it, and compile all rules anew."""
    defaults = cycle(["1", "2"])
    number = 0

    def edited() -> Loaded:
        return load_rules([("edited.yaml", further_rule(number, next(defaults)))])

    cases: dict[str, Callable[[], object]] = {"reading the edited rule": edited}
    gate = AdmissionHandler(shipped())
    for further in (0, 100, 1_000):
        standing: tuple[Any, ...] = tuple(with_further(further))

        def edit(standing: tuple[Any, ...] = standing) -> None:
            gate.set_rules(Loaded(RuleSet.of([*standing, *edited().rules])))

        cases[f"into force among {len(standing):,} rules"] = edit
    samples = measure(cases, effort)
    baseline = next(iter(cases))
    rows = tuple((name, str(samples.of(name)), str(samples.ratio(name, baseline))) for name in cases)
    note = "Requests are decided by the rules before until the new ones are swapped in; none waits."
    return Table("An edit of one rule", ("", "µs", f"÷ {baseline}"), rows, note)


def _memory_kb(nodes: int) -> float:
    """Return the kilobytes that an inventory keeps, as Python's allocator counts them."""
    gc.collect()
    tracemalloc.start()
    kept = Inventory.of([node_of(number) for number in range(nodes)])
    gc.collect()
    kilobytes = tracemalloc.get_traced_memory()[0] / 1e3
    tracemalloc.stop()
    assert nodes == len(kept)
    return kilobytes
