"""Measures one fault under load: requests sent, requests lost, and the time to recover."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.faults.load import REFUSED, RIGHT, UNANSWERED, WRONG, Load, Tally
from tests.faults.probes import STEADY, Probe
from tests.faults.world import Serve, World

if TYPE_CHECKING:
    import ssl

# Seconds in which everything must recover.
PATIENCE_S: Final = 60.0
# Seconds of load after the recovery.
_AFTER_S: Final = 0.5

# Results while no replica answers; its description on the page, and the remedy.
AWAY: Final = frozenset({UNANSWERED, REFUSED})
GONE: Final = "Meanwhile failurePolicy rejects pods that request accelerators; none is admitted unchecked."
TWO: Final = "run two or more replicas on different nodes, as the Deployment in the manifests does."

Breaks = Callable[[World], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and its description on the page.

    description: the exact fault. behaviour: why nothing is lost, or what is lost and what the API server
    does. breaks: a context manager that injects it. serve: how gpugate runs. loses: the results of REFUSED,
    UNANSWERED and WRONG that may occur. remedy: what to do about a loss. edits: whether the API server
    accepts edits during the fault; otherwise they are made after it. creates: whether pods are created
    through the API server. prepare: a context manager for the setup. probes: additional reviews. restored:
    whether everything else than rules and nodes has recovered. context: of clients that do a handshake for
    each request.
    """

    name: str
    description: str
    behaviour: str
    breaks: Breaks
    serve: Serve = field(default_factory=Serve)
    loses: frozenset[str] = frozenset()
    remedy: str = ""
    edits: bool = True
    creates: bool = True
    prepare: Breaks = lambda _: nullcontext()
    probes: tuple[Probe, ...] = ()
    restored: Callable[[World], bool] = lambda _: True
    context: Callable[[World], ssl.SSLContext | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a fault.

    recovered_s: seconds from its end until the rule edited during it, the node that joined during it and
    everything else were in force; None if they never were. growth: additional MB and open files; None for a
    new process.
    """

    reviews: Tally
    creations: Tally
    recovered_s: float | None
    growth: tuple[float, int] | None

    @property
    def results(self) -> Counter[str]:
        """The results of reviews and creations together."""
        return self.reviews.results + self.creations.results

    @property
    def lost(self) -> list[str]:
        """Describe the losses, one phrase each; empty if there are none."""
        results, wrong = self.results, self.reviews.wrong + self.creations.wrong
        losses = [f"{results[loss]} {loss}" for loss in (UNANSWERED, REFUSED) if results[loss]]
        losses += [f"{count} answered wrong: {about}" for about, count in wrong.items()]
        if losses and (gaps := self.reviews.gaps + self.creations.gaps):
            losses.append(f"retried, answered after at most {max(gaps):.1f} s")
        if unsettled := self.reviews.open + self.creations.open:
            losses.append(f"{unsettled} never answered")
        if self.recovered_s is None:
            losses.append("a change made during the fault is not in force")
        return losses

    def undeclared(self, fault: Fault) -> list[str]:
        """Return the losses that the fault does not declare."""
        results = self.results
        losses = [loss for loss in (UNANSWERED, REFUSED, WRONG) if results[loss] and loss not in fault.loses]
        if self.reviews.open + self.creations.open or self.recovered_s is None or not results[RIGHT]:
            losses.append("not recovered")
        return losses


def measure(world: World, fault: Fault, seconds: float) -> Outcome:
    """Inject a fault for so many seconds under load, and return the result."""
    with ExitStack() as stack:
        if fault.serve.files:  # they must exist when it starts
            stack.enter_context(fault.prepare(world))
        world.serve(fault.serve)
        if not fault.serve.files:
            stack.enter_context(fault.prepare(world))
        return _measured(world, fault, seconds)


def _measured(world: World, fault: Fault, seconds: float) -> Outcome:
    change = world.change()
    kubeconfig = world.cluster.kubeconfig if fault.creates else None
    pids = [gate.pid for gate in world.gates]
    with Load(world.port, kubeconfig, STEADY + fault.probes, fault.context(world)) as load:
        time.sleep(_AFTER_S)
        before = world.gate.size()
        # Results count from the start of the fault.
        assert not load.reviews.results[WRONG] + load.reviews.results[UNANSWERED], load.reviews.wrong
        load.reviews.results.clear()
        load.creations.results.clear()
        with fault.breaks(world):
            time.sleep(seconds / 2)
            if fault.edits:
                change.make()
            time.sleep(seconds / 2)
        ended = time.monotonic()
        if not fault.edits:
            change.make()
        recovered_s = None
        with suppress(AssertionError):
            world.until(lambda: load.settled and change.in_force() and fault.restored(world), PATIENCE_S)
            recovered_s = time.monotonic() - ended
        time.sleep(_AFTER_S)
        after = world.gate.size()
    change.forget()
    same = pids == [gate.pid for gate in world.gates]
    growth = (after[0] - before[0], after[1] - before[1]) if same else None
    return Outcome(load.reviews, load.creations, recovered_s, growth)
