"""Exported policies in a real API server: the same decisions and defaults as the rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy, compile_policy
from rules.model.decision import AdmissionRequest
from rules.model.rule import RuleSet
from rules.nodes.inventory import Inventory
from rules.schema.loader import load_rules
from rules.text.i18n import Language
from tests.e2e.cluster import ControlPlane
from tests.e2e.serve_process import eventually
from tests.support.builders import patched, resource_rule
from webhook.cli.export.policies import export

# MutatingAdmissionPolicy is enabled since.
pytestmark = pytest.mark.needs_kubernetes("1.36")

ROOT = Path(__file__).parents[2]
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
SHIPPED = ("gpu-manager", "mig", "mps", "volcano-vgpu", "moore-threads")
OWN = (
    resource_rule("x.com/off", group="x", limits="disabled"),
    resource_rule("x.com/must", group="x", limits="required", requests="required", defaultValue="3"),
    resource_rule("y.com/must", group="y", limits="required"),
    resource_rule("y.com/asked", group="y", requests="required"),
    resource_rule("y.com/model-*", group="y", excludeResources="y.com/model-*"),
    resource_rule(
        "y.com/image",
        group="y",
        validations=[
            {
                "expression": "container.image.startsWith('good/') && limits.size() > 0",
                "messageEn": "good images",
            },
            {"expression": "limits.all(name, limits[name] <= 8)", "messageEn": "eight at most"},
            {"expression": "double(value) * 1.5 < 4.0", "messageEn": "no 3", "enforcementAction": "warn"},
        ],
    ),
)
POD = (
    resource_rule(
        "z.com/as-expected",
        group="z",
        validations=[
            {
                "expression": "pod.nodeName == '' && pod.schedulerName == 'default-scheduler' && !pod.hostIPC"
                " && pod.namespace == 'exported' && !('a' in pod.labels) && !('a' in pod.annotations)",
                "messageEn": "as a new pod",
            }
        ],
    ),
    resource_rule(
        "z.com/members",
        group="z",
        validations=[
            {"expression": f"value == 2 || {expression}", "messageEn": f"members {number}"}
            for number, expression in enumerate(
                (
                    "container.name == 'c0' && container.image == 'busybox'",
                    "container.command == [] && container.args.all(a, a != 'x')",
                    "!container.securityContext.privileged && container.securityContext.runAsUser == -1",
                    "container.securityContext.allowPrivilegeEscalation",
                    "!('IPC_LOCK' in container.securityContext.capabilities.add)",
                    "pod.nodeSelector == {} && pod.priorityClassName == '' && pod.runtimeClassName == ''",
                    "pod.serviceAccountName == 'default' && !pod.hostNetwork",
                    "pod.activeDeadlineSeconds == 0 && pod.securityContext.fsGroup == -1",
                    "pod.tolerations.all(t, t.key != 'a' && t.operator != '' && t.tolerationSeconds >= -1)",
                )
            )
        ],
    ),
    resource_rule(
        "z.com/elsewhere",
        group="z",
        validations=[{"expression": "pod.namespace != 'exported'", "messageEn": "elsewhere"}],
    ),
)
PODS: dict[str, list[dict[str, str]]] = {
    "no accelerator": [{"cpu": "1"}],
    "cores alone": [{CORE: "50"}],
    "memory alone": [{MEMORY: "8"}],
    "both": [{CORE: "50", MEMORY: "8"}],
    "a share and a half": [{CORE: "150"}],
    "whole cards": [{CORE: "200", MEMORY: "8"}],
    "none of it": [{CORE: "0"}],
    "a share together with a card": [{CORE: "50", "nvidia.com/gpu": "1"}],
    "a share together with a slice": [{CORE: "50", "nvidia.com/mig-1g.5gb": "1"}],
    "two slices": [{"nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-2g.10gb": "1"}],
    "MPS": [{"nvidia.com/mps-core": "30"}],
    "MPS over the card": [{"nvidia.com/mps-core": "130"}],
    "Volcano's memory alone": [{"volcano.sh/vgpu-memory": "1024"}],
    "Volcano's number": [{"volcano.sh/vgpu-number": "2"}],
    "a thing that is off": [{"x.com/off": "1"}],
    "a default that is a must": [{"x.com/must": "1"}],
    "a must that is missing": [{"y.com/asked": "1"}],
    "musts": [{"y.com/asked": "1", "y.com/must": "1"}],
    "two models": [{"y.com/must": "1", "y.com/asked": "1", "y.com/model-a": "1", "y.com/model-b": "1"}],
    "a bad image": [{"y.com/must": "1", "y.com/asked": "1", "y.com/image": "1"}],
    "members": [{"z.com/members": "1"}],
    "members, the other way": [{"z.com/members": "2"}],
    "members of the second container": [{"cpu": "1"}, {"z.com/members": "1"}],
    "a pod as expected": [{"z.com/as-expected": "1"}],
    "a pod that should be elsewhere": [{"z.com/elsewhere": "1"}],
    "nine": [{"y.com/must": "9", "y.com/asked": "1", "y.com/image": "1"}],
    "the second container": [{"cpu": "1"}, {CORE: "150"}],
}


def _pod(limits_of_containers: list[dict[str, str]], *, init: bool = False) -> dict[str, Any]:
    """Return a pod whose containers have these limits; init: the last one is an init container."""
    containers = [
        {"name": f"c{number}", "image": "busybox", "resources": {"limits": limits}}
        for number, limits in enumerate(limits_of_containers)
    ]
    spec: dict[str, Any] = {"containers": containers}
    if init:
        spec = {"containers": [{"name": "main", "image": "busybox"}], "initContainers": containers}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "exported", "namespace": "exported"},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def policy(control_plane: ControlPlane) -> Iterator[Policy]:
    """Apply the policies to the API server; yield the compiled rules."""
    texts = [
        (str(path), path.read_text("utf-8"))
        for name in SHIPPED
        for path in sorted((ROOT / "rules/catalog" / name).glob("*.yaml"))
        if "test" not in path.name and path.name != "kustomization.yaml"
    ]
    loaded = load_rules([*texts, *((f"own-{number}", text) for number, text in enumerate((*OWN, *POD)))])
    assert () == loaded.errors
    objects = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": export(loaded.rules.resources).objects}
    )
    control_plane.kubectl("create", "namespace", "exported")
    control_plane.kubectl("apply", "-f", "-", input=objects)
    try:
        # The API server takes them up one by one, a second or so later.
        for name, message in (
            ("a must that is missing", "y.com/must"),
            ("a share and a half", "multiple of 100"),
            ("a pod that should be elsewhere", "elsewhere"),
        ):
            eventually(partial(_reports, control_plane, name, message))
        eventually(partial(_reports, control_plane, "a thing that is off", "x.com/off"))
        eventually(lambda: _created(control_plane, _pod([{"x.com/must": "1"}]))[0] is not None)
        yield compile_policy(RuleSet(resources=loaded.rules.resources), Language.EN)
    finally:
        control_plane.kubectl("delete", "-f", "-", input=objects)


def _created(control_plane: ControlPlane, pod: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return a pod as the API server would store it, and its messages."""
    answer = control_plane.kubectl(
        *("create", "--dry-run=server", "-o", "json", "-f", "-"), input=json.dumps(pod), check=False
    )
    return (json.loads(answer.stdout) if answer.returncode == 0 else None), answer.stderr


def _reports(control_plane: ControlPlane, name: str, message: str) -> bool:
    """Return whether the API server reports a message for a pod."""
    return message in _created(control_plane, _pod(PODS[name]))[1]


@pytest.mark.parametrize("init", [False, True], ids=["containers", "init containers"])
@pytest.mark.parametrize("asked", PODS.values(), ids=PODS.keys())
def test_policies_have_the_same_decisions_and_defaults_as_the_rules(
    control_plane: ControlPlane, policy: Policy, asked: list[dict[str, str]], init: bool
) -> None:
    """The same pods are denied, and the others get the same resources."""
    pod = _pod(asked, init=init)
    decision = decide(Snapshot(policy, Inventory()), AdmissionRequest("CREATE", "", "Pod", "exported", pod))
    stored, message = _created(control_plane, pod)

    assert decision.allowed == (stored is not None), message
    if stored is not None:
        expected = patched(pod, decision)
        for kind in ("containers", "initContainers"):
            assert [
                container["resources"]["limits"]
                for container in expected["spec"].get(kind, [])
                if "resources" in container
            ] == [
                container["resources"]["limits"]
                for container in stored["spec"].get(kind, [])
                if container["resources"]
            ]
