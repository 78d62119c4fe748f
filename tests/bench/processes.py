"""The process of `gpugate serve`: the time until it is ready, and its memory after many reviews."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter
from typing import Final

from tests.bench.cases import BY_NODES, BY_RULES, NEW_JOB, OWN, changed
from tests.bench.client import load
from tests.bench.figures import Effort, Samples, Section, Table, Target
from tests.bench.served import Served, following, gpugate

TITLE: Final = "Start and memory"
_IMPORTS, _READY, _READY_NODES = (
    "python, importing flask, httptools, cryptography",
    "gpugate serve, ready",
    "gpugate serve, ready with {nodes:,} nodes and the rules of a cluster",
)
_STARTS: Final = {
    "python, doing nothing": "pass",
    _IMPORTS: "import flask, httptools, cryptography.hazmat.primitives.asymmetric.ec",
}
# Starts take a second each.
_MOST_ROUNDS: Final = 3
_CONNECTIONS: Final = 8
# Number of parts of the requests; memory is measured after each.
_PARTS: Final = 10
# Requests that show growth: fewer still fill the bounded caches.
_LEAST_REQUESTS: Final = 300_000
_MOST_IDLE_MB: Final = 110.0
_MOST_MB: Final = 120.0
# Megabytes in 100,000 requests; a smaller growth is within the variation of the allocator.
_GROWTH_MB: Final = 1.0


def run(effort: Effort) -> Section:
    """Return the times of starts, and the memory during requests."""
    start_table = _starts(effort)
    idle, after, growth, memory_table = _memory(effort)
    targets = [
        Target(
            f"less than {_MOST_IDLE_MB:.0f} MB resident when idle, and {_MOST_MB:.0f} MB after the reviews, "
            "with the built-in rules and 1,000 nodes",
            f"{idle:.1f} and {after:.1f} MB",
            idle < _MOST_IDLE_MB and after < _MOST_MB,
        )
    ]
    enough = effort.soak >= _LEAST_REQUESTS
    promise = (
        f"no growth over a million reviews: less than {_GROWTH_MB:.0f} MB in 100,000, in the second half"
    )
    measured = (
        f"{growth:+.2f} MB, {effort.soak:,} reviews"
        if enough
        else "not measured: run `processes --requests 1000000`"
    )
    targets.append(Target(promise, measured, growth < _GROWTH_MB if enough else None))
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
                with gpugate(*options) as server:
                    wall[name].append(server.start_s)
                    cpu[name].append(server.start_cpu_s)
    walls, cpus = Samples(wall), Samples(cpu)
    rows = tuple(
        (name, str(walls.of(name)), str(cpus.of(name)), str(cpus.ratio(name, _IMPORTS))) for name in names
    )
    return Table("From start to ready", ("", "wall, s", "CPU, s", "CPU ÷ imports"), rows)


def _children_s() -> float:
    """Return the seconds of CPU of child processes that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory(effort: Effort) -> tuple[float, float, float, Table]:
    """Return megabytes idle and after the requests, the growth in 100,000, and the table of all samples."""
    nodes = effort.nodes[1]
    part = max(_CONNECTIONS, effort.soak // _PARTS)
    with ExitStack() as stack:
        server = stack.enter_context(gpugate(*stack.enter_context(following(nodes))))
        idle = server.resident_mb()
        samples = [(part * (number + 1), _after(server, number, part)) for number in range(_PARTS)]
    (half, before), (last, after) = samples[_PARTS // 2 - 1], samples[-1]
    growth = (after - before) / (last - half) * 1e5
    rows = (
        ("idle", f"{idle:.1f}"),
        *((f"after {count:,}", f"{megabytes:.1f}") for count, megabytes in samples),
    )
    note = (
        f"Reviews of all kinds in turn on {_CONNECTIONS} connections; every fourth one is different from all "
        "reviews before it. Each part uses new connections."
    )
    return idle, after, growth, Table(f"Resident memory, {nodes:,} nodes", ("reviews", "MB"), rows, note)


def _after(server: Served, part: int, count: int) -> float:
    """Return the megabytes of a server after so many more requests."""
    bodies = [*BY_RULES.values(), *BY_NODES.values()]
    changes = [*NEW_JOB.values(), OWN["own quantity"]]
    fresh = [changed(bodies[-4], part * count + number, *changes) for number in range(count // 4)]
    mixed = [review for number, body in enumerate(fresh) for review in (body, *_three(bodies, number))]
    with load(server.webhook(), mixed or bodies, _CONNECTIONS) as sender:
        sender.flood(count)
    return server.resident_mb()


def _three(bodies: list[bytes], number: int) -> list[bytes]:
    return [bodies[(3 * number + offset) % len(bodies)] for offset in range(3)]
