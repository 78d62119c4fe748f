"""Profiles of decisions: the share of time of each function."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path
from typing import Final

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import compile_policy
from tests.bench.cases import BY_NODES, BY_RULES, ROOT, builtin, cluster, request_of
from tests.bench.figures import Effort, Section, Table

TITLE: Final = "Profiles of decisions"
_CASES: Final = ("no accelerator", "resource rules", "affinity injected, pod has affinity")
_SHOWN: Final = 10
# A profile takes so many times the seconds of a round, because the profiler makes each call slower.
_TIMES: Final = 20


def run(effort: Effort) -> Section:
    """Return the slowest functions of some decisions."""
    return Section(tuple(_profile(name, effort) for name in _CASES))


def _profile(name: str, effort: Effort) -> Table:
    nodes = effort.nodes[-1]
    snapshot = Snapshot(compile_policy(builtin().rules), cluster(nodes))
    request = request_of((BY_RULES | BY_NODES)[name])
    decide(snapshot, request, 0.0)
    profiler = cProfile.Profile()
    calls = max(10, round(effort.seconds * _TIMES * 1e4))
    with profiler:
        for _ in range(calls):
            decide(snapshot, request, 0.0)
    stats = pstats.Stats(profiler)
    whole: float = stats.total_tt  # type: ignore[attr-defined]
    functions = stats.stats.items()  # type: ignore[attr-defined]
    slowest = sorted(functions, key=lambda function: -function[1][2])[:_SHOWN]
    rows = tuple(
        (_place(*where), f"{own / whole:.0%}", f"{within / whole:.0%}", f"{count / calls:.0f}")
        for where, (_, count, own, within, _) in slowest
    )
    columns = ("function", "its own time", "with its callees", "calls")
    note = "A profiler overstates the cost of many small calls."
    return Table(f"{name}, {nodes:,} nodes", columns, rows, note)


def _place(file: str, line: int, function: str) -> str:
    """Return the place of a function, for tables; built-in functions have no file."""
    path = Path(file)
    within = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
    return f"`{within}:{line} {function}`" if line else f"`{function}`"
