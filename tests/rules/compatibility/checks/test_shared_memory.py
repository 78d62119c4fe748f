"""Several GPUs in one container need more than 64 MiB at /dev/shm."""

from __future__ import annotations

from typing import Any

import pytest

from rules import AdmissionRequest, Snapshot, decide
from rules.compatibility.checks.shared_memory import SharedMemoryCheck
from rules.cuda.tables import read_table
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.text.paths import field_path
from tests.support.builders import decision, injection_rule, pod, policy, warning_texts
from tests.support.check_builders import checked
from tests.support.node_builders import compatibility_rule, inventory, shipped_rules

WARN = SharingPolicy(checks=Checks())
OFF = SharingPolicy(checks=Checks(shared_memory=Level.COMPATIBLE))
DENY = SharingPolicy(checks=Checks(shared_memory=Level.INCOMPATIBLE))
TWO = {"nvidia.com/gpu": 2}
MOUNTED: dict[str, Any] = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}


def check(*args: str, limits: dict[str, Any] | None = None, **fields: Any) -> list[CheckResult]:
    """Return the findings on a container."""
    sharing = fields.pop("policy", WARN)
    return checked(SharedMemoryCheck(), sharing, *args, limits=TWO if limits is None else limits, **fields)


@pytest.mark.parametrize("sharing", [WARN, DENY])
def test_two_gpus_without_shared_memory_are_a_warning(sharing: SharingPolicy) -> None:
    """Whatever the rule says: NCCL may do with little."""
    (result,) = check(policy=sharing)

    assert (Level.UNSTABLE, "") == (result.level, result.setting)
    assert "spec.containers[0].volumeMounts" == field_path(result.path)
    assert (
        "2 GPUs, and /dev/shm has the default 64 MiB, which may be too little for NCCL"
    ) == result.reason.en
    assert (
        "mount a volume `emptyDir: {medium: Memory}` at /dev/shm, or enable rule injection-shared-memory"
    ) == result.remedy.en


@pytest.mark.parametrize(
    ("args", "limits"),
    [
        ((), {"tencent.com/vcuda-core": 200}),
        ((), {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4000}),
        (("vllm/vllm-openai:v0.9.0", "-tp=2"), {"nvidia.com/gpu": 1}),
        (("vllm/vllm-openai:v0.9.0", "-tp=2"), {"aliyun.com/gpu-mem": 8}),
    ],
)
def test_tensor_parallelism_needs_it_as_well(args: tuple[str, ...], limits: dict[str, Any]) -> None:
    """And GPUs by whatever resource."""
    assert [Level.UNSTABLE] == [result.level for result in check(*args, limits=limits)]


@pytest.mark.parametrize(
    "fields",
    [
        MOUNTED,
        {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm/"}]},
        {"volumeMounts": [{"name": "dev", "mountPath": "/dev"}]},
        {"volumeMounts": [{"name": "x", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"}]},
        {"spec": {"hostIPC": True}},
        {"env": [{"name": "NCCL_SHM_DISABLE", "value": "1"}]},
        {"annotations": {"io.kubernetes.cri-o.ShmSize": "8Gi"}},
        {"limits": {"nvidia.com/gpu": 1}},
        {"limits": {"nvidia.com/gpu": 0}},
        {"limits": {"cpu": 8, "rdma/hca": 4}},
        {"policy": OFF},
    ],
)
def test_nothing_is_said_of_a_container_with_shared_memory_or_one_gpu(fields: dict[str, Any]) -> None:
    """Or of one whose NCCL does without, if the check is off, or with the size that CRI-O sets."""
    assert [] == check(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"volumeMounts": [{"name": "x", "mountPath": "/dev/shm2"}]},
        {"volumeMounts": [{"name": "x", "mountPath": "/dev/shm/x"}]},
        {"volumeMounts": ["malformed", {"mountPath": 1}]},
        {"env": [{"name": "NCCL_SHM_DISABLE", "value": "0"}]},
        {"env": [{"name": "NCCL_SHM_DISABLE", "value": "1"}, {"name": "NCCL_SHM_DISABLE", "value": "0"}]},
        {"spec": {"hostIPC": False}},
    ],
)
def test_what_leaves_the_default_size_does_not_help(fields: dict[str, Any]) -> None:
    """Neither a mount beside it or in it."""
    assert 1 == len(check(**fields))


@pytest.mark.parametrize(
    "image", ["ubuntu:18.04", "docker.io/library/busybox", "nvidia/cuda:12.4.1-base", "team/gpu-burn:latest"]
)
def test_images_that_exchange_no_data_between_gpus_need_none(image: str) -> None:
    """Those of operating systems, and tests of single GPUs; unless flags say that a program does."""
    assert [] == check(image)
    assert 1 == len(check(image, "sh", "-c", "pip install vllm; vllm serve m -tp 2"))
    assert 1 == len(check("team/ubuntu-training:1"))


@pytest.mark.parametrize("kind", ["RayCluster", "NIMService", "LLMInferenceService", "DynamoGraphDeployment"])
def test_controllers_that_mount_it_in_their_pods_are_not_checked(kind: str) -> None:
    """Their pods are, once they are created."""
    assert [] == check(document={"kind": kind})
    assert 1 == len(check(document={"kind": "Deployment"}))
    assert 1 == len(check(document={"kind": ["Deployment"]}))


def test_the_rule_that_mounts_it_is_named_for_its_resources() -> None:
    """Not where it would do nothing: the names are those of the built-in rule."""
    (shipped,) = (rule for rule in shipped_rules().injections if rule.name == "injection-shared-memory")
    remedies = [
        check(limits=limits)[0].remedy.en
        for limits in ({"tencent.com/vcuda-core": 200}, {"volcano.sh/vgpu-number": 2})
    ]

    assert read_table("shared_memory")["injected"] == [*shipped.match.resources]
    assert [True, False] == ["injection-shared-memory" in remedy for remedy in remedies]


def test_an_init_container_is_not_checked() -> None:
    """It seldom runs the program; a sidecar may."""
    assert [] == check(kind="initContainers")
    assert 1 == len(check(kind="initContainers", restartPolicy="Always"))


def test_a_volume_that_a_rule_injects_counts() -> None:
    """The check sees the pod after injection, so the rule that the fix names is a fix."""
    volume = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    rule = injection_rule(
        {"volumes": [volume], "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]},
        match={"resources": ["nvidia.com/gpu"]},
    )
    document = pod({"name": "main", "image": "team/app:v1", "resources": {"limits": {"nvidia.com/gpu": "2"}}})

    assert [1, 0] == [
        len(warning_texts(decision(policy(compatibility_rule(), *rules), document)))
        for rules in ((), (rule,))
    ]


def test_a_pod_that_a_controller_completes_is_not_checked() -> None:
    """KServe's runtime may mount a volume in the container of a model."""
    model = {"resources": {"limits": TWO}, "modelFormat": {"name": "huggingface"}}
    document = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "llm", "namespace": "ml"},
        "spec": {"predictor": {"model": model}},
    }
    request = AdmissionRequest("CREATE", "serving.kserve.io", "InferenceService", "ml", document)

    assert () == warning_texts(decide(Snapshot(policy(compatibility_rule()), inventory([])), request))
