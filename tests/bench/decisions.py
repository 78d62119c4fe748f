"""What a decision costs: CPU of one thread, beside decoding the same review."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count, cycle
from typing import Any, Final

import msgspec

from rules.decision.pipeline import decide
from rules.decision.policy import Policy, compile_policy
from rules.model.request import AdmissionRequest
from rules.nodes.inventory import Inventory
from tests.bench.cases import (
    ALIKE,
    BY_NODES,
    BY_RULES,
    SHARE_OVER_CARD,
    UNLIKE,
    Change,
    asked,
    cluster,
    gpu_review,
    node_of,
    shipped,
    with_exemptions,
    with_further,
)
from tests.bench.figures import Effort, Samples, Section, Table, Target, measure
from tests.support.builders import NO_NODES
from tests.support.node_builders import GPU
from webhook.admission.handler import AdmissionHandler
from webhook.admission.review import decode_review, encode_decision
from webhook.telemetry.logs import BackgroundHandler, JsonFormatter

TITLE: Final = "Decisions"
_COLUMNS: Final = ("µs", "÷ json.loads of the review", "÷ msgspec.json.decode of it")
# How much the dearest may cost more than the cheapest, over a thousand rules, and over ten thousand nodes.
_GROWTH: Final = {"rules": 1.2, "nodes": 1.5}
# Of what no case has seen before; all cases of a policy remember together.
_NUMBERS: Final = count()


def run(effort: Effort) -> Section:
    """Return the cost of decisions: by kind, nodes, further rules, containers; and from bytes to bytes."""
    shipped_policy = compile_policy(shipped().rules)
    few, _, many = effort.nodes

    kinds = {name: (body, _deciding(shipped_policy, NO_NODES, body)) for name, body in BY_RULES.items()}
    share = gpu_review(SHARE_OVER_CARD)
    exempting = compile_policy(with_exemptions())
    assert decide(exempting, NO_NODES, asked(share), 0.0).allowed
    kinds["exempted"] = (share, _deciding(exempting, NO_NODES, share))
    by_kind, kind_table = _measured("With the shipped rules and no nodes", kinds, effort)

    by_node, node_table = _measured(
        "With compatibility and node affinity, by the number of nodes",
        {
            f"{name}, {size:,} nodes": (body, _deciding(shipped_policy, cluster(size), body))
            for name, body in BY_NODES.items()
            for size in effort.nodes
        }
        | {
            f"steered, the first after a change of nodes, {size:,} nodes": (
                BY_NODES["steered"],
                _changing(shipped_policy, cluster(size), many),
            )
            for size in effort.nodes
        },
        effort,
    )

    differing = [(name, NO_NODES, body) for name, body in BY_RULES.items() if name != "no accelerator"]
    differing += [(f"{name}, {many:,} nodes", cluster(many), body) for name, body in BY_NODES.items()]
    by_change, change_table = _measured(
        "Pods of which each differs from all before",
        {
            f"{name}: {how}": (body, _differing(shipped_policy, inventory, body, change))
            for how, change in (ALIKE | UNLIKE).items()
            for name, inventory, body in differing
            # A flag is for one server and not for another, so that its image counts.
            if not (change is ALIKE["an image of its own"] and "flag" in name)
        },
        effort,
    )

    policies = {number: compile_policy(with_further(number)) for number in (0, 1, 100, 1_000)}
    by_rule, rule_table = _measured(
        "By further resource rules, no nodes",
        {
            f"{name}, further rules: {number:,}": (
                BY_RULES[name],
                _deciding(policy, NO_NODES, BY_RULES[name]),
            )
            for name in ("no accelerator", "resource rules", "variables injected")
            for number, policy in policies.items()
        },
        effort,
    )

    _, container_table = _measured(
        f"By containers, {many:,} nodes",
        {
            f"{name}, containers: {number}": (body, _deciding(shipped_policy, cluster(many), body))
            for name, limits in (("no accelerator", {"cpu": "1"}), ("steered", {GPU: "1"}))
            for number in (1, 10, 100)
            for body in [gpu_review(limits, containers=number)]
        },
        effort,
    )

    rules_only = ("resource rules", "a default put in", "variables injected", "refused")
    dearest = max(rules_only, key=by_kind.median)
    steered = "steered, with affinity of its own"
    rules_growth = max(
        by_rule.ratio(f"{name}, further rules: 1,000", f"{name}, further rules: 0").median
        for name in ("no accelerator", "resource rules", "variables injected")
    )
    nodes_growth = max(
        by_node.ratio(f"{name}, {many:,} nodes", f"{name}, {few:,} nodes").median for name in BY_NODES
    )
    targets = (
        _at_most("a pod without accelerator is decided in 10 µs", by_kind, "no accelerator", 10),
        _at_most(
            f"a pod like one before is decided by the shipped rules in 60 µs (the dearest: {dearest})",
            by_kind,
            dearest,
            60,
        ),
        *(
            _at_most(
                f"one with {how} likewise in 60 µs (the dearest: {name})", by_change, f"{name}: {how}", 60
            )
            for how in ALIKE
            for name in [
                max(BY_RULES.keys() - {"no accelerator"}, key=lambda name: by_change.median(f"{name}: {how}"))
            ]
        ),
        _at_most(
            "with compatibility and affinity at 10,000 nodes in 150 µs",
            by_node,
            f"{steered}, {many:,} nodes",
            150,
        ),
        Target(
            f"a thousand further rules make none dearer than {_GROWTH['rules']} times",
            f"{rules_growth:.2f}",
            rules_growth <= _GROWTH["rules"],
        ),
        Target(
            f"{many:,} nodes make none dearer than {_GROWTH['nodes']} times that at {few:,}",
            f"{nodes_growth:.2f}",
            nodes_growth <= _GROWTH["nodes"],
        ),
    )
    tables = (
        kind_table,
        node_table,
        change_table,
        rule_table,
        container_table,
        _bytes_to_bytes(many, effort),
    )
    return Section(tables, targets)


def _deciding(policy: Policy, inventory: Inventory, body: bytes) -> Callable[[], object]:
    return partial(decide, policy, inventory, asked(body), 0.0)


def _differing(policy: Policy, inventory: Inventory, body: bytes, change: Change) -> Callable[[], object]:
    """Return the decision on a pod that is changed each time."""
    request = asked(body)
    pod: Any = request.object

    def call() -> object:
        change(pod, next(_NUMBERS))
        return decide(policy, inventory, request, 0.0)

    return call


def _changing(policy: Policy, inventory: Inventory, fresh: int) -> Callable[[], object]:
    """Return a decision by nodes with and without one more by turns: nothing is remembered of them."""
    request = asked(BY_NODES["steered"])
    turns = cycle([inventory, inventory.with_node(node_of(fresh))])
    return lambda: decide(policy, next(turns), request, 0.0)


def _measured(
    title: str, cases: Mapping[str, tuple[bytes, Callable[[], object]]], effort: Effort
) -> tuple[Samples, Table]:
    """Return the figures of cases and their table, each beside decoding its own review."""
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
    return samples, Table(title, ("", *_COLUMNS), rows)


def _at_most(promise: str, samples: Samples, case: str, most: float) -> Target:
    return Target(promise, f"{samples.of(case)} µs", samples.median(case) <= most)


def _bytes_to_bytes(nodes: int, effort: Effort) -> Table:
    """Return what a review costs in the gate, and its parts."""
    gate = AdmissionHandler(shipped(), inventory=cluster(nodes))
    bodies = BY_RULES | BY_NODES
    policy = gate.snapshot.policy
    calls: dict[str, Callable[[], object]] = {}
    parts = ("decode", "decide", "encode", "the gate", "json.loads")
    for name, body in bodies.items():
        request: AdmissionRequest = asked(body)
        decision = decide(policy, cluster(nodes), request, 0.0)
        ways: tuple[Callable[[], object], ...] = (
            partial(decode_review, body, mutating=True),
            partial(decide, policy, cluster(nodes), request, 0.0),
            partial(encode_decision, "uid", decision),
            partial(gate.answer, "mutate", body),
            partial(json.loads, body),
        )
        calls |= {f"{name}: {part}": way for part, way in zip(parts, ways, strict=True)}
    with logging_to_nowhere():
        samples = measure(calls, effort)
    rows = tuple(
        (
            name,
            *(str(samples.of(f"{name}: {part}")) for part in parts[:-1]),
            str(samples.ratio(f"{name}: the gate", f"{name}: json.loads")),
        )
        for name in bodies
    )
    columns = ("", "decode, µs", "decide, µs", "encode, µs", "the gate, bytes to bytes, µs", "÷ json.loads")
    note = "The gate also counts its metrics and hands a log record to the thread that writes it, to nowhere."
    return Table(f"From bytes to bytes, {nodes:,} nodes", columns, rows, note)


@contextmanager
def logging_to_nowhere() -> Iterator[None]:
    """Log decisions as a served gate does, to nowhere."""
    logger = logging.getLogger("gpugate.admission")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - os.devnull is a name, not a path
        handler = BackgroundHandler(nowhere)
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
