"""Decision log: each decision is counted and logged once, soon, without the object."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

import webhook.admission.decision_log
from rules.cuda.versions import CudaVersion
from rules.model.decision import UNKNOWN_VERSION, AdmissionRequest, Decision
from rules.model.finding import Basis, Finding
from rules.model.rule import Action
from rules.text.i18n import Text
from tests.support.serving import wait_for
from webhook.admission.decision_log import DecisionLog, Entry
from webhook.admission.review import Review
from webhook.telemetry import metrics

LOGGER = "gpugate.admission"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return a function that returns the names of the logged objects."""

    def names() -> list[str]:
        return [vars(record)["object"] for record in caplog.records if "object" in vars(record)]

    with caplog.at_level(logging.INFO, LOGGER):
        yield names


def _record(log: DecisionLog, name: str, decision: Decision | None = None) -> None:
    request = AdmissionRequest("CREATE", "", "Pod", "team", {"metadata": {"name": name}})
    log.record(
        "mutate", Review("uid", name, "someone", False, request), decision or Decision(rules=("a",)), 0.001
    )


def _counted(rule: str) -> float:
    return metrics.counter_of(metrics.RULE_MATCHES, "mutate", rule)._value.get()  # type: ignore[no-any-return]


def test_a_decision_is_logged_immediately(logged: Callable[[], list[str]]) -> None:
    """Outside of `batching`."""
    log, before = DecisionLog(), _counted("a")
    _record(log, "first")

    assert logged() == ["first"]
    assert _counted("a") == before + 1


def test_a_batch_is_logged_when_it_is_full_in_order(logged: Callable[[], list[str]]) -> None:
    """And the rest at the end of `batching`."""
    log, before = DecisionLog(), _counted("a")
    names = [str(number) for number in range(70)]
    with log.batching():
        for name in names[:63]:
            _record(log, name)
        few = logged()
        for name in names[63:]:
            _record(log, name)
        many = logged()

    assert (few, many, logged()) == ([], names[:64], names)
    assert _counted("a") == before + 70


def test_containers_are_counted_by_the_known_cuda_version_that_they_need() -> None:
    """Anybody can write another version in an annotation; without one, it is unknown."""
    needed = (CudaVersion(12, 4), "image"), (CudaVersion(99, 9), "annotation"), UNKNOWN_VERSION
    counted = ("image", "12.4"), ("annotation", "other"), ("unknown", "unknown")
    before = [_of_cuda(*labels) for labels in counted]
    _record(DecisionLog(), "cuda", Decision(cuda_versions=needed))

    assert [1, 1, 1] == [_of_cuda(*labels) - old for labels, old in zip(counted, before, strict=True)]


def _of_cuda(*labels: str) -> float:
    return metrics.counter_of(metrics.CUDA_VERSIONS, "mutate", *labels)._value.get()  # type: ignore[no-any-return]


def test_a_batch_that_is_not_full_is_logged_soon(logged: Callable[[], list[str]]) -> None:
    """Even a single decision."""
    log = DecisionLog()
    with log.batching():
        _record(log, "alone")
        wait_for(lambda: bool(logged()))

        assert logged() == ["alone"]


def test_flush_logs_a_batch(logged: Callable[[], list[str]]) -> None:
    """As the metrics endpoint does."""
    log = DecisionLog()
    with log.batching():
        _record(log, "alone")
        log.flush()

        assert logged() == ["alone"]


def test_an_entry_keeps_no_reference_to_the_object() -> None:
    """A body may have megabytes, and so may a name."""
    log = DecisionLog()
    patch = {"op": "add", "path": "/spec/x", "value": "x" * 2**20}
    violation = Finding("rule", Action.WARN, "spec", Text("x" * 2**20), basis=Basis.POLICY)
    with log.batching():
        _record(log, "x" * 2**20, Decision(violations=(violation,), patch=(patch,)))  # type: ignore[arg-type]
        (entry,) = log._entries
        log._entries.clear()

    assert isinstance(entry, Entry)
    assert len(repr(entry)) < 1000
    assert (entry.edits, entry.violations) == (1, (("rule", "warn", "policy", "warn"),))


def test_an_entry_that_cannot_be_logged_does_not_affect_others(
    logged: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged, without the content of the entry."""
    log, log_entry = DecisionLog(), webhook.admission.decision_log._log_entry
    monkeypatch.setattr(
        webhook.admission.decision_log,
        "_log_entry",
        lambda entry: log_entry(entry if entry.rules else entry.missing),
    )
    _record(log, "S3CRET", Decision())
    _record(log, "second")

    assert logged() == ["second"]
    assert "a decision was not logged: AttributeError" in caplog.text
    assert "S3CRET" not in caplog.text
