"""Where the time of a decision goes: by function, as parts of the whole."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path
from typing import Final

from rules.decision.pipeline import decide
from rules.decision.policy import compile_policy
from tests.bench.cases import BY_NODES, BY_RULES, ROOT, asked, cluster, shipped
from tests.bench.figures import Effort, Section, Table

TITLE: Final = "Where a decision's time goes"
_CASES: Final = ("no accelerator", "resource rules", "steered, with affinity of its own")
_SHOWN: Final = 10
# Seconds of CPU in a round, times so many, are profiled: the profiler makes each call some times dearer.
_TIMES: Final = 20


def run(effort: Effort) -> Section:
    """Return the dearest functions of some decisions."""
    return Section(tuple(_profile(name, effort) for name in _CASES))


def _profile(name: str, effort: Effort) -> Table:
    nodes = effort.nodes[-1]
    policy, inventory = compile_policy(shipped().rules), cluster(nodes)
    request = asked((BY_RULES | BY_NODES)[name])
    decide(policy, inventory, request, 0.0)
    profiler = cProfile.Profile()
    calls = max(10, round(effort.seconds * _TIMES * 1e4))
    with profiler:
        for _ in range(calls):
            decide(policy, inventory, request, 0.0)
    stats = pstats.Stats(profiler)
    whole: float = stats.total_tt  # type: ignore[attr-defined]
    found = stats.stats.items()  # type: ignore[attr-defined]
    dearest = sorted(found, key=lambda each: -each[1][2])[:_SHOWN]
    rows = tuple(
        (_place(*where), f"{own / whole:.0%}", f"{within / whole:.0%}", f"{count / calls:.0f}")
        for where, (_, count, own, within, _) in dearest
    )
    columns = ("function", "its own time", "with what it calls", "calls")
    note = "Of a profile, which makes many small calls look dearer than they are."
    return Table(f"{name}, {nodes:,} nodes", columns, rows, note)


def _place(file: str, line: int, function: str) -> str:
    """Return where a function is, for people; built-in ones have no file."""
    path = Path(file)
    within = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
    return f"`{within}:{line} {function}`" if line else f"`{function}`"
