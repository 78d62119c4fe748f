"""The cost of a review over TLS: `gpugate serve`, compared with the same server and a constant answer.

Each server is a process, and the load goes to them alternately. CPU is that of the server; wall time includes
the clients, which run on the same machine.
"""

from __future__ import annotations

from contextlib import ExitStack
from time import sleep
from typing import Final

from tests.bench.cases import BY_NODES, BY_RULES, NEW_JOB, changed
from tests.bench.client import load, percentile
from tests.bench.figures import Effort, Samples, Section, Table, Target
from tests.bench.served import Served, constant, following, gpugate

TITLE: Final = "HTTP/1.1 over TLS"
CONNECTIONS: Final = (1, 8, 64)
_PACED: Final = 8
# Seconds. After a review that was not quick, such as the first of a kind, a server uses its thread pool for
# one second, which costs more CPU.
_SETTLING_S: Final = 1.2
_CONSTANT, _FLASK = "constant answer", "constant answer, through Flask"
_PLAIN, _MIX = "gpugate, no accelerator", "gpugate, mix"
_NEW: Final = "gpugate, mix of new jobs"
_KINDS: Final = (*BY_RULES.values(), *BY_NODES.values())
# More than the caches of a server hold.
_JOBS: Final = 4_500
# The mix is one of each kind.
_BODIES: Final = {
    _CONSTANT: [BY_RULES["no accelerator"]],
    _FLASK: [BY_RULES["no accelerator"]],
    _PLAIN: [BY_RULES["no accelerator"]],
    _MIX: _KINDS,
    _NEW: [changed(_KINDS[number % len(_KINDS)], number, NEW_JOB["new job"]) for number in range(_JOBS)],
}


def run(effort: Effort) -> Section:
    """Return requests per second and CPU by number of connections, and latency at half load."""
    with ExitStack() as stack:
        ours = stack.enter_context(gpugate(*stack.enter_context(following(effort.nodes[1]))))
        servers = {
            _CONSTANT: stack.enter_context(constant()),
            _FLASK: stack.enter_context(constant("flask")),
            _PLAIN: ours,
            _MIX: ours,
            _NEW: ours,
        }
        for name, server in servers.items():
            with load(server.webhook(), _BODIES[name], 1) as sender:
                sender.flood(len(_BODIES[name]))
        sleep(_SETTLING_S)
        rows: list[tuple[str, ...]] = []
        done: dict[int, Samples] = {}
        used: dict[int, Samples] = {}
        for connections in CONNECTIONS:
            rates, cpu = done[connections], used[connections] = _flooded(servers, connections, effort)
            rows += [
                (
                    f"{name}, connections: {connections}",
                    str(rates.of(name)),
                    str(rates.ratio(name, _CONSTANT)),
                    str(cpu.of(name)),
                    f"{1e6 / cpu.median(name):,.0f}",
                    str(cpu.ratio(name, _CONSTANT)),
                )
                for name in servers
            ]
        rate = done[_PACED].median(_MIX) / 2
        paced = _paced(servers, rate, effort)
    ratio = f"÷ {_CONSTANT}"
    columns = ("", "requests/s", ratio, "server CPU, µs", "requests/s of a core", f"CPU {ratio}")
    note = (
        "The pods of the mix repeat, as those of a controller do. Each new job has an image, a container "
        "name, labels and arguments that no pod before it had."
    )
    flooded = Table("Maximum rate", columns, tuple(rows), note)
    at_half = Table(
        f"At {rate:,.0f} requests/s, half of gpugate's maximum with the mix; {_PACED} connections",
        ("", "p50, ms", "p99, ms", f"p99 {ratio}"),
        tuple(
            (
                name,
                *(str(paced[percent].of(name)) for percent in (50, 99)),
                str(paced[99].ratio(name, _CONSTANT)),
            )
            for name in servers
        ),
        "Latency counts from when a request was due. Clients and servers share the machine.",
    )
    parts = {
        f"{name}: at least 0.6 of the {what} of {_CONSTANT}": part
        for name in (_PLAIN, _MIX)
        for what, part in (
            ("requests/s", done[_PACED].ratio(name, _CONSTANT)),
            ("requests/s of a core", used[_PACED].ratio(_CONSTANT, name)),
        )
    }
    tail = paced[99].of(_MIX)
    targets = (
        *(Target(promise, str(part), part.median >= 0.6) for promise, part in parts.items()),
        Target("p99 at half load: less than 5 ms", f"{tail} ms", tail.median < 5),
    )
    return Section((flooded, at_half), targets)


def _flooded(servers: dict[str, Served], connections: int, effort: Effort) -> tuple[Samples, Samples]:
    """Return requests per second and microseconds of server CPU of each request, of each server by rounds."""
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
    """Return p50 and p99 of the milliseconds of answers, of each server by rounds."""
    times: dict[int, dict[str, list[float]]] = {
        percent: {name: [] for name in servers} for percent in (50, 99)
    }
    with ExitStack() as stack:
        loads = {
            name: stack.enter_context(load(server.webhook(), _BODIES[name], _PACED))
            for name, server in servers.items()
        }
        for _ in range(effort.rounds):
            for name in servers:
                latencies = loads[name].paced(effort.requests, rate)
                for percent, samples in times.items():
                    samples[name].append(percentile(latencies, percent))
    return {percent: Samples(samples) for percent, samples in times.items()}
