"""Each fault, briefly: no loss that the page docs/reliability.md does not declare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rules.schema.config_map import Loaded
from tests.e2e.cluster import assets, missing
from tests.e2e.manifests import ROOT
from tests.faults.faults import FAULTS, IN_TURN
from tests.faults.load import RIGHT, UNANSWERED, WRONG, Tally
from tests.faults.measure import Fault, Outcome, measure
from tests.faults.page import COLUMNS
from tests.faults.probes import STEADY
from tests.faults.world import World
from webhook.admission.handler import AdmissionHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds that each fault lasts.
BRIEF_S = 0.6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a cluster into which faults can be injected."""
    if absent := missing(assets()):
        pytest.skip(f"no {', '.join(absent)}: run `make e2e-assets` or set KUBEBUILDER_ASSETS")
    with World(assets(), tmp_path_factory.mktemp("faults")) as world:
        yield world


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", IN_TURN, ids=lambda fault: fault.name)
def test_every_loss_is_declared_on_the_page(fault: Fault, world: World) -> None:
    """And rules, nodes and certificate recover."""
    outcome = measure(world, fault, BRIEF_S)

    assert [] == outcome.undeclared(fault), outcome.lost


def test_undeclared_losses_are_reported() -> None:
    """With kind and duration."""
    reviews = Tally(gaps=[0.25])
    for result, about in ((RIGHT, "node"), (UNANSWERED, "node"), (WRONG, "resource rule")):
        reviews.count(result, about)
    outcome = Outcome(reviews, Tally(), None, None)

    assert [
        "1 not answered",
        "1 answered wrong: resource rule",
        "retried, answered after at most 0.2 s",
        "a change made during the fault is not in force",
    ] == outcome.lost
    assert [UNANSWERED, WRONG, "not recovered"] == outcome.undeclared(FAULTS[0])


def test_a_server_without_rules_answers_wrong() -> None:
    """To every probe except those that no rule matches."""
    server = AdmissionHandler(Loaded())
    right = {probe.about for probe in STEADY if probe.right(server.answer(probe.path[1:], probe.body))}  # type: ignore[arg-type]

    assert {"exemption", "no rule"} == right


def test_the_page_describes_the_current_faults() -> None:
    """`make faults` writes it."""
    page = (ROOT / "docs/reliability.md").read_text("utf-8")
    lines = [
        re.split(r" \| ", line.strip("| \n"))
        for line in page.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    table = [line for line in lines if len(line) == len(COLUMNS)]

    assert list(COLUMNS) == table[0]
    assert [(fault.name, fault.description, fault.behaviour) for fault in FAULTS] == [
        (name, description, behaviour) for name, description, _, _, behaviour, _, _ in table[1:]
    ]
    for fault, (_, _, _, lost, *_) in zip(FAULTS, table[1:], strict=True):
        assert fault.loses or lost == "nothing"
        assert bool(fault.loses) == (f"- **{fault.name}**: " in page)
