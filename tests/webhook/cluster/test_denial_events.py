"""Events on the workloads whose pods are denied."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest

from certs.kubernetes_api import KubernetesError
from tests.support.builders import loaded, resource_rule
from tests.support.memory import Memory
from tests.support.serving import wait_for
from tests.support.webhooks import body, pod
from webhook.admission.handler import AdmissionHandler
from webhook.cluster import denial_events
from webhook.cluster.denial_events import DenialEvents
from webhook.telemetry import metrics

DEVICE: Final = "example.com/device"
EVENTS: Final = "/api/v1/namespaces/ml/events/"
CHECKS: Final = [{"expression": "value <= 1", "messageEn": "at most one"}]
START: Final = datetime(2026, 11, 28, 1, 0, tzinfo=UTC)

Owner = dict[str, Any]


def _owner(api_version: str, kind: str, name: str, **fields: Any) -> Owner:
    """Return an ownerReference of the controller; its uid is made of its name."""
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}"}
    return reference | {"controller": True} | fields


REPLICA_SET: Final = _owner("apps/v1", "ReplicaSet", "web-5d8f")
STATEFUL_SET: Final = _owner("apps/v1", "StatefulSet", "db")


class Gate:
    """A handler that denies two devices, with its Events, in a cluster with the Deployment `web`."""

    def __init__(self, api: Memory) -> None:
        self.api = api
        self.handler = AdmissionHandler(loaded(resource_rule(DEVICE, group="g", validations=CHECKS)))
        self.events = DenialEvents(api, self.handler)
        deployment = _owner("apps/v1", "Deployment", "web")
        self.put("/apis/apps/v1/namespaces/ml/replicasets/web-5d8f", "uid-web-5d8f", deployment)

    def put(self, path: str, uid: str, *owners: Owner) -> None:
        """Store an object of these owners."""
        self.api.put(path, {"metadata": {"uid": uid, "ownerReferences": [*owners]}})

    def create(self, *owners: Owner, devices: str = "2", **request: Any) -> Any:
        """Let a pod of these owners be reviewed; return the answer."""
        document = pod({DEVICE: devices})
        document["metadata"] = {"generateName": "web-5d8f-", "ownerReferences": [*owners]}
        return json.loads(self.handler.answer("validate", body(document, **request)))["response"]

    def written(self) -> list[dict[str, Any]]:
        """Write the Events that are due; return all."""
        self.events.write()
        return [stored for path, stored in self.api.objects.items() if path.startswith(EVENTS)]


def _involved(event: dict[str, Any]) -> str:
    involved = event["involvedObject"]
    return " ".join(involved[key] for key in ("apiVersion", "kind", "namespace", "name", "uid"))


def _counted(result: str) -> float:
    return metrics.counter_of(metrics.DENIAL_EVENTS, result)._value.get()  # type: ignore[no-any-return]


def test_a_denied_pod_of_a_deployment_is_an_event_on_the_deployment() -> None:
    """With the message of the denial, and the uid by which `kubectl describe` selects Events."""
    gate = Gate(Memory())
    answer = gate.create(REPLICA_SET)
    (event,) = gate.written()

    assert "apps/v1 Deployment ml web uid-web" == _involved(event)
    assert ("Warning", "AdmissionDenied", 1) == (event["type"], event["reason"], event["count"])
    assert answer["status"]["message"] == event["message"]
    assert event["message"].startswith("Pod denied by gpugate: container 'main'")


@pytest.mark.parametrize(
    ("owner", "involved"),
    [
        (STATEFUL_SET, "apps/v1 StatefulSet ml db uid-db"),
        (_owner("batch/v1", "Job", "nightly-1"), "batch/v1 CronJob ml nightly uid-nightly"),
        (_owner("batch/v1", "Job", "once"), "batch/v1 Job ml once uid-once"),
        (_owner("example.com/v1", "ReplicaSet", "own"), "example.com/v1 ReplicaSet ml own uid-own"),
    ],
)
def test_only_replica_sets_and_jobs_are_looked_up_for_their_own_controller(
    owner: Owner, involved: str
) -> None:
    """Any other controller is what a user applies, and so is one of these without a controller."""
    gate = Gate(Memory())
    jobs = "/apis/batch/v1/namespaces/ml/jobs"
    gate.put(f"{jobs}/nightly-1", "uid-nightly-1", _owner("batch/v1", "CronJob", "nightly"))
    gate.put(f"{jobs}/once", "uid-once", _owner("v1", "ConfigMap", "no controller", controller=False))
    gate.create(owner)

    assert [involved] == [_involved(event) for event in gate.written()]


def test_equal_denials_are_counted_in_one_event_also_by_other_replicas() -> None:
    """A ReplicaSet retries for ever, and a new version of the Deployment has another one."""
    api = Memory()
    one, other = Gate(api), Gate(api)
    one.put(
        "/apis/apps/v1/namespaces/ml/replicasets/web-77", "uid-web-77", _owner("apps/v1", "Deployment", "web")
    )
    api.clock = lambda: START
    for _ in range(3):
        one.create(REPLICA_SET)
    (first,) = one.written()
    calls = len(api.calls)
    api.clock = lambda: START + timedelta(minutes=5)
    other.create(_owner("apps/v1", "ReplicaSet", "web-77"))
    (second,) = other.written()

    assert ["GET web-5d8f", "POST events"] == api.calls[:calls]
    assert (3, "2026-11-28T01:00:00Z", "2026-11-28T01:00:00Z") == _times(first)
    assert (4, "2026-11-28T01:00:00Z", "2026-11-28T01:05:00Z") == _times(second)


def _times(event: dict[str, Any]) -> tuple[int, str, str]:
    return event["count"], event["firstTimestamp"], event["lastTimestamp"]


def test_another_denial_of_the_same_workload_is_another_event() -> None:
    """Its author sees that the change did not help."""
    gate = Gate(Memory())
    for devices in ("2", "3"):
        gate.create(STATEFUL_SET, devices=devices)

    assert 2 == len(gate.written())


@pytest.mark.parametrize(
    ("owners", "request_fields"),
    [
        pytest.param([], {}, id="no owner: kubectl prints the denial"),
        pytest.param([STATEFUL_SET | {"controller": False}], {}, id="an owner that does not create pods"),
        pytest.param([STATEFUL_SET], {"dryRun": True}, id="--dry-run=server"),
        pytest.param([REPLICA_SET | {"uid": "other"}], {}, id="an owner that does not exist any more"),
        pytest.param([REPLICA_SET | {"name": "gone"}], {}, id="an owner that does not exist"),
        pytest.param([REPLICA_SET | {"name": "../deployments/web"}], {}, id="a name that is a path"),
        pytest.param([STATEFUL_SET], {"namespace": "ml/../other"}, id="a namespace that is a path"),
        pytest.param([STATEFUL_SET], {"namespace": "m" * 300}, id="a namespace that is too long"),
    ],
)
def test_there_is_no_event(owners: list[Owner], request_fields: dict[str, Any]) -> None:
    """Although the pod is denied."""
    gate, failed = Gate(Memory()), _counted("failed")
    gate.put("/apis/apps/v1/namespaces/ml/replicasets/../deployments/web", "uid-web-5d8f")
    before = {*gate.api.objects}
    answer = gate.create(*owners, **request_fields)
    gate.events.write()

    assert not answer["allowed"]
    assert (before, failed) == ({*gate.api.objects}, _counted("failed"))


def test_an_admitted_pod_is_no_event() -> None:
    """Nor is a denial that `--enforcement-action` withholds."""
    gate = Gate(Memory())

    assert gate.create(STATEFUL_SET, devices="1")["allowed"]
    assert [] == gate.written()


def test_the_answer_waits_for_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are made in a thread, soon after the denial."""
    monkeypatch.setattr(denial_events, "WRITE_INTERVAL", 0.01)
    gate = Gate(Memory())
    gate.create(STATEFUL_SET)
    before = list(gate.api.calls)
    gate.events.start()
    gate.create(STATEFUL_SET)
    wait_for(lambda: bool(gate.api.calls))
    gate.events.stop()

    assert ([], "POST events") == (before, gate.api.calls[0])


def test_denials_beyond_the_queue_are_counted_and_those_of_a_run_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal ones need no room; the rest of the queue is written by the next runs."""
    monkeypatch.setattr(denial_events, "MAX_WAITING", 4)
    monkeypatch.setattr(denial_events, "MAX_EVENTS", 3)
    gate, dropped = Gate(Memory()), _counted("dropped")
    for number in range(6):
        gate.create(_owner("apps/v1", "StatefulSet", f"s{number}"))
        gate.create(_owner("apps/v1", "StatefulSet", "s0"))

    assert 2 == _counted("dropped") - dropped
    assert [3, 4] == [len(gate.written()), len(gate.written())]
    assert [7, 1, 1, 1] == [event["count"] for event in gate.written()]


def test_an_event_that_cannot_be_written_is_counted_and_the_others_are_written() -> None:
    """As in a namespace that is being terminated; the run fails with the first reason, which is logged."""
    gate, failed = Gate(Memory()), _counted("failed")

    def refuse(method: str, path: str) -> None:
        if method == "POST" and "/namespaces/old/" in path:
            raise KubernetesError(f"POST {path}: 403 forbidden")

    gate.api.before = refuse
    for namespace in ("old", "ml"):
        gate.create(STATEFUL_SET, namespace=namespace)
    with pytest.raises(KubernetesError, match="namespaces/old"):
        gate.events.write()

    assert (1, 1) == (len(gate.written()), _counted("failed") - failed)


def _failed(number: float) -> bool:
    return number == _counted("failed")


def test_without_the_right_to_write_events_one_line_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many denials there are."""
    monkeypatch.setattr(denial_events, "WRITE_INTERVAL", 0.01)
    gate, failed = Gate(Memory()), _counted("failed")

    def refuse(method: str, path: str) -> None:
        raise KubernetesError(f"{method} {path}: 403 forbidden")

    gate.api.before = refuse
    with caplog.at_level(logging.WARNING, "gpugate.cluster"):
        gate.events.start()
        for number in range(1, 4):
            gate.create(STATEFUL_SET)
            wait_for(partial(_failed, failed + number))
        gate.events.stop()

    path = EVENTS.removesuffix("/")
    assert [
        f"cannot write Events on the workloads of denied pods: POST {path}: 403 forbidden"
    ] == caplog.messages
