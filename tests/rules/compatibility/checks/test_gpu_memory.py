"""A declared minimum of GPU memory: on nodes, of shares and MIG slices, and the affinity for it."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.gpu_memory import GpuMemoryCheck
from rules.cuda.requirements import GpuRequirements, MemoryRequirement
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Text
from tests.support.builders import container, patched, pod, policy, warning_texts
from tests.support.node_builders import (
    A100,
    HAMI,
    MEMORY,
    MPS,
    SHARE,
    T4,
    Node,
    compatibility_rule,
    decided,
    gfd,
    gpu_pod,
    image_catalog,
    inventory,
    judged,
    node,
    targets,
)

LABEL = "nvidia.com/gpu.memory"
NEEDS_40 = GpuRequirements(memory=MemoryRequirement(40960, Text("a test", zh="测试")))


def check(
    node: NodeCapabilities, level: Level = Level.INCOMPATIBLE, *, virtual: bool = False
) -> list[CheckResult]:
    """Return the results for a container that needs 40 GiB."""
    policy = SharingPolicy(virtual=virtual, checks=Checks(gpu_memory=level))
    return [*GpuMemoryCheck().on_node(policy, NEEDS_40, node)]


def needing(amount: str, limits: dict[str, str] | None = None, suffix: str = "") -> Any:
    """Return a pod that declares a minimum."""
    metadata = {"name": "train", "annotations": {MEMORY + suffix: amount}}
    return gpu_pod("team/app:v1", limits=limits, metadata=metadata)


def labelled(*amounts: str) -> list[Node]:
    """Return nodes with these MiB of GPU memory, named by them."""
    return [node(f"m{amount}", gfd("12.8", T4, **{LABEL: amount})) for amount in amounts]


def test_a_gpu_with_less_memory_is_incompatible_and_the_result_says_how_much_it_has() -> None:
    """With who asks and the setting that decides so."""
    (result,) = check(NodeCapabilities(memory_mib=24564))

    assert (Level.INCOMPATIBLE, "") == (result.level, result.setting)
    assert "GPU memory 24564Mi, below 40Gi" == result.reason.en
    assert "use a GPU with 40Gi of memory or more" == result.remedy.en
    assert "a test asks for 40Gi" == result.origin.en


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({"memory_mib": 40960}, None),
        ({"memory_mib": 40959}, Level.INCOMPATIBLE),
        ({"product": "NVIDIA-A100-SXM4-80GB"}, None),
        ({"product": "Tesla-T4"}, Level.INCOMPATIBLE),
        ({"product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}, Level.INCOMPATIBLE),
        ({"product": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"}, None),
        ({"product": "NVIDIA-T4G"}, Level.UNSTABLE),
        ({"product": "NVIDIA-T4G", "memory_mib": 15360}, Level.INCOMPATIBLE),
        ({}, Level.UNKNOWN),
    ],
)
def test_memory_is_that_of_the_label_or_else_of_the_product(
    facts: dict[str, Any], level: Level | None
) -> None:
    """Exactly as written; a product of an unverified row of the table only warns."""
    results = check(NodeCapabilities(**facts))

    assert level == (results[0].level if results else None)


@pytest.mark.parametrize(("facts", "level"), [({"memory_mib": 16384}, Level.UNSTABLE), ({}, Level.UNSTABLE)])
def test_a_virtual_gpu_may_have_more_memory_than_the_gpu(facts: dict[str, Any], level: Level) -> None:
    """HAMi scales it, so it is a warning at most."""
    (result,) = check(NodeCapabilities(**facts), virtual=True)

    assert level is result.level


@pytest.mark.parametrize(("level", "expected"), [(Level.UNSTABLE, [1]), (Level.COMPATIBLE, [])])
def test_the_rule_sets_the_level(level: Level, expected: list[int]) -> None:
    """`warn` and `off`."""
    assert expected == [result.level for result in check(NodeCapabilities(memory_mib=16384), level)]
    assert expected == [result.level for result in check(NodeCapabilities(), level)]


def test_a_pod_on_gpus_with_too_little_memory_is_denied_and_passes_with_a_larger_gpu() -> None:
    """The message has the amounts, and whose requirement it is."""
    document = needing("40Gi")
    denied = decided(labelled("15360", "23028"), document)

    assert not denied.allowed
    assert "GPU memory 15Gi, below 40Gi" in denied.denial.en
    assert "annotation gpugate.dev/min-gpu-memory asks for 40Gi" in denied.denial.en
    cluster = labelled("15360", "23028", "81559")
    assert ["m81559"] == targets(cluster, document, decided(cluster, document))


def test_affinity_compares_the_label_as_a_number() -> None:
    """So that a new node with another amount matches, too; unlabelled nodes are known by their products."""
    cluster = [*labelled("15360", "40960", "81559"), node("a100", gfd("12.8", A100)), node("plain")]
    decision = decided(cluster, needing("40Gi"))
    required = patched(needing("40Gi"), decision)["spec"]["affinity"]["nodeAffinity"]

    assert ["m40960", "m81559", "a100"] == targets(cluster, needing("40Gi"), decision)
    first = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    assert {"key": LABEL, "operator": "Gt", "values": ["40959"]} in first["matchExpressions"]


@pytest.mark.parametrize("odd", ["80Gi", "0", "2332765218590174476"])
def test_an_impossible_label_is_unknown(odd: str) -> None:
    """As Karpenter invents some; such a node is left only if no other is known to fit."""
    strange = node("odd", {LABEL: odd})
    fits, small = labelled("81559", "15360")

    with_fit, without = [strange, fits, small], [strange, small]
    assert ["m81559"] == targets(with_fit, needing("40Gi"), decided(with_fit, needing("40Gi")))
    assert ["odd"] == targets(without, needing("40Gi"), decided(without, needing("40Gi")))


@pytest.mark.parametrize(
    ("limits", "problem", "fix"),
    [
        (SHARE, "tencent.com/vcuda-memory is 2Gi of GPU memory, below 40Gi", "write 160 for"),
        (MPS, "nvidia.com/mps-memory is 8Gi of GPU memory, below 40Gi", "write 40 for nvidia.com/mps-memory"),
        (
            {"nvidia.com/mig-1g.10gb": "1"},
            "nvidia.com/mig-1g.10gb has less than 40Gi of GPU memory",
            "a MIG profile with more than 40Gi",
        ),
        (
            {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": "8Gi"},
            "koordinator.sh/gpu-memory is 8Gi of GPU memory, below 40Gi",
            "write 40Gi for koordinator.sh/gpu-memory",
        ),
        (
            {"aliyun.com/gpu-mem": "8"},
            "aliyun.com/gpu-mem is 8Gi of GPU memory, below 40Gi",
            "write 40 for aliyun.com/gpu-mem",
        ),
    ],
)
def test_a_share_below_the_minimum_is_denied_with_the_amount_to_write(
    limits: dict[str, str], problem: str, fix: str
) -> None:
    """In the unit of each resource, wherever the pod would run."""
    offered: dict[str, Any] = dict.fromkeys(limits, 1000)
    denied = decided([node("n", gfd("12.8", A100), **offered)], needing("40Gi", limits))

    assert not denied.allowed
    assert problem in denied.denial.en
    assert fix in denied.denial.en


def test_with_the_suggested_amount_the_pod_passes() -> None:
    """160 blocks of 256 MiB are 40 GiB."""
    limits = SHARE | {"tencent.com/vcuda-memory": "160"}
    cluster = [node("n", gfd("12.8", A100), **dict.fromkeys(limits, 1000))]

    assert decided(cluster, needing("40Gi", limits)).allowed


def test_a_share_whose_unit_a_setting_can_change_only_warns() -> None:
    """HAMi's memoryFactor."""
    decision = decided([node("n", gfd("12.8", A100), **dict.fromkeys(HAMI, 99999))], needing("40Gi", HAMI))

    assert decision.allowed
    assert any(
        "nvidia.com/gpumem is 4Gi of GPU memory, below 40Gi" in text for text in warning_texts(decision)
    )


@pytest.mark.parametrize(
    "limits",
    [
        {"tencent.com/vcuda-core": "200", "tencent.com/vcuda-memory": "8"},
        {"nvidia.com/mig-3g.40gb": "1"},
        {"tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "x"},
        {"nvidia.com/gpu": "2"},
    ],
)
def test_whole_cards_large_profiles_and_invalid_amounts_are_no_share(limits: dict[str, str]) -> None:
    """The rule of the resource reports what is invalid; several GPUs have the minimum each."""
    document = needing("40Gi", limits)
    decision = decided([node("n", gfd("12.8", A100), **dict.fromkeys(limits, 1000))], document)

    assert not any("of GPU memory, below" in violation.reason.en for violation in decision.violations)


@pytest.mark.parametrize("amount", ["40", "40GB", "lots", "9Ti", "-1Gi", "0"])
def test_an_amount_that_cannot_be_understood_is_a_warning_with_an_example(amount: str) -> None:
    """It requires nothing; a number without a suffix is one of bytes, which nobody means."""
    decision = decided(labelled("15360"), needing(amount))

    assert decision.allowed
    assert any("write it as `40Gi`" in text for text in warning_texts(decision))


def test_an_annotation_can_be_for_one_container() -> None:
    """It takes precedence over that of the pod."""
    assert not decided(labelled("15360"), needing("40Gi", suffix=".main")).allowed
    assert decided(labelled("15360"), needing("40Gi", suffix=".other")).allowed


def test_a_row_of_an_image_catalogue_declares_it_and_an_annotation_takes_precedence() -> None:
    """For all pods of an image."""
    row = image_catalog({"image": "team/app*", "minGpuMemory": "40Gi"})
    rules = policy(compatibility_rule(), row)
    denied = judged(rules, inventory(labelled("15360")), gpu_pod("team/app:v1"))

    assert "row images of the image catalogue asks for 40Gi" in denied.denial.en
    assert judged(rules, inventory(labelled("15360")), needing("14Gi")).allowed


@pytest.mark.parametrize("effect", ["warn", "off", "dryrun"])
def test_with_another_effect_the_pod_is_allowed_without_affinity(effect: str) -> None:
    """A warning says what is missing."""
    rules = policy(compatibility_rule(checks={"gpuMemory": effect}))
    decision = judged(rules, inventory(labelled("15360")), needing("40Gi"))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert (effect == "warn") is any("below 40Gi" in text for text in warning_texts(decision))


def test_containers_have_their_own_minimum() -> None:
    """Affinity is for the largest."""
    one = {"nvidia.com/gpu": "1"}
    annotations = {f"{MEMORY}.a": "20Gi", f"{MEMORY}.b": "40Gi"}
    document = pod(
        container(one, one, name="a", image="x"),
        container(one, one, name="b", image="x"),
        metadata={"name": "two", "annotations": annotations},
    )
    cluster = labelled("15360", "23028", "81559")

    assert ["m81559"] == targets(cluster, document, decided(cluster, document))
