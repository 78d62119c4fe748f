"""The platforms of an image against the CPU architecture of the nodes: verdict, fix, and affinity."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.architecture import ArchitectureCheck
from rules.cuda.image_catalog import ImageCase, ImageCatalog, ImageRow, built_in_catalog
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.builders import patched, policy, warning_texts
from tests.support.node_builders import (
    A100,
    H100,
    Node,
    compatibility_rule,
    gfd,
    gpu_pod,
    image_catalog,
    inventory,
    judged,
    node,
    targets,
)
from tests.support.requirement_builders import requirements

AMD64, ARM64 = {"kubernetes.io/arch": "amd64"}, {"kubernetes.io/arch": "arm64"}
GRACE = ("NVIDIA-GH200-480GB", "9.0")
IMAGE = "registry.example.com/team/serve:1"
POD = gpu_pod(IMAGE)
ROW = {"image": IMAGE, "platforms": ["linux/amd64"]}


def for_platforms(*platforms: str, image: str = "team/app:v1") -> GpuRequirements:
    """Return the requirements of an image of which a cluster's row names these platforms."""
    row = ImageRow("team-images", None, (ImageCase(platforms=platforms),), exact=image)
    return requirements(image, catalog=built_in_catalog().preceded_by([row]))


def check(
    required: GpuRequirements, node: NodeCapabilities, level: Level = Level.INCOMPATIBLE
) -> list[CheckResult]:
    """Return the results of the check with this level."""
    return [*ArchitectureCheck().on_node(SharingPolicy(checks=Checks(architecture=level)), required, node)]


def cluster(*labels: dict[str, str]) -> list[Node]:
    """Return nodes `node-0`, `node-1`, … with these labels."""
    return [node(f"node-{at}", label) for at, label in enumerate(labels)]


def affinity(document: Any) -> Any:
    """Return the node selector terms of a pod."""
    required = document["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"]


def test_an_amd64_image_is_incompatible_with_an_arm64_node_and_the_result_names_both() -> None:
    """With the row of the catalogue and the setting that decides so."""
    (result,) = check(for_platforms("linux/amd64"), NodeCapabilities(architecture="arm64"))

    assert (Level.INCOMPATIBLE, "") == (result.level, result.setting)
    assert "the image is for linux/amd64, the node for linux/arm64" == result.reason.en
    assert "use an image for linux/arm64, or nodes with amd64" == result.remedy.en
    assert "row team-images of the image catalogue names the platforms of the image" == result.origin.en


@pytest.mark.parametrize(
    ("platforms", "facts"),
    [
        (["linux/amd64", "linux/arm64"], {"architecture": "arm64"}),
        (["linux/arm/v7"], {"architecture": "arm64"}),
        (["linux/386"], {"architecture": "amd64"}),
        (["linux/386"], {"architecture": "386"}),
        (["windows/amd64"], {"architecture": "arm64"}),
        ([], {"architecture": "arm64"}),
        (["linux/arm64"], {}),
        (["linux/arm64"], {"product": "NVIDIA-A100-SXM4-80GB"}),
    ],
)
def test_what_is_unknown_says_nothing_and_old_programs_run_on_newer_nodes(
    platforms: list[str], facts: dict[str, Any]
) -> None:
    """A node without a label may have any architecture; images for Windows say nothing about Linux."""
    assert [] == check(for_platforms(*platforms), NodeCapabilities(**facts))


@pytest.mark.parametrize(
    ("image", "level"),
    [
        ("vllm/vllm-openai:v0.8.5", Level.INCOMPATIBLE),
        ("registry.example.com/vllm/vllm-openai:v0.8.5", Level.UNSTABLE),
        ("vllm/vllm-openai:v0.11.0", None),
        ("nvcr.io/nvidia/pytorch:25.01-py3", None),
    ],
)
def test_a_built_in_row_is_certain_for_the_registry_that_it_is_about(image: str, level: Level | None) -> None:
    """A copy in another registry may be built for other platforms; most rows name none."""
    results = check(requirements(image), NodeCapabilities(architecture="arm64"))

    assert level == (results[0].level if results else None)


def test_an_architecture_that_only_the_product_shows_is_a_warning_at_most() -> None:
    """Grace: every kubelet labels its node, so such a node is from an incomplete file."""
    (result,) = check(for_platforms("linux/amd64"), NodeCapabilities(product="NVIDIA-GH200-480GB"))

    assert Level.UNSTABLE is result.level


@pytest.mark.parametrize(("level", "expected"), [(Level.UNSTABLE, [1]), (Level.COMPATIBLE, [])])
def test_the_rule_sets_the_level(level: Level, expected: list[int]) -> None:
    """`warn` and `off`."""
    results = check(for_platforms("linux/amd64"), NodeCapabilities(architecture="arm64"), level)

    assert expected == [result.level for result in results]


def test_a_declared_cuda_version_that_differs_makes_the_platforms_unknown() -> None:
    """The image is another one than the row is about."""
    other = requirements("vllm/vllm-openai:v0.8.5", annotations={"gpugate.dev/cuda-version": "12.8"})

    assert other.platforms is None


def test_an_amd64_image_on_grace_nodes_is_denied_and_passes_with_either_fix() -> None:
    """With a multi-arch image, and with a node that has amd64."""
    grace = cluster(gfd("12.8", GRACE, **ARM64), gfd("12.8", GRACE, **ARM64))
    denied = judged(policy(compatibility_rule(), image_catalog(ROW)), inventory(grace), POD)

    assert not denied.allowed
    assert "the image is for linux/amd64, the node for linux/arm64" in denied.denial.en
    assert "use an image for linux/arm64, or nodes with amd64" in denied.denial.en
    both = image_catalog({"image": IMAGE, "platforms": ["linux/amd64", "linux/arm64"]})
    assert judged(policy(compatibility_rule(), both), inventory(grace), POD).allowed
    mixed = [*grace, node("x86", gfd("12.8", H100, **AMD64))]
    allowed = judged(policy(compatibility_rule(), image_catalog(ROW)), inventory(mixed), POD)
    assert ["x86"] == targets(mixed, POD, allowed)


def test_affinity_names_the_architecture_only_in_a_cluster_with_another_one() -> None:
    """A node without the label, as no kubelet leaves it, stays a candidate."""
    rules = policy(compatibility_rule(), image_catalog(ROW))
    same = cluster(gfd("12.8", A100, **AMD64), gfd("12.8", H100, **AMD64))
    mixed = cluster(gfd("12.8", A100, **AMD64), gfd("12.8", GRACE, **ARM64))
    unlabelled = [*mixed, node("plain", gfd("12.8", A100))]

    assert () == judged(rules, inventory(same), POD).patch
    expression = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    assert [{"matchExpressions": [expression]}] == affinity(
        patched(POD, judged(rules, inventory(mixed), POD))
    )
    decision = judged(rules, inventory(unlabelled), POD)
    assert ["node-0", "plain"] == targets(unlabelled, POD, decision)


def node_pool(name: str, architecture: str, instance_type: str) -> dict[str, Any]:
    """Return a NodePool of Karpenter with one architecture and one type of instances."""
    labels = {"kubernetes.io/arch": architecture, "node.kubernetes.io/instance-type": instance_type}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"requirements": requirements, "nodeClassRef": reference}}},
    }


def test_a_pool_of_another_architecture_brings_no_compatible_node() -> None:
    """Karpenter knows the architecture of a node before it exists."""
    rules = policy(compatibility_rule(), image_catalog(ROW))
    arm64, amd64 = node_pool("arm", "arm64", "p6e-gb200.36xlarge"), node_pool("x86", "amd64", "p5.48xlarge")
    allowed = judged(rules, inventory(arm64, amd64), POD)

    assert not judged(rules, inventory(arm64), POD).allowed
    assert allowed.allowed
    assert ["x86"] == affinity(patched(POD, allowed))[0]["matchExpressions"][0]["values"]
    assert () == judged(rules, inventory(amd64), POD).patch


def test_an_image_of_unknown_platforms_gets_no_affinity_in_a_mixed_cluster() -> None:
    """No row of the catalogue names its platforms."""
    mixed = cluster(gfd("12.8", A100, **AMD64), gfd("12.8", GRACE, **ARM64))

    assert () == judged(policy(compatibility_rule()), inventory(mixed), POD).patch


@pytest.mark.parametrize("effect", ["warn", "off", "dryrun"])
def test_with_another_effect_the_pod_is_allowed_without_affinity(effect: str) -> None:
    """A warning names both platforms."""
    rules = policy(compatibility_rule(checks={"architecture": effect}), image_catalog(ROW))
    decision = judged(rules, inventory(cluster(gfd("12.8", GRACE, **ARM64))), POD)

    assert (True, ()) == (decision.allowed, decision.patch)
    assert (effect == "warn") is any("linux/arm64" in text for text in warning_texts(decision))


def test_rows_of_one_image_together_name_its_platforms() -> None:
    """As `gpugate image inspect` writes them for platforms with different facts."""
    catalog = ImageCatalog(
        ImageRow("images", None, (ImageCase(platforms=(name,)),), exact=IMAGE)
        for name in ("linux/amd64", "linux/arm64")
    )
    platforms = requirements(IMAGE, catalog=catalog).platforms

    assert platforms is not None
    assert {"amd64", "arm64"} == platforms.architectures


@pytest.mark.parametrize(
    "image",
    [
        "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime",
        "pytorch/pytorch:2.1.2-cuda11.8-cudnn8-devel",
        "tensorflow/tensorflow:2.11.0-gpu",
        "tensorflow/serving:2.14.1-gpu",
    ],
)
def test_images_that_are_published_for_amd64_only_are_known(image: str) -> None:
    """On a GB200, their pull fails."""
    platforms = requirements(image).platforms

    assert platforms is not None
    assert (frozenset({"amd64"}), True) == (platforms.architectures, platforms.certain)


@pytest.mark.parametrize("image", ["nvcr.io/nvidia/pytorch:20.12-py3", "tensorflow/tensorflow:2.19.0-gpu"])
def test_old_images_of_ngc_and_tensorflow_by_its_wheels_only_warn(image: str) -> None:
    """What is not read of the images themselves."""
    platforms = requirements(image).platforms

    assert platforms is not None
    assert (frozenset({"amd64"}), False) == (platforms.architectures, platforms.certain)


def test_pytorch_after_what_was_read_may_have_other_platforms() -> None:
    """2.13 is the last."""
    assert requirements("pytorch/pytorch:2.14.0-cuda13.0-cudnn9-runtime").platforms is None
