"""What a review costs over TLS: `gpugate serve` beside the same server saying yes to everything.

Each is a process of its own and all are asked in turn. CPU is the server's alone; the wall belongs to the
clients as well, which share the machine.
"""

from __future__ import annotations

from contextlib import ExitStack
from time import sleep
from typing import Final

from tests.bench.cases import BY_NODES, BY_RULES, UNLIKE, changed
from tests.bench.client import load, percentile
from tests.bench.figures import Effort, Samples, Section, Table, Target
from tests.bench.served import Served, constant, following, gpugate

TITLE: Final = "HTTP/1.1 over TLS"
CONNECTIONS: Final = (1, 8, 64)
_PACED: Final = 8
# Seconds. After a review that took long, as the first of a kind may, a server is careful for one, and dearer.
_SETTLING_S: Final = 1.2
_YES, _FLASK = "saying yes", "saying yes, through Flask"
_PLAIN, _MIX = "the gate, no accelerator", "the gate, a mix"
_NEW: Final = "the gate, a mix, each of a job of its own"
_KINDS: Final = (*BY_RULES.values(), *BY_NODES.values())
# More than a gate remembers of them.
_JOBS: Final = 4_500
# The mix is one of each kind.
_BODIES: Final = {
    _YES: [BY_RULES["no accelerator"]],
    _FLASK: [BY_RULES["no accelerator"]],
    _PLAIN: [BY_RULES["no accelerator"]],
    _MIX: _KINDS,
    _NEW: [changed(_KINDS[number % len(_KINDS)], number, UNLIKE["all of these"]) for number in range(_JOBS)],
}


def run(effort: Effort) -> Section:
    """Return requests a second and CPU by connections, and latency at half load."""
    with ExitStack() as stack:
        gate = stack.enter_context(gpugate(*stack.enter_context(following(effort.nodes[1]))))
        servers = {
            _YES: stack.enter_context(constant()),
            _FLASK: stack.enter_context(constant("flask")),
            _PLAIN: gate,
            _MIX: gate,
            _NEW: gate,
        }
        for name, server in servers.items():
            with load(server.webhook(), _BODIES[name], 1) as first:
                first.flood(len(_BODIES[name]))
        sleep(_SETTLING_S)
        rows: list[tuple[str, ...]] = []
        did: dict[int, Samples] = {}
        used: dict[int, Samples] = {}
        for connections in CONNECTIONS:
            rates, cpu = did[connections], used[connections] = _flooded(servers, connections, effort)
            rows += [
                (
                    f"{name}, connections: {connections}",
                    str(rates.of(name)),
                    str(rates.ratio(name, _YES)),
                    str(cpu.of(name)),
                    f"{1e6 / cpu.median(name):,.0f}",
                    str(cpu.ratio(name, _YES)),
                )
                for name in servers
            ]
        rate = did[_PACED].median(_MIX) / 2
        paced = _paced(servers, rate, effort)
    columns = ("", "requests/s", "÷ saying yes", "server CPU, µs", "requests/s of a core", "CPU ÷ saying yes")
    note = (
        "The pods of a mix come again and again, as those of a controller do; where each is of a job of its "
        "own, it has an image, a container's name, labels and arguments that none before had."
    )
    flooded = Table("As many requests as go through", columns, tuple(rows), note)
    at_half = Table(
        f"At {rate:,.0f} requests/s, half of what the gate did of the mix; {_PACED} connections",
        ("", "p50, ms", "p99, ms", "p99 ÷ saying yes"),
        tuple(
            (
                name,
                *(str(paced[percent].of(name)) for percent in (50, 99)),
                str(paced[99].ratio(name, _YES)),
            )
            for name in servers
        ),
        "Counted from when a request was due. Clients and servers share the machine.",
    )
    parts = {
        f"{name}: 0.6 of the {what} that the server does saying yes": part
        for name in (_PLAIN, _MIX)
        for what, part in (
            ("requests/s", did[_PACED].ratio(name, _YES)),
            ("requests/s of a core", used[_PACED].ratio(_YES, name)),
        )
    }
    tail = paced[99].of(_MIX)
    targets = (
        *(Target(promise, str(part), part.median >= 0.6) for promise, part in parts.items()),
        Target("p99 under 5 ms at half load", f"{tail} ms", tail.median < 5),
    )
    return Section((flooded, at_half), targets)


def _flooded(servers: dict[str, Served], connections: int, effort: Effort) -> tuple[Samples, Samples]:
    """Return requests a second and microseconds of server CPU for each, of each server by rounds."""
    rates: dict[str, list[float]] = {name: [] for name in servers}
    cpu: dict[str, list[float]] = {name: [] for name in servers}
    count = max(1, effort.requests // connections) * connections
    with ExitStack() as stack:
        loads = {
            name: stack.enter_context(load(server.webhook(), _BODIES[name], connections))
            for name, server in servers.items()
        }
        for _ in range(effort.rounds):
            for name, server in servers.items():
                before = server.cpu_s()
                rates[name].append(loads[name].flood(count))
                cpu[name].append((server.cpu_s() - before) / count * 1e6)
    return Samples(rates), Samples(cpu)


def _paced(servers: dict[str, Served], rate: float, effort: Effort) -> dict[int, Samples]:
    """Return the milliseconds below which 50 and 99 of a hundred answers came, by rounds."""
    found: dict[int, dict[str, list[float]]] = {
        percent: {name: [] for name in servers} for percent in (50, 99)
    }
    with ExitStack() as stack:
        loads = {
            name: stack.enter_context(load(server.webhook(), _BODIES[name], _PACED))
            for name, server in servers.items()
        }
        for _ in range(effort.rounds):
            for name in servers:
                times = loads[name].paced(effort.requests, rate)
                for percent, samples in found.items():
                    samples[name].append(percentile(times, percent))
    return {percent: Samples(samples) for percent, samples in found.items()}
