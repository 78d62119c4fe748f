"""The cost of a review over TLS: gpugate, its server with a constant answer, nginx, and the server before.

Each server is a process, and the load goes to them alternately. CPU is that of the server; wall time includes
the clients, which run on the same machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import sleep
from typing import Final

from tests.bench import before
from tests.bench.cases import BY_NODES, BY_RULES, NEW_JOB, changed
from tests.bench.client import load, percentile
from tests.bench.figures import Effort, Samples, Section, Table, Target
from tests.bench.served import Served, constant, following, gpugate, nginx, nginx_program

TITLE: Final = "HTTP/1.1 over TLS"
CONNECTIONS: Final = (1, 8, 64)
_PACED: Final = 8
# Seconds. After a review that was not quick, such as the first of a kind, a server uses its thread pool for
# one second, which costs more CPU.
_SETTLING_S: Final = 1.2
# Requests before each measurement, at least one on each connection: they fill the caches of the CPU again,
# after the servers before.
_WARMING: Final = 64
_NGINX, _CONSTANT = "nginx, constant answer", "constant answer"
_PLAIN, _MIX = "gpugate, no accelerator", "gpugate, mix"
_NEW: Final = "gpugate, mix of new jobs"
_OURS: Final = (_CONSTANT, _PLAIN, _MIX, _NEW)
_CONSTANT_BEFORE, _MIX_BEFORE = "before: constant answer", "before: gpugate, mix"
_KINDS: Final = (*BY_RULES.values(), *BY_NODES.values())
# More than the caches of a server hold.
_JOBS: Final = 4_500
# The mix is one of each kind.
_BODIES: Final = {
    _NGINX: _KINDS,
    _CONSTANT: _KINDS,
    _PLAIN: [BY_RULES["no accelerator"]],
    _MIX: _KINDS,
    _NEW: [changed(_KINDS[number % len(_KINDS)], number, NEW_JOB["new job"]) for number in range(_JOBS)],
    _CONSTANT_BEFORE: _KINDS,
    _MIX_BEFORE: _KINDS,
}
# What of the server before a case is compared with, and the largest part of its CPU.
_BEFORE: Final = {_CONSTANT: (_CONSTANT_BEFORE, 0.2), _MIX: (_MIX_BEFORE, 0.6)}
_GOALS: Final = {_MIX: " (goal: 0.5)"}
# Milliseconds.
_MOST_P99: Final = 3.0
_NOTE: Final = (
    "The pods of the mix repeat, as those of a controller do. Each new job has an image, a container name, "
    f"labels and arguments that no pod before it had. The server before: commit {before.COMMIT}, with "
    "uvicorn and h11, and its own decisions."
)
_COLUMNS: Final = (
    "", "requests/s", "server CPU, µs", "requests/s of a core", "CPU ÷ nginx", "CPU ÷ the server before",
)  # fmt: skip


def run(effort: Effort) -> Section:
    """Return requests per second and CPU by number of connections, and latency at half load."""
    with _servers(effort) as servers:
        for name, server in servers.items():
            with load(server.webhook(), _BODIES[name], 1) as sender:
                sender.flood(len(_BODIES[name]))
        sleep(_SETTLING_S)
        rows: list[tuple[str, ...]] = []
        done: dict[int, Samples] = {}
        used: dict[int, Samples] = {}
        for connections in CONNECTIONS:
            rates, cpu = done[connections], used[connections] = _flooded(servers, connections, effort)
            for name in servers:
                counterpart, _ = _BEFORE.get(name, (None, None))
                rows.append(
                    (
                        f"{name}, connections: {connections}",
                        str(rates.of(name)),
                        str(cpu.of(name)),
                        f"{1e6 / cpu.median(name):,.0f}",
                        str(cpu.ratio(name, _NGINX)) if _NGINX in servers else "",
                        str(cpu.ratio(name, counterpart)) if counterpart in servers else "",
                    )
                )
        rate = done[_PACED].median(_MIX) / 2
        # That rate may be more than the server before can answer.
        paced = _paced({name: server for name, server in servers.items() if name in _OURS}, rate, effort)
    flooded = Table("Maximum rate", _COLUMNS, tuple(rows), " ".join([_NOTE, *_absent()]))
    at_half = Table(
        f"At {rate:,.0f} requests/s, half of gpugate's maximum with the mix; {_PACED} connections",
        ("", "p50, ms", "p99, ms", f"p99 ÷ {_CONSTANT}"),
        tuple(
            (
                name,
                *(str(paced[percent].of(name)) for percent in (50, 99)),
                str(paced[99].ratio(name, _CONSTANT)),
            )
            for name in _OURS
        ),
        "Latency counts from when a request was due. Clients and servers share the machine.",
    )
    tail = paced[99].of(_MIX)
    latency = Target(f"p99 at half load: less than {_MOST_P99:.0f} ms", f"{tail} ms", tail.median < _MOST_P99)
    return Section((flooded, at_half), (*_targets(used[_PACED]), latency))


@contextmanager
def _servers(effort: Effort) -> Iterator[dict[str, Served]]:
    """Run the servers of all cases; those of other programs if they are installed."""
    with ExitStack() as stack:
        cluster = stack.enter_context(following(effort.nodes[1]))
        servers = {}
        if nginx_program():
            servers[_NGINX] = stack.enter_context(nginx())
        servers[_CONSTANT] = stack.enter_context(constant())
        servers[_PLAIN] = servers[_MIX] = servers[_NEW] = stack.enter_context(gpugate(*cluster))
        if before.available():
            servers[_CONSTANT_BEFORE] = stack.enter_context(constant(old=True))
            servers[_MIX_BEFORE] = stack.enter_context(gpugate(*cluster, old=True))
        yield servers


def _absent() -> list[str]:
    """Return a sentence about each server that is not installed."""
    return [
        *([] if nginx_program() else ["nginx: not installed (Debian: nginx-light)."]),
        *([] if before.available() else [f"The server before: {before.HOW}."]),
    ]


def _targets(cpu: Samples) -> list[Target]:
    """Return the targets of the CPU compared with the server before."""
    targets = []
    for name, (counterpart, most) in _BEFORE.items():
        promise = f"{name}: at most {most:.2f} of the CPU of the server before{_GOALS.get(name, '')}"
        if before.available():
            ratio = cpu.ratio(name, counterpart)
            targets.append(Target(promise, str(ratio), ratio.median <= most))
        else:
            targets.append(Target(promise, before.HOW, None))
    return targets


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
                loads[name].flood(_WARMING)
                start = server.cpu_s()
                rates[name].append(loads[name].flood(count))
                cpu[name].append((server.cpu_s() - start) / count * 1e6)
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
