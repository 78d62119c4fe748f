"""What a served gate is as a process: how soon it is ready, and the memory it has after many reviews."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter
from typing import Final

from tests.bench.cases import BY_NODES, BY_RULES, UNLIKE, changed
from tests.bench.client import load
from tests.bench.figures import Effort, Samples, Section, Table, Target
from tests.bench.served import Served, following, gpugate

TITLE: Final = "Start and memory"
_IMPORTS, _READY, _READY_NODES = (
    "python, importing flask, uvicorn, cryptography",
    "gpugate serve, ready",
    "gpugate serve, ready following {nodes:,} nodes and their rules",
)
_STARTS: Final = {
    "python, doing nothing": "pass",
    _IMPORTS: "import flask, uvicorn, cryptography.hazmat.primitives.asymmetric.ec",
}
# Starts take a second each.
_MOST_ROUNDS: Final = 3
_CONNECTIONS: Final = 8
# In how many parts the requests come; memory is looked at after each.
_PARTS: Final = 10
# Fewer tell nothing of growth: what remembers is bounded, and fills up.
_TELLING: Final = 300_000
_MOST_MB: Final = 120.0
# Less is what the allocator moves by itself.
_GROWTH_MB: Final = 1.0


def run(effort: Effort) -> Section:
    """Return the times of starts, and the memory while requests come."""
    start_table = _starts(effort)
    idle, after, growth, memory_table = _memory(effort)
    targets = [
        Target(
            "resident memory below 120 MB with the shipped rules and 1,000 nodes, idle and after the reviews",
            f"{idle:.1f} and {after:.1f} MB",
            max(idle, after) < _MOST_MB,
        )
    ]
    told = effort.soak >= _TELLING
    promise = (
        f"no growth over a million reviews: less than {_GROWTH_MB:.0f} MB in 100,000, in the second half"
    )
    how = f"{growth:+.2f} MB, {effort.soak:,} reviews" if told else "`processes --requests 1000000` tells"
    targets.append(Target(promise, how, growth < _GROWTH_MB if told else None))
    return Section((start_table, memory_table), tuple(targets))


def _starts(effort: Effort) -> Table:
    """Return the seconds from start to readiness."""
    nodes = effort.nodes[1]
    with_nodes = _READY_NODES.format(nodes=nodes)
    names = (*_STARTS, _READY, with_nodes)
    wall: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    with following(nodes) as option:
        for _ in range(min(effort.rounds, _MOST_ROUNDS)):
            for name, program in _STARTS.items():
                start, before = perf_counter(), _children_s()
                subprocess.run([sys.executable, "-c", program], check=True)
                wall[name].append(perf_counter() - start)
                cpu[name].append(_children_s() - before)
            for name, options in ((_READY, ()), (with_nodes, option)):
                with gpugate(*options) as gate:
                    wall[name].append(gate.start_s)
                    cpu[name].append(gate.start_cpu_s)
    walls, cpus = Samples(wall), Samples(cpu)
    rows = tuple(
        (name, str(walls.of(name)), str(cpus.of(name)), str(cpus.ratio(name, _IMPORTS))) for name in names
    )
    return Table("From start to ready", ("", "wall, s", "CPU, s", "CPU ÷ imports"), rows)


def _children_s() -> float:
    """Return the seconds of CPU of the processes that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory(effort: Effort) -> tuple[float, float, float, Table]:
    """Return megabytes idle, after the requests, the growth in 100,000, and the table of all looks."""
    nodes = effort.nodes[1]
    part = max(_CONNECTIONS, effort.soak // _PARTS)
    with ExitStack() as stack:
        gate = stack.enter_context(gpugate(*stack.enter_context(following(nodes))))
        idle = gate.resident_mb()
        looks = [(part * (each + 1), _after(gate, each, part)) for each in range(_PARTS)]
    (half, before), (last, after) = looks[_PARTS // 2 - 1], looks[-1]
    growth = (after - before) / (last - half) * 1e5
    rows = (
        ("idle", f"{idle:.1f}"),
        *((f"after {count:,}", f"{megabytes:.1f}") for count, megabytes in looks),
    )
    note = (
        f"Reviews of all kinds by turns over {_CONNECTIONS} connections, each fourth one unlike all before "
        "it; in each part the connections are new."
    )
    return idle, after, growth, Table(f"Resident memory, {nodes:,} nodes", ("reviews", "MB"), rows, note)


def _after(gate: Served, part: int, count: int) -> float:
    """Return the megabytes of a gate after so many further requests."""
    bodies = [*BY_RULES.values(), *BY_NODES.values()]
    fresh = [changed(bodies[-4], part * count + number, *UNLIKE.values()) for number in range(count // 4)]
    by_turns = [each for number, body in enumerate(fresh) for each in (body, *_three(bodies, number))]
    with load(gate.webhook(), by_turns or bodies, _CONNECTIONS) as sent:
        sent.flood(count)
    return gate.resident_mb()


def _three(bodies: list[bytes], number: int) -> list[bytes]:
    return [bodies[(3 * number + each) % len(bodies)] for each in range(3)]
