"""Container runtimes by versions of NVIDIA Container Toolkit, and of nodes of clouds."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.inventory_document import inventory_of
from rules.nodes.runtime_modes import AUTO, UNKNOWN_RUNTIME, RuntimeMode, mode_of, runtime_of, toolkit_version
from rules.text.i18n import Message, Text
from tests.support.node_builders import gfd, node

LEGACY, CDI, UNKNOWN = RuntimeMode.LEGACY, RuntimeMode.CDI, RuntimeMode.UNKNOWN
GKE = "cloud.google.com/gke-accelerator"
AKS = "kubernetes.azure.com/node-image-version"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.17.8-ubuntu20.04", (1, 17, 8)),
        ("1.18.0", (1, 18, 0)),
        ("v1.18.0-rc.1", (1, 18, 0)),
        ("latest", ()),
        ("1.18", ()),
        ("sha256:0123", ()),
        ("", ()),
    ],
)
def test_a_version_of_the_toolkit_is_read_as_its_images_are_tagged(
    text: str, version: tuple[int, ...]
) -> None:
    """A digest tells none."""
    assert version == toolkit_version(text)


@pytest.mark.parametrize(
    ("configured", "toolkit", "mode"),
    [
        (AUTO, (1, 17, 8), LEGACY),
        (AUTO, (1, 18, 0), CDI),
        (AUTO, (1, 9, 0), UNKNOWN),
        (AUTO, (), UNKNOWN),
        ("legacy", (1, 18, 0), LEGACY),
        ("cdi", (), CDI),
        ("jit-cdi", (1, 20, 0), CDI),
        ("csv", (1, 17, 8), UNKNOWN),
    ],
)
def test_the_configured_mode_counts_and_auto_is_by_version(
    configured: str, toolkit: tuple[int, ...], mode: RuntimeMode
) -> None:
    """Version 1.18 changed auto from legacy to jit-cdi."""
    assert mode is mode_of(configured, toolkit)


def test_hooks_stay_in_legacy_mode() -> None:
    """CRI-O calls the hook, not the runtime, whose auto is jit-cdi."""
    assert LEGACY is mode_of(AUTO, (1, 18, 0), by_hook=True)


@pytest.mark.parametrize(
    ("mode", "toolkit", "by_hook", "loads"),
    [
        (LEGACY, (1, 17, 3), False, True),
        (LEGACY, (1, 17, 4), False, False),
        (LEGACY, (1, 17, 5), False, True),
        (LEGACY, (1, 17, 6), True, False),
        (LEGACY, (1, 17, 7), True, True),
        (LEGACY, (1, 20, 1), False, True),
        (LEGACY, (), False, None),
        (CDI, (1, 17, 8), False, None),
        (CDI, (1, 18, 0), False, True),
    ],
)
def test_whether_compatibility_libraries_are_loaded_depends_on_mode_and_version(
    mode: RuntimeMode, toolkit: tuple[int, ...], by_hook: bool, loads: bool | None
) -> None:
    """Version 1.17.4 switched them off, and 1.17.5 on again."""
    assert loads is runtime_of(mode, toolkit, Text(), by_hook=by_hook).loads_compat


def on_cloud(labels: dict[str, str], **node_info: Any) -> dict[str, Any]:
    """Return a Node with these labels and its status.nodeInfo."""
    node_object = node("one", labels)
    node_object["status"]["nodeInfo"] = node_info
    return node_object


AL2023 = {"kubeletVersion": "v1.33.5-eks-113cf36", "containerRuntimeVersion": "containerd://2.1.5"}


@pytest.mark.parametrize(
    ("cloud", "mode", "loads"),
    [
        (on_cloud({GKE: "nvidia-tesla-t4"}), CDI, False),
        (on_cloud({AKS: "AKSUbuntu-2204gen2containerd-202511.11.0"}), LEGACY, None),
        (on_cloud({AKS: "AKSUbuntu-2204gen2containerd-202601.13.0"}), UNKNOWN, None),
        (on_cloud({AKS: "AKSUbuntu-2404gen2containerd-202603.02.0"}), CDI, True),
        (on_cloud({AKS: "AKSAzureLinux-V3gen2-202607.01.0"}), LEGACY, True),
        (on_cloud({AKS: "AKSUbuntu-2204gen2containerd"}), UNKNOWN, None),
        (on_cloud({}, osImage="Amazon Linux 2023.9.20251027", **AL2023), CDI, True),
        (on_cloud({}, osImage="Amazon Linux 2023.7.20250331", **AL2023), UNKNOWN, None),
        (on_cloud({}, osImage="Amazon Linux 2023.9.20251027", kubeletVersion="v1.33.5"), UNKNOWN, None),
        (on_cloud({}, osImage="Amazon Linux 2023", **AL2023), UNKNOWN, None),
        (on_cloud({}, osImage="Bottlerocket OS 1.54.0 (aws-k8s-1.33-nvidia)", **AL2023), UNKNOWN, None),
        (on_cloud({}, osImage=5, kubeletVersion=["v1"]), UNKNOWN, None),
        (node("one", gfd("12.2")), UNKNOWN, None),
    ],
)
def test_a_node_of_a_cloud_shows_its_runtime_where_its_image_tells_it(
    cloud: dict[str, Any], mode: RuntimeMode, loads: bool | None
) -> None:
    """What cannot be told exactly is unknown."""
    inventory = inventory_of([cloud])
    (node_class,) = inventory.classes(inventory.everything)

    assert (mode, loads) == (
        node_class.capabilities.runtime.mode,
        node_class.capabilities.runtime.loads_compat,
    )


def test_a_known_runtime_says_where_it_is_from() -> None:
    """In both languages; an unknown one is the default."""
    inventory = inventory_of([on_cloud({GKE: "nvidia-l4"}), node("two")])
    runtimes = {node_class.capabilities.runtime for node_class in inventory.classes(inventory.everything)}

    assert {UNKNOWN_RUNTIME.source, Message("{name} (label {label})", name="GKE", label=GKE)} == {
        runtime.source for runtime in runtimes
    }


@pytest.mark.parametrize(
    ("labels", "mode", "loads"),
    [
        ({"gpugate.dev/container-runtime-mode": "cdi"}, CDI, None),
        (
            {
                "gpugate.dev/container-runtime-mode": "legacy",
                "gpugate.dev/container-toolkit-version": "1.17.4",
            },
            LEGACY,
            False,
        ),
        ({"gpugate.dev/container-toolkit-version": "1.17.4"}, UNKNOWN, None),
    ],
)
def test_labels_of_the_node_agent_take_precedence_over_what_a_cloud_shows(
    labels: dict[str, str], mode: RuntimeMode, loads: bool | None
) -> None:
    """It has read the configuration on the node."""
    cloud = {} if mode is UNKNOWN else {GKE: "nvidia-l4"}
    inventory = inventory_of([node("one", labels | cloud)])
    (node_class,) = inventory.classes(inventory.everything)

    assert (mode, loads) == (
        node_class.capabilities.runtime.mode,
        node_class.capabilities.runtime.loads_compat,
    )


@pytest.mark.parametrize(
    ("mode", "version", "key"),
    [
        ("csv", "1.17.4", "gpugate.dev/container-runtime-mode"),
        ("legacy", "new", "gpugate.dev/container-toolkit-version"),
    ],
)
def test_an_invalid_label_of_a_runtime_is_a_problem(mode: str, version: str, key: str) -> None:
    """What it should report stays unknown."""
    labels = {"gpugate.dev/container-runtime-mode": mode, "gpugate.dev/container-toolkit-version": version}

    assert [key] == [problem.key for problem in inventory_of([node("one", labels)]).problems()]
