"""What was decided is told to metrics and log: each decision once, soon, and nothing of the object."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import monotonic, sleep

import pytest

import webhook.admission.decision_log
from rules.model.decision import Decision, Violation
from rules.model.request import AdmissionRequest
from rules.model.rule import Action
from webhook.admission.decision_log import DecisionLog, Entry
from webhook.admission.review import Review
from webhook.telemetry import metrics

LOGGER = "gpugate.admission"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return what tells the names of the objects of which was logged."""

    def names() -> list[str]:
        return [vars(record)["object"] for record in caplog.records if "object" in vars(record)]

    with caplog.at_level(logging.INFO, LOGGER):
        yield names


def _note(ledger: DecisionLog, name: str, decision: Decision | None = None) -> None:
    request = AdmissionRequest("CREATE", "", "Pod", "team", {"metadata": {"name": name}})
    ledger.note("mutate", Review("uid", name, False, request), decision or Decision(rules=("a",)), 0.001)


def _counted(rule: str) -> float:
    return metrics.counter_of(metrics.RULE_MATCHES, "mutate", rule)._value.get()  # type: ignore[no-any-return]


def test_a_decision_is_told_at_once(told: Callable[[], list[str]]) -> None:
    """Unless a server gathers."""
    ledger, before = DecisionLog(), _counted("a")
    _note(ledger, "first")

    assert told() == ["first"]
    assert _counted("a") == before + 1


def test_what_a_server_gathers_is_told_many_at_once_in_its_order(told: Callable[[], list[str]]) -> None:
    """And the rest when it ends."""
    ledger, before = DecisionLog(), _counted("a")
    names = [str(number) for number in range(70)]
    with ledger.gathering():
        for name in names[:63]:
            _note(ledger, name)
        few = told()
        for name in names[63:]:
            _note(ledger, name)
        many = told()

    assert (few, many, told()) == ([], names[:64], names)
    assert _counted("a") == before + 70


def test_what_a_server_gathers_is_told_soon(told: Callable[[], list[str]]) -> None:
    """However few they are."""
    ledger = DecisionLog()
    with ledger.gathering():
        _note(ledger, "alone")
        begun = monotonic()
        while not told() and monotonic() < begun + 10:
            sleep(0.01)

        assert told() == ["alone"]


def test_what_a_server_gathers_is_told_when_somebody_asks(told: Callable[[], list[str]]) -> None:
    """As metrics are read."""
    ledger = DecisionLog()
    with ledger.gathering():
        _note(ledger, "alone")
        ledger.settle()

        assert told() == ["alone"]


def test_what_waits_to_be_told_holds_on_to_nothing_of_the_object() -> None:
    """A body may have megabytes, and so a name."""
    ledger = DecisionLog()
    patch = {"op": "add", "path": "/spec/x", "value": "x" * 2**20}
    violation = Violation("rule", Action.WARN, "spec", "x" * 2**20)
    with ledger.gathering():
        _note(ledger, "x" * 2**20, Decision(violations=(violation,), patch=(patch,)))  # type: ignore[arg-type]
        (entry,) = ledger._entries
        ledger._entries.clear()

    assert isinstance(entry, Entry)
    assert len(repr(entry)) < 1000
    assert (entry.edits, entry.violations) == (1, (("rule", "warn"),))


def test_one_that_cannot_be_told_costs_no_other(
    told: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That is logged, without what it was."""
    ledger, tell = DecisionLog(), webhook.admission.decision_log._tell
    monkeypatch.setattr(
        webhook.admission.decision_log, "_tell", lambda entry: tell(entry if entry.rules else entry.missing)
    )
    _note(ledger, "S3CRET", Decision())
    _note(ledger, "second")

    assert told() == ["second"]
    assert "a decision was not told: AttributeError" in caplog.text
    assert "S3CRET" not in caplog.text
