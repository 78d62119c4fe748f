"""`python -m tests.bench.peer NAME=URL[,URL]…`: pods through other admission webhooks, beside the gate.

A pod goes the way on which an API server sends it: to each URL in turn, as the one before left it, up to the
first that refuses. All are asked by turns over kept connections of TLS; what they answer is looked at once,
then only awaited.
"""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlsplit

import click
import jsonpatch
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.bench.cases import BY_NODES, BY_RULES
from tests.bench.client import Load, Webhook, exchange, percentile, unverified
from tests.bench.figures import FULL, QUICK, Effort, Samples, Section, Table, Target
from tests.bench.page import Found, packages, render_facts, render_table, render_targets, text
from tests.bench.served import Served, constant, cpu_s, following, gpugate
from tests.bench.whole import profile

_REVIEWS: Final = BY_RULES | BY_NODES
_MIX: Final = "All these pods, by turns"
_PODS: Final = {"Pods without accelerators": ["no accelerator"], _MIX: [*_REVIEWS]}
# In the cluster that our gate follows; a peer has its own.
_NODES: Final = 1_000
_GIVEN: Final = re.compile(r"(?:([^=/]+)=)?(https://.+)")
# From here on a page is this command's.
_HEADING: Final = "## Figures\n"
# Seconds and answers at a fixed rate in a round, of which one in a hundred is the slowest.
_PACED_S: Final = 0.4
_LEAST_PACED: Final = 100
_COSTS: Final = ("", "pods/s", "CPU of a pod, µs", "pods/s of a core", "CPU ÷ gpugate")
_COSTS_NOTE: Final = "Divided by gpugate asked as often: with both webhooks, or with the mutating one alone."
_LATE_NOTE: Final = (
    "Counted from when a request was due. Clients and servers share the machine. Who cannot is left out."
)


@dataclass(frozen=True, slots=True)
class Peer:
    """What admits pods. webhooks: where a pod is sent to, in this order, all of one process on one port."""

    name: str
    webhooks: tuple[Webhook, ...]
    process: int | None = None

    def way(self, body: bytes) -> tuple[list[bytes], str]:
        """Return what a pod makes the API server send, and what becomes of the pod."""
        sent, edits = [], 0
        for webhook in self.webhooks:
            sent.append(webhook.request(body))
            with webhook.connect() as connection:
                answer: dict[str, Any] = json.loads(exchange(connection, sent[-1]))["response"]
            if not answer["allowed"]:
                return sent, "refused"
            review = json.loads(body)
            patch = json.loads(base64.b64decode(answer.get("patch") or "W10="))  # `[]`
            review["request"]["object"] = jsonpatch.apply_patch(review["request"]["object"], patch)
            body, edits = json.dumps(review).encode(), edits + len(patch)
        return sent, f"allowed, edits: {edits}" if edits else "allowed"

    def cpu_s(self) -> float:
        """Return the seconds of CPU that all its threads have used; 0 where the process is not known."""
        return cpu_s(self.process) if self.process else 0.0

    def resident_mb(self) -> str:
        """Return the megabytes of memory that it has, for a table."""
        return f"{Served(self.process, 0, 0, 0).resident_mb():.0f}" if self.process else ""


class _Whole(ssl.SSLSocket):
    """A connection on which each answer has its length."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Return bytes of an answer, all of it where it comes in chunks."""
        return whole(super().recv(buflen, flags), partial(super().recv, buflen, flags))


def whole(received: bytes, more: Callable[[], bytes]) -> bytes:
    """Return an answer that comes in chunks in one piece, with its length; of others what was received."""
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


class _Asked:
    """A peer, and kept connections that send it all that some pods make the API server send."""

    def __init__(self, stack: ExitStack, peer: Peer, pods: Sequence[str], connections: int) -> None:
        requests = [request for pod in pods for request in peer.way(_REVIEWS[pod])[0]]
        self.peer = peer
        self.per_pod = len(requests) / len(pods)
        self.load = Load(
            [stack.enter_context(peer.webhooks[0].connect()) for _ in range(connections)], requests
        )
        stack.callback(self.load.close)

    def flood(self, pods: int) -> tuple[float, float]:
        """Send so many pods; return pods a second and microseconds of CPU for each."""
        before = self.peer.cpu_s()
        rate = self.load.flood(round(pods * self.per_pod)) / self.per_pod
        return rate, (self.peer.cpu_s() - before) / pods * 1e6


@click.command()
@click.argument("given", nargs=-1, required=True, metavar="NAME=URL[,URL]...")
@click.option(
    "--pid", "pids", type=int, multiple=True, help="Process of each in its order, for CPU and memory."
)
@click.option("--connections", type=click.IntRange(1, 200), default=8, show_default=True)
@click.option("--quick", is_flag=True, help="Fewer rounds.")
@click.option(
    "--write",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The page whose part from `## Figures` on is written anew.",
)
def main(
    given: tuple[str, ...],
    pids: tuple[int, ...],
    connections: int,
    quick: bool,
    write: Path | None,
) -> None:
    """Send pods to webhooks, such as HAMi=https://127.0.0.1:9443/webhook, and to the gate, by turns."""
    if pids and len(pids) != len(given):
        raise click.UsageError("give one --pid for each, or none")
    others = [_peer(each) for each in given]
    if pids:
        others = [replace(peer, process=pid) for peer, pid in zip(others, pids, strict=True)]
    start, before = perf_counter(), os.getloadavg()[0]
    with ExitStack() as stack:
        gate = stack.enter_context(gpugate(*stack.enter_context(following(_NODES))))
        ours = _ours(gate, stack.enter_context(constant()))
        section = compare(ours, others, connections, QUICK if quick else FULL)
    whole = profile([*_REVIEWS.values()], _NODES)
    found = Found("Peers, by the same pods", replace(section, tables=(*section.tables, whole)))
    click.echo(text(found))
    if write:
        command = [f"python -m tests.bench.peer --write {write} …"]
        head = write.read_text("utf-8").partition(_HEADING)[0]
        facts = render_facts(command, perf_counter() - start, before, packages())
        parts = [facts, render_targets({"peer": found})]
        parts += [render_table(table) for table in found.section.tables]
        write.write_text(f"{head}{_HEADING}{''.join(parts)}", "utf-8")


def _peer(given: str) -> Peer:
    found = _GIVEN.fullmatch(given)
    if found is None:
        raise click.UsageError(f"admission webhooks speak https: {given}")
    urls = found[2].split(",")
    if len({urlsplit(url).netloc for url in urls}) > 1:
        raise click.UsageError(f"one process has one port: {given}")
    context = unverified()
    context.sslsocket_class = _Whole
    return Peer(found[1] or urls[0], tuple(Webhook(url, context) for url in urls))


def _ours(gate: Served, yes: Served) -> list[Peer]:
    """Return the gate, with both its webhooks and with one, and its server with nothing to decide."""
    mutating = gate.webhook()
    validating = replace(mutating, url=mutating.url.replace("/mutate", "/validate"))
    return [
        Peer("gpugate", (mutating, validating), gate.process),
        Peer("gpugate, mutating alone", (mutating,), gate.process),
        Peer("gpugate's server, saying yes", (yes.webhook(),), yes.process),
    ]


def compare(ours: Sequence[Peer], others: Sequence[Peer], connections: int, effort: Effort) -> Section:
    """Return how others compare with the first of ours that is asked as often about a pod."""
    peers = [*ours, *others]
    tables, targets = [_handshakes(peers), _answers(peers)], []
    for title, pods in _PODS.items():
        with ExitStack() as stack:
            asked = [_Asked(stack, peer, pods, connections) for peer in peers]
            count = max(1, effort.requests // connections // len(pods)) * connections * len(pods)
            rates, cpu = _flooded(asked, count, effort.rounds)
            ratios = {
                peer.name: cpu.ratio(peer.name, _baseline(peer, ours)) for peer in peers if peer.process
            }
            rows = []
            for name in (peer.name for peer in peers):
                used = (str(cpu.of(name)), f"{1e6 / cpu.median(name):,.0f}") if name in ratios else ("", "")
                rows.append((name, str(rates.of(name)), *used, str(ratios.get(name, ""))))
            tables.append(Table(f"{title}; {connections} connections", _COSTS, tuple(rows), _COSTS_NOTE))
            if title == _MIX:
                gave = {each.peer.name: rates.median(each.peer.name) * each.per_pod for each in asked}
                for name in dict.fromkeys((min(gave, key=gave.__getitem__), ours[0].name)):
                    able = [each for each in asked if gave[each.peer.name] > gave[name] / 2]
                    tables.append(_paced(able, name, gave[name] / 2, effort.rounds))
        targets += [
            Target(f"{title}: cheaper than {name}", f"it takes {ratio} of ours", ratio.median > 1)
            for name, ratio in ratios.items()
            if name not in {our.name for our in ours}
        ]
    return Section(tuple(tables), tuple(targets))


def _baseline(peer: Peer, ours: Sequence[Peer]) -> str:
    return next((our.name for our in ours if len(our.webhooks) == len(peer.webhooks)), ours[0].name)


def _handshakes(peers: Sequence[Peer]) -> Table:
    """Return how each is asked."""
    rows = []
    for peer in peers:
        with peer.webhooks[0].connect() as connection:
            certificate = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
            cipher, version, _ = connection.cipher() or ("", "", 0)
        key = certificate.public_key()
        kind = key.curve.name if isinstance(key, ec.EllipticCurvePublicKey) else type(key).__name__
        paths = ", ".join(f"`{urlsplit(webhook.url).path}`" for webhook in peer.webhooks)
        rows.append((peer.name, paths, version, cipher, kind))
    return Table("How they are asked", ("", "where a pod is sent", "TLS", "cipher", "key"), tuple(rows))


def _answers(peers: Sequence[Peer]) -> Table:
    """Return what becomes of each pod: peers decide other things."""
    rows = tuple((name, *(peer.way(body)[1] for peer in peers)) for name, body in _REVIEWS.items())
    return Table("What becomes of the pods", ("", *(peer.name for peer in peers)), rows)


def _flooded(asked: Sequence[_Asked], pods: int, rounds: int) -> tuple[Samples, Samples]:
    """Return pods a second, and microseconds of CPU for each."""
    rates: dict[str, list[float]] = {each.peer.name: [] for each in asked}
    cpu: dict[str, list[float]] = {each.peer.name: [] for each in asked}
    for _ in range(rounds):
        for each in asked:
            rate, used = each.flood(pods)
            rates[each.peer.name].append(rate)
            cpu[each.peer.name].append(used)
    return Samples(rates), Samples(cpu)


def _paced(asked: Sequence[_Asked], name: str, rate: float, rounds: int) -> Table:
    """Return the latency of an answer, all at half the rate of one; and the memory that each has by then."""
    times: dict[int, dict[str, list[float]]] = {at: {each.peer.name: [] for each in asked} for at in (50, 99)}
    for _ in range(rounds):
        for each in asked:
            took = each.load.paced(max(_LEAST_PACED, round(rate * _PACED_S)), rate)
            for at, found in times.items():
                found[each.peer.name].append(percentile(took, at))
    rows = tuple(
        (
            each.peer.name,
            *(str(Samples(found).of(each.peer.name)) for found in times.values()),
            each.peer.resident_mb(),
        )
        for each in asked
    )
    title = f"At {rate:,.0f} answers/s, half of what {name} gave"
    return Table(title, ("", "p50, ms", "p99, ms", "resident, MB"), rows, _LATE_NOTE)


if __name__ == "__main__":
    main()
