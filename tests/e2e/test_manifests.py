"""Each overlay renders, is consistent, and is accepted by a real API server."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from certs.bundle import FILES
from tests.e2e.manifests import MANIFESTS, ROOT, Object, commands, of_kind, render, run
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node, pod
from webhook.cli.commands.serve import command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import ControlPlane

WAYS = (
    "base",
    "overlays/dev",
    "overlays/ha",
    "overlays/cert-manager",
    "overlays/observe",
    "overlays/strict",
)
IN_CLUSTER = tuple(way for way in WAYS if way != "overlays/dev")
# Kinds of operators that an API server knows nothing of without their CRDs.
_OPERATORS = ("cert-manager.io/", "monitoring.coreos.com/")
GPU_POD = pod("gpu", {"nvidia.com/gpu": "1"})
# It uses all GPUs of its node without a request.
TAKER = pod("taker", {}).replace(
    '"name": "main"', '"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]'
)
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def named(objects: list[Object], kind: str) -> set[tuple[str, str]]:
    """Return (namespace, name) of each object of a kind."""
    return {
        (document["metadata"].get("namespace", ""), document["metadata"]["name"])
        for document in of_kind(objects, kind)
    }


def applied(cluster: ControlPlane, objects: list[Object], *flags: str) -> list[str]:
    """Apply objects with strict validation; return the output of kubectl for each."""
    apply = ("apply", "--validate=strict", *flags, "-f", "-")
    return cluster.kubectl(*apply, input=yaml.safe_dump_all(objects)).stdout.splitlines()


@pytest.mark.parametrize("way", WAYS)
def test_all_namespaced_objects_are_in_the_namespace_of_gpugate_or_of_the_rules(way: str) -> None:
    """In another one is only the right to read the status of cluster-autoscaler."""
    objects = render(MANIFESTS / way)
    elsewhere = [
        (document["kind"], document["metadata"]["namespace"], document["metadata"]["name"])
        for document in objects
        if document["metadata"].get("namespace") not in (None, "gpugate", "kube-public")
    ]

    assert {("", "gpugate")} == named(objects, "Namespace")
    assert [(kind, "kube-system", "gpugate-autoscaler-status") for kind in ("Role", "RoleBinding")] == sorted(
        elsewhere
    )


@pytest.mark.parametrize("way", WAYS)
def test_rights_go_to_the_service_account_and_to_no_wildcard(way: str) -> None:
    """Each role is bound, and the role and subject of each binding exist."""
    objects = render(MANIFESTS / way)
    roles = of_kind(objects, "Role", "ClusterRole")
    bindings = of_kind(objects, "RoleBinding", "ClusterRoleBinding")
    bound = {
        (binding["roleRef"]["kind"], binding["metadata"].get("namespace", ""), binding["roleRef"]["name"])
        for binding in bindings
    }
    subjects = [
        (subject["kind"], subject["namespace"], subject["name"])
        for binding in bindings
        for subject in binding["subjects"]
    ]

    assert {
        (role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"]) for role in roles
    } == bound
    assert {("ServiceAccount", "gpugate", "gpugate")} == set(subjects)
    assert {("gpugate", "gpugate")} == named(objects, "ServiceAccount")
    assert "*" not in json.dumps([role["rules"] for role in roles])


@pytest.mark.parametrize("way", IN_CLUSTER)
def test_every_selector_selects_the_pods(way: str) -> None:
    """Service, budget, network policy, spread and Deployment."""
    objects = render(MANIFESTS / way)
    (deployment,) = of_kind(objects, "Deployment")
    (service,), (budget,), (policy,) = (
        of_kind(objects, kind) for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy")
    )
    template = deployment["spec"]["template"]
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
        policy["spec"]["podSelector"]["matchLabels"],
        *(
            constraint["labelSelector"]["matchLabels"]
            for constraint in template["spec"]["topologySpreadConstraints"]
        ),
    ]

    assert [True] * len(selectors) == [
        selector.items() <= template["metadata"]["labels"].items() for selector in selectors
    ]
    assert ("gpugate", "https") == (
        template["spec"]["serviceAccountName"],
        template["spec"]["containers"][0]["ports"][0]["name"],
    )
    assert (
        "https"
        == service["spec"]["ports"][0]["targetPort"]
        == policy["spec"]["ingress"][0]["ports"][0]["port"]
    )


@pytest.mark.parametrize("way", IN_CLUSTER)
def test_webhooks_call_the_service_except_for_its_own_namespace(way: str) -> None:
    """Pods and workloads of kube-system and gpugate are excluded; of ConfigMaps, only rules are included."""
    objects = render(MANIFESTS / way)
    webhooks = [webhook for document in of_kind(objects, *WEBHOOKS) for webhook in document["webhooks"]]
    called = [webhook["clientConfig"]["service"] for webhook in webhooks]
    excluded = {
        webhook["name"]: webhook["namespaceSelector"]["matchExpressions"][0]
        for webhook in webhooks
        if "rules" not in webhook["name"]
    }
    required = "Ignore" if way == "overlays/observe" else "Fail"

    assert {(service["namespace"], service["name"]) for service in called} == named(objects, "Service")
    assert {"/mutate", "/validate"} == {service["path"] for service in called}
    assert {
        "mutate.gpugate.dev": required,
        "mutate.ephemeralcontainers.gpugate.dev": "Ignore",
        "validate.gpugate.dev": required,
    } == {webhook["name"]: webhook["failurePolicy"] for webhook in webhooks if webhook["name"] in excluded}
    for expression in excluded.values():
        assert ("NotIn", {"kube-system", "gpugate"}) == (expression["operator"], set(expression["values"]))


def test_the_overlay_observe_is_the_base_with_a_cap_on_all_rules() -> None:
    """And other failure policies: it differs in nothing else."""
    (base,), (observing,) = (
        of_kind(render(MANIFESTS / way), "Deployment") for way in ("base", "overlays/observe")
    )
    ((before,), (after,)) = (
        deployment["spec"]["template"]["spec"].pop("containers") for deployment in (base, observing)
    )
    options = command.make_context("serve", after["args"][1:]).params

    assert base == observing
    assert before["args"] == after.pop("args")[:-1]
    assert {key: before[key] for key in before if key != "args"} == after
    assert "dryrun" == options["enforcement_action"]


def test_cert_manager_issues_the_certificate_of_the_webhooks() -> None:
    """Its Certificate fills the mounted Secret, for the Service's name, and goes into the caBundle."""
    objects = render(MANIFESTS / "overlays/cert-manager")
    (deployment,) = of_kind(objects, "Deployment")
    (mounted,) = deployment["spec"]["template"]["spec"]["volumes"]
    (certificate,) = [
        document for document in of_kind(objects, "Certificate") if not document["spec"].get("isCA")
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    options = command.make_context("serve", container["args"][1:]).params
    files = {options["tls_cert"], options["tls_key"]}

    assert {Path(mount["mountPath"], name) for name in ("tls.crt", "tls.key")} == files
    assert options["certs_secret"] is None
    assert mounted["name"] == mount["name"]
    assert mounted["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert "gpugate.gpugate.svc" in certificate["spec"]["dnsNames"]
    assert {f"gpugate/{certificate['metadata']['name']}"} == {
        document["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        for document in of_kind(objects, *WEBHOOKS)
    }
    assert set() == named(objects, "Secret")
    assert "secrets" not in json.dumps(
        [document["rules"] for document in of_kind(objects, "Role", "ClusterRole")]
    )


def test_prometheus_finds_the_pods_and_their_ca() -> None:
    """By the Service's labels, port and name, and by the Secret of both kinds of certificates."""
    objects = render(MANIFESTS / "base")
    (service,) = of_kind(objects, "Service")
    (monitor,) = of_kind(render(MANIFESTS / "monitoring"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    metadata = service["metadata"]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= metadata["labels"].items()
    assert [endpoint["port"]] == [port["name"] for port in service["spec"]["ports"]]
    assert f"{metadata['name']}.{metadata['namespace']}.svc" == endpoint["tlsConfig"]["serverName"]
    authority = endpoint["tlsConfig"]["ca"]["secret"]
    assert {(monitor["metadata"]["namespace"], authority["name"])} == named(objects, "Secret")
    assert authority["key"] in FILES


def test_the_overlay_of_the_page_renders(tmp_path: Path) -> None:
    """With the image of another registry, the cap of warn, and a custom workload kind in all places."""
    page = (ROOT / "docs/install.md").read_text("utf-8")
    blocks = [part.partition("```")[0] for part in page.split("```yaml\n")[1:]]
    overlay, warning, kinds = (
        yaml.safe_load(next(block for block in blocks if words in block))
        for words in ("images:", "--enforcement-action=warn", "configMapGenerator:")
    )
    overlay |= kinds | {"patches": [*warning["patches"], *kinds["patches"]]}
    overlay["resources"] = [
        os.path.relpath(MANIFESTS / resource.partition("manifests/")[2], tmp_path)
        for resource in overlay["resources"]
    ]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    (tmp_path / "workloads.yaml").write_text("example.com: {Train: [spec.steps.*.pod]}")
    objects = render(tmp_path)
    (deployment,) = of_kind(objects, "Deployment")
    (configuration,) = of_kind(objects, "ValidatingWebhookConfiguration")
    pod_spec = deployment["spec"]["template"]["spec"]
    (container,) = pod_spec["containers"]
    (volume,) = pod_spec["volumes"]
    options = command.make_context("serve", container["args"][1:]).params
    resources = {resource for rule in configuration["webhooks"][0]["rules"] for resource in rule["resources"]}

    assert container["image"].startswith("registry.example.com/")
    assert "warn" == options["enforcement_action"]
    assert (f"{container['volumeMounts'][0]['mountPath']}/workloads.yaml",) == options["workload_paths"]
    assert ("gpugate", volume["configMap"]["name"]) in named(objects, "ConfigMap")
    assert {"deployments", "trains"} <= resources


@pytest.mark.timeout(600)
def test_an_empty_cluster_accepts_it_and_a_second_apply_changes_nothing(
    empty_control_plane: ControlPlane,
) -> None:
    """As the install page describes for a developer's machine."""
    (apply,) = (argv for argv in commands("install.md", "On a developer's machine") if "apply" in argv)
    empty_control_plane.kubectl(*apply.split()[1:])
    again = empty_control_plane.kubectl(*apply.split()[1:]).stdout.splitlines()

    assert len(render(MANIFESTS / "overlays/dev")) == len(again)
    assert [] == [line for line in again if not line.endswith(" unchanged")]


@pytest.mark.timeout(600)
def test_a_second_apply_of_the_base_changes_nothing(empty_control_plane: ControlPlane) -> None:
    """kubectl replaces the selector of a PodDisruptionBudget in any case, with the same one."""
    apply = ("apply", "-k", str(MANIFESTS / "base"))
    empty_control_plane.kubectl(*apply)
    lines = empty_control_plane.kubectl(*apply).stdout.splitlines()

    assert ["poddisruptionbudget.policy/gpugate configured"] == [
        line for line in lines if not line.endswith(" unchanged")
    ]


@pytest.mark.parametrize("way", IN_CLUSTER)
def test_an_api_server_knows_every_field(empty_control_plane: ControlPlane, way: str) -> None:
    """With strict validation; except rules, and objects of other operators."""
    objects = [document for document in render(MANIFESTS / way) if document["kind"] != "ConfigMap"]
    known = [document for document in objects if not document["apiVersion"].startswith(_OPERATORS)]
    applied(empty_control_plane, of_kind(known, "Namespace"))

    assert len(known) == len(applied(empty_control_plane, known, "--dry-run=server"))


@pytest.mark.parametrize("way", IN_CLUSTER)
def test_the_restricted_profile_admits_the_pods(empty_control_plane: ControlPlane, way: str) -> None:
    """The namespace enforces it: a pod that may become root is denied."""
    objects = render(MANIFESTS / way)
    applied(empty_control_plane, of_kind(objects, "Namespace"))
    (deployment,) = of_kind(objects, "Deployment")
    pod = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
    pod["metadata"]["name"] = "as-the-deployment-makes-it"
    create = ("create", "--dry-run=server", "-n", "gpugate", "-f", "-")
    admitted = empty_control_plane.kubectl(*create, input=json.dumps(pod))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    denied = empty_control_plane.kubectl(*create, input=json.dumps(pod), check=False)

    assert "" == admitted.stderr
    assert 'violates PodSecurity "restricted' in denied.stderr


@pytest.mark.usefixtures("gpu_and_other_nodes")
def test_replicas_prefer_nodes_without_gpus(control_plane: ControlPlane, namespace: str) -> None:
    """Two nodes of each sort have room for all, and the scheduler spreads replicas over nodes."""
    (deployment,) = of_kind(render(MANIFESTS / "base"), "Deployment")
    template = deployment["spec"]["template"]
    template["metadata"]["labels"]["pod-template-hash"] = "a"
    for name in ("a", "b"):
        replica = {"apiVersion": "v1", "kind": "Pod", **template}
        replica["metadata"] |= {"name": name}
        control_plane.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(replica))
    control_plane.kubectl("wait", "-n", namespace, "pod/a", "pod/b", "--for=condition=PodScheduled")
    shown = control_plane.kubectl(
        "get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].spec.nodeName}"
    ).stdout

    assert ["other-0", "other-1"] == sorted(shown.split())


@pytest.fixture
def gpu_and_other_nodes(control_plane: ControlPlane) -> Iterator[None]:
    """Add two nodes with GPUs, and two without."""
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    labels: dict[str, dict[str, str]] = {"gpu": {"nvidia.com/gpu.present": "true"}, "other": {}}
    names = {f"{kind}-{at}": labels[kind] for kind in labels for at in (0, 1)}
    for name, key in names.items():
        document = node(name, key | {"kubernetes.io/hostname": name}, room)
        control_plane.kubectl("create", "-f", "-", input=document)
    yield
    control_plane.kubectl("delete", "node", *names)


def test_the_emergency_page_restarts_all_replicas(empty_control_plane: ControlPlane) -> None:
    """One after the other."""
    applied(empty_control_plane, of_kind(render(MANIFESTS / "base"), "Namespace", "Deployment"))
    (restart,) = commands("emergency.md", "No updates from the cluster")
    run(empty_control_plane, restart)
    get = ("get", "deployment", "gpugate", "-n", "gpugate", "-o", "json")
    template = json.loads(empty_control_plane.kubectl(*get).stdout)["spec"]["template"]

    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]


@pytest.mark.timeout(600)
def test_after_uninstallation_nothing_is_left_and_pods_are_admitted(
    empty_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """As the install page describes, with all components; only objects outside the overlay stay."""
    for name in ("manifests", "rules"):
        shutil.copytree(ROOT / name, tmp_path / name)
    mine = tmp_path / "my-overlay"
    mine.mkdir()
    folders = [path.parent for path in (MANIFESTS / "components").rglob("kustomization.yaml")]
    components = [f"../manifests/{folder.relative_to(MANIFESTS)}" for folder in folders]
    kustomization = {"resources": ["../manifests/base"], "components": sorted(components)}
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    objects = render(mine)
    bring_back, _ = commands("emergency.md", "Bring it back")
    run(empty_control_plane, bring_back, tmp_path)
    empty_control_plane.kubectl("create", "configmap", "-n", "kube-public", "of-the-team")

    def refusal(document: str) -> str:
        return empty_control_plane.kubectl(
            "create", "--dry-run=server", "-f", "-", input=document, check=False
        ).stderr

    eventually(lambda: "denied request" in refusal(TAKER))
    denied = refusal(GPU_POD)
    for line in commands("install.md", "Uninstall"):
        # No controller deletes the content of a namespace here, so do not wait for it.
        wait = " --wait=false" if " -k " in line else ""
        done = run(empty_control_plane, line + wait, tmp_path)
        assert 0 == done.returncode, done.stderr
        if "webhook" in line:
            eventually(lambda: refusal(GPU_POD) == "")
        if "policy" in line:
            eventually(lambda: refusal(TAKER) == "")
    kinds = ",".join({document["kind"] for document in objects} - {"Namespace", "Secret"})
    left = empty_control_plane.kubectl(
        "get", kinds, "-A", "-o", "name", "-l", "app.kubernetes.io/name=gpugate"
    )

    assert 'failed calling webhook "mutate.gpugate.dev"' in denied
    assert "" == left.stdout
    assert "of-the-team" in empty_control_plane.kubectl("get", "configmap", "-n", "kube-public").stdout
