"""Renders the results: as lines on a terminal, and as the page docs/reliability.md."""

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
    "description",
    "sent",
    "lost",
    "behaviour of gpugate and the API server",
    "recovered after, s",
    "growth",
)
_HEAD: Final = f"""\
# Reliability

Written by `make faults`; do not edit. The faults are injected into a test cluster: a real kube-apiserver and
etcd, gpugate installed from the overlay `dev` with its service account, and a proxy between the two that can
break connections. During each fault, gpugate gets {RATE:.0f} reviews a second over {CONNECTIONS} persistent
connections, as from an API server, about each kind of rule (a default, a denial, variables, images and nodes,
node affinity, an exemption, a pod that no rule matches). In addition, {CREATIONS_RATE:.0f} pods a second are
created, as dry runs, through the real API server: alternately one that must get a default and one that must
be denied. For the faults of the image resolver, `gpugate images` runs with its own service account, and reads
a registry through a second proxy; reviews of an image that it read before are sent, too.

- **Sent**: reviews and pods from the start of the fault until half a second after recovery. Requests that are
  not answered are retried every quarter of a second; retries are included.
- **Lost**: requests with no answer in 5 s or a broken one (*not answered*), with a 429 or 503 (*refused*), or
  with a wrong answer (*answered wrong*), for example because rules or nodes are no longer known.
- **Recovered after**: seconds from the end of the fault until a rule edited during the fault, a node that
  joined and the facts of images that came during it, and everything that the fault removed are in force; 0 if
  they were in force before. Times are upper bounds: servers and clients share the machine.
- **Growth**: additional resident memory and open files of gpugate, half a second after recovery.
"""
_LOSSES: Final = """
## What is lost, and what to do

The API server sends a review once: it retries only after a 429 or 5xx with `Retry-After`, never after a
broken connection (k8s.io/client-go, rest/with_retry.go). With failurePolicy Fail, the default in the
manifests, the pod is then rejected with `failed calling webhook`. No pod is admitted unchecked, and its
controller creates it again, first after milliseconds, later after up to a quarter of an hour.

"""


def text(fault: Fault, outcome: Outcome, seconds: float) -> str:
    """Return the lines of a fault. seconds: its total duration."""
    undeclared = outcome.undeclared(fault)
    line = (
        f"{fault.name}: {_sent(outcome)}; lost: {_lost(outcome)}; recovered after {_recovered(outcome)} s; "
    )
    line += f"growth {_growth(outcome)} ({seconds:.0f} s in total)"
    return f"{line}\n  NOT DECLARED: {', '.join(undeclared)}" if undeclared else line


def markdown(outcomes: Mapping[str, Outcome], command: Sequence[str], seconds: float, load: float) -> str:
    """Return the page. command: its command line; seconds: its duration; load: the load average before it."""
    outcomes_of_faults = [(fault, outcomes[fault.name]) for fault in FAULTS if fault.name in outcomes]
    rows = [
        (
            fault.name,
            fault.description,
            _sent(outcome),
            lost if (lost := _lost(outcome)) == "nothing" else f"**{lost}**",
            fault.behaviour,
            _recovered(outcome),
            _growth(outcome),
        )
        for fault, outcome in outcomes_of_faults
    ]
    remedies = [f"- **{fault.name}**: {fault.remedy}\n" for fault, _ in outcomes_of_faults if fault.loses]
    versions = f"{build.pinned(build.KUBERNETES)}, {build.pinned(build.ETCD)}"
    facts = render_facts(command, seconds, load, {"Kubernetes, etcd": versions})
    return "".join((_HEAD, facts, "\n## Faults\n\n", render_rows(COLUMNS, rows), _LOSSES, *remedies))


def _sent(outcome: Outcome) -> str:
    reviews, pods = outcome.reviews.results.total(), outcome.creations.results.total()
    return f"{reviews:,} reviews" + (f", {pods:,} pods" if pods else "")


def _lost(outcome: Outcome) -> str:
    return "; ".join(outcome.lost) or "nothing"


def _recovered(outcome: Outcome) -> str:
    return "never" if outcome.recovered_s is None else f"{outcome.recovered_s:.1f}"


def _growth(outcome: Outcome) -> str:
    if outcome.growth is None:
        return "a new process"
    return f"{outcome.growth[0]:+.1f} MB, {outcome.growth[1]:+} files"
