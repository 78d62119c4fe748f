"""Attacks on a process of `gpugate serve`: well-behaved clients are answered, and what it takes is bounded.

The limits are those of docs/adr/0010-transport.md with some room. Each answer must come within a second, less
the time for which the event loop of gpugate or the client had no core: attackers have their own machines, but
here everything shares two cores. `pytest -s` prints the figures.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e import attackers
from tests.e2e.attacked import (
    LONG_REVIEW,
    RULE_REVIEW,
    ApiServer,
    Attacked,
    can_limit_memory,
    fresh,
    fresh_for,
)
from tests.e2e.attackers import Reviews
from tests.e2e.daemon import reserve_port
from tests.e2e.serve_process import eventually
from tests.fuzz.large_cluster import nodes as large_cluster
from tests.fuzz.large_objects import large_object
from tests.support.paths import ROOT
from tests.support.webhooks import body, pod, review

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Seconds in which a well-behaved client gets each answer, also over a new connection. A long review waits the
# longest: for one of two that are in progress and share a core, each of less than half a second.
LONGEST_S = 1.0
# Connections, and open files besides them.
MOST_FILES = 1050
# Bytes: the limit of the Deployment.
MEMORY = 512 * 2**20
# Seconds for which clients send what takes the longest, or the most memory.
ATTACK_S = 30.0
CORPUS = ROOT / "tests/fuzz/corpus/cost"


def large_review(shape: bytes) -> bytes:
    """Return a review with the object of a shape that was found to take long."""
    fields = large_object(json.loads(shape), "attack").fields
    return json.dumps(review(fields["object"], **fields, userInfo={"username": "attacker"})).encode()


def with_junk(text: bytes) -> bytes:
    """Return a review of a pod with a JSON text inside."""
    return body(pod({"nvidia.com/gpu": "1"})).replace(b'"spec": {', b'"junk": ' + text + b', "spec": {', 1)


def listed(element: bytes, size: int) -> bytes:
    """Return a list of equal elements, of so many bytes."""
    return b"[" + b",".join([element] * (size // (len(element) + 1))) + b"]"


# The longest bodies, and the longest that are decoded, of JSON that takes much memory for its length.
LARGE = {
    "nested lists of 7 MiB": Reviews(with_junk(listed(b"[" * 100 + b"]" * 100, 7_330_000))),
    "objects of 7 MiB": Reviews(with_junk(listed(b'{"":0}', 7_330_000))),
    "nested lists": Reviews(with_junk(listed(b"[" * 100 + b"]" * 100, 230_000))),
    "objects": Reviews(with_junk(listed(b'{"":0}', 1_100_000))),
    "small objects": Reviews(with_junk(listed(b'{"a":"b","c":"d"}', 2_000_000))),
    "strings": Reviews(with_junk(listed(b'"ab"', 4_300_000))),
    "numbers": Reviews(with_junk(listed(b"300", 7_250_000))),
    "a wide string": Reviews(with_junk('"😀'.encode() + b"a" * 7_300_000 + b'"')),
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of 10,000 nodes of 100 kinds."""
    path = tmp_path_factory.mktemp("nodes") / "nodes.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": large_cluster()}))
    return path


def tell(what: str) -> None:
    """Print a figure."""
    sys.stdout.write(f"{what}\n")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Attacked]:
    """Yield a gate with its usual limits."""
    with reserve_port() as held, Attacked(held.getsockname()[1], tmp_path) as attacked:
        yield attacked


@pytest.mark.parametrize(
    ("open_one", "number", "growth_mib"),
    [
        (attackers.silent, 3_000, 10),
        (attackers.half_hello, 3_000, 80),
        (attackers.tls, 1_500, 80),
        (attackers.half_head, 1_200, 80),
        (attackers.many_headers, 1_200, 200),
        (attackers.claimed_hello, 1_200, 200),
        (attackers.half_body, 1_200, 80),
    ],
)
def test_a_crowd_that_stalls_displaces_itself(
    gate: Attacked, open_one: Callable[[int], socket.socket], number: int, growth_mib: float
) -> None:
    """New clients and an API server are answered, and the crowd takes little memory."""
    with ApiServer(gate) as api_server:
        before = gate.memory
        with attackers.crowd(open_one, gate.port, number):
            time.sleep(1.2)
            files, growth = gate.files, gate.memory - before
            answers, kept = fresh(gate, 10), api_server.ask()
    tell(f"{open_one.__name__}: {files} files, {before:.0f} + {growth:.0f} MiB; {answers}; kept: {kept}")

    assert (answers.failed, kept.failed) == (0, 0)
    assert max(answers.longest, kept.longest) < LONGEST_S
    assert files <= MOST_FILES
    assert growth < growth_mib
    assert gate.warnings == 0


@pytest.mark.parametrize(
    ("attack", "clients"),
    [
        (attackers.one_byte_chunks, 3),
        (attackers.a_record_for_each_byte, 3),
        (attackers.requests_without_reading, 3),
        (attackers.handshakes, 3),
        (attackers.random_bytes, 3),
    ],
)
def test_clients_that_are_expensive_do_not_delay_others(
    gate: Attacked, attack: Callable[[int], None], clients: int
) -> None:
    """Each has its turn."""
    with ApiServer(gate) as api_server:
        before, idle = gate.memory, fresh_for(gate, 1)
        with attackers.attacking(attack, gate.port, clients):
            start = gate.cpu_s
            answers, kept = fresh_for(gate, 5), api_server.ask()
            growth, cpu = gate.memory - before, gate.cpu_s - start
    tell(f"{attack.__name__}: {answers}; idle: {idle}; kept: {kept}; + {growth:.0f} MiB, {cpu:.1f} s of CPU")

    assert (answers.failed, kept.failed) == (0, 0)
    assert answers.p50 < LONGEST_S / 4
    assert max(answers.longest, kept.longest) < LONGEST_S
    assert growth < 20


def test_slow_heads_are_cut(gate: Attacked) -> None:
    """300 heads of which a byte comes now and then: 10 s after their first byte."""
    with attackers.crowd(attackers.half_head, gate.port, 300) as slow:
        start = time.monotonic()
        while time.monotonic() - start < 9:
            time.sleep(1)
            for connection in slow:
                connection.sendall(b"X")
            answers = fresh(gate, 1)
            assert (answers.failed, answers.longest < LONGEST_S) == (0, True)
        closed = [connection.recv(1000)[:12] for connection in slow]
        took = time.monotonic() - start
    tell(f"slow heads: closed after {took:.1f} s")

    assert [b"HTTP/1.1 408"] * 300 == closed
    assert took < 15


def test_large_bodies_that_stall_displace_each_other(gate: Attacked) -> None:
    """20 of 6 MiB: more than the memory for bodies."""
    with ApiServer(gate) as api_server:
        before = gate.memory
        with attackers.crowd(attackers.large_body, gate.port, 20):
            time.sleep(1.2)
            answers, kept, growth = fresh(gate, 10, LONG_REVIEW), api_server.ask(), gate.memory - before
    tell(f"20 bodies of 6 MiB: {answers}; kept: {kept}; + {growth:.0f} MiB")

    assert (answers.failed, kept.failed) == (0, 0)
    assert answers.longest < LONGEST_S
    assert growth < 130


@pytest.mark.parametrize(("files", "failed"), [(300, 0), (160, 3)])
def test_with_few_open_files_new_clients_are_answered(tmp_path: Path, files: int, failed: int) -> None:
    """2,000 silent connections; with 160 files there is room for one connection."""
    with (
        reserve_port() as held,
        Attacked(held.getsockname()[1], tmp_path, files=files) as gate,
        attackers.crowd(attackers.silent, gate.port, 2_000),
    ):
        answers = fresh_for(gate, 3)
        tell(f"{files} files: {gate.files} open; {answers}; {gate.warnings} lines")

        assert 100 * answers.failed <= failed * (answers.failed + len(answers.seconds))
        assert answers.longest < LONGEST_S
        assert gate.warnings <= 1
        assert gate.files < files


def test_reviews_that_take_the_longest_do_not_delay_other_users(tmp_path: Path, nodes: Path) -> None:
    """The worst objects that are still checked, by four clients, with 10,000 nodes."""
    worst = [large_review(path.read_bytes()) for path in sorted(CORPUS.iterdir())]
    with reserve_port() as held, Attacked(held.getsockname()[1], tmp_path, ["--nodes", str(nodes)]) as gate:
        with ApiServer(gate) as api_server, attackers.attacking(Reviews(*worst), gate.port, 4):
            answers = [
                fresh_for(gate, ATTACK_S / 3, *honest)
                for honest in ((LONG_REVIEW,), (RULE_REVIEW, "/validate"), ())
            ]
            kept = api_server.ask()
        names = ("20 KB", "rule", "quick")
        tell(
            "; ".join(f"{name}: {latency}" for name, latency in zip(names, answers, strict=True))
            + f"; kept: {kept}"
        )

        assert [0, 0, 0, 0] == [latency.failed for latency in (*answers, kept)]
        # The worst objects of four clients may be decided before it, each in a quarter of a second.
        assert max(latency.longest for latency in (*answers, kept)) < 2 * LONGEST_S


def test_pods_of_many_containers_do_not_delay_quick_reviews(gate: Attacked) -> None:
    """600 containers each, by eight clients."""
    document = pod({"nvidia.com/gpu": "1"})
    (container,) = document["spec"]["containers"]
    document["spec"]["containers"] = [container | {"name": f"c{at}"} for at in range(600)]
    with ApiServer(gate) as api_server, attackers.attacking(Reviews(body(document)), gate.port, 8):
        answers, kept = fresh_for(gate, 5), api_server.ask()
    tell(f"600 containers: {answers}; kept: {kept}")

    assert (answers.failed, kept.failed) == (0, 0)
    assert max(answers.longest, kept.longest) < LONGEST_S


@pytest.mark.timeout(600)
def test_memory_stays_below_the_limit_of_the_deployment_and_is_returned(tmp_path: Path, nodes: Path) -> None:
    """10,000 silent connections and six clients that send what takes the most memory, with 10,000 nodes."""
    limit = MEMORY if can_limit_memory() else None
    with (
        reserve_port() as held,
        Attacked(held.getsockname()[1], tmp_path, ["--nodes", str(nodes)], memory=limit) as gate,
    ):
        before = gate.memory
        with attackers.crowd(attackers.silent, gate.port, 10_000):
            for name, attack in LARGE.items():
                with attackers.attacking(attack, gate.port, 6):
                    answers = fresh_for(gate, ATTACK_S / len(LARGE))
                tell(f"{name}: {answers}, {gate.memory:.0f} MiB, at most {gate.peak:.0f}")
                assert (answers.failed, gate.is_alive) == (0, True)
                assert answers.longest < LONGEST_S
        assert gate.peak < MEMORY / 2**20
        start = time.monotonic()
        eventually(lambda: gate.memory < before + 60)
        tell(f"{before:.0f} MiB before, {gate.memory:.0f} after {time.monotonic() - start:.1f} s")
