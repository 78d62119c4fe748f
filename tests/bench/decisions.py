"""The cost of a decision: CPU of one thread, compared with decoding the same review."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, cycle
from typing import Any, Final

import msgspec

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy, compile_policy
from rules.model.decision import AdmissionRequest
from rules.nodes.inventory import Inventory
from tests.bench.cases import (
    BY_DEVICES,
    BY_NODES,
    BY_RULES,
    DEVICES,
    NEW_JOB,
    OVER_ONE_CARD,
    OWN,
    Change,
    builtin,
    cluster,
    device_cluster,
    gpu_review,
    node_of,
    request_of,
    with_additional,
    with_exemptions,
)
from tests.bench.figures import Effort, Samples, Section, Table, Target, measure
from tests.support.builders import NO_NODES
from tests.support.node_builders import GPU
from webhook.admission.handler import AdmissionHandler
from webhook.admission.review import decode_review, encode_decision
from webhook.telemetry.logs import BackgroundHandler, JsonFormatter

TITLE: Final = "Decisions"
_COLUMNS: Final = ("µs", "÷ json.loads of the review", "÷ msgspec.json.decode of it")
# Microseconds that a decision may take: without accelerators; by the built-in rules, on the same pod again
# and on a pod with an own value; with nodes and affinity.
_MOST_US: Final = {"plain": 10.0, "again": 65.0, "own": 110.0, "affinity": 150.0}
# How many times as long a decision may take with 1,000 additional rules, and with the most nodes.
_GROWTH: Final = {"rules": 1.2, "nodes": 1.5}
# Numbers for changes of pods; all cases share them, because all share the caches of a policy.
_NUMBERS: Final = count()
_PLAIN: Final = "no accelerator"
_RULES_ONLY: Final = tuple(name for name in BY_RULES if name != _PLAIN)
_AFFINITY: Final = tuple(name for name in BY_NODES if name.startswith("affinity injected"))


def run(effort: Effort) -> Section:
    """Return the cost of decisions: by kind, nodes, additional rules, containers; and from bytes to bytes."""
    policy = compile_policy(builtin().rules)
    few, some, many = effort.nodes

    kinds = {name: (body, _decision(policy, NO_NODES, body)) for name, body in BY_RULES.items()}
    share = gpu_review(OVER_ONE_CARD)
    with_exemption = compile_policy(with_exemptions())
    assert decide(Snapshot(with_exemption, NO_NODES), request_of(share), 0.0).allowed
    kinds["exempted"] = (share, _decision(with_exemption, NO_NODES, share))
    by_kind, kind_table = _compare("With the built-in rules and no nodes", kinds, effort)

    by_node, node_table = _compare(
        "With compatibility and node affinity, by the number of nodes",
        {
            f"{name}, {size:,} nodes": (body, _decision(policy, cluster(size), body))
            for name, body in BY_NODES.items()
            for size in effort.nodes
        }
        | {
            f"affinity injected, first after a change of nodes, {size:,} nodes": (
                BY_NODES["affinity injected"],
                _decision_after_change(policy, cluster(size), many),
            )
            for size in effort.nodes
        },
        effort,
    )

    by_device, device_table = _compare(
        f"With GPUs by Dynamic Resource Allocation, {DEVICES} on each node",
        {
            f"{name}, {size:,} nodes": (body, _decision(policy, device_cluster(size), body))
            for name, body in BY_DEVICES.items()
            for size in (some, many)
        },
        effort,
    )

    changed = [(name, NO_NODES, BY_RULES[name]) for name in _RULES_ONLY]
    changed += [(f"{name}, {many:,} nodes", cluster(many), body) for name, body in BY_NODES.items()]
    by_change, change_table = _compare(
        "Pods of which each has a value that no pod before it had",
        {
            f"{name}: {how}": (body, _changed_decision(policy, inventory, body, change))
            for how, change in (OWN | NEW_JOB).items()
            for name, inventory, body in changed
            # A flag belongs to the server in one image; another image does not have it.
            if not (how == "own image" and "flag" in name)
        },
        effort,
        "A new job has its own image, container name, labels and arguments.",
    )

    policies = {number: compile_policy(with_additional(number)) for number in (0, 1, 100, 1_000)}
    by_rule, rule_table = _compare(
        "By additional resource rules, no nodes",
        {
            f"{name}, additional rules: {number:,}": (
                BY_RULES[name],
                _decision(policy, NO_NODES, BY_RULES[name]),
            )
            for name in (_PLAIN, "resource rules", "variables injected")
            for number, policy in policies.items()
        },
        effort,
    )

    _, container_table = _compare(
        f"By containers, {many:,} nodes",
        {
            f"{name}, containers: {number}": (body, _decision(policy, cluster(many), body))
            for name, limits in ((_PLAIN, {"cpu": "1"}), ("affinity injected", {GPU: "1"}))
            for number in (1, 10, 100)
            for body in [gpu_review(limits, containers=number)]
        },
        effort,
    )

    rules_growth = max(
        by_rule.ratio(f"{name}, additional rules: 1,000", f"{name}, additional rules: 0").median
        for name in (_PLAIN, "resource rules", "variables injected")
    )
    nodes_growth = max(
        by_node.ratio(f"{name}, {many:,} nodes", f"{name}, {few:,} nodes").median for name in BY_NODES
    )
    devices_growth = max(
        by_device.ratio(f"{name}, {many:,} nodes", f"{name}, {some:,} nodes").median for name in BY_DEVICES
    )
    targets = (
        _at_most("a pod without accelerators", by_kind, [_PLAIN], _MOST_US["plain"]),
        _at_most("built-in rules, the same pod again", by_kind, _RULES_ONLY, _MOST_US["again"]),
        *(
            _at_most(f"built-in rules, {how}", by_change, cases, _MOST_US["own"])
            for how in OWN
            for cases in [[f"{name}: {how}" for name in _RULES_ONLY]]
        ),
        _at_most(
            f"compatibility and affinity at {many:,} nodes",
            by_node,
            [f"{name}, {many:,} nodes" for name in _AFFINITY],
            _MOST_US["affinity"],
        ),
        _at_most(
            f"compatibility and affinity at {many:,} nodes, own container name",
            by_change,
            [f"{name}, {many:,} nodes: own container name" for name in _AFFINITY],
            _MOST_US["affinity"],
        ),
        Target(
            f"with 1,000 additional rules no case takes more than {_GROWTH['rules']} times as long",
            f"{rules_growth:.2f}",
            rules_growth <= _GROWTH["rules"],
        ),
        Target(
            f"with {many:,} nodes no case takes more than {_GROWTH['nodes']} times as long as with {few:,}",
            f"{nodes_growth:.2f}",
            nodes_growth <= _GROWTH["nodes"],
        ),
        Target(
            f"with {DEVICES * many:,} devices no case takes more than {_GROWTH['nodes']} times as long"
            f" as with {DEVICES * some:,}",
            f"{devices_growth:.2f}",
            devices_growth <= _GROWTH["nodes"],
        ),
    )
    tables = (
        kind_table,
        node_table,
        device_table,
        change_table,
        rule_table,
        container_table,
        _bytes_to_bytes(many, effort),
    )
    return Section(tables, targets)


def _decision(policy: Policy, inventory: Inventory, body: bytes) -> Callable[[], object]:
    return partial(decide, Snapshot(policy, inventory), request_of(body), 0.0)


def _changed_decision(
    policy: Policy, inventory: Inventory, body: bytes, change: Change
) -> Callable[[], object]:
    """Return the decision on a pod that changes before each call."""
    snapshot, request = Snapshot(policy, inventory), request_of(body)
    pod: Any = request.object

    def call() -> object:
        change(pod, next(_NUMBERS))
        return decide(snapshot, request, 0.0)

    return call


def _decision_after_change(policy: Policy, inventory: Inventory, fresh: int) -> Callable[[], object]:
    """Return the decision by alternately two inventories: the results for a node set are never cached."""
    request = request_of(BY_NODES["affinity injected"])
    inventories = cycle([inventory, inventory.with_node(node_of(fresh))])
    return lambda: decide(Snapshot(policy, next(inventories)), request, 0.0)


def _compare(
    title: str, cases: Mapping[str, tuple[bytes, Callable[[], object]]], effort: Effort, note: str = ""
) -> tuple[Samples, Table]:
    """Return the figures of cases and their table, each with its ratio to decoding its own review."""
    calls = {name: call for name, (_, call) in cases.items()}
    reviews = {body: f"review {number}" for number, (body, _) in enumerate(cases.values())}
    for body, review in reviews.items():
        calls[f"{review} json"] = partial(json.loads, body)
        calls[f"{review} msgspec"] = partial(msgspec.json.decode, body)
    samples = measure(calls, effort)
    rows = tuple(
        (
            name,
            str(samples.of(name)),
            *(str(samples.ratio(name, f"{reviews[body]} {decoder}")) for decoder in ("json", "msgspec")),
        )
        for name, (body, _) in cases.items()
    )
    return samples, Table(title, ("", *_COLUMNS), rows, note)


def _at_most(promise: str, samples: Samples, cases: Sequence[str], most_us: float) -> Target:
    """Return the target that the slowest of some cases takes at most so many microseconds."""
    slowest = max(cases, key=samples.median)
    measured = f"{samples.of(slowest)} µs" + (f", {slowest}" if len(cases) > 1 else "")
    return Target(f"{promise}: at most {most_us:.0f} µs", measured, samples.median(slowest) <= most_us)


def _bytes_to_bytes(nodes: int, effort: Effort) -> Table:
    """Return the cost of a review in the admission handler, and of its parts."""
    handler = AdmissionHandler(builtin(), inventory=cluster(nodes))
    bodies = BY_RULES | BY_NODES
    calls: dict[str, Callable[[], object]] = {}
    parts = ("decode", "decide", "encode", "handler", "json.loads")
    for name, body in bodies.items():
        request: AdmissionRequest = request_of(body)
        decision = decide(handler.snapshot, request, 0.0)
        steps: tuple[Callable[[], object], ...] = (
            partial(decode_review, body, mutating=True),
            partial(decide, handler.snapshot, request, 0.0),
            partial(encode_decision, "uid", decision),
            partial(handler.answer, "mutate", body),
            partial(json.loads, body),
        )
        calls |= {f"{name}: {part}": step for part, step in zip(parts, steps, strict=True)}
    with logging_to_devnull():
        samples = measure(calls, effort)
    rows = tuple(
        (
            name,
            *(str(samples.of(f"{name}: {part}")) for part in parts[:-1]),
            str(samples.ratio(f"{name}: handler", f"{name}: json.loads")),
        )
        for name in bodies
    )
    columns = ("", "decode, µs", "decide, µs", "encode, µs", "handler, bytes to bytes, µs", "÷ json.loads")
    note = "The handler also counts metrics and passes a log record to a thread that writes it to /dev/null."
    return Table(f"From bytes to bytes, {nodes:,} nodes", columns, rows, note)


@contextmanager
def logging_to_devnull() -> Iterator[None]:
    """Log decisions as `gpugate serve` does, to /dev/null."""
    logger = logging.getLogger("gpugate.admission")
    with open(os.devnull, "w", encoding="utf-8") as devnull:  # noqa: PTH123 - os.devnull is a name, not a path
        handler = BackgroundHandler(devnull)
        handler.setFormatter(JsonFormatter())
        level, propagate = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            handler.close()
            logger.setLevel(level)
            logger.propagate = propagate
