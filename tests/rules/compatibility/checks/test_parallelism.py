"""The GPUs that parallelism flags need against those that the container requests."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.parallelism import ParallelismCheck
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.paths import field_path
from tests.support.check_builders import checked
from tests.support.requirement_builders import requirements

DENY = SharingPolicy(checks=Checks())
WARN = SharingPolicy(checks=Checks(parallelism=Level.UNSTABLE))
OFF = SharingPolicy(checks=Checks(parallelism=Level.COMPATIBLE))
VLLM = "vllm/vllm-openai:v0.9.0"
SGLANG = "lmsysorg/sglang:v0.5.3"
TORCHRUN = ["torchrun", "--nproc-per-node=4", "train.py"]


def check(
    *args: str,
    image: str = VLLM,
    limits: dict[str, Any] | None = None,
    policy: SharingPolicy = DENY,
    **pod: Any,
) -> list[CheckResult]:
    """Return the findings on a container with these args. pod: env, labels."""
    limits = {"nvidia.com/gpu": 2} if limits is None else limits
    return checked(ParallelismCheck(), policy, image, *args, limits=limits, **pod)


def levels(*args: str, **pod: Any) -> list[Level]:
    """Return the levels of the findings."""
    return [result.level for result in check(*args, **pod)]


def test_fewer_gpus_than_the_program_needs_are_incompatible() -> None:
    """At the resource, with the amount that suits and the value of the flag that does."""
    (result,) = check("--tensor-parallel-size", "4")

    assert Level.INCOMPATIBLE == result.level
    assert "" == result.setting
    assert "spec.containers[0].resources.limits[nvidia.com/gpu]" == field_path(result.path)
    assert ("vLLM needs 4 GPUs for `--tensor-parallel-size 4`, the container requests 2") == result.reason.en
    assert "request nvidia.com/gpu: 4, or set `--tensor-parallel-size 2`" == result.remedy.en


def test_either_suggested_fix_leaves_nothing_to_say() -> None:
    """More GPUs, or a smaller flag."""
    assert [] == check("--tensor-parallel-size", "4", limits={"nvidia.com/gpu": 4})
    assert [] == check("--tensor-parallel-size", "2")


def test_several_flags_are_lowered_together() -> None:
    """Their product counts."""
    (result,) = check("-tp=2", "-pp=2")

    assert (
        "vLLM needs 4 GPUs for `-tp=2`, `-pp=2`, the container requests 2",
        "request nvidia.com/gpu: 4, or lower the product of the flags to 2",
    ) == (result.reason.en, result.remedy.en)


@pytest.mark.parametrize(
    ("args", "remedy", "fixed"),
    [
        (
            ["--tensor-parallel-size", "4"],
            "request nvidia.com/gpu: 4, or set `--tensor-parallel-size 2` and request nvidia.com/gpu: 2",
            ["--tensor-parallel-size", "2"],
        ),
        (
            ["-tp=4", "-pp=2"],
            "request nvidia.com/gpu: 8, or lower the product of the flags to 2 and request nvidia.com/gpu: 2",
            ["-tp=2", "-pp=1"],
        ),
    ],
)
def test_a_number_that_divides_the_heads_of_a_model_is_suggested(
    args: list[str], remedy: str, fixed: list[str]
) -> None:
    """A power of two: 3 GPUs do not divide 32 heads."""
    (result,) = check(*args, limits={"nvidia.com/gpu": 3})

    assert remedy == result.remedy.en
    assert [] == check(*fixed, limits={"nvidia.com/gpu": 2})


def test_a_launcher_starts_any_number_of_processes() -> None:
    """Each with a GPU."""
    (result,) = check(*TORCHRUN, image="team/app:v1", limits={"nvidia.com/gpu": 3})

    assert "request nvidia.com/gpu: 4, or set `--nproc-per-node=3`" == result.remedy.en


@pytest.mark.parametrize(
    ("entry", "too_few", "idle"),
    [
        ({"value": "all"}, [1], []),
        ({"value": "0,1,2,3"}, [1], []),
        ({"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}, [1], []),
        ({"value": "void"}, [3], [1]),
        ({"value": ""}, [3], [1]),
        ({"value": "none"}, [3], [1]),
        ({}, [3], [1]),
    ],
)
def test_a_container_that_may_see_other_gpus_is_only_warned_of_too_few(
    entry: dict[str, Any], too_few: list[int], idle: list[int]
) -> None:
    """NVIDIA_VISIBLE_DEVICES of the pod takes precedence over that of the plugin, unless CDI is used."""
    env = [{"name": "NVIDIA_VISIBLE_DEVICES"} | entry]

    assert too_few == levels("--tensor-parallel-size", "4", env=env)
    assert idle == levels("--tensor-parallel-size", "2", limits={"nvidia.com/gpu": 4}, env=env)


def test_a_value_that_is_no_text_may_be_any_devices() -> None:
    """In a file or a custom resource, which the API server does not check as a pod."""
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": ["all"]}]

    assert [] == levels("--tensor-parallel-size", "2", limits={"nvidia.com/gpu": 4}, env=env)


def test_percents_of_gpu_manager_are_counted_as_gpus() -> None:
    """A share is one GPU."""
    limits = {"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 64}
    (result,) = check("-tp=4", limits=limits)

    assert "request tencent.com/vcuda-core: 400, or set `-tp=2`" == result.remedy.en
    assert [3] == levels("-tp=2", limits={"tencent.com/vcuda-core": 30})
    assert [] == levels("-tp=2", limits=limits)


@pytest.mark.parametrize(
    "limits", [{"aliyun.com/gpu-mem": 8}, {"nvidia.com/gpu": "x"}, {"nvidia.com/gpu": 1, "amd.com/gpu": 1}]
)
def test_an_unknown_number_of_gpus_is_not_compared(limits: dict[str, Any]) -> None:
    """A share of memory may be on any number of them, and a claim may be of several."""
    assert [] == check("-tp=4", limits=limits)
    assert [] == check("-tp=4", resources={"limits": {"nvidia.com/gpu": 1}, "claims": [{"name": "gpus"}]})


def test_what_is_not_certain_warns() -> None:
    """Processes of a launcher may do without a GPU; replicas may run elsewhere; all GPUs may be visible."""
    assert [1] == levels(*TORCHRUN, image="team/app:v1")
    assert [1] == levels("-tp=2", "--data-parallel-size=4")
    assert [1] == levels("-tp=4", policy=WARN)
    assert [1] == levels("-tp=4", securityContext={"privileged": True})
    assert [3] == levels("-tp=4", securityContext={"privileged": False})
    assert [] == levels("-tp=4", policy=OFF)


def test_an_object_whose_kind_is_no_text_is_checked_like_others() -> None:
    """Only a malicious client sends one."""
    assert [3] == levels("-tp=4", document={"kind": ["MPIJob"]})


def test_variables_of_another_object_may_name_a_cluster_of_ray() -> None:
    """So too few GPUs only warn."""
    assert [1] == levels("-tp=4", envFrom=[{"configMapRef": {"name": "ray"}}])
    assert [3] == levels("-tp=4", envFrom=[])


@pytest.mark.parametrize(
    "pod",
    [
        {"env": [{"name": "RAY_ADDRESS", "value": "ray://head:10001"}]},
        {"env": [{"name": "LWS_LEADER_ADDRESS", "value": "leader"}]},
        {"labels": {"ray.io/cluster": "raycluster"}},
        {"labels": {"leaderworkerset.sigs.k8s.io/name": "vllm"}},
        {"document": {"kind": "LeaderWorkerSet"}},
        {"document": {"kind": "RayCluster"}},
    ],
)
def test_one_of_several_pods_is_not_compared(pod: dict[str, Any]) -> None:
    """It is unknown how many GPUs the others have."""
    assert [] == check("--tensor-parallel-size=16", limits={"nvidia.com/gpu": 8}, **pod)


def test_a_launcher_says_how_many_processes_each_pod_has() -> None:
    """However many pods there are: PyTorchJob."""
    labels = {"training.kubeflow.org/job-name": "train"}

    assert [1] == levels(*TORCHRUN, image="team/app:v1", labels=labels)


@pytest.mark.parametrize(
    ("gpus", "reasons"),
    [(8, []), (4, ["SGLang needs 8 GPUs on each node for `--tp=16`, the container requests 4"]), (16, [])],
)
def test_a_known_number_of_nodes_divides_the_gpus(gpus: int, reasons: list[str]) -> None:
    """Too few on each node are a warning."""
    results = check("--tp=16", "--nnodes=2", image=SGLANG, limits={"nvidia.com/gpu": gpus})

    assert reasons == [result.reason.en for result in results]
    assert {Level.UNSTABLE} >= {result.level for result in results}


def test_gpus_that_cannot_be_divided_among_the_nodes_are_a_warning() -> None:
    """16 among 3."""
    (result,) = check("--tp=16", "--nnodes=3", image=SGLANG)

    assert Level.UNSTABLE == result.level
    assert "the 16 GPUs of SGLang for `--tp=16` cannot be divided among 3 nodes" == result.reason.en


def test_idle_gpus_are_a_warning() -> None:
    """If the flags say how many the only program uses."""
    (result,) = check("-tp=2", limits={"nvidia.com/gpu": 8})

    assert Level.UNSTABLE == result.level
    assert "vLLM uses 2 of 8 GPUs because of `-tp=2`, 6 idle" == result.reason.en
    assert "request nvidia.com/gpu: 2, or raise the flag" == result.remedy.en
    assert [] == check("-tp=2", limits={"nvidia.com/gpu": 2})


@pytest.mark.parametrize(
    ("args", "pod"),
    [
        (["-tp=2", "--data-parallel-size=$(REPLICAS)"], {}),
        (["-tp=2", "--nnodes=2"], {}),
        (["-tp=2"], {"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"}]}),
        (["-tp=2"], {"labels": {"ray.io/cluster": "raycluster"}}),
        (["sh", "-c", "vllm serve a -tp 2 & vllm serve b -tp 2"], {}),
        (["--max-model-len=4096"], {}),
    ],
)
def test_gpus_that_something_else_may_use_are_not_idle(args: list[str], pod: dict[str, Any]) -> None:
    """Replicas, other pods, or other programs of the container."""
    assert [] == check(*args, limits={"nvidia.com/gpu": 8}, **pod)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--dist-init-addr", "leader:20000"], [Level.INCOMPATIBLE]),
        (["--dist-init-addr", "leader:20000", "--nnodes", "2"], []),
        (["--dist-init-addr", "leader:20000", "--node-rank", "1"], []),
    ],
)
def test_sglang_uses_one_node_unless_it_is_told_their_number(flags: list[str], expected: list[Level]) -> None:
    """An address of the first node alone makes none of several: nnodes is 1."""
    words = ["python3", "-m", "sglang.launch_server", "--tensor-parallel-size", "16", *flags]

    assert expected == levels(*words, image=SGLANG, limits={"nvidia.com/gpu": 8})


@pytest.mark.parametrize(
    ("product", "gpus", "args", "found"),
    [
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 2, ["-tp=2"], True),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 1, ["-tp=1"], False),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 2, [], False),
        ("NVIDIA-A100-SXM4-80GB", 2, ["-tp=2"], False),
    ],
)
def test_mission_14_several_gpus_that_are_mig_devices_are_not_used_together(
    product: str, gpus: int, args: list[str], found: bool
) -> None:
    """By strategy `single`, MIG devices have the resource of whole GPUs."""
    node = NodeCapabilities(product=product, mig_devices="MIG" in product)
    needed = requirements(VLLM, *args, limits={"nvidia.com/gpu": gpus})
    results = [(result.level, result.reason.en) for result in ParallelismCheck().on_node(DENY, needed, node)]
    expected = (Level.UNKNOWN, "its GPUs are MIG devices, of which a process sees only one")

    assert ([expected] if found else []) == results
    assert [] == [*ParallelismCheck().on_node(OFF, needed, node)]
