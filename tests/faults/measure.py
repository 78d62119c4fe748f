"""One fault, under load: what was sent, what was lost, and how long until all was as before."""

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

# Seconds in which all has to be as before.
PATIENCE_S: Final = 60.0
# Seconds of load after that.
_AFTER_S: Final = 0.5

# What is lost while no gate answers; what the page says of that, and what to do.
AWAY: Final = frozenset({UNANSWERED, REFUSED})
GONE: Final = "Meanwhile failurePolicy refuses pods that ask for accelerators; none passes unjudged."
TWO: Final = "run two replicas or more, as the shipped Deployment does, on different nodes."

Breaks = Callable[[World], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is broken, and what the page says of it.

    what: exactly. then: why nothing is lost, or what is and what the API server does then. breaks: does it
    for the length of a block. serve: how the gate runs. loses: of REFUSED, UNANSWERED and WRONG, what may be
    lost. remedy: what to do where something is. edits: whether the API server takes edits meanwhile, else
    they are made right after. creates: whether pods are created through it. prepare: what has to be there
    before, for the length of a block. probes: what is asked beside what is always asked. restored: what has
    to be so again afterwards, beside rules and nodes. context: of clients that shake hands for each request.
    """

    name: str
    what: str
    then: str
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
    """What became of a fault.

    back_s: seconds from its end until the edit made in its middle, the node that joined then and all else
    were in force; None where they never were. grown: MB and files more than before; None for a new process.
    """

    reviews: Tally
    creations: Tally
    back_s: float | None
    grown: tuple[float, int] | None

    @property
    def became(self) -> Counter[str]:
        """What became of reviews and creations together."""
        return self.reviews.became + self.creations.became

    @property
    def lost(self) -> list[str]:
        """Say what was lost, a phrase each; nothing where nothing was."""
        became, wrong = self.became, self.reviews.wrong + self.creations.wrong
        told = [f"{became[each]} {each}" for each in (UNANSWERED, REFUSED) if became[each]]
        told += [f"{count} answered wrong: {about}" for about, count in wrong.items()]
        if told and (gaps := self.reviews.gaps + self.creations.gaps):
            told.append(f"sent again, answered after {max(gaps):.1f} s at most")
        if unsettled := self.reviews.open + self.creations.open:
            told.append(f"{unsettled} never answered")
        return [*told, "a change made meanwhile is not in force"] if self.back_s is None else told

    def undeclared(self, fault: Fault) -> list[str]:
        """Return what was lost that the fault does not say it loses."""
        became = self.became
        found = [each for each in (UNANSWERED, REFUSED, WRONG) if became[each] and each not in fault.loses]
        if self.reviews.open + self.creations.open or self.back_s is None or not became[RIGHT]:
            found.append("not back")
        return found


def measure(world: World, fault: Fault, seconds: float) -> Outcome:
    """Break something for so many seconds under load, and see what becomes of it."""
    with ExitStack() as stack:
        if fault.serve.files:  # which have to be there when it starts
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
        # Counted from the fault on.
        assert not load.reviews.became[WRONG] + load.reviews.became[UNANSWERED], load.reviews.wrong
        load.reviews.became.clear()
        load.creations.became.clear()
        with fault.breaks(world):
            time.sleep(seconds / 2)
            if fault.edits:
                change.make()
            time.sleep(seconds / 2)
        ended = time.monotonic()
        if not fault.edits:
            change.make()
        back_s = None
        with suppress(AssertionError):
            world.until(lambda: load.settled and change.in_force() and fault.restored(world), PATIENCE_S)
            back_s = time.monotonic() - ended
        time.sleep(_AFTER_S)
        after = world.gate.size()
    change.forget()
    same = pids == [gate.pid for gate in world.gates]
    grown = (after[0] - before[0], after[1] - before[1]) if same else None
    return Outcome(load.reviews, load.creations, back_s, grown)
