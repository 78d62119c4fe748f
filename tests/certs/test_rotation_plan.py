"""The state machine of the trust: whatever the order of steps, what serves is trusted; it comes to rest.

In the model, replicas read, decide and write in any order, one call to the API server at a time, and the
clock advances between any two. Times are shortened: a leaf of 90 hours in place of days.
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
# Calls of one replica alone from anything to rest: ten steps of at most five calls, conflicts included.
ENOUGH = 50
is_signed = cache(is_issued_by)


@dataclass
class Replica:
    """A replica in the middle of whatever it does; serving is None until it has seen a leaf."""

    program: Iterator[None]
    serving: KeyPair | None = None
    seen: datetime = NOW  # when it last read what is stored
    rests: int = 0


@dataclass
class Configuration:
    """A caBundle, and since when it held what it holds."""

    history: list[tuple[datetime, tuple[bytes, ...]]] = field(default_factory=lambda: [(NOW, ())])

    @property
    def held(self) -> tuple[bytes, ...]:
        """The CAs in it now."""
        return self.history[-1][1]

    def held_since(self, moment: datetime) -> list[tuple[bytes, ...]]:
        """Return each version that was in force at this moment or later."""
        replaced = [*(when for when, _ in self.history[1:]), datetime.max.replace(tzinfo=UTC)]
        return [held for (_, held), until in zip(self.history, replaced, strict=True) if until > moment]


class Trust(RuleBasedStateMachine):
    """Three replicas, one stored bundle, two webhook configurations, one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.stored: Bundle | None = None
        self.version = 0
        self.configurations = [Configuration() for _ in CONFIGURATIONS]
        self.replicas: list[Replica | None] = [None for _ in REPLICAS]
        # Leaves issued where none served that was valid: API servers may hear late of their CA.
        self.hasty: set[bytes] = set()
        self.brought: set[bytes] = set()  # CAs that were not made by a step

    @initialize()
    def begin(self) -> None:
        """Start all replicas at once, from nothing."""
        for index in REPLICAS:
            self.start(index)

    def start(self, index: int) -> None:
        """Let a replica begin anew, with nothing in memory."""
        replica = Replica(iter(()), seen=self.now)
        replica.program = self.program(replica)
        self.replicas[index] = replica

    def program(self, replica: Replica) -> Iterator[None]:
        """Do what a keeper does, with a pause before each call."""
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
            if step is Step.REST:
                replica.rests += 1
            elif step is Step.TRUST:
                assert bundle
                for configuration, (at, held) in zip(self.configurations, seen, strict=True):
                    wanted = PLAN.trust(bundle, held, self.now)
                    if set(wanted) != set(held):
                        yield
                        if len(configuration.history) != at:
                            break
                        configuration.history.append((self.now, wanted))
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
            self.hasty.add(bundle.leaf.certificate_pem)

    def check_not_early(self, step: Step, taken: Bundle) -> None:
        """Refuse a certificate that is replaced while it holds at now + lookahead."""
        old = self.stored
        if step is Step.ISSUE_LEAF and old and old.leaf and old.issuer() == taken.issuer():
            assert not is_valid_at(old.leaf.certificate_pem, self.now + PLAN.lookahead)
        if step is Step.MAKE_AUTHORITY and old:
            authority = old.authority.certificate_pem
            ours = authority not in self.brought
            end = self.now + PLAN.lookahead + (PLAN.leaf_lifetime if ours else timedelta())
            assert not is_valid_at(authority, end)

    @rule(index=st.sampled_from(REPLICAS), calls=st.one_of(st.integers(1, 7), st.just(ENOUGH)))
    def go_on(self, index: int, calls: int) -> None:
        """Let a replica make its next calls."""
        replica = self.replicas[index]
        for _ in range(calls if replica else 0):
            assert replica
            next(replica.program)
            self.what_serves_is_trusted()

    @rule(
        time=st.one_of(
            st.timedeltas(timedelta(), timedelta(minutes=2)), st.timedeltas(timedelta(), 60 * HOUR)
        ),
        order=st.permutations(REPLICAS),
    )
    def wait(self, time: timedelta, order: list[int]) -> None:
        """Let time pass; none of the replicas looks less often than the overlap is for."""
        end = self.now + timedelta(seconds=time // timedelta(seconds=1))  # X.509 knows whole seconds
        while True:
            running = [replica for index in order if (replica := self.replicas[index])]
            latest = [replica.seen + PLAN.overlap - timedelta(seconds=1) for replica in running]
            self.now = min([end, *latest])
            self.what_serves_is_trusted()
            if self.now == end:
                return
            for replica, moment in zip(running, latest, strict=True):
                while moment == self.now != replica.seen:
                    next(replica.program)
                    self.what_serves_is_trusted()

    @rule(index=st.sampled_from(REPLICAS))
    def crash(self, index: int) -> None:
        """Stop a replica where it is."""
        self.replicas[index] = None

    @rule(index=st.sampled_from(REPLICAS))
    def restart(self, index: int) -> None:
        """Stop a replica where it is, if it runs, and start it."""
        self.start(index)

    @rule(time=st.timedeltas(timedelta(), 1000 * HOUR))
    def outage(self, time: timedelta) -> None:
        """Stop all for long."""
        self.replicas = [None for _ in REPLICAS]
        self.now += timedelta(seconds=time // timedelta(seconds=1))

    @precondition(lambda self: self.stored is not None)
    @rule()
    def somebody_replaces_the_authority(self) -> None:
        """As `gpugate certs rotate --ca` does, at any time and any number of times."""
        self.save(PLAN.take(Step.MAKE_AUTHORITY, self.stored, self.now))

    @precondition(lambda self: self.stored is not None)
    @rule(hours=st.integers(1, 400), alone=st.booleans())
    def somebody_brings_an_authority(self, hours: int, alone: bool) -> None:
        """In place of all that is stored, or beside what serves; it may hold for as long as one likes."""
        assert self.stored
        own = make_authority("own CA", self.now, hours * HOUR)
        self.brought.add(own.certificate_pem)
        self.save(Bundle(own) if alone else Bundle(own, self.stored.trusted, None, self.stored.leaf))

    @precondition(lambda self: self.stored is not None)
    @rule(index=st.sampled_from(REPLICAS))
    def an_authority_takes_over_while_others_stand_still(self, index: int) -> None:
        """Wherever they are: what they have read is old when they go on."""
        self.somebody_replaces_the_authority()
        self.go_on(index, ENOUGH)
        self.wait(PLAN.settling, list(REPLICAS))
        for each in (index, *REPLICAS):
            self.go_on(each, ENOUGH)

    @invariant()
    def what_serves_is_trusted(self) -> None:
        """By what each caBundle holds now, and by what API servers may still believe it holds."""
        since = self.now - PLAN.settling
        for replica in self.replicas:
            leaf = replica and replica.serving and replica.serving.certificate_pem
            if not leaf or not is_valid_at(leaf, self.now):
                continue
            for configuration in self.configurations:
                believed = [configuration.held] if leaf in self.hasty else configuration.held_since(since)
                for held in believed:
                    assert any(is_signed(leaf, authority) for authority in held)

    def teardown(self) -> None:
        """Let one replica alone come to rest now, and again when what is under way has had its time."""
        # Twice, because the first time an authority may come of age on the last moment.
        for pause in (timedelta(), PLAN.settling, PLAN.overlap, PLAN.settling, PLAN.overlap):
            self.now += pause
            self.start(0)
            replica = self.replicas[0]
            assert replica
            for _ in range(ENOUGH):
                next(replica.program)
            assert replica.rests > 0
        assert self.stored
        assert self.stored.leaf
        assert self.stored.previous == ()
        assert {configuration.held for configuration in self.configurations} == {self.stored.trusted}
        assert is_valid_at(self.stored.leaf.certificate_pem, self.now + PLAN.lookahead)


TestTrust = Trust.TestCase
# Without an explanation of a failure, which takes minutes.
TestTrust.settings = settings(max_examples=60, stateful_step_count=30, phases=set(Phase) - {Phase.explain})


def rest(
    bundle: Bundle | None, held: tuple[bytes, ...], now: datetime, taken: list[Step] | None = None
) -> tuple[Bundle, tuple[bytes, ...]]:
    """Take steps until there is none; return the bundle and the caBundle. taken: gets the steps."""
    while (step := PLAN.next_step(bundle, [held], now)) is not Step.REST:
        if taken is not None:
            taken.append(step)
        if step is Step.TRUST:
            assert bundle
            held = PLAN.trust(bundle, held, now)
        else:
            bundle = PLAN.take(step, bundle, now)
    assert bundle
    return bundle, held


FIRST, HELD = rest(None, (), NOW)


def steps(bundle: Bundle | None, held: tuple[bytes, ...], *moments: datetime) -> list[Step]:
    """Return which steps are taken, rests left out, with a look at each moment."""
    taken: list[Step] = []
    for now in moments:
        bundle, held = rest(bundle, held, now, taken)
    return taken


def test_from_nothing_the_authority_is_trusted_before_a_leaf_is_issued() -> None:
    """At once: nobody serves who would have to wait."""
    assert [Step.MAKE_AUTHORITY, Step.TRUST, Step.CONFIRM, Step.ISSUE_LEAF] == steps(None, (), NOW)


def test_an_authority_takes_over_in_steps_with_overlap() -> None:
    """A minute for the API servers to hear of the new one, six hours for the replicas to hear of its leaf."""
    began = PLAN.take(Step.MAKE_AUTHORITY, FIRST, NOW)
    settled = NOW + PLAN.settling

    assert [Step.TRUST, Step.CONFIRM] == steps(began, HELD, NOW, settled - timedelta(seconds=1))
    assert [Step.TRUST, Step.CONFIRM, Step.ISSUE_LEAF] == steps(
        began, HELD, NOW, settled, settled + PLAN.overlap - timedelta(seconds=1)
    )
    assert [
        Step.TRUST,
        Step.CONFIRM,
        Step.ISSUE_LEAF,
        Step.DROP_PREVIOUS,
        Step.TRUST,
    ] == steps(began, HELD, NOW, settled, settled + PLAN.overlap)


@given(age=st.timedeltas(timedelta(), 89 * HOUR))
def test_a_leaf_is_renewed_when_it_does_not_hold_at_now_plus_lookahead(age: timedelta) -> None:
    """And not a second earlier; the CA stays."""
    due = age > PLAN.leaf_lifetime - PLAN.lookahead

    assert ([Step.ISSUE_LEAF] if due else []) == steps(FIRST, HELD, NOW + age)


@given(age=st.timedeltas(timedelta(), 3000 * HOUR))
def test_after_an_outage_of_any_length_one_look_makes_all_valid(age: timedelta) -> None:
    """Whatever has expired meanwhile: leaf, CA or both."""
    now = NOW + age
    bundle, held = rest(FIRST, HELD, now)

    assert bundle.leaf
    assert is_valid_at(bundle.leaf.certificate_pem, now)
    assert bundle.issuer() in held


def test_in_years_of_looks_no_leaf_is_cut_short_and_none_is_renewed_early() -> None:
    """A leaf each sixty hours, and an authority before the one that would outlive it no more."""
    bundle: Bundle | None = None
    held: tuple[bytes, ...] = ()
    leaves, authorities = [], []
    for look in range(4000):
        bundle, held = rest(bundle, held, NOW + look * HOUR)
        if bundle.leaf and bundle.leaf.certificate_pem not in leaves:
            leaves.append(bundle.leaf.certificate_pem)
        if bundle.authority.certificate_pem not in authorities:
            authorities.append(bundle.authority.certificate_pem)
    lives = {validity_of(leaf).not_after - validity_of(leaf).not_before for leaf in leaves}
    made = [validity_of(each).not_before for each in authorities]

    assert {PLAN.leaf_lifetime + HOUR} == lives
    assert 4000 // 61 <= len(leaves) <= 4000 // 61 + 2 * len(authorities)
    assert {later - earlier for earlier, later in pairwise(made)} == {281 * HOUR}


@pytest.mark.parametrize(("left", "stays"), [(400, True), (119, True), (30, True), (29, False), (-1, False)])
def test_an_authority_made_elsewhere_stays_while_a_leaf_of_it_holds_past_the_lookahead(
    left: int, stays: bool
) -> None:
    """It is its owner's; then one of ours takes over, before anything has expired."""
    own = make_authority("own CA", NOW, left * HOUR)
    bundle, _ = rest(Bundle(own), (), NOW)

    assert stays is (own == bundle.authority)
    assert bundle.leaf
    assert is_valid_at(bundle.leaf.certificate_pem, NOW + PLAN.lookahead)


def test_it_is_known_from_when_on_an_authority_made_elsewhere_is_replaced() -> None:
    """As soon as it cuts the life of leaves short; of our own, which do not, nothing is to be told."""
    own = make_authority("own CA", NOW, 200 * HOUR)
    told = [PLAN.gives_up_at(own, NOW + hours * HOUR) for hours in (0, 80, 81, 180)]

    assert [None, None, NOW + 170 * HOUR, NOW + 170 * HOUR] == told
    assert PLAN.gives_up_at(FIRST.authority, NOW + 390 * HOUR) is None


def test_an_erased_ca_bundle_is_filled_again() -> None:
    """As `kubectl replace` leaves it."""
    assert ([Step.TRUST], HELD) == (steps(FIRST, (), NOW), rest(FIRST, (), NOW)[1])


def test_a_strange_authority_in_a_ca_bundle_is_taken_out_when_the_overlap_is_over() -> None:
    """Until then somebody may be served by it: the stored bundle may have been deleted and made anew."""
    stranger = make_authority(AUTHORITY_NAME, NOW).certificate_pem
    held = (stranger, *HELD)

    assert [] == steps(FIRST, held, NOW)
    assert [Step.TRUST] == steps(FIRST, held, NOW + PLAN.overlap)
    assert HELD == rest(FIRST, held, NOW + PLAN.overlap)[1]


def test_a_leaf_is_renewed_where_no_ca_bundle_may_be_written() -> None:
    """The same CA signs it: the trust is as good or bad as before."""
    assert Step.ISSUE_LEAF is PLAN.next_step(FIRST, [()], NOW + 70 * HOUR)


def test_a_certificate_of_the_future_is_replaced() -> None:
    """Somebody's clock was wrong; verifiers whose clock is right refuse it now."""
    bundle, held = rest(None, (), NOW + 80 * HOUR)

    assert [Step.MAKE_AUTHORITY, Step.TRUST, Step.CONFIRM, Step.ISSUE_LEAF] == steps(bundle, held, NOW)


@pytest.mark.parametrize("hours", [1, 2, 59, 61, 89, 91, 150, 250])
@pytest.mark.parametrize("first", [0, 1])
def test_replicas_whose_clocks_differ_agree_on_what_holds_by_both(hours: int, first: int) -> None:
    """Though to one the leaf has seen its days, or has none yet: otherwise they would take turns."""
    clocks = (NOW, NOW + hours * HOUR)
    bundle, held = rest(None, (), clocks[first])
    for now in (*clocks, *clocks):
        bundle, held = rest(bundle, held, now)

    assert bundle.leaf
    for now in clocks:
        assert Step.REST is PLAN.next_step(bundle, [held], now)
        assert is_valid_at(bundle.leaf.certificate_pem, now)


def test_a_leaf_that_ends_late_for_the_sake_of_a_clock_ends_with_its_authority() -> None:
    """At the latest."""
    of_future = PLAN.take(Step.ISSUE_LEAF, FIRST, NOW + 390 * HOUR)
    bundle = PLAN.take(Step.ISSUE_LEAF, of_future, NOW)

    assert bundle.leaf
    assert (
        validity_of(FIRST.authority.certificate_pem).not_after
        == validity_of(bundle.leaf.certificate_pem).not_after
    )


def test_replicas_that_want_different_names_agree_on_a_leaf_with_both() -> None:
    """As old and new ones do while gpugate is updated; an address is the same in each spelling."""
    wanted = [(SERVICE, "::1"), ("gpugate.new.svc", "0:0:0:0:0:0:0:1"), ("127.0.0.1",)]
    plans = [replace(PLAN, names=names) for names in wanted]
    bundle = FIRST
    for plan in (*plans, *plans):
        if plan.next_step(bundle, [HELD], NOW) is Step.ISSUE_LEAF:
            bundle = plan.take(Step.ISSUE_LEAF, bundle, NOW)

    assert bundle.leaf
    assert sorted([SERVICE, "gpugate.new.svc", "127.0.0.1", "::1"]) == sorted(
        names_in(bundle.leaf.certificate_pem)
    )
    assert {Step.REST} == {plan.next_step(bundle, [HELD], NOW) for plan in plans}


@pytest.mark.parametrize("step", [Step.REST, Step.TRUST])
def test_a_step_that_changes_no_bundle_makes_none(step: Step) -> None:
    """It is for the caller to act on."""
    with pytest.raises(ValueError, match="changes no bundle"):
        PLAN.take(step, FIRST, NOW)


@pytest.mark.parametrize(
    ("lookahead", "leaf", "authority"), [(90, 90, 400), (100, 90, 400), (30, 90, 120), (30, 90, 90)]
)
def test_a_plan_that_never_comes_to_rest_is_refused(lookahead: int, leaf: int, authority: int) -> None:
    """What it makes would be due at once."""
    with pytest.raises(ValueError, match="has to"):
        Plan(
            (SERVICE,),
            lookahead=lookahead * HOUR,
            leaf_lifetime=leaf * HOUR,
            authority_lifetime=authority * HOUR,
        )
