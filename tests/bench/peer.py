"""`python -m tests.bench.peer NAME=URL[,URL]…`: compare other admission webhooks with gpugate, pod by pod.

As an API server does, a pod is sent to each URL in turn, with the edits of the webhook before, until one
denies it. Load goes to all peers alternately over kept TLS connections. Answers are decoded before the load.
"""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlsplit

import click
import jsonpatch
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.bench.cases import BY_NODES, BY_RULES
from tests.bench.client import Load, Webhook, exchange, percentile
from tests.bench.figures import FULL, QUICK, Effort, Samples, Section, Spread, Table, Target
from tests.bench.page import Result, packages, render_facts, render_table, render_targets, text
from tests.bench.served import Served, constant, cpu_s, following, gpugate
from tests.bench.whole import profile
from tests.support.tls import unverified

_REVIEWS: Final = BY_RULES | BY_NODES
_MIX: Final = "All these pods in turn"
_PODS: Final = {"Pods without accelerators": ["no accelerator"], _MIX: [*_REVIEWS]}
# Nodes of the cluster that gpugate watches; a peer has its own cluster.
_NODES: Final = 1_000
_ARGUMENT: Final = re.compile(r"(?:([^=/]+)=)?(https://.+)")
# This command writes the part of a page from here on.
_HEADING: Final = "## Figures\n"
# Seconds of a round at a fixed rate, and its least answers, enough for p99.
_PACED_S: Final = 0.4
_LEAST_PACED: Final = 100
# How many times the CPU of gpugate a peer takes at least, by its name, with the mix; others: more than once.
_LEAST: Final = {"HAMi": 4.0}
_COSTS: Final = ("", "pods/s", "CPU of a pod, µs", "pods/s of a core", "CPU ÷ gpugate")
# Other work on the machine changes these; CPU and ratios of a round, less.
_WALL_TIME: Final = frozenset({"pods/s", "p50, ms", "p99, ms"})
_COSTS_NOTE: Final = "CPU ÷ that of gpugate with as many webhooks: both, or only the mutating one."
_LATE_NOTE: Final = (
    "Latency counts from when a request was due. Clients and servers share the machine. Peers that cannot "
    "reach the rate are skipped."
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A process that admits pods. webhooks: its webhooks in the order of calls, all on one port."""

    name: str
    webhooks: tuple[Webhook, ...]
    process: int | None = None

    def admit(self, body: bytes) -> tuple[list[bytes], str]:
        """Return the requests that an API server sends for a pod, and the result for the pod."""
        sent, edits = [], 0
        for webhook in self.webhooks:
            sent.append(webhook.request(body))
            with webhook.connect() as connection:
                answer: dict[str, Any] = json.loads(exchange(connection, sent[-1]))["response"]
            if not answer["allowed"]:
                return sent, "denied"
            review = json.loads(body)
            patch = json.loads(base64.b64decode(answer.get("patch") or "W10="))  # `[]`
            review["request"]["object"] = jsonpatch.apply_patch(review["request"]["object"], patch)
            body, edits = json.dumps(review).encode(), edits + len(patch)
        return sent, f"allowed, edits: {edits}" if edits else "allowed"

    def cpu_s(self) -> float:
        """Return the seconds of CPU of all its threads; 0 if the process is unknown."""
        return cpu_s(self.process) if self.process else 0.0

    def resident_mb(self) -> str:
        """Return the megabytes of its resident memory, for a table."""
        return f"{Served(self.process, 0, 0, 0).resident_mb():.0f}" if self.process else ""


class _Dechunked(ssl.SSLSocket):
    """A connection on which each answer has a Content-Length."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Return bytes of an answer, or all of it if it is chunked."""
        return dechunked(super().recv(buflen, flags), partial(super().recv, buflen, flags))


def dechunked(received: bytes, more: Callable[[], bytes]) -> bytes:
    """Return a chunked answer complete and with a Content-Length; else the received bytes."""
    if b"\r\nTransfer-Encoding: chunked\r\n" not in received:
        return received
    while not received.endswith(b"\r\n0\r\n\r\n"):
        received += more()
    head, _, rest = received.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


class _PeerLoad:
    """Kept connections to a peer, and the requests that an API server sends for some pods."""

    def __init__(self, stack: ExitStack, peer: Peer, pods: Sequence[str], connections: int) -> None:
        requests = [request for pod in pods for request in peer.admit(_REVIEWS[pod])[0]]
        self.peer = peer
        self.per_pod = len(requests) / len(pods)
        self.load = Load(
            [stack.enter_context(peer.webhooks[0].connect()) for _ in range(connections)], requests
        )
        stack.callback(self.load.close)

    def flood(self, pods: int) -> tuple[float, float]:
        """Send so many pods; return pods per second and microseconds of CPU for each."""
        before = self.peer.cpu_s()
        rate = self.load.flood(round(pods * self.per_pod)) / self.per_pod
        return rate, (self.peer.cpu_s() - before) / pods * 1e6


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="NAME=URL[,URL]...")
@click.option("--pid", "pids", type=int, multiple=True, help="Process ID of each peer, in their order.")
@click.option(
    "--python",
    "pythons",
    type=click.Path(exists=True, dir_okay=False),
    multiple=True,
    help="Another Python with gpugate's packages, which runs gpugate, too.",
)
@click.option("--connections", type=click.IntRange(1, 200), default=8, show_default=True)
@click.option("--busy", is_flag=True, help="Leave out wall time: other work on the machine changes it.")
@click.option("--quick", is_flag=True, help="Run fewer rounds.")
@click.option(
    "--write",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Page whose part from `## Figures` on is replaced.",
)
def main(
    *,
    arguments: tuple[str, ...],
    pids: tuple[int, ...],
    pythons: tuple[str, ...],
    connections: int,
    busy: bool,
    quick: bool,
    write: Path | None,
) -> None:
    """Send pods alternately to webhooks, such as HAMi=https://127.0.0.1:9443/webhook, and to gpugate."""
    if pids and len(pids) != len(arguments):
        raise click.UsageError("expected one --pid for each peer, or none")
    others = [_peer(argument) for argument in arguments]
    if pids:
        others = [replace(peer, process=pid) for peer, pid in zip(others, pids, strict=True)]
    start, before = perf_counter(), os.getloadavg()[0]
    with ExitStack() as stack:
        options = stack.enter_context(following(_NODES))
        server = stack.enter_context(gpugate(*options))
        ours = _ours(server, stack.enter_context(constant()))
        versions = {python: python_version(python) for python in pythons}
        for python, version in versions.items():
            other = stack.enter_context(gpugate(*options, python=python))
            ours += _gpugate(other, f"Python {version.partition(',')[0]}")
        section = compare(ours, others, connections, QUICK if quick else FULL)
    if busy:
        section = replace(section, tables=tuple(without_wall_time(table) for table in section.tables))
    shares = profile([*_REVIEWS.values()], _NODES)
    result = Result("Other webhooks with the same pods", replace(section, tables=(*section.tables, shares)))
    click.echo(text(result))
    if write:
        command = [f"python -m tests.bench.peer --write {write} …"]
        head = write.read_text("utf-8").partition(_HEADING)[0]
        further = {"another Python": "; ".join(versions.values())} if versions else {}
        facts = render_facts(command, perf_counter() - start, before, further | packages())
        parts = [facts, render_targets({"peer": result})]
        parts += [render_table(table) for table in result.section.tables]
        write.write_text(f"{head}{_HEADING}{''.join(parts)}", "utf-8")


def _peer(argument: str) -> Peer:
    match = _ARGUMENT.fullmatch(argument)
    if match is None:
        raise click.UsageError(f"expected [NAME=]URL[,URL]... with https: {argument}")
    urls = match[2].split(",")
    if len({urlsplit(url).netloc for url in urls}) > 1:
        raise click.UsageError(f"expected URLs of one host and port: {argument}")
    context = unverified()
    context.sslsocket_class = _Dechunked
    return Peer(match[1] or urls[0], tuple(Webhook(url, context) for url in urls))


def _ours(server: Served, baseline: Served) -> list[Peer]:
    """Return gpugate with both webhooks and with one, and its server with a constant answer."""
    return [
        *_gpugate(server),
        Peer("gpugate's server, constant answer", (baseline.webhook(),), baseline.process),
    ]


def _gpugate(server: Served, *python: str) -> list[Peer]:
    """Return gpugate with both webhooks and with one. python: its name, in their names."""
    mutating = server.webhook()
    validating = replace(mutating, url=mutating.url.replace("/mutate", "/validate"))
    return [
        Peer(", ".join(["gpugate", *python]), (mutating, validating), server.process),
        Peer(", ".join(["gpugate", "mutating only", *python]), (mutating,), server.process),
    ]


def python_version(python: str) -> str:
    """Return the versions of a Python and its OpenSSL."""
    code = "import platform, ssl; print(platform.python_version(), ssl.OPENSSL_VERSION, sep=', ')"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def compare(ours: Sequence[Peer], others: Sequence[Peer], connections: int, effort: Effort) -> Section:
    """Return the ratios of others to the first of ours that gets as many requests for a pod."""
    peers = [*ours, *others]
    tables, targets = [_connections(peers), _results(peers)], []
    for title, pods in _PODS.items():
        with ExitStack() as stack:
            loads = [_PeerLoad(stack, peer, pods, connections) for peer in peers]
            count = max(1, effort.requests // connections // len(pods)) * connections * len(pods)
            rates, cpu = _flooded(loads, count, effort.rounds)
            ratios = {
                peer.name: cpu.ratio(peer.name, _baseline(peer, ours)) for peer in peers if peer.process
            }
            rows = []
            for name in (peer.name for peer in peers):
                used = (str(cpu.of(name)), f"{1e6 / cpu.median(name):,.0f}") if name in ratios else ("", "")
                rows.append((name, str(rates.of(name)), *used, str(ratios.get(name, ""))))
            tables.append(Table(f"{title}; {connections} connections", _COSTS, tuple(rows), _COSTS_NOTE))
            if title == _MIX:
                answers = {load.peer.name: rates.median(load.peer.name) * load.per_pod for load in loads}
                for name in dict.fromkeys((min(answers, key=answers.__getitem__), ours[0].name)):
                    able = [load for load in loads if answers[load.peer.name] > answers[name] / 2]
                    tables.append(_paced(able, name, answers[name] / 2, effort.rounds))
        targets += [
            _target(title, name, ratio)
            for name, ratio in ratios.items()
            if name not in {our.name for our in ours}
        ]
    return Section(tuple(tables), tuple(targets))


def without_wall_time(table: Table) -> Table:
    """Return a table without the columns that other work on the machine changes."""
    kept = [column not in _WALL_TIME for column in table.columns]
    rows = tuple(tuple(compress(row, kept)) for row in table.rows)
    return replace(table, columns=tuple(compress(table.columns, kept)), rows=rows)


def _target(title: str, name: str, ratio: Spread) -> Target:
    """Return the target of a peer. ratio: its CPU ÷ gpugate's."""
    measured = f"{name} takes {ratio} times as much"
    least = _LEAST.get(name) if title == _MIX else None
    if least is None:
        return Target(f"{title}: less CPU than {name}", measured, ratio.median > 1)
    return Target(
        f"{title}: {name} takes at least {least:.0f} times the CPU", measured, ratio.median >= least
    )


def _baseline(peer: Peer, ours: Sequence[Peer]) -> str:
    return next((our.name for our in ours if len(our.webhooks) == len(peer.webhooks)), ours[0].name)


def _connections(peers: Sequence[Peer]) -> Table:
    """Return the paths, TLS version, cipher and key of each peer."""
    rows = []
    for peer in peers:
        with peer.webhooks[0].connect() as connection:
            certificate = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
            cipher, version, _ = connection.cipher() or ("", "", 0)
        key = certificate.public_key()
        kind = key.curve.name if isinstance(key, ec.EllipticCurvePublicKey) else type(key).__name__
        paths = ", ".join(f"`{urlsplit(webhook.url).path}`" for webhook in peer.webhooks)
        rows.append((peer.name, paths, version, cipher, kind))
    return Table("Connections", ("", "paths", "TLS", "cipher", "key"), tuple(rows))


def _results(peers: Sequence[Peer]) -> Table:
    """Return the result of each peer for each pod: peers decide different things."""
    rows = tuple((name, *(peer.admit(body)[1] for peer in peers)) for name, body in _REVIEWS.items())
    return Table("Results for the pods", ("", *(peer.name for peer in peers)), rows)


def _flooded(loads: Sequence[_PeerLoad], pods: int, rounds: int) -> tuple[Samples, Samples]:
    """Return pods per second, and microseconds of CPU for each."""
    rates: dict[str, list[float]] = {load.peer.name: [] for load in loads}
    cpu: dict[str, list[float]] = {load.peer.name: [] for load in loads}
    for _ in range(rounds):
        for peer_load in loads:
            rate, used = peer_load.flood(pods)
            rates[peer_load.peer.name].append(rate)
            cpu[peer_load.peer.name].append(used)
    return Samples(rates), Samples(cpu)


def _paced(loads: Sequence[_PeerLoad], name: str, rate: float, rounds: int) -> Table:
    """Return the latency of answers, all at half the rate of one peer; and the memory of each after that.

    Ratios are to the first load.
    """
    times: dict[int, dict[str, list[float]]] = {at: {load.peer.name: [] for load in loads} for at in (50, 99)}
    for _ in range(rounds):
        for peer_load in loads:
            took = peer_load.load.paced(max(_LEAST_PACED, round(rate * _PACED_S)), rate)
            for at, samples in times.items():
                samples[peer_load.peer.name].append(percentile(took, at))
    rows = tuple(
        (
            load.peer.name,
            *(str(Samples(samples).of(load.peer.name)) for samples in times.values()),
            str(Samples(times[50]).ratio(load.peer.name, loads[0].peer.name)),
            load.peer.resident_mb(),
        )
        for load in loads
    )
    title = f"At {rate:,.0f} answers/s, half the maximum of {name}"
    columns = ("", "p50, ms", "p99, ms", "p50 ÷ gpugate", "resident, MB")
    return Table(title, columns, rows, _LATE_NOTE)


if __name__ == "__main__":
    main()
