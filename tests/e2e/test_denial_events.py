"""A workload whose pods are denied shows the denial, with the rights of the component and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.installed import TEAM, Installation, Installed, running
from tests.e2e.manifests import MANIFESTS
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import pod
from tests.support.builders import resource_rule

DEVICE: Final = "events.example.com/device"
RULE: Final = resource_rule(
    DEVICE, group="events", validations=[{"expression": "value <= 1", "messageEn": "at most one"}]
)
_LABELS: Final = {"app": "denied"}
_TEMPLATE: Final[dict[str, Any]] = {
    "metadata": {"labels": _LABELS},
    "spec": {"containers": [{"name": "main", "image": "a", "resources": {"limits": {DEVICE: "2"}}}]},
}
_WAITING_JOB: Final = {"suspend": True, "template": {"spec": {"restartPolicy": "Never"} | _TEMPLATE["spec"]}}


_DEPLOYMENT: Final = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {"replicas": 0, "selector": {"matchLabels": _LABELS}, "template": _TEMPLATE},
}
_CRON_JOB: Final = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "nightly"},
    "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": _WAITING_JOB}},
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the server's log."""
    return tmp_path_factory.mktemp("denial-events") / "serve.log"


@pytest.fixture(scope="module")
def installed(installation: Installation, log: Path) -> Iterator[Installed]:
    """Yield a running server with the component, and a rule that is newer than the workloads."""
    cluster = installation.cluster
    cluster.kubectl("apply", "-f", str(MANIFESTS / "components/denial-events/rbac.yaml"))
    with running(installation, log, "--denial-events") as server:
        for document in (_DEPLOYMENT, _CRON_JOB):
            cluster.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(document))
        cluster.kubectl("apply", "-f", "-", input=RULE)
        eventually(lambda: "denied by gpugate" in server.refusal(pod("asks", {DEVICE: "2"})))
        yield server


@pytest.mark.usefixtures("controllers")
@pytest.mark.parametrize(
    ("workload", "starts"),
    [
        ("deployment/web", ["scale deployment/web --replicas=1"]),
        (
            "cronjob/nightly",
            [
                "create job nightly-1 --from=cronjob/nightly",
                'patch job/nightly-1 -p {"spec":{"suspend":false}}',
            ],
        ),
    ],
)
def test_the_applied_workload_shows_why_its_pods_are_denied(
    installed: Installed, log: Path, workload: str, starts: list[str]
) -> None:
    """In one Event, in which denials are counted while the controller tries again."""
    cluster = installed.cluster

    def kubectl(*command: str) -> str:
        return cluster.kubectl(*command, "-n", TEAM).stdout

    for start in starts:
        kubectl(*start.split())
    uid = kubectl("get", workload, "-o", "jsonpath={.metadata.uid}")
    events: list[Any] = []

    def counted() -> bool:
        selectors = f"involvedObject.uid={uid},reason=AdmissionDenied"
        shown = kubectl("get", "events", f"--field-selector={selectors}", "-o", "json")
        events[:] = json.loads(shown)["items"]
        return any(event["count"] > 1 for event in events)

    eventually(counted)
    described = kubectl("describe", workload)
    (event,) = events

    assert event["message"].startswith("Pod denied by gpugate: container 'main', spec.containers[0]")
    assert ["AdmissionDenied"] == [word for word in described.split() if word == "AdmissionDenied"]
    assert "found 2, expected at most one [rule cf-crl-events-device]" in described
    assert "cannot write" not in log.read_text("utf-8")
