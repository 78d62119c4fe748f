"""GPU Operator: the container runtimes of the nodes that it manages."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.gpu_operator import GpuOperator, read_operator
from rules.nodes.inventory_document import inventory_of
from rules.nodes.runtime_modes import RuntimeMode
from tests.support.node_builders import gfd, node

LEGACY, CDI, UNKNOWN = RuntimeMode.LEGACY, RuntimeMode.CDI, RuntimeMode.UNKNOWN
MANAGED = "nvidia.com/gpu.deploy.container-toolkit"
MODE = "NVIDIA_CONTAINER_RUNTIME_MODE"
FEATURES, ALLOWED = "NVIDIA_CONTAINER_TOOLKIT_OPT_IN_FEATURES", "allow-cuda-compat-libs-from-container"


def policy(name: str = "cluster-policy", **spec: Any) -> dict[str, Any]:
    """Return a ClusterPolicy."""
    return {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": name}, "spec": spec}


def release(toolkit: str, cdi: bool | None, **more: Any) -> dict[str, Any]:
    """Return a ClusterPolicy as the chart of a release makes it."""
    enabled = {} if cdi is None else {"enabled": cdi, "default": False}
    return policy(cdi=enabled, toolkit={"enabled": True, "version": toolkit}, **more)


def managed(name: str = "one", engine: str = "containerd://2.1.5", **labels: str) -> dict[str, Any]:
    """Return a node on which GPU Operator installs the toolkit."""
    node_object = node(name, gfd("12.2") | {MANAGED: "true"} | labels)
    node_object["status"]["nodeInfo"] = {"containerRuntimeVersion": engine}
    return node_object


def runtime_on(node_object: dict[str, Any], *policies: dict[str, Any]) -> tuple[RuntimeMode, bool | None]:
    """Return mode and libraries of a node with these ClusterPolicies."""
    inventory = inventory_of([*policies, node_object])
    (one,) = inventory.classes(inventory.everything)
    return one.capabilities.runtime.mode, one.capabilities.runtime.loads_compat


@pytest.mark.parametrize(
    ("settings", "mode", "loads"),
    [
        (release("v1.13.0", cdi=False), LEGACY, True),  # 23.3.0
        (release("v1.17.4-ubuntu20.04", cdi=False), LEGACY, False),  # 24.9.2
        (release("v1.17.8-ubuntu20.04", cdi=False), LEGACY, True),  # 25.3.4
        (release("v1.18.0", cdi=True), CDI, True),  # 25.10.0
        (release("v1.20.0", cdi=True), CDI, True),  # 26.7.0
        (release("v1.18.0", cdi=False), CDI, True),  # auto is jit-cdi
        (release("v1.18.0", cdi=None), CDI, True),  # either way
        (release("v1.17.8", cdi=None), UNKNOWN, None),
        # 25.10 with an older toolkit is CDI, 25.3 offers CDI to pods that ask for it.
        (release("v1.17.8", cdi=True), UNKNOWN, None),
        (release("sha256:0123", cdi=False), UNKNOWN, None),
        (policy(), UNKNOWN, None),
        (policy(cdi={"enabled": True, "default": True}, toolkit={"version": "v1.17.8"}), CDI, None),
    ],
)
def test_each_release_sets_the_mode_of_the_nodes_that_it_manages(
    settings: dict[str, Any], mode: RuntimeMode, loads: bool | None
) -> None:
    """Release 25.10 changed it from legacy to CDI."""
    assert (mode, loads) == runtime_on(managed(), settings)


def toolkit(version: str, **env: str) -> dict[str, Any]:
    """Return the settings of a toolkit with variables."""
    return {"version": version, "env": [{"name": name, "value": value} for name, value in env.items()]}


@pytest.mark.parametrize(
    ("settings", "mode", "loads"),
    [
        (policy(cdi={"enabled": False}, toolkit=toolkit("v1.18.0", **{MODE: "legacy"})), LEGACY, True),
        (policy(cdi={"enabled": False}, toolkit=toolkit("v1.17.8", **{MODE: "cdi"})), CDI, None),
        (policy(cdi={"enabled": True}, toolkit=toolkit("v1.18.0", **{MODE: "legacy"})), UNKNOWN, None),
        (policy(cdi={"enabled": False}, toolkit=toolkit("v1.17.8", **{MODE: "csv"})), UNKNOWN, None),
        (
            release("v1.17.8", cdi=False, devicePlugin=toolkit("", DEVICE_LIST_STRATEGY="cdi-cri")),
            UNKNOWN,
            None,
        ),
        (
            release("v1.17.8", cdi=False, devicePlugin=toolkit("", DEVICE_LIST_STRATEGY="envvar")),
            LEGACY,
            True,
        ),
        (release("v1.20.0", cdi=True, devicePlugin=toolkit("", CDI_DISABLE_HOOKS="all")), CDI, None),
        (policy(cdi={"enabled": False}, toolkit=toolkit("v1.17.4", **{FEATURES: ALLOWED})), LEGACY, None),
    ],
)
def test_variables_in_the_settings_change_the_mode(
    settings: dict[str, Any], mode: RuntimeMode, loads: bool | None
) -> None:
    """If they contradict each other, it is unknown."""
    assert (mode, loads) == runtime_on(managed(), settings)


@pytest.mark.parametrize(
    ("cdi", "mode"), [(False, LEGACY), (True, CDI), (None, UNKNOWN)], ids=["off", "on", "unset"]
)
def test_hooks_of_crio_stay_in_legacy_mode_without_cdi(cdi: bool | None, mode: RuntimeMode) -> None:
    """There auto of newer toolkits is not used."""
    assert mode is runtime_on(managed(engine="cri-o://1.33.4"), release("v1.18.0", cdi=cdi))[0]


HOST = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
OWN = {"kubernetes.azure.com/node-image-version": "AKSAzureLinux-V3gen2-202607.01.0"}


@pytest.mark.parametrize(
    ("labels", "cdi", "mode", "loads"),
    [
        (OWN, False, LEGACY, True),
        (OWN, True, UNKNOWN, None),
        (HOST, True, CDI, None),
        ({}, False, UNKNOWN, None),
    ],
)
def test_where_the_operator_does_not_install_the_toolkit_that_of_the_host_counts(
    labels: dict[str, str], cdi: bool, mode: RuntimeMode, loads: bool | None
) -> None:
    """With CDI its device plugin may pass it by."""
    settings = policy(cdi={"enabled": cdi}, toolkit={"enabled": False, "version": "v1.18.0"})

    assert (mode, loads) == runtime_on(managed(**labels), settings)


@pytest.mark.parametrize(
    ("value", "mode"), [("true", LEGACY), ("paused-for-mig-change", LEGACY), ("false", CDI), (None, CDI)]
)
def test_settings_apply_to_the_nodes_that_the_operator_labels(value: str | None, mode: RuntimeMode) -> None:
    """A node of a cloud that it does not manage keeps its own runtime."""
    labels = HOST | ({} if value is None else {MANAGED: value})

    assert mode is runtime_on(node("one", labels), release("v1.17.8", cdi=False))[0]


def test_a_managed_node_without_known_settings_has_an_unknown_runtime() -> None:
    """GPU Operator may have replaced that of the cloud."""
    assert (UNKNOWN, None) == runtime_on(managed(**HOST))


def test_contradicting_policies_make_the_runtime_unknown_and_are_named() -> None:
    """GPU Operator uses one of them; which one is not known here."""
    one, other = release("v1.17.8", cdi=False), release("v1.18.0", cdi=True)
    other["metadata"] = {"name": "other"}
    inventory = inventory_of([one, other, managed()])
    (node_class,) = inventory.classes(inventory.everything)

    assert UNKNOWN is node_class.capabilities.runtime.mode
    assert (
        "ClusterPolicy cluster-policy and ClusterPolicy other contradict each other"
        == node_class.capabilities.runtime.source.en
    )


def daemon_set(image: str, **env: str) -> dict[str, Any]:
    """Return the DaemonSet of GPU Operator that installs the toolkit."""
    container = {"image": image, "env": [{"name": name, "value": value} for name, value in env.items()]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-container-toolkit-daemonset"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


IMAGE = "registry.example:5000/k8s/container-toolkit:"


@pytest.mark.parametrize(
    ("settings", "engine", "mode", "loads"),
    [
        (daemon_set(IMAGE + "v1.17.8-ubuntu20.04"), "containerd", LEGACY, True),
        (daemon_set(IMAGE + "v1.18.0"), "containerd", CDI, True),
        (daemon_set(IMAGE + "v1.17.4"), "containerd", LEGACY, False),
        (daemon_set(IMAGE + "v1.17.4", **{FEATURES: ALLOWED}), "containerd", LEGACY, None),
        (daemon_set(IMAGE + "v1.18.0"), "cri-o", LEGACY, True),
        (daemon_set(IMAGE + "v1.18.0", **{MODE: "cdi"}), "cri-o", CDI, True),
        (daemon_set("container-toolkit@sha256:01", **{MODE: "cdi"}), "containerd", CDI, None),
        (daemon_set("registry.example:5000/toolkit@sha256:01"), "containerd", UNKNOWN, None),
        (daemon_set("", **{MODE: ""}), "containerd", UNKNOWN, None),
    ],
)
def test_the_daemon_set_shows_what_the_operator_has_set(
    settings: dict[str, Any], engine: str, mode: RuntimeMode, loads: bool | None
) -> None:
    """Also where a ClusterPolicy leaves it to defaults, as on OpenShift."""
    silent = policy(toolkit={"enabled": True})

    assert (mode, loads) == runtime_on(managed(engine=f"{engine}://1"), settings, silent)


def test_a_daemon_set_and_a_policy_that_contradict_each_other_tell_nothing() -> None:
    """As while the operator has not applied a change."""
    runtime = runtime_on(managed(), daemon_set(IMAGE + "v1.17.8"), release("v1.18.0", cdi=True))

    assert (UNKNOWN, None) == runtime


@pytest.mark.parametrize("containers", [None, 5, [], [5], [{"image": 5, "env": 5}]])
def test_a_daemon_set_of_any_form_is_read_or_unknown(containers: Any) -> None:
    """It may be of another operator."""
    daemon_set_object = daemon_set("")
    daemon_set_object["spec"]["template"]["spec"]["containers"] = containers

    assert (UNKNOWN, None) == runtime_on(managed(), daemon_set_object)


def test_labels_of_the_node_agent_take_precedence_over_settings() -> None:
    """They are of the node itself."""
    labelled = managed(**{"gpugate.dev/container-runtime-mode": "legacy"})

    assert LEGACY is runtime_on(labelled, release("v1.18.0", cdi=True))[0]


def test_classes_follow_the_settings_and_other_nodes_stay() -> None:
    """As if all had been read together."""
    nodes = [managed("one"), managed("two"), node("three", gfd("12.2"))]
    before = inventory_of(nodes)
    before.classes(before.everything)
    after = before.with_operator(read_operator([release("v1.18.0", cdi=True)]))

    assert {CDI: ["one", "two"], UNKNOWN: ["three"]} == {
        node_class.capabilities.runtime.mode: after.names(node_class.members)
        for node_class in after.classes(after.everything)
    }
    assert after is after.with_operator(read_operator([release("v1.18.0", cdi=True)]))
    together = inventory_of([*nodes, release("v1.18.0", cdi=True)])
    assert together.classes(together.everything) == after.classes(after.everything)
    assert before.classes(before.everything) == (back := after.with_operator(GpuOperator())).classes(
        back.everything
    )


@pytest.mark.parametrize(
    "spec",
    [
        None,
        5,
        {"cdi": 5, "toolkit": [], "devicePlugin": "x"},
        {"cdi": {"enabled": "true"}, "toolkit": {"version": 5, "env": 5}},
        {"toolkit": {"env": [5, {}, {"name": 5, "value": {}}]}},
    ],
)
def test_settings_of_any_form_are_read_or_unknown(spec: Any) -> None:
    """The CustomResourceDefinition may be another one."""
    settings = policy() | {"spec": spec}

    assert (UNKNOWN, None) == runtime_on(managed(), settings)
