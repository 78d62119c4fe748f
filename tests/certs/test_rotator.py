"""Automatic rotation: concurrent replicas agree, and clients accept every served certificate."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

import certs.rotator
from certs.authority import CLOCK_SKEW, CertificateError, KeyPair, is_valid_at, make_authority, validity_of
from certs.bundle import Bundle, is_issued_by
from certs.kubernetes_api import Conflict, KubernetesError
from certs.rotation_plan import Plan, Step
from certs.rotator import CertRotator
from certs.store import DirectoryStore, SecretStore
from tests.support.memory import CONFIGURATIONS, SECRET, Memory, ca_bundle, ca_bundles, with_configurations
from tests.support.serving import PATIENCE, answers, client_context, connect, serving, wait_for
from webhook.server.http import Request, Response
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = datetime.now(UTC).replace(microsecond=0)  # X.509 knows whole seconds
DAY = timedelta(days=1)
NAMES = ("localhost", "127.0.0.1")
# Minutes instead of a day: handshakes use the real clock, so a rotation must fit into the hour by which
# certificates are backdated.
PLAN = Plan(NAMES, overlap=timedelta(minutes=5))
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now


def rotator(memory: Memory, clock: Callable[[], datetime] = Clock(), plan: Plan = PLAN) -> CertRotator:  # noqa: B008
    """Return the rotator of a replica; all share one Secret."""
    return CertRotator(SecretStore(memory, "gpugate", "gpugate-certs"), plan, memory, clock)


def pair_of(one: CertRotator) -> KeyPair:
    """Return the pair that a rotator gives to the server."""
    pair = one.pair()
    assert pair
    return pair


def stored(memory: Memory) -> Bundle:
    """Return the bundle in the Secret."""
    bundle = SecretStore(memory, "gpugate", "gpugate-certs").load().bundle
    assert bundle
    return bundle


@pytest.mark.parametrize("days", [100, -10_000])
def test_certificates_are_issued_by_the_clock_of_the_api_server(days: int) -> None:
    """The API server verifies them; a wrong clock on a node does not cause a renewal."""
    memory = with_configurations()
    memory.clock = lambda: START + days * DAY
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    first = CertRotator(store, PLAN, memory).reconcile()
    memory.clock = lambda: START + (days + 1) * DAY
    again = CertRotator(store, PLAN, memory).reconcile()

    assert first.leaf
    assert validity_of(first.leaf.certificate_pem).not_before == START + days * DAY - CLOCK_SKEW
    assert first.leaf == again.leaf


def test_of_replicas_that_start_at_once_exactly_one_creates_the_authority() -> None:
    """All serve the same pair, which both webhook configurations trust; none fails."""
    memory = with_configurations()
    rotators = [rotator(memory) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        bundles = list(threads.map(CertRotator.reconcile, rotators))

    assert {stored(memory).authority} == {bundle.authority for bundle in bundles}
    assert {stored(memory).leaf} == {replica.pair() for replica in rotators}
    assert {stored(memory).trusted} == ca_bundles(memory)


@pytest.mark.parametrize("losses", range(12))
def test_a_replica_overtaken_by_another_at_any_call_agrees_with_it(losses: int) -> None:
    """Before the first call, the second and so on, another replica does a whole run."""
    memory = with_configurations()
    other, slow = rotator(memory), rotator(memory)

    def overtake(method: str, path: str) -> None:
        del method, path
        if len(memory.calls) == losses + 1:
            memory.before = lambda *_: None
            other.reconcile()

    memory.before = overtake
    slow.reconcile()
    other.reconcile()

    assert {stored(memory).leaf} == {slow.pair(), other.pair()}
    assert {stored(memory).trusted} == ca_bundles(memory)
    assert () == stored(memory).previous


@pytest.mark.parametrize("call", range(3))
def test_a_replica_that_continues_after_a_rotation_removes_no_trusted_ca(call: int) -> None:
    """Before each read of its run, another replica rotates the CA; the new leaf stays trusted."""
    memory, clock = with_configurations(), Clock()
    other, slow = rotator(memory, clock), rotator(memory, clock)
    slow.reconcile()
    clock.now += PLAN.overlap
    before = len(memory.calls)

    def overtake(method: str, path: str) -> None:
        del method, path
        if len(memory.calls) == before + call + 1:
            memory.before = lambda *_: None
            other.force(Step.MAKE_AUTHORITY)
            clock.now += PLAN.settling
            other.reconcile()
            memory.before = check

    def check(method: str, path: str) -> None:
        del method, path
        for held in ca_bundles(memory):
            assert any(is_issued_by(pair_of(other).certificate_pem, authority) for authority in held)

    memory.before = overtake
    slow.reconcile()

    assert other.pair() == slow.pair()
    assert {stored(memory).trusted} == ca_bundles(memory)


def test_a_certificate_that_expired_while_no_server_ran_is_renewed_at_start() -> None:
    """The authority and the caBundle stay the same."""
    memory, clock = with_configurations(), Clock()
    rotator(memory, clock).reconcile()
    before = stored(memory)
    clock.now += 200 * DAY
    late = rotator(memory, clock)
    late.reconcile()

    assert is_valid_at(pair_of(late).certificate_pem, clock.now)
    assert before.authority == stored(memory).authority
    assert {before.trusted} == ca_bundles(memory)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged warnings; other tests may have changed the log level."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_in_ten_years_every_replica_serves_a_trusted_certificate(caplog: pytest.LogCaptureFixture) -> None:
    """With the default plan: a leaf every sixty days, one new authority, and no warning."""
    memory, clock = with_configurations(), Clock()
    replicas = [rotator(memory, clock, Plan(NAMES)) for _ in range(2)]
    leaves, authorities = set(), set()
    for _ in range(360):
        for replica in replicas:
            replica.reconcile()
            leaf = pair_of(replica).certificate_pem
            leaves.add(leaf)
            assert is_valid_at(leaf, clock.now)
            (held,) = ca_bundles(memory)
            authorities.add(held)
            assert any(is_issued_by(leaf, authority) for authority in held)
        clock.now += 10 * DAY

    assert 51 <= len(leaves) <= 53
    assert [1, 1, 2] == sorted(map(len, authorities))
    assert not warnings(caplog)


def test_an_external_authority_is_replaced_as_late_as_possible_and_with_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One when it starts to shorten leaves, one when it is replaced; a trusted leaf always serves."""
    memory, clock = with_configurations(), Clock()
    external = make_authority("external CA", START, 200 * DAY)
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    store.save(Bundle(external), store.load())
    one, warned = rotator(memory, clock), dict[int, list[str]]()
    for day in range(250):
        one.reconcile()
        leaf = pair_of(one).certificate_pem
        assert is_valid_at(leaf, clock.now)
        assert {stored(memory).trusted} == ca_bundles(memory)
        assert any(is_issued_by(leaf, authority) for authority in stored(memory).trusted)
        assert (day <= 170) is (external == stored(memory).authority)
        warned |= {day: lines} if (lines := warnings(caplog)) else {}
        caplog.clear()
        clock.now += DAY

    where = "Secret gpugate/gpugate-certs"
    expires, at = (f"{START + days * DAY:%Y-%m-%d}" for days in (200, 170))
    expiring = f"the external CA expires {expires}; replace it, or gpugate creates one on {at}"
    created = "create a CA, replacing the external CA"
    assert {81: [f"{where}: {expiring}"], 171: [f"{where}: {created}"]} == warned


def test_tls_clients_that_trust_the_current_ca_bundle_never_fail() -> None:
    """Two replicas under load, during rotations; each client reads the caBundle, then connects."""
    memory, clock = with_configurations(), Clock()
    replicas = [rotator(memory, clock) for _ in range(2)]
    for replica in replicas:
        replica.reconcile()
    served = [TlsCertificate(partial(pair_of, replica)) for replica in replicas]
    done = threading.Event()
    counts = [0] * 4

    def load(number: int, port: int) -> set[bytes]:
        seen = set()
        while not done.is_set():
            held = ca_bundle(memory, CONFIGURATIONS[number % 2])
            with connect(port, NAMES[number % 2], client_context(b"".join(held))) as connection:
                seen.add(connection.getpeercert(binary_form=True) or b"")
                assert answers(connection, GET).startswith(b"HTTP/1.1 200")
            counts[number] += 1
        return seen

    def wait_for_clients() -> None:
        """Wait until each client has read the caBundle and connected again."""
        before, ticking = list(counts), threading.Event()
        for _ in range(int(PATIENCE * 200)):
            if all(now >= then + 2 for now, then in zip(counts, before, strict=True)):
                return
            ticking.wait(0.005)
        failures = [load.exception() for load in loads if load.done()]
        pytest.fail(f"clients stopped: {failures}")

    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(4))
        ports = [stack.enter_context(serving(application, tls=tls)).port for tls in served]
        stack.callback(done.set)
        loads = [threads.submit(load, number, ports[number // 2]) for number in range(4)]
        wait_for_clients()
        for step in (Step.ISSUE_LEAF, Step.MAKE_AUTHORITY, Step.ISSUE_LEAF, Step.MAKE_AUTHORITY):
            replicas[0].force(step)
            for pause in (timedelta(), PLAN.settling, PLAN.overlap):
                clock.now += pause
                for replica, tls in zip(replicas, served, strict=True):
                    replica.reconcile()
                    tls.reload()
                    wait_for_clients()
        done.set()
        seen = [load.result() for load in loads]

    assert clock.now - START < timedelta(hours=1)
    assert {5} == {len(trusted) for trusted in seen}
    assert {stored(memory).trusted} == ca_bundles(memory)
    assert 1 == len(stored(memory).trusted)


def application(_: Request) -> Response:
    """Answer."""
    return Response(200, b"here")


def test_a_changed_ca_bundle_is_corrected_in_the_next_run() -> None:
    """After `kubectl apply`, and also in a configuration that is applied later."""
    memory = with_configurations()
    late = memory.objects.pop(CONFIGURATIONS[1])
    one = rotator(memory)
    one.reconcile()
    memory.put(CONFIGURATIONS[0], with_configurations().objects[CONFIGURATIONS[0]])
    memory.put(CONFIGURATIONS[1], late)
    one.reconcile()

    assert {stored(memory).trusted} == ca_bundles(memory)


def test_a_deleted_secret_is_created_again_and_served_leaves_stay_trusted_for_the_overlap() -> None:
    """Operators delete it to replace all certificates."""
    memory, clock = with_configurations(), Clock()
    one, other = rotator(memory, clock), rotator(memory, clock)
    for replica in (one, other):
        replica.reconcile()
    old = stored(memory).authority.certificate_pem
    del memory.objects[SECRET]
    one.reconcile()
    (during,) = ca_bundles(memory)
    clock.now += PLAN.overlap
    other.reconcile()
    (after,) = ca_bundles(memory)

    assert (stored(memory).authority.certificate_pem, old) == during
    assert is_issued_by(pair_of(other).certificate_pem, during[0])
    assert during[:1] == after


def test_a_run_without_a_due_step_is_three_reads_and_no_write() -> None:
    """In each replica."""
    memory = with_configurations()
    one = rotator(memory)
    one.reconcile()
    memory.calls.clear()
    one.reconcile()

    assert ["GET gpugate", "GET gpugate", "GET gpugate-certs"] == memory.calls


def test_the_bundle_is_observed_for_metrics() -> None:
    """They show when it expires."""
    memory, observed = with_configurations(), list[Bundle]()
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    CertRotator(store, PLAN, memory, Clock(), observed.append).reconcile()

    assert observed[-1] == stored(memory)
    assert observed[-1].leaf
    ends = [
        validity_of(pair.certificate_pem).not_after for pair in (observed[-1].authority, observed[-1].leaf)
    ]
    assert [START + timedelta(days=3650), START + timedelta(days=90)] == ends


def test_certificates_in_a_directory_are_rotated_too(tmp_path: Path) -> None:
    """Its caBundle is not managed by gpugate."""
    clock = Clock()
    one = CertRotator(DirectoryStore(tmp_path / "certs"), PLAN, None, clock)
    one.reconcile()
    first = one.pair()
    clock.now += 61 * DAY
    one.reconcile()

    assert first != one.pair()
    assert (tmp_path / "certs/tls.crt").read_bytes() == pair_of(one).certificate_pem


def forbid(memory: Memory, *denied: str) -> None:
    """Let the API server deny these methods for webhook configurations."""

    def deny(method: str, path: str) -> None:
        if method in denied and "webhookconfigurations" in path:
            raise KubernetesError(f"{method} {path}: 403 forbidden")

    memory.before = deny


@pytest.mark.parametrize("denied", ["GET", "PATCH"])
def test_a_server_without_rights_on_webhook_configurations_serves_the_stored_certificate(
    denied: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And logs the missing right."""
    memory = with_configurations()
    rotator(memory).reconcile()
    memory.put(CONFIGURATIONS[0], with_configurations().objects[CONFIGURATIONS[0]])
    forbid(memory, denied)
    late = rotator(memory)
    late.start()
    wait_for(lambda: "403 forbidden" in caplog.text)
    late.stop()

    assert stored(memory).leaf == late.pair()
    assert "cannot update certificates" in caplog.text


@pytest.mark.parametrize("denied", ["GET", "PATCH"])
def test_a_replica_without_a_certificate_waits_for_it(
    denied: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs the fault once, and does not serve a leaf that is not trusted."""
    monkeypatch.setattr(certs.rotator, "START_INTERVAL", 0.001)
    memory = with_configurations()
    forbid(memory, denied)
    one = rotator(memory)
    one.start()
    wait_for_runs(memory, 20)
    before = one.pair()
    memory.before = lambda *_: None
    wait_for(lambda: one.pair() is not None)
    one.stop()

    assert (None, stored(memory).leaf) == (before, one.pair())
    assert 1 == caplog.text.count("cannot update certificates")


def test_an_invalid_secret_is_not_overwritten_and_the_served_certificate_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault is logged once, not in every run; after it is corrected, rotation continues."""
    monkeypatch.setattr(certs.rotator, "RECONCILE_INTERVAL", 0.001)
    memory = with_configurations()
    one = rotator(memory)
    one.reconcile()
    whole = memory.objects[SECRET]
    before = one.pair()
    one.start()
    memory.put(SECRET, whole | {"data": {"tls.crt": "Cg=="}})
    wait_for_runs(memory, 20)
    served = one.pair()
    memory.put(SECRET, whole | {"type": "corrected"})
    wait_for_runs(memory, 3)
    memory.put(SECRET, whole | {"data": {"tls.crt": "Cg=="}})
    wait_for_runs(memory, 20)
    one.stop()
    faults = [record for record in caplog.records if record.levelno == logging.WARNING]

    assert {"tls.crt": "Cg=="} == memory.objects[SECRET]["data"]
    assert before == served == one.pair()
    assert 2 == len(faults)
    with pytest.raises(CertificateError, match="holds no certificates of gpugate"):
        rotator(memory).reconcile()


def wait_for_runs(memory: Memory, count: int) -> None:
    """Return after so many more reads of the Secret."""
    seen = len(memory.calls)
    wait_for(lambda: memory.calls[seen:].count("GET gpugate-certs") >= count)


def test_the_thread_reconciles_periodically_and_gives_the_new_pair_to_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server reloads it without a call to the API server."""
    monkeypatch.setattr(certs.rotator, "RECONCILE_INTERVAL", 0.001)
    memory, clock = with_configurations(), Clock()
    one = rotator(memory, clock)
    one.reconcile()
    tls = TlsCertificate(partial(pair_of, one))
    one.start()
    clock.now += 61 * DAY
    wait_for_runs(memory, 10)
    one.stop()

    assert tls.reload()
    assert validity_of(tls.pair.certificate_pem).not_after > START + 150 * DAY


@pytest.mark.parametrize("step", [None, Step.ISSUE_LEAF])
def test_endless_conflicts_raise_an_error(step: Step | None) -> None:
    """A client that always writes first is not a replica of gpugate."""
    memory = with_configurations()
    one = rotator(memory)
    one.reconcile()
    memory.put(SECRET, memory.objects[SECRET] | {"data": {}} if step is None else memory.objects[SECRET])

    def conflict(method: str, path: str) -> None:
        if method == "PUT":
            raise Conflict(f"{method} {path}: 409")

    memory.before = conflict

    with pytest.raises(KubernetesError, match="does not settle"):
        one.reconcile() if step is None else one.force(step)
