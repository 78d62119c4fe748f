"""What was found, for people: as lines on a terminal, and as the page docs/reliability.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.bench.page import render_facts, render_rows
from tests.e2e.assets import build
from tests.faults.faults import FAULTS
from tests.faults.load import CONNECTIONS, CREATIONS_RATE, RATE
from tests.faults.measure import Fault, Outcome

COLUMNS: Final = (
    "fault",
    "what it is, exactly",
    "sent",
    "lost",
    "why; what the API server does then",
    "back in force after, s",
    "grown by",
)
_HEAD: Final = f"""\
# Reliability

Written by `make faults`; do not edit. Each fault is made in a cluster of its own: a real kube-apiserver and
etcd, gpugate installed by the overlay `dev` under its own service account, and a wire between the two that
can be broken. Meanwhile the gate is asked as an API server asks it, {RATE:.0f} reviews a second over
{CONNECTIONS} kept connections, about a rule of each kind (a default, a refusal, variables, images and
nodes, node affinity, an exemption, a pod of no concern), and {CREATIONS_RATE:.0f} pods a second are
created, as dry runs, through the real API server: one that must get a default, one that must be refused, by
turns.

- **Sent** are reviews and pods from the beginning of the fault until half a second after all is well again,
  with those that were sent again because they were not answered, every quarter of a second.
- **Lost** is what had no answer in 5 s or a broken one (*not answered*), a 429 or 503 (*refused*), or any
  other answer than the right one (*answered wrong*): a rule, or the nodes, that are no longer known would
  show there.
- **Back in force** are a rule that was edited in the middle of the fault, a node that joined then, and what
  the fault took away, so many seconds after its end, 0 where all was in force before. Times are upper
  bounds: servers and clients share the machine.
- **Grown by** is resident memory and open files of the gate, half a second after that.
"""
_LOSSES: Final = """
## What is lost, and what to do

The API server sends a review once: it asks again for a 429 or 5xx with `Retry-After` alone, never where a
connection breaks (k8s.io/client-go, rest/with_retry.go). With failurePolicy Fail, as shipped, the pod is then
refused with `failed calling webhook`, none passes unjudged, and its controller creates it again, first after
milliseconds, later after up to a quarter of an hour.

"""


def text(fault: Fault, outcome: Outcome, seconds: float) -> str:
    """Return a fault's lines. seconds: that it took in all."""
    undeclared = outcome.undeclared(fault)
    told = f"{fault.name}: {_sent(outcome)}; lost: {_lost(outcome)}; back after {_back(outcome)} s; "
    told += f"grown by {_grown(outcome)} ({seconds:.0f} s in all)"
    return f"{told}\n  NOT DECLARED: {', '.join(undeclared)}" if undeclared else told


def markdown(outcomes: Mapping[str, Outcome], command: Sequence[str], seconds: float, load: float) -> str:
    """Return the page. command: what was run; seconds: how long it took; load: the average before it."""
    found = [(fault, outcomes[fault.name]) for fault in FAULTS if fault.name in outcomes]
    rows = [
        (
            fault.name,
            fault.what,
            _sent(outcome),
            lost if (lost := _lost(outcome)) == "nothing" else f"**{lost}**",
            fault.then,
            _back(outcome),
            _grown(outcome),
        )
        for fault, outcome in found
    ]
    remedies = [f"- **{fault.name}**: {fault.remedy}\n" for fault, _ in found if fault.loses]
    versions = f"{build.pinned(build.KUBERNETES)}, {build.pinned(build.ETCD)}"
    facts = render_facts(command, seconds, load, {"Kubernetes, etcd": versions})
    return "".join((_HEAD, facts, "\n## Faults\n\n", render_rows(COLUMNS, rows), _LOSSES, *remedies))


def _sent(outcome: Outcome) -> str:
    reviews, pods = outcome.reviews.became.total(), outcome.creations.became.total()
    return f"{reviews:,} reviews" + (f", {pods:,} pods" if pods else "")


def _lost(outcome: Outcome) -> str:
    return "; ".join(outcome.lost) or "nothing"


def _back(outcome: Outcome) -> str:
    return "never" if outcome.back_s is None else f"{outcome.back_s:.1f}"


def _grown(outcome: Outcome) -> str:
    if outcome.grown is None:
        return "a new process"
    return f"{outcome.grown[0]:+.1f} MB, {outcome.grown[1]:+} files"
