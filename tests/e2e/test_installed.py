"""gpugate with the rights of the manifests on a real API server: installed, unavailable, and disabled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from rules.nodes.devices.state import GROUP
from rules.nodes.gpu_operator import CLUSTER_POLICY, PLURAL
from rules.nodes.gpu_operator import GROUP as GPU_OPERATOR
from rules.nodes.gpu_operator import VERSIONS as POLICY_VERSIONS
from rules.nodes.pools import POOL_KINDS, PoolKind
from tests.e2e.cluster import ControlPlane, kubernetes
from tests.e2e.installed import GPU, TEAM, VCUDA_CORE, VCUDA_MEMORY, Installed
from tests.e2e.manifests import Object, commands, of_kind, run
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import pod
from tests.support.builders import resource_rule
from webhook.cluster.match_conditions import CONDITION

ACCOUNT = "system:serviceaccount:gpugate:gpugate"
SWITCH_OFF = "Switch it off"
IGNORE = "Make gpugate optional"
AWAY = 'failed calling webhook "mutate.gpugate.dev"'


def test_a_dry_run_shows_the_patch_and_stores_nothing(installed: Installed) -> None:
    """`kubectl create --dry-run=server -o yaml`."""
    create = ("create", "-n", TEAM, "--dry-run=server", "-o", "yaml", "-f", "-")
    shown = installed.cluster.kubectl(*create, input=pod("dry", {VCUDA_MEMORY: "8"})).stdout

    assert "20" == yaml.safe_load(shown)["spec"]["containers"][0]["resources"]["limits"][VCUDA_CORE]
    assert "" == installed.cluster.kubectl("get", "pods", "-n", TEAM, "-o", "name").stdout


def test_a_created_pod_is_the_one_that_preview_printed(installed: Installed, tmp_path: Path) -> None:
    """Field by field: the printed pod is created again, as a dry run and without gpugate."""
    documents = [
        pod("paddle", {VCUDA_MEMORY: "8"}).replace("example.com/train:1", "paddlepaddle/paddle:2.6.1"),
        pod("cuda", {GPU: "1"}).replace(
            "example.com/train:1", "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime"
        ),
    ]
    path = tmp_path / "pods.yaml"
    path.write_text("\n---\n".join(documents))
    preview = f'gpugate preview --kubeconfig "$KUBECONFIG" -n {TEAM} -o yaml -f {path}'
    previewed = run(installed.cluster, preview).stdout.split("\n---\n")
    created = [installed.create(document) for document in documents]
    installed.cluster.kubectl("delete", "pods", "-n", TEAM, "--all", "--force")
    with installed.away():
        run(installed.cluster, commands("emergency.md", SWITCH_OFF)[0])
        alone = [installed.create(document, "--dry-run=server") for document in previewed]

    assert "requiredDuringSchedulingIgnoredDuringExecution" in str(created)
    assert "FLAGS_allocator_strategy" in str(created)
    assert list(map(_described, alone)) == list(map(_described, created))


def _described(stored: Object | str) -> Object | str:
    """Return an object without the fields that differ for each object."""
    if isinstance(stored, str):
        return stored
    own = ("uid", "creationTimestamp", "resourceVersion", "managedFields")
    metadata = {key: value for key, value in stored["metadata"].items() if key not in own}
    return stored | {"metadata": metadata}


def test_an_outage_affects_only_pods_with_accelerators(installed: Installed) -> None:
    """It does not affect other pods, kube-system, the namespace of gpugate, and edits of rules."""
    gpu = pod("gpu", {VCUDA_CORE: "20"})
    rule = resource_rule("vendor.com/device")
    with installed.away():
        denied = installed.refusal(gpu)
        plain = installed.refusal(pod("plain", {"cpu": "1"}))
        system = installed.refusal(gpu, namespace="kube-system")
        own = installed.refusal(_restricted(gpu), namespace="gpugate")
        installed.cluster.kubectl("apply", "-f", "-", input=rule)
    installed.cluster.kubectl("delete", "-f", "-", input=rule)

    assert AWAY in denied
    assert ["", "", ""] == [plain, system, own]


def test_an_outage_does_not_affect_what_runs(installed: Installed) -> None:
    """A pod with accelerators can be labelled, debugged and deleted; only its images cannot be changed."""
    cluster = installed.cluster
    installed.create(pod("runs", {VCUDA_CORE: "20"}))
    image = ("set", "image", "pod/runs", "-n", TEAM, "main=example.com/train:2")
    with installed.away():
        denied = cluster.kubectl(*image, check=False).stderr
        cluster.kubectl("label", "pod/runs", "-n", TEAM, "seen=true")
        cluster.kubectl("debug", "runs", "-n", TEAM, "--image=busybox", "--target=main", "--container=debug")
        names = "jsonpath={.spec.ephemeralContainers[*].name}"
        added = cluster.kubectl("get", "pod/runs", "-n", TEAM, "-o", names).stdout
        cluster.kubectl("delete", "pod/runs", "-n", TEAM, "--force")

    assert "debug" == added
    assert 'failed calling webhook "validate.gpugate.dev"' in denied


def _restricted(document: str) -> str:
    """Return a pod that the namespace of gpugate admits."""
    manifest = json.loads(document)
    manifest["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    manifest["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return json.dumps(manifest)


def test_irrelevant_objects_never_reach_gpugate(installed: Installed) -> None:
    """By its count of reviews; a pod with an accelerator in a namespace of users counts twice."""
    gpu = pod("gpu", {VCUDA_CORE: "20"})
    mirror = json.loads(gpu)
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    mirror["spec"]["nodeName"] = "fits"
    held = json.loads(pod("held", {VCUDA_CORE: "20"}))
    held["metadata"]["finalizers"] = ["example.com/held"]

    def patch(change: dict[str, Any], *flags: str) -> None:
        merge = ("patch", "pod/held", "-n", TEAM, "--type=merge", "-p", json.dumps(change), *flags)
        installed.cluster.kubectl(*merge)

    start = installed.server.reviews()
    installed.create(json.dumps(held))
    reviews = installed.server.reviews()
    refusals = [
        installed.refusal(gpu, namespace="kube-system"),
        installed.refusal(_restricted(gpu), namespace="gpugate"),
        installed.refusal(json.dumps(mirror)),
        installed.refusal(pod("plain", {"cpu": "1"})),
    ]
    patch({"status": {"message": "x"}}, "--subresource=status")
    patch({"metadata": {"labels": {"a": "b"}}})
    installed.cluster.kubectl("delete", "pod/held", "-n", TEAM, "--wait=false", "--force")
    patch({"metadata": {"labels": {"a": "c"}}})  # it carries a deletionTimestamp now
    patch({"metadata": {"finalizers": None}})

    assert [""] * 4 == refusals
    assert (2, 0) == (reviews - start, installed.server.reviews() - reviews)


def test_the_emergency_page_admits_gpu_pods_unchanged(installed: Installed) -> None:
    """When gpugate is switched off or optional, and not after it is back."""
    asking = pod("asks", {VCUDA_MEMORY: "8"})
    with installed.away():
        for heading in (SWITCH_OFF, IGNORE):
            before = installed.refusal(asking)
            done = [run(installed.cluster, command) for command in commands("emergency.md", heading)]
            eventually(lambda: installed.limits() == {VCUDA_MEMORY: "8"})
            installed.apply()
            eventually(lambda: AWAY in installed.refusal(asking))

            assert AWAY in before
            assert [0] * len(done) == [completed.returncode for completed in done], done


def test_one_command_switches_one_rule_off(installed: Installed) -> None:
    """A pod gets no default from it any more, and does again once the rule is back."""
    (command,) = [command for command in commands("emergency.md", "A rule") if "label" in command]
    run(installed.cluster, command)
    eventually(lambda: installed.limits() == {VCUDA_MEMORY: "8"})
    run(installed.cluster, command.replace("=false", "=true"))
    eventually(installed.in_force)


def test_a_second_apply_does_not_change_the_ca_bundle(installed: Installed) -> None:
    """gpugate is trusted all the time."""
    before = [webhook["clientConfig"].get("caBundle", "") for webhook in installed.webhooks()]
    installed.apply()

    assert before == [webhook["clientConfig"].get("caBundle", "") for webhook in installed.webhooks()]
    assert 4 == sum(map(bool, before))


def test_changes_of_the_webhook_configurations_are_corrected(installed: Installed) -> None:
    """Deletion, which a metric shows, apply and manual edits; the webhook for rules stays as in the manifest.

    The rule is for a resource that no shipped rule knows.
    """
    rule = resource_rule("vendor.com/device")

    def asked_about() -> bool:
        conditions = [json.dumps(webhook.get("matchConditions")) for webhook in installed.webhooks()]
        return [True, False, True, False] == ["vendor.com/device" in condition for condition in conditions]

    installed.cluster.kubectl("apply", "-f", "-", input=rule)
    eventually(asked_about)
    present = 'gpugate_webhooks{configuration="MutatingWebhookConfiguration"}'
    before = installed.server.sample(present)
    run(installed.cluster, commands("emergency.md", SWITCH_OFF)[0])
    eventually(lambda: installed.server.sample(present) == 0)
    installed.apply()
    # As valid as ours, and spelled otherwise.
    spelled = [{"name": CONDITION, "expression": "['a'].exists(key, key in ['nvidia.com/gpu'])"}]
    edit = [{"op": "replace", "path": "/webhooks/0/matchConditions", "value": spelled}]
    mutating = ("mutatingwebhookconfiguration", "gpugate")
    installed.cluster.kubectl("patch", *mutating, "--type=json", "-p", json.dumps(edit))
    eventually(lambda: asked_about() and installed.in_force())
    installed.cluster.kubectl("delete", "-f", "-", input=rule)

    assert 1 == before == installed.server.sample(present)


# A verb, the API group and resource, the namespace and, where one is named, the object.
Right = tuple[str, str, str, str]


def test_gpugate_uses_all_its_rights_and_requests_no_others(installed: Installed) -> None:
    """By the audit log of the API server, after a loss of certificates and an error in a rule.

    With every kind that gpugate reads where it is installed.
    """
    broken = resource_rule("vendor.com/device", limits="optinal")
    policy = PoolKind(GPU_OPERATOR, CLUSTER_POLICY, PLURAL, POLICY_VERSIONS, autoscaler=False)
    kinds = yaml.safe_dump_all(map(_definition, (*POOL_KINDS, policy)))
    with installed.away():
        installed.cluster.kubectl("apply", "-f", "-", input=kinds)
        installed.cluster.kubectl("wait", "crd", "--all", "--for=condition=Established")
        installed.cluster.kubectl("delete", "secret", "-n", "gpugate", "gpugate-certs")
        installed.apply()
        installed.cluster.kubectl("apply", "-f", "-", input=broken)
    granted = set(_granted(installed.objects))
    if kubernetes() < (1, 34):  # has no DRA, and gpugate watches no kind that it cannot list
        granted = {right for right in granted if not ("watch" == right[0] and right[1].startswith(GROUP))}
    if kubernetes() < (1, 37):  # has no version of this kind that gpugate reads
        granted.discard(("watch", f"{GROUP}/devicetaintrules", "", ""))
    with suppress(AssertionError):  # the comparison says more
        eventually(lambda: granted <= set(_used(installed.cluster, "allow")), within_s=30)
    (events,) = [line for line in commands("emergency.md", "A rule") if "events" in line]
    printed = run(installed.cluster, events).stdout
    installed.cluster.kubectl("delete", "-f", "-", input=broken)
    installed.cluster.kubectl("delete", "-f", "-", input=kinds)

    assert granted == set(_used(installed.cluster, "allow"))
    assert {"/apis"} == set(_others(installed.cluster))
    assert [] == list(_used(installed.cluster, "forbid"))
    assert "expected one of disabled, required, optional, got 'optinal'" in printed


def _definition(kind: PoolKind) -> Object:
    """Return the definition of a kind that declares nodes, which accepts any object."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.group == "cluster.x-k8s.io" else "Cluster",
            "versions": [{"name": kind.versions[0], "served": True, "storage": True, "schema": schema}],
        },
    }


def _granted(objects: list[Object]) -> Iterator[Right]:
    """Yield the requests that the roles allow."""
    for role in of_kind(objects, "Role", "ClusterRole"):
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", [""]):
                            yield verb, f"{group}/{resource}", namespace, name


def _requests(cluster: ControlPlane) -> Iterator[Object]:
    """Yield the requests of gpugate, as the audit log has them."""
    for line in cluster.audit.read_text("utf-8").splitlines():
        event: Object = json.loads(line)
        if event["user"]["username"] == ACCOUNT:
            yield event


def _others(cluster: ControlPlane) -> Iterator[str]:
    """Yield what gpugate requests that is no object: every service account may read it."""
    return (event["requestURI"] for event in _requests(cluster) if "objectRef" not in event)


def _used(cluster: ControlPlane, decision: str) -> Iterator[Right]:
    """Yield the allowed or the forbidden requests of gpugate for objects."""
    for event in _requests(cluster):
        if "objectRef" in event and event["annotations"]["authorization.k8s.io/decision"] == decision:
            verb, of = event["verb"], event["objectRef"]
            name = of.get("name", "") if verb != "create" else ""
            yield verb, f"{of.get('apiGroup', '')}/{of.get('resource', '')}", of.get("namespace", ""), name
