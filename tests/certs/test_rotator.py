"""Certificates that renew themselves: started by many, served through every rotation, never refused."""

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
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIEnvironment

START = datetime.now(UTC).replace(microsecond=0)  # X.509 knows whole seconds
DAY = timedelta(days=1)
NAMES = ("localhost", "127.0.0.1")
# Minutes in place of a day: the clock of a handshake is a real one, so a rotation has to fit into the hour
# that a certificate holds before it was made.
PLAN = Plan(NAMES, overlap=timedelta(minutes=5))
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now


def keeper(memory: Memory, clock: Callable[[], datetime] = Clock(), plan: Plan = PLAN) -> CertRotator:  # noqa: B008
    """Return a replica's keeper of the one Secret."""
    return CertRotator(SecretStore(memory, "gpugate", "gpugate-certs"), plan, memory, clock)


def pair_of(one: CertRotator) -> KeyPair:
    """Return what a keeper that has looked hands to the server."""
    pair = one.pair()
    assert pair
    return pair


def stored(memory: Memory) -> Bundle:
    """Return the bundle in the Secret."""
    bundle = SecretStore(memory, "gpugate", "gpugate-certs").load().bundle
    assert bundle
    return bundle


@pytest.mark.parametrize("days", [100, -10_000])
def test_certificates_are_issued_by_the_api_servers_clock_and_not_by_ones_own(days: int) -> None:
    """The API server verifies them: a node whose clock is days off renews nothing that holds there."""
    memory = with_configurations()
    memory.clock = lambda: START + days * DAY
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    first = CertRotator(store, PLAN, memory).look()
    memory.clock = lambda: START + (days + 1) * DAY
    again = CertRotator(store, PLAN, memory).look()

    assert first.leaf
    assert validity_of(first.leaf.certificate_pem).not_before == START + days * DAY - CLOCK_SKEW
    assert first.leaf == again.leaf


def test_of_replicas_that_start_at_once_exactly_one_makes_the_authority() -> None:
    """All serve the same pair, which both webhook configurations trust; nobody fails."""
    memory = with_configurations()
    keepers = [keeper(memory) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        bundles = list(threads.map(CertRotator.look, keepers))

    assert {stored(memory).authority} == {bundle.authority for bundle in bundles}
    assert {stored(memory).leaf} == {each.pair() for each in keepers}
    assert {stored(memory).trusted} == ca_bundles(memory)


@pytest.mark.parametrize("losses", range(12))
def test_a_replica_that_others_overtake_at_any_call_agrees_with_them(losses: int) -> None:
    """Before the first call, the second and so on, another does all of its work."""
    memory = with_configurations()
    other, slow = keeper(memory), keeper(memory)

    def overtake(method: str, path: str) -> None:
        del method, path
        if len(memory.calls) == losses + 1:
            memory.before = lambda *_: None
            other.look()

    memory.before = overtake
    slow.look()
    other.look()

    assert {stored(memory).leaf} == {slow.pair(), other.pair()}
    assert {stored(memory).trusted} == ca_bundles(memory)
    assert () == stored(memory).previous


@pytest.mark.parametrize("call", range(3))
def test_a_replica_that_goes_on_after_a_rotation_takes_no_trust_away(call: int) -> None:
    """Before each read of its look, another has an authority take over; what that serves is trusted on."""
    memory, clock = with_configurations(), Clock()
    other, slow = keeper(memory, clock), keeper(memory, clock)
    slow.look()
    clock.now += PLAN.overlap
    before = len(memory.calls)

    def overtake(method: str, path: str) -> None:
        del method, path
        if len(memory.calls) == before + call + 1:
            memory.before = lambda *_: None
            other.force(Step.MAKE_AUTHORITY)
            clock.now += PLAN.settling
            other.look()
            memory.before = check

    def check(method: str, path: str) -> None:
        del method, path
        for held in ca_bundles(memory):
            assert any(is_issued_by(pair_of(other).certificate_pem, authority) for authority in held)

    memory.before = overtake
    slow.look()

    assert other.pair() == slow.pair()
    assert {stored(memory).trusted} == ca_bundles(memory)


def test_a_certificate_that_expired_while_no_server_ran_is_renewed_at_start() -> None:
    """The authority stays, and so does the trust."""
    memory, clock = with_configurations(), Clock()
    keeper(memory, clock).look()
    before = stored(memory)
    clock.now += 200 * DAY
    late = keeper(memory, clock)
    late.look()

    assert is_valid_at(pair_of(late).certificate_pem, clock.now)
    assert before.authority == stored(memory).authority
    assert {before.trusted} == ca_bundles(memory)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was warned of; what else is logged hangs on the level that others have set."""
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_in_ten_years_of_looks_every_replica_serves_what_is_trusted(caplog: pytest.LogCaptureFixture) -> None:
    """With the terms that ship: a leaf at each look past sixty days, one new authority, and no warning."""
    memory, clock = with_configurations(), Clock()
    replicas = [keeper(memory, clock, Plan(NAMES)) for _ in range(2)]
    leaves, authorities = set(), set()
    for _ in range(360):
        for replica in replicas:
            replica.look()
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


def test_an_authority_made_elsewhere_is_replaced_as_late_as_can_be_and_never_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Told when it begins to cut certificates short, and when one of ours takes over; served throughout."""
    memory, clock = with_configurations(), Clock()
    own = make_authority("own CA", START, 200 * DAY)
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    store.save(Bundle(own), store.load())
    one, told = keeper(memory, clock), dict[int, list[str]]()
    for day in range(250):
        one.look()
        leaf = pair_of(one).certificate_pem
        assert is_valid_at(leaf, clock.now)
        assert {stored(memory).trusted} == ca_bundles(memory)
        assert any(is_issued_by(leaf, authority) for authority in stored(memory).trusted)
        assert (day <= 170) is (own == stored(memory).authority)
        told |= {day: lines} if (lines := warnings(caplog)) else {}
        caplog.clear()
        clock.now += DAY

    where = "Secret gpugate/gpugate-certs"
    expires, at = (f"{START + days * DAY:%Y-%m-%d}" for days in (200, 170))
    ending = f"the CA of your own expires {expires}; put another there, or gpugate makes one on {at}"
    made = "make a CA, in place of one of your own"
    assert {81: [f"{where}: {ending}"], 171: [f"{where}: {made}"]} == told


def test_tls_clients_that_trust_the_ca_bundle_of_the_moment_are_never_refused() -> None:
    """Two replicas under load, through rotations of leaf and authority; each client reads, then connects."""
    memory, clock = with_configurations(), Clock()
    replicas = [keeper(memory, clock) for _ in range(2)]
    for replica in replicas:
        replica.look()
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

    def turn_over() -> None:
        """Wait until each client has read the caBundle and connected anew."""
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
        turn_over()
        for step in (Step.ISSUE_LEAF, Step.MAKE_AUTHORITY, Step.ISSUE_LEAF, Step.MAKE_AUTHORITY):
            replicas[0].force(step)
            for pause in (timedelta(), PLAN.settling, PLAN.overlap):
                clock.now += pause
                for replica, tls in zip(replicas, served, strict=True):
                    replica.look()
                    tls.reload()
                    turn_over()
        done.set()
        seen = [load.result() for load in loads]

    assert clock.now - START < timedelta(hours=1)
    assert {5} == {len(each) for each in seen}
    assert {stored(memory).trusted} == ca_bundles(memory)
    assert 1 == len(stored(memory).trusted)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer."""
    del environ
    start_response("200 OK", [])
    return [b"here"]


def test_what_somebody_does_to_the_ca_bundle_is_put_right_at_the_next_look() -> None:
    """A configuration applied anew has none, and one that is applied later is filled too."""
    memory = with_configurations()
    late = memory.objects.pop(CONFIGURATIONS[1])
    one = keeper(memory)
    one.look()
    memory.put(CONFIGURATIONS[0], with_configurations().objects[CONFIGURATIONS[0]])
    memory.put(CONFIGURATIONS[1], late)
    one.look()

    assert {stored(memory).trusted} == ca_bundles(memory)


def test_a_deleted_secret_is_made_anew_and_what_replicas_serve_stays_trusted_for_the_overlap() -> None:
    """As operators do to have everything new."""
    memory, clock = with_configurations(), Clock()
    one, other = keeper(memory, clock), keeper(memory, clock)
    for each in (one, other):
        each.look()
    old = stored(memory).authority.certificate_pem
    del memory.objects[SECRET]
    one.look()
    (during,) = ca_bundles(memory)
    clock.now += PLAN.overlap
    other.look()
    (after,) = ca_bundles(memory)

    assert (stored(memory).authority.certificate_pem, old) == during
    assert is_issued_by(pair_of(other).certificate_pem, during[0])
    assert during[:1] == after


def test_a_rest_is_three_reads_and_no_write() -> None:
    """Of each replica, at each look."""
    memory = with_configurations()
    one = keeper(memory)
    one.look()
    memory.calls.clear()
    one.look()

    assert ["GET gpugate", "GET gpugate", "GET gpugate-certs"] == memory.calls


def test_what_is_read_is_told_for_metrics() -> None:
    """When it expires, above all."""
    memory, told = with_configurations(), list[Bundle]()
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    CertRotator(store, PLAN, memory, Clock(), told.append).look()

    assert told[-1] == stored(memory)
    assert told[-1].leaf
    ends = [validity_of(each.certificate_pem).not_after for each in (told[-1].authority, told[-1].leaf)]
    assert [START + timedelta(days=3650), START + timedelta(days=90)] == ends


def test_a_directory_is_kept_as_well(tmp_path: Path) -> None:
    """Its caBundle is somebody else's work."""
    clock = Clock()
    one = CertRotator(DirectoryStore(tmp_path / "certs"), PLAN, None, clock)
    one.look()
    first = one.pair()
    clock.now += 61 * DAY
    one.look()

    assert first != one.pair()
    assert (tmp_path / "certs/tls.crt").read_bytes() == pair_of(one).certificate_pem


def forbid(memory: Memory, *refused: str) -> None:
    """Have the API server refuse these methods."""

    def refuse(method: str, path: str) -> None:
        if method in refused and "webhookconfigurations" in path:
            raise KubernetesError(f"{method} {path}: 403 forbidden")

    memory.before = refuse


@pytest.mark.parametrize("refused", ["GET", "PATCH"])
def test_a_server_that_may_not_touch_webhook_configurations_serves_what_is_stored(
    refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And says what it lacks."""
    memory = with_configurations()
    keeper(memory).look()
    memory.put(CONFIGURATIONS[0], with_configurations().objects[CONFIGURATIONS[0]])
    forbid(memory, refused)
    late = keeper(memory)
    late.start()
    wait_for(lambda: "403 forbidden" in caplog.text)
    late.stop()

    assert stored(memory).leaf == late.pair()
    assert "certificates are not kept up" in caplog.text


@pytest.mark.parametrize("refused", ["GET", "PATCH"])
def test_who_has_nothing_to_serve_by_waits_for_it(
    refused: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the API server is away from the start: told once, and a leaf that nobody trusts is none."""
    monkeypatch.setattr(certs.rotator, "START_INTERVAL", 0.001)
    memory = with_configurations()
    forbid(memory, refused)
    one = keeper(memory)
    one.start()
    looks(memory, 20)
    before = one.pair()
    memory.before = lambda *_: None
    wait_for(lambda: one.pair() is not None)
    one.stop()

    assert (None, stored(memory).leaf) == (before, one.pair())
    assert 1 == caplog.text.count("certificates are not kept up")


def test_a_broken_secret_is_not_overwritten_and_what_is_served_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is complained of once, not at every look; put right, it is taken up again."""
    monkeypatch.setattr(certs.rotator, "LOOK_INTERVAL", 0.001)
    memory = with_configurations()
    one = keeper(memory)
    one.look()
    whole = memory.objects[SECRET]
    before = one.pair()
    one.start()
    memory.put(SECRET, whole | {"data": {"tls.crt": "Cg=="}})
    looks(memory, 20)
    served = one.pair()
    memory.put(SECRET, whole | {"type": "put right"})
    looks(memory, 3)
    memory.put(SECRET, whole | {"data": {"tls.crt": "Cg=="}})
    looks(memory, 20)
    one.stop()
    complaints = [record for record in caplog.records if record.levelno == logging.WARNING]

    assert {"tls.crt": "Cg=="} == memory.objects[SECRET]["data"]
    assert before == served == one.pair()
    assert 2 == len(complaints)
    with pytest.raises(CertificateError, match="holds no certificates of gpugate"):
        keeper(memory).look()


def looks(memory: Memory, count: int) -> None:
    """Return after so many more looks at the Secret."""
    seen = len(memory.calls)
    wait_for(lambda: memory.calls[seen:].count("GET gpugate-certs") >= count)


def test_a_thread_keeps_looking_and_hands_the_new_pair_to_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server's own look finds it without asking the API server."""
    monkeypatch.setattr(certs.rotator, "LOOK_INTERVAL", 0.001)
    memory, clock = with_configurations(), Clock()
    one = keeper(memory, clock)
    one.look()
    tls = TlsCertificate(partial(pair_of, one))
    one.start()
    clock.now += 61 * DAY
    looks(memory, 10)
    one.stop()

    assert tls.reload()
    assert validity_of(tls.pair.certificate_pem).not_after > START + 150 * DAY


@pytest.mark.parametrize("step", [None, Step.ISSUE_LEAF])
def test_an_endless_fight_is_given_up_and_told(step: Step | None) -> None:
    """Another who always writes first is not one of ours."""
    memory = with_configurations()
    one = keeper(memory)
    one.look()
    memory.put(SECRET, memory.objects[SECRET] | {"data": {}} if step is None else memory.objects[SECRET])

    def fight(method: str, path: str) -> None:
        if method == "PUT":
            raise Conflict(f"{method} {path}: 409")

    memory.before = fight

    with pytest.raises(KubernetesError, match="does not come to rest"):
        one.look() if step is None else one.force(step)
