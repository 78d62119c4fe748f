"""The component unrequested-gpus on a real API server, by kubectl: docs/unrequested-gpus.md."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.e2e.cluster import kubernetes
from tests.e2e.manifests import MANIFESTS, Object, of_kind, render
from tests.e2e.serve_process import eventually
from tests.support.pages import fences, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import ControlPlane

PAGE: Final = "docs/unrequested-gpus.md"
COMPONENT: Final = MANIFESTS / "components/unrequested-gpus"
DENY, WARN = "gpugate-unrequested-gpus", "gpugate-possible-gpus"
VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
EXEMPT: Final = "namespaces with the label gpugate.dev/unrequested-gpus=allow are exempt"
REQUEST: Final = "but the pod requests no NVIDIA GPU; request it in resources.limits (as nvidia.com/gpu: 1), "
# Namespaces without an exemption, and with one by its label.
TEAM, LABELLED = "team", "monitoring"
DAEMONS: Final = yaml.safe_load((Path(__file__).parent / "gpu_daemons.yaml").read_text("utf-8"))


def container(value: Any = None, **fields: Any) -> Object:
    """Return a container, with the variable if a value is given: a string, or what `valueFrom` has."""
    env: Object = {"value": value} if isinstance(value, str) else {"valueFrom": value}
    return {"name": "main", "image": "example.com/train:1"} | (
        fields if value is None else {"env": [{"name": VARIABLE} | env]} | fields
    )


def spec(*containers: Object, paths: tuple[str, ...] = (), **fields: Any) -> Object:
    """Return the spec of a pod; paths: of hostPath volumes v0, v1 and so on."""
    volumes = [{"name": f"v{at}", "hostPath": {"path": path}} for at, path in enumerate(paths)]
    return {"containers": list(containers) or [container()], "volumes": volumes} | fields


def pod(name: str, namespace: str, content: Object, **metadata: Any) -> Object:
    """Return a Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace} | metadata,
        "spec": content,
    }


def overlay(folder: Path, *more: Object) -> list[Object]:
    """Return the objects of an overlay with the component, and with the content of other kustomizations."""
    folder.mkdir(exist_ok=True)
    patches = [patch for source in more for patch in source["patches"]]
    kustomization = {"components": [os.path.relpath(COMPONENT, folder)], "patches": patches}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return render(folder)


def apply(cluster: ControlPlane, objects: list[Object]) -> None:
    """Apply objects with strict validation."""
    cluster.kubectl("apply", "--validate=strict", "-f", "-", input=yaml.safe_dump_all(objects))


def answer(cluster: ControlPlane, *objects: Object) -> str:
    """Return what kubectl writes to stderr when it creates objects: denials and warnings."""
    create = ("create", "--dry-run=server", "-f", "-")
    return cluster.kubectl(*create, input=yaml.safe_dump_all(objects), check=False).stderr


def denied(message: str) -> str:
    """Return the end of a denial."""
    return f"'{DENY}' with binding '{DENY}' denied request: {message}\n"


def warned(message: str) -> str:
    """Return a warning."""
    policy = f"ValidatingAdmissionPolicy '{WARN}' with binding '{WARN}'"
    return f"Warning: Validation failed for {policy}: {message}\n"


@pytest.fixture(scope="module")
def cluster(empty_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """Return a cluster with the component in force, and the namespaces of these tests."""
    objects = overlay(tmp_path_factory.mktemp("overlay"))
    names = {TEAM, LABELLED, *exempt(objects)} - {"kube-system"}
    labels = {LABELLED: {"gpugate.dev/unrequested-gpus": "allow"}}
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels.get(name, {})}}
        for name in sorted(names)
    ]
    apply(empty_control_plane, namespaces + objects)
    both = pod(
        "both", TEAM, spec(container({"fieldRef": {"fieldPath": "metadata.name"}}), paths=("/dev/kfd",))
    )
    # Policies come into force some moments after they are applied.
    eventually(lambda: {"denied", "Warning:"} <= set(answer(empty_control_plane, both).split()))
    return empty_control_plane


def exempt(objects: list[Object]) -> list[str]:
    """Return the names of the namespaces that the bindings exempt."""
    (names,) = {
        tuple(expression["values"])
        for binding in of_kind(objects, "ValidatingAdmissionPolicyBinding")
        for expression in binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        if expression["key"] == "kubernetes.io/metadata.name"
    }
    return list(names)


SETS: Final = f"container 'main' sets {VARIABLE}={{}}, {REQUEST}or set the variable to void; {EXEMPT}"
MOUNTS: Final = (
    f"container 'main' mounts /var/run/nvidia-container-devices/all, {REQUEST}and remove the mount; {EXEMPT}"
)
HAS: Final = (
    f"volume 'v1' has the hostPath {{}} of a GPU or its driver, {REQUEST}and remove the volume; {EXEMPT}"
).replace("no NVIDIA", "no such")
PATHS: Final = (
    "/dev/nvidia0",
    "/dev/nvidiactl",
    "/dev/nvidia-caps/nvidia-cap1",
    "//dev/./nvidia-uvm/",
    "/dev/dri",
    "/dev/dri/renderD128",
    "/dev/kfd",
    "/usr/local/nvidia/lib64",
    "/run/nvidia",
    "/run/nvidia/driver",
    "/var/run/nvidia/driver/usr/lib",
    "/home/kubernetes/bin/nvidia",
    "/usr/lib/nvidia-384",
    "/var/lib/nvidia-docker/volumes/nvidia_driver/375.26",
)
TAKEN: Final[dict[str, tuple[Object, str]]] = {
    "all": (spec(container("all")), SETS.format("all")),
    "an-index": (spec(container("0,1")), SETS.format("0,1")),
    "a-cdi-device": (spec(container("nvidia.com/gpu=all")), SETS.format("nvidia.com/gpu=all")),
    "an-init-container": (
        spec(container() | {"name": "other"}, initContainers=[container("0")]),
        SETS.format("0"),
    ),
    "the-second-container": (spec(container() | {"name": "other"}, container("all")), SETS.format("all")),
    "no-amount": (
        spec(container("all", resources={"limits": {"nvidia.com/gpu": "0"}})),
        SETS.format("all"),
    ),
    "a-resource-of-the-network": (
        spec(container("all", resources={"limits": {"rdma/hca": "1"}})),
        SETS.format("all"),
    ),
    "a-resource-of-another-vendor": (
        spec(container("all", resources={"limits": {"gpu.intel.com/i915_monitoring": "1"}})),
        SETS.format("all"),
    ),
    "a-device-of-another-vendor": (
        spec(container(resources={"limits": {"amd.com/gpu": "1"}}), paths=("/dev/kfd", "/dev/nvidia0")),
        HAS.format("/dev/nvidia0"),
    ),
    "a-claim-that-no-container-uses": (
        spec(container("all"), resourceClaims=[{"name": "gpu", "resourceClaimName": "empty"}]),
        SETS.format("all"),
    ),
    "a-variable-with-a-known-value": (
        spec(container(env=[{"name": "GPUS", "value": "all"}, {"name": VARIABLE, "value": "$(GPUS)"}])),
        SETS.format("all"),
    ),
    "a-mount": (
        spec(
            container(volumeMounts=[{"name": "v0", "mountPath": "/var/run//nvidia-container-devices/all"}]),
            paths=("/dev/null",),
        ),
        MOUNTS,
    ),
    "a-mount-with-two-dots": (
        spec(
            container(
                volumeMounts=[{"name": "v0", "mountPath": "/var/run/x/../nvidia-container-devices/all"}]
            ),
            paths=("/dev/null",),
        ),
        MOUNTS.replace("/var/run/", "/var/run/x/../"),
    ),
    **{f"path-{at}": (spec(paths=("/data", path)), HAS.format(path)) for at, path in enumerate(PATHS)},
    # What does not fit into a message is left out of it.
    "two-lines": (
        spec(container("all\n0")),
        f"a container sets {VARIABLE}, but the pod requests no NVIDIA GPU",
    ),
    "a-long-value": (
        spec(container("0," * 4_000)),
        f"a container sets {VARIABLE}, but the pod requests no NVIDIA GPU",
    ),
}


def test_pods_that_take_gpus_without_a_request_are_denied(cluster: ControlPlane) -> None:
    """With what is wrong, where, and what to do."""
    taken = dict(TAKEN)
    if kubernetes() < (1, 31):  # which has the name of a claim one level deeper
        del taken["a-claim-that-no-container-uses"]
    answers = answer(cluster, *(pod(name, TEAM, content) for name, (content, _) in taken.items()))
    lines = answers.splitlines(keepends=True)

    assert len(taken) == len(lines)
    for (name, (_, message)), line in zip(taken.items(), lines, strict=True):
        assert (True, denied(message)) == (
            f'pods "{name}" is forbidden' in line,
            line[-len(denied(message)) :],
        )


def test_complaint_a_pod_sees_all_gpus_without_asking(cluster: ControlPlane) -> None:
    """Of https://github.com/NVIDIA/k8s-device-plugin/issues/61; each fix of the message suffices."""
    manifest = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: notebook
  namespace: team
spec:
  selector:
    matchLabels: {app: notebook}
  template:
    metadata:
      labels: {app: notebook}
    spec:
      containers:
        - name: notebook
          image: nvidia/cuda:12.8.1-devel-ubuntu24.04
          env:
            - name: NVIDIA_VISIBLE_DEVICES
              value: all
"""
    without = yaml.safe_load(manifest.replace("value: all", "value: void"))
    requested = yaml.safe_load(manifest + "          resources: {limits: {nvidia.com/gpu: 1}}")

    assert answer(cluster, yaml.safe_load(manifest)).endswith(
        denied(SETS.replace("'main'", "'notebook'").format("all"))
    )
    assert "" == answer(cluster, without, requested)


@pytest.mark.parametrize("value", ["void", "none", ""])
def test_a_value_that_gives_no_gpu_is_admitted(cluster: ControlPlane, value: str) -> None:
    """As NVIDIA's container runtime reads it."""
    assert "" == answer(cluster, pod("none", TEAM, spec(container(value))))


@pytest.mark.parametrize("path", ["/var/run/../data", "/data/..", "/nvidia-container-devices/all"])
def test_a_mount_that_gives_no_gpu_is_admitted(cluster: ControlPlane, path: str) -> None:
    """Also with two dots."""
    mounts = [{"name": "v0", "mountPath": path}]

    assert "" == answer(cluster, pod("mount", TEAM, spec(container(volumeMounts=mounts), paths=("/data",))))


@pytest.mark.parametrize("value", ["void", "none", ""])
def test_a_variable_with_a_known_value_that_gives_no_gpu_is_admitted(
    cluster: ControlPlane, value: str
) -> None:
    """The kubelet replaces $(NAME)."""
    env = [{"name": "GPUS", "value": value}, {"name": VARIABLE, "value": "$(GPUS)"}]

    assert "" == answer(cluster, pod("known", TEAM, spec(container(env=env))))


@pytest.mark.parametrize(
    "path",
    [
        "/dev",
        "/",
        "/dev/drink",
        "/dev/null",
        "/run/nvidia/mps",
        "/var/lib/kubelet/device-plugins",
        "/usr/lib",
    ],
)
def test_a_path_without_a_gpu_is_admitted(cluster: ControlPlane, path: str) -> None:
    """Also those above a device, which only privileged containers may open there."""
    assert "" == answer(cluster, pod("path", TEAM, spec(paths=(path,))))


def _everything(**fields: Any) -> Object:
    """Return a container with every signal."""
    return container("all", securityContext={"privileged": True}, **fields)


REQUESTS: Final = {
    name: spec(_everything(resources=resources), paths=PATHS, **fields)
    for name, (resources, fields) in {
        "gpu": ({"limits": {"nvidia.com/gpu": "1"}}, {}),
        "mig": ({"limits": {"nvidia.com/mig-1g.10gb": "1"}}, {}),
        "shared": ({"limits": {"nvidia.com/gpu.shared": "1"}}, {}),
        "vgpu": ({"limits": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}}, {}),
        "extended-resource-of-a-device-class": (
            {"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}},
            {},
        ),
        "init-container": (
            {},
            {"initContainers": [container(resources={"limits": {"nvidia.com/gpu": "1"}}) | {"name": "init"}]},
        ),
    }.items()
}


def test_pods_that_request_nvidia_gpus_are_admitted_without_a_warning(cluster: ControlPlane) -> None:
    """By extended resources, whatever else they have."""
    assert "" == answer(cluster, *(pod(name, TEAM, content) for name, content in REQUESTS.items()))


@pytest.mark.parametrize("name", ["amd.com/gpu", "google.com/tpu", "aws.amazon.com/neuroncore"])
def test_pods_that_request_other_accelerators_may_use_all_that_is_not_nvidias(
    cluster: ControlPlane, name: str
) -> None:
    """Which vendor a privileged container or /dev/dri is for is not known."""
    limits = {"limits": {name: "1"}}
    content = container(resources=limits, securityContext={"privileged": True})

    assert "" == answer(cluster, pod("other", TEAM, spec(content, paths=("/dev/dri", "/dev/kfd"))))


@pytest.mark.needs_kubernetes("1.34")
def test_a_pod_with_a_claim_is_admitted_without_a_warning(cluster: ControlPlane) -> None:
    """The API server removes claims if DRA is disabled."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    content = spec(_everything(resources={"claims": [{"name": "gpu"}]}), paths=PATHS, resourceClaims=claims)

    assert "" == answer(cluster, pod("claim", TEAM, content))


UNKNOWN: Final = (
    f"container 'main' sets {VARIABLE} to a value that is known only on the node, "
    f"{REQUEST}or write void; {EXEMPT}"
)
PRIVILEGED: Final = (
    "container 'main' is privileged and may use all devices of its node, also GPUs, "
    f"but the pod requests no GPU; remove privileged; {EXEMPT}"
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (container(securityContext={"privileged": True}), PRIVILEGED),
        (container({"configMapKeyRef": {"name": "gpus", "key": "visible"}}), UNKNOWN),
        (container("$(GPUS)"), UNKNOWN),
        (
            container(
                env=[
                    {"name": "GPUS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": VARIABLE, "value": "$(GPUS)"},
                ]
            ),
            UNKNOWN,
        ),
    ],
)
def test_pods_that_may_take_gpus_are_created_with_a_warning(
    cluster: ControlPlane, content: Object, message: str
) -> None:
    """The policy knows neither the node nor the value."""
    create = ("create", "--dry-run=server", "-o", "name", "-f", "-")
    done = cluster.kubectl(*create, input=json.dumps(pod("may", TEAM, spec(content))))

    assert ("pod/may\n", warned(message)) == (done.stdout, done.stderr)


def test_what_may_take_gpus_is_in_the_audit_log(cluster: ControlPlane) -> None:
    """The control plane writes audit events of service accounts."""
    cluster.kubectl("create", "serviceaccount", "audited", "-n", TEAM)
    binding = ("create", "clusterrolebinding", "audited", "--clusterrole=cluster-admin")
    cluster.kubectl(*binding, f"--serviceaccount={TEAM}:audited")
    user = ("--kubeconfig", str(cluster.service_account(TEAM, "audited")))
    privileged = pod("audited", TEAM, spec(container(securityContext={"privileged": True})))
    cluster.kubectl("create", *user, "--dry-run=server", "-f", "-", input=json.dumps(privileged))
    events = [json.loads(line) for line in cluster.audit.read_text().splitlines()]
    (text,) = (
        text
        for event in events
        for name, text in event.get("annotations", {}).items()
        if name == "validation.policy.admission.k8s.io/validation_failure"
    )
    (failure,) = json.loads(text)

    assert (WARN, PRIVILEGED) == (failure["policy"], failure["message"])


def test_exempt_namespaces_are_not_checked(cluster: ControlPlane, tmp_path: Path) -> None:
    """By their names, or by the label."""
    namespaces = [LABELLED, *exempt(overlay(tmp_path))]

    assert {"kube-system", "gpu-operator", "gpugate-agent"} <= set(namespaces)
    assert "" == answer(
        cluster, *(pod("any", namespace, spec(_everything(), paths=PATHS)) for namespace in namespaces)
    )


def test_mirrors_of_static_pods_are_not_checked(cluster: ControlPlane) -> None:
    """The kubelet runs them, whatever the API server answers."""
    content = spec(_everything()) | {"nodeName": "n1"}

    assert "" == answer(cluster, pod("m", TEAM, content, annotations={"kubernetes.io/config.mirror": "x"}))


def daemon(described: Object) -> Iterator[Object]:
    """Yield a DaemonSet of gpu_daemons.yaml and the pod that it creates."""
    lists = {
        field: [
            {
                "name": name,
                "image": "example.com/daemon:1",
                "securityContext": {"privileged": settings.get("privileged", False)},
                "env": [{"name": key, "value": value} for key, value in settings.get("env", {}).items()],
            }
            for name, settings in described.get(key, {}).items()
        ]
        for key, field in (("containers", "containers"), ("init", "initContainers"))
    }
    content = spec(
        *lists["containers"], paths=tuple(described["hostPaths"]), initContainers=lists["initContainers"]
    )
    metadata = {"name": described["name"], "namespace": described["namespace"]}
    yield workload("DaemonSet", "apps/v1", content, metadata)
    yield pod(f"{described['name']}-x", described["namespace"], content)


def workload(kind: str, version: str, content: Object, metadata: Object) -> Object:
    """Return a workload of the built-in kinds."""
    labels = {"app": "x"}
    template: Object = {"metadata": {"labels": labels}, "spec": content}
    if kind == "PodTemplate":
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "template": template}
    fields: Object = {"template": template}
    if kind == "ReplicationController":
        fields |= {"selector": labels}
    elif kind in ("Job", "CronJob"):
        content |= {"restartPolicy": "Never"}
    else:
        fields |= {"selector": {"matchLabels": labels}}
    if kind == "StatefulSet":
        fields |= {"serviceName": "x"}
    if kind == "CronJob":
        fields = {"schedule": "@daily", "jobTemplate": {"spec": fields}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": fields}


@pytest.mark.parametrize(
    "each", DAEMONS, ids=[f"{described['namespace']}/{described['name']}" for described in DAEMONS]
)
def test_daemon_sets_of_vendors_are_not_denied(cluster: ControlPlane, each: Object) -> None:
    """Nor do they cause a warning, except for privileged ones in other namespaces."""
    message = PRIVILEGED.replace("main", next(iter(each["containers"])))

    # kubectl writes the same warning once.
    assert (warned(message) if each.get("warned") else "") == answer(cluster, *daemon(each))


KINDS: Final = [
    ("Deployment", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("ReplicaSet", "apps/v1"),
    ("Job", "batch/v1"),
    ("CronJob", "batch/v1"),
    ("ReplicationController", "v1"),
    ("PodTemplate", "v1"),
]


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_workloads_are_checked_when_they_are_applied(cluster: ControlPlane, kind: str, version: str) -> None:
    """By the spec of their pods."""
    metadata = {"name": "taker", "namespace": TEAM}
    taker = workload(kind, version, spec(container("all")), metadata)
    void = workload(kind, version, spec(container("void")), metadata)

    assert answer(cluster, taker).endswith(denied(SETS.format("all")))
    assert "" == answer(cluster, void)


def test_only_a_new_pod_template_of_an_existing_workload_is_checked(cluster: ControlPlane) -> None:
    """Replicas and labels of a Deployment that existed before change; its next image has to be right."""
    metadata: Object = {"name": "old", "namespace": TEAM}
    old = workload("Deployment", "apps/v1", spec(container("all")), metadata)
    # As the namespace was exempt when it was created.
    cluster.kubectl("label", "namespace", TEAM, "gpugate.dev/unrequested-gpus=allow")
    eventually(lambda: answer(cluster, old) == "")
    cluster.kubectl("create", "-f", "-", input=json.dumps(old))
    cluster.kubectl("label", "namespace", TEAM, "gpugate.dev/unrequested-gpus-")
    eventually(lambda: answer(cluster, pod("new", TEAM, spec(container("all")))) != "")
    cluster.kubectl("scale", "deployment/old", "-n", TEAM, "--replicas=3")
    cluster.kubectl("patch", "deployment/old", "-n", TEAM, "-p", '{"spec": {"paused": true}}')
    changed = cluster.kubectl(
        "set", "image", "deployment/old", "-n", TEAM, "main=example.com/train:2", check=False
    )

    assert changed.stderr.endswith(denied(SETS.format("all")))
    cluster.kubectl("delete", "deployment/old", "-n", TEAM)


def test_ephemeral_containers_are_checked(cluster: ControlPlane) -> None:
    """By kubectl debug: they may take GPUs only of a pod that requests some."""
    requests = container(resources={"limits": {"nvidia.com/gpu": "1"}})
    for document in (pod("without", TEAM, spec(paths=("/data",))), pod("with", TEAM, spec(requests))):
        cluster.kubectl("create", "-f", "-", input=json.dumps(document))

    def debug(name: str, value: str) -> str:
        options = ("--image=example.com/debug:1", "--profile=general", f"--env={VARIABLE}={value}")
        return cluster.kubectl("debug", name, "-n", TEAM, "-c", f"{value}-er", *options, check=False).stderr

    assert "" == debug("with", "all")
    assert "" == debug("without", "void")
    assert debug("without", "all").endswith(denied(SETS.replace("'main'", "'all-er'").format("all")))


def test_the_patches_of_the_page_change_actions_and_resources(cluster: ControlPlane, tmp_path: Path) -> None:
    """Warnings for all; then privileged pods are denied; then another resource is a request."""
    component, *patches = (
        yaml.safe_load(fence.text) for fence in fences(text_of(PAGE), PAGE) if fence.language == "yaml"
    )
    report, enforce, resources = (overlay(tmp_path / str(at), patch) for at, patch in enumerate(patches))
    taken = pod("taken", TEAM, spec(container("all")))
    privileged = pod("privileged", TEAM, spec(container(securityContext={"privileged": True})))
    own = pod("own", TEAM, spec(_everything(resources={"limits": {"example.com/gpu": "1"}})))

    assert {"components": ["../manifests/components/unrequested-gpus"]} == component
    apply(cluster, report)
    eventually(lambda: answer(cluster, taken) == warned(SETS.format("all")).replace(WARN, DENY))
    apply(cluster, enforce)
    eventually(lambda: answer(cluster, privileged).endswith(denied(PRIVILEGED).replace(DENY, WARN)))
    eventually(lambda: answer(cluster, taken).endswith(denied(SETS.format("all"))))
    apply(cluster, resources)
    eventually(lambda: answer(cluster, own) == "")
    eventually(lambda: answer(cluster, privileged) == warned(PRIVILEGED))


def test_the_page_shows_a_denial() -> None:
    """As the policy writes it."""
    (shown,) = (fence.text for fence in fences(text_of(PAGE), PAGE) if fence.language == "text")

    assert f"{SETS.format('all')}\n" == shown


def test_pods_that_are_large_are_checked_within_the_cost_limit(cluster: ControlPlane) -> None:
    """A thousand containers, 200 of them with a resource that no rule knows; a thousand hostPaths."""
    unknown = {"limits": {"example.com/unknown-device": "1"}}
    many = [container(resources=unknown if at < 199 else {}) | {"name": f"c{at}"} for at in range(999)]
    paths = tuple(f"/a/path/of/the/host/{at}" for at in range(999))

    assert answer(cluster, pod("containers", TEAM, spec(*many, container("all")))).endswith(
        denied(SETS.format("all"))
    )
    assert answer(cluster, pod("paths", TEAM, spec(paths=(*paths, "/dev/nvidia0")))).endswith(
        denied(HAS.format("/dev/nvidia0").replace("v1", "v999"))
    )
