"""The rotation state machine: in any order of steps, every served leaf is trusted, and the rotation ends.

In the model, replicas read, decide and write in any order, one call to the API server at a time, and the
clock advances between any two calls. Times are shortened: a leaf of 90 hours instead of days.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certs.authority import is_valid_at, make_authority, validity_of
from certs.bundle import Bundle, is_issued_by, names_in
from certs.rotation_plan import AUTHORITY_NAME, Plan, Step
from tests.support.laws import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from certs.authority import KeyPair

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SERVICE = "gpugate.gpugate.svc"
PLAN = Plan(
    (SERVICE,),
    lookahead=30 * HOUR,
    leaf_lifetime=90 * HOUR,
    authority_lifetime=400 * HOUR,
    settling=timedelta(minutes=1),
    overlap=6 * HOUR,
)
REPLICAS = range(3)
CONFIGURATIONS = range(2)
# Calls of a single replica from any state until it is done: ten steps of at most five calls.
ENOUGH = 50
is_signed = cache(is_issued_by)


@dataclass
class Replica:
    """A replica that may stop between any two calls; serving is None until it has read a leaf."""

    program: Iterator[None]
    serving: KeyPair | None = None
    seen: datetime = NOW  # when it last read what is stored
    idle_runs: int = 0


@dataclass
class Configuration:
    """A caBundle and its history."""

    history: list[tuple[datetime, tuple[bytes, ...]]] = field(default_factory=lambda: [(NOW, ())])

    @property
    def held(self) -> tuple[bytes, ...]:
        """The CAs in it now."""
        return self.history[-1][1]

    def held_since(self, moment: datetime) -> list[tuple[bytes, ...]]:
        """Return each version that was in force at this time or later."""
        replaced = [*(when for when, _ in self.history[1:]), datetime.max.replace(tzinfo=UTC)]
        return [held for (_, held), until in zip(self.history, replaced, strict=True) if until > moment]


class Rotation(RuleBasedStateMachine):
    """Three replicas, one stored bundle, two webhook configurations, one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.stored: Bundle | None = None
        self.version = 0
        self.configurations = [Configuration() for _ in CONFIGURATIONS]
        self.replicas: list[Replica | None] = [None for _ in REPLICAS]
        # Leaves issued while no valid leaf served: API servers may see their CA late.
        self.urgent: set[bytes] = set()
        self.external: set[bytes] = set()  # CAs that no step created

    @initialize()
    def begin(self) -> None:
        """Start all replicas at once, with an empty store."""
        for index in REPLICAS:
            self.start(index)

    def start(self, index: int) -> None:
        """Start a replica with empty memory."""
        replica = Replica(iter(()), seen=self.now)
        replica.program = self.program(replica)
        self.replicas[index] = replica

    def program(self, replica: Replica) -> Iterator[None]:
        """Do what a CertRotator does, with a pause before each call."""
        while True:
            seen = []
            for configuration in self.configurations:
                yield
                seen.append((len(configuration.history), configuration.held))
            yield
            bundle, version = self.stored, self.version
            replica.seen = self.now
            replica.serving = bundle.leaf if bundle and bundle.leaf else replica.serving
            step = PLAN.next_step(bundle, [held for _, held in seen], self.now)
            if step is Step.DONE:
                replica.idle_runs += 1
            elif step is Step.TRUST:
                assert bundle
                for configuration, (at, held) in zip(self.configurations, seen, strict=True):
                    expected = PLAN.trust(bundle, held, self.now)
                    if set(expected) != set(held):
                        yield
                        if len(configuration.history) != at:
                            break
                        configuration.history.append((self.now, expected))
            else:
                taken = PLAN.take(step, bundle, self.now)
                yield
                if self.version == version:
                    self.check_not_early(step, taken)
                    self.save(taken)

    def save(self, bundle: Bundle) -> None:
        """Store a bundle."""
        old, self.stored = self.stored, bundle
        self.version += 1
        served = old and old.leaf and is_valid_at(old.leaf.certificate_pem, self.now)
        if bundle.leaf and not served:
            self.urgent.add(bundle.leaf.certificate_pem)

    def check_not_early(self, step: Step, taken: Bundle) -> None:
        """Fail if a certificate is replaced that is still valid at now + lookahead."""
        old = self.stored
        if step is Step.ISSUE_LEAF and old and old.leaf and old.issuer() == taken.issuer():
            assert not is_valid_at(old.leaf.certificate_pem, self.now + PLAN.lookahead)
        if step is Step.MAKE_AUTHORITY and old:
            authority = old.authority.certificate_pem
            ours = authority not in self.external
            end = self.now + PLAN.lookahead + (PLAN.leaf_lifetime if ours else timedelta())
            assert not is_valid_at(authority, end)

    @rule(index=st.sampled_from(REPLICAS), calls=st.one_of(st.integers(1, 7), st.just(ENOUGH)))
    def continue_replica(self, index: int, calls: int) -> None:
        """Let a replica make its next calls."""
        replica = self.replicas[index]
        for _ in range(calls if replica else 0):
            assert replica
            next(replica.program)
            self.every_served_leaf_is_trusted()

    @rule(
        time=st.one_of(
            st.timedeltas(timedelta(), timedelta(minutes=2)), st.timedeltas(timedelta(), 60 * HOUR)
        ),
        order=st.permutations(REPLICAS),
    )
    def wait(self, time: timedelta, order: list[int]) -> None:
        """Let time pass; every replica reads at least once per overlap."""
        end = self.now + timedelta(seconds=time // timedelta(seconds=1))  # X.509 knows whole seconds
        while True:
            running = [replica for index in order if (replica := self.replicas[index])]
            latest = [replica.seen + PLAN.overlap - timedelta(seconds=1) for replica in running]
            self.now = min([end, *latest])
            self.every_served_leaf_is_trusted()
            if self.now == end:
                return
            for replica, moment in zip(running, latest, strict=True):
                while moment == self.now != replica.seen:
                    next(replica.program)
                    self.every_served_leaf_is_trusted()

    @rule(index=st.sampled_from(REPLICAS))
    def crash(self, index: int) -> None:
        """Stop a replica at its current call."""
        self.replicas[index] = None

    @rule(index=st.sampled_from(REPLICAS))
    def restart(self, index: int) -> None:
        """Stop a replica at its current call, if it runs, and start it."""
        self.start(index)

    @rule(time=st.timedeltas(timedelta(), 1000 * HOUR))
    def outage(self, time: timedelta) -> None:
        """Stop all replicas for a long time."""
        self.replicas = [None for _ in REPLICAS]
        self.now += timedelta(seconds=time // timedelta(seconds=1))

    @precondition(lambda self: self.stored is not None)
    @rule()
    def rotate_the_authority(self) -> None:
        """As `gpugate certs rotate --ca` does, at any time and any number of times."""
        self.save(PLAN.take(Step.MAKE_AUTHORITY, self.stored, self.now))

    @precondition(lambda self: self.stored is not None)
    @rule(hours=st.integers(1, 400), alone=st.booleans())
    def store_an_external_authority(self, hours: int, alone: bool) -> None:
        """Alone, or together with the current leaf; with any lifetime."""
        assert self.stored
        own = make_authority("own CA", self.now, hours * HOUR)
        self.external.add(own.certificate_pem)
        self.save(Bundle(own) if alone else Bundle(own, self.stored.trusted, None, self.stored.leaf))

    @precondition(lambda self: self.stored is not None)
    @rule(index=st.sampled_from(REPLICAS))
    def rotate_the_authority_while_others_pause(self, index: int) -> None:
        """At any call: what they have read is outdated when they continue."""
        self.rotate_the_authority()
        self.continue_replica(index, ENOUGH)
        self.wait(PLAN.settling, list(REPLICAS))
        for replica in (index, *REPLICAS):
            self.continue_replica(replica, ENOUGH)

    @invariant()
    def every_served_leaf_is_trusted(self) -> None:
        """By each caBundle as it is now, and as API servers may still have it cached."""
        since = self.now - PLAN.settling
        for replica in self.replicas:
            leaf = replica and replica.serving and replica.serving.certificate_pem
            if not leaf or not is_valid_at(leaf, self.now):
                continue
            for configuration in self.configurations:
                cached = [configuration.held] if leaf in self.urgent else configuration.held_since(since)
                for held in cached:
                    assert any(is_signed(leaf, authority) for authority in held)

    def teardown(self) -> None:
        """Run one replica until it is done, now and after each waiting time of a rotation."""
        # Twice, because in the first round a CA may become due at the last moment.
        for pause in (timedelta(), PLAN.settling, PLAN.overlap, PLAN.settling, PLAN.overlap):
            self.now += pause
            self.start(0)
            replica = self.replicas[0]
            assert replica
            for _ in range(ENOUGH):
                next(replica.program)
            assert replica.idle_runs > 0
        assert self.stored
        assert self.stored.leaf
        assert self.stored.previous == ()
        assert {configuration.held for configuration in self.configurations} == {self.stored.trusted}
        assert is_valid_at(self.stored.leaf.certificate_pem, self.now + PLAN.lookahead)


TestRotation = Rotation.TestCase
# Without Phase.explain, which takes minutes.
TestRotation.settings = settings(
    max_examples=EXAMPLES // 2, stateful_step_count=30, phases=set(Phase) - {Phase.explain}
)


def finish(
    bundle: Bundle | None, held: tuple[bytes, ...], now: datetime, taken: list[Step] | None = None
) -> tuple[Bundle, tuple[bytes, ...]]:
    """Take all due steps; return the bundle and the caBundle. taken: collects the steps."""
    while (step := PLAN.next_step(bundle, [held], now)) is not Step.DONE:
        if taken is not None:
            taken.append(step)
        if step is Step.TRUST:
            assert bundle
            held = PLAN.trust(bundle, held, now)
        else:
            bundle = PLAN.take(step, bundle, now)
    assert bundle
    return bundle, held


FIRST, HELD = finish(None, (), NOW)


def steps(bundle: Bundle | None, held: tuple[bytes, ...], *moments: datetime) -> list[Step]:
    """Return the steps that are taken in one run at each of these times."""
    taken: list[Step] = []
    for now in moments:
        bundle, held = finish(bundle, held, now, taken)
    return taken


def test_from_an_empty_store_the_authority_is_trusted_before_a_leaf_is_issued() -> None:
    """Without waiting, because nothing is served yet."""
    assert [Step.MAKE_AUTHORITY, Step.TRUST, Step.CONFIRM, Step.ISSUE_LEAF] == steps(None, (), NOW)


def test_an_authority_is_rotated_in_steps_with_overlap() -> None:
    """A minute for the API servers to see the new CA, six hours for the replicas to load its leaf."""
    began = PLAN.take(Step.MAKE_AUTHORITY, FIRST, NOW)
    settled = NOW + PLAN.settling

    assert [Step.TRUST, Step.CONFIRM] == steps(began, HELD, NOW, settled - timedelta(seconds=1))
    assert [Step.TRUST, Step.CONFIRM, Step.ISSUE_LEAF] == steps(
        began, HELD, NOW, settled, settled + PLAN.overlap - timedelta(seconds=1)
    )
    assert [Step.TRUST, Step.CONFIRM, Step.ISSUE_LEAF, Step.DROP_PREVIOUS, Step.TRUST] == steps(
        began, HELD, NOW, settled, settled + PLAN.overlap
    )


@given(age=st.timedeltas(timedelta(), 89 * HOUR))
def test_a_leaf_is_renewed_when_it_is_not_valid_at_now_plus_lookahead(age: timedelta) -> None:
    """And not a second earlier; the CA stays."""
    due = age > PLAN.leaf_lifetime - PLAN.lookahead

    assert ([Step.ISSUE_LEAF] if due else []) == steps(FIRST, HELD, NOW + age)


@given(age=st.timedeltas(timedelta(), 3000 * HOUR))
def test_after_an_outage_of_any_length_one_run_makes_all_valid(age: timedelta) -> None:
    """Whether the leaf, the CA or both have expired."""
    now = NOW + age
    bundle, held = finish(FIRST, HELD, now)

    assert bundle.leaf
    assert is_valid_at(bundle.leaf.certificate_pem, now)
    assert bundle.issuer() in held


def test_over_years_no_leaf_is_shortened_and_none_is_renewed_early() -> None:
    """A leaf every sixty hours, and a new CA before a leaf would expire after the old one."""
    bundle: Bundle | None = None
    held: tuple[bytes, ...] = ()
    leaves, authorities = [], []
    for run in range(4000):
        bundle, held = finish(bundle, held, NOW + run * HOUR)
        if bundle.leaf and bundle.leaf.certificate_pem not in leaves:
            leaves.append(bundle.leaf.certificate_pem)
        if bundle.authority.certificate_pem not in authorities:
            authorities.append(bundle.authority.certificate_pem)
    lives = {validity_of(leaf).not_after - validity_of(leaf).not_before for leaf in leaves}
    made = [validity_of(authority).not_before for authority in authorities]

    assert {PLAN.leaf_lifetime + HOUR} == lives
    assert 4000 // 61 <= len(leaves) <= 4000 // 61 + 2 * len(authorities)
    assert {later - earlier for earlier, later in pairwise(made)} == {281 * HOUR}


@pytest.mark.parametrize(("left", "stays"), [(400, True), (119, True), (30, True), (29, False), (-1, False)])
def test_an_external_authority_stays_while_its_leaf_is_valid_past_the_lookahead(
    left: int, stays: bool
) -> None:
    """It belongs to its owner; then a generated CA replaces it, before anything has expired."""
    own = make_authority("own CA", NOW, left * HOUR)
    bundle, _ = finish(Bundle(own), (), NOW)

    assert stays is (own == bundle.authority)
    assert bundle.leaf
    assert is_valid_at(bundle.leaf.certificate_pem, NOW + PLAN.lookahead)


def test_the_plan_says_when_an_external_authority_is_replaced() -> None:
    """As soon as it shortens leaves; for a generated CA, which never does, there is no such time."""
    own = make_authority("own CA", NOW, 200 * HOUR)
    times = [PLAN.external_ca_replaced_at(own, NOW + hours * HOUR) for hours in (0, 80, 81, 180)]

    assert [None, None, NOW + 170 * HOUR, NOW + 170 * HOUR] == times
    assert PLAN.external_ca_replaced_at(FIRST.authority, NOW + 390 * HOUR) is None


def test_an_emptied_ca_bundle_is_filled_again() -> None:
    """As after `kubectl replace`."""
    assert ([Step.TRUST], HELD) == (steps(FIRST, (), NOW), finish(FIRST, (), NOW)[1])


def test_an_unknown_authority_in_a_ca_bundle_is_removed_after_the_overlap() -> None:
    """A replica may still serve its leaf: somebody may have deleted the stored bundle."""
    stranger = make_authority(AUTHORITY_NAME, NOW).certificate_pem
    held = (stranger, *HELD)

    assert [] == steps(FIRST, held, NOW)
    assert [Step.TRUST] == steps(FIRST, held, NOW + PLAN.overlap)
    assert HELD == finish(FIRST, held, NOW + PLAN.overlap)[1]


def test_a_leaf_is_renewed_if_gpugate_may_not_write_the_ca_bundle() -> None:
    """The same CA signs it, so the required caBundle does not change."""
    assert Step.ISSUE_LEAF is PLAN.next_step(FIRST, [()], NOW + 70 * HOUR)


def test_a_certificate_of_the_future_is_replaced() -> None:
    """A clock was wrong; verifiers with a correct clock refuse it now."""
    bundle, held = finish(None, (), NOW + 80 * HOUR)

    assert [Step.MAKE_AUTHORITY, Step.TRUST, Step.CONFIRM, Step.ISSUE_LEAF] == steps(bundle, held, NOW)


@pytest.mark.parametrize("hours", [1, 2, 59, 61, 89, 91, 150, 250])
@pytest.mark.parametrize("first", [0, 1])
def test_replicas_with_different_clocks_agree_on_a_leaf_valid_for_both(hours: int, first: int) -> None:
    """Otherwise they would replace each other's leaf without end."""
    clocks = (NOW, NOW + hours * HOUR)
    bundle, held = finish(None, (), clocks[first])
    for now in (*clocks, *clocks):
        bundle, held = finish(bundle, held, now)

    assert bundle.leaf
    for now in clocks:
        assert Step.DONE is PLAN.next_step(bundle, [held], now)
        assert is_valid_at(bundle.leaf.certificate_pem, now)


def test_a_leaf_extended_for_another_clock_expires_with_its_authority() -> None:
    """It never expires after its CA."""
    of_future = PLAN.take(Step.ISSUE_LEAF, FIRST, NOW + 390 * HOUR)
    bundle = PLAN.take(Step.ISSUE_LEAF, of_future, NOW)

    assert bundle.leaf
    assert (
        validity_of(FIRST.authority.certificate_pem).not_after
        == validity_of(bundle.leaf.certificate_pem).not_after
    )


def test_replicas_with_different_names_agree_on_a_leaf_with_all_names() -> None:
    """As during an update of gpugate; all spellings of an address are the same name."""
    name_sets = [(SERVICE, "::1"), ("gpugate.new.svc", "0:0:0:0:0:0:0:1"), ("127.0.0.1",)]
    plans = [replace(PLAN, names=names) for names in name_sets]
    bundle = FIRST
    for plan in (*plans, *plans):
        if plan.next_step(bundle, [HELD], NOW) is Step.ISSUE_LEAF:
            bundle = plan.take(Step.ISSUE_LEAF, bundle, NOW)

    assert bundle.leaf
    assert sorted([SERVICE, "gpugate.new.svc", "127.0.0.1", "::1"]) == sorted(
        names_in(bundle.leaf.certificate_pem)
    )
    assert {Step.DONE} == {plan.next_step(bundle, [HELD], NOW) for plan in plans}


@pytest.mark.parametrize("step", [Step.DONE, Step.TRUST])
def test_a_step_that_does_not_change_the_bundle_cannot_be_taken(step: Step) -> None:
    """The caller handles it."""
    with pytest.raises(ValueError, match="does not change the bundle"):
        PLAN.take(step, FIRST, NOW)


@pytest.mark.parametrize(
    ("lookahead", "leaf", "authority"), [(90, 90, 400), (100, 90, 400), (30, 90, 120), (30, 90, 90)]
)
def test_a_plan_that_would_never_be_done_is_refused(lookahead: int, leaf: int, authority: int) -> None:
    """Its certificates would be due for replacement at once."""
    with pytest.raises(ValueError, match="must be"):
        Plan(
            (SERVICE,),
            lookahead=lookahead * HOUR,
            leaf_lifetime=leaf * HOUR,
            authority_lifetime=authority * HOUR,
        )
