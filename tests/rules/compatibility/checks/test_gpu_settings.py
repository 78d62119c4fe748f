"""Settings of a container that contradict the GPUs that it requests."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.gpu_settings import GpuSettingsCheck
from rules.cuda.image_catalog import built_in_catalog
from rules.cuda.requirements import container_facts, requirements_of
from rules.kube.pod import Pod
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.paths import field_path
from tests.support.builders import container, pod
from tests.support.check_builders import checked
from tests.support.requirement_builders import gpu

WARN = SharingPolicy(checks=Checks())
OFF = SharingPolicy(checks=Checks(gpu_settings=Level.COMPATIBLE))
VIRTUAL = SharingPolicy(checks=Checks(), virtual=True)
GPU: dict[str, Any] = {"nvidia.com/gpu": 1}
DRIVER = {"volumes": [{"name": "driver", "hostPath": {"path": "/usr/local/nvidia/lib64/"}}]}
PRIVILEGED = {"privileged": True}


def check(policy: SharingPolicy = WARN, limits: dict[str, Any] = GPU, **fields: Any) -> list[CheckResult]:
    """Return the findings on a container; env: values by name."""
    env = [{"name": name, "value": value} for name, value in fields.pop("env", {}).items()]
    return checked(GpuSettingsCheck(), policy, limits=limits, env=env, **fields)


CONTRADICTIONS: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"env": {"A": "1", "NVIDIA_VISIBLE_DEVICES": "all"}},
        "env[1]",
        (
            "NVIDIA_VISIBLE_DEVICES set by hand replaces the value of the device plugin: "
            "the container may see other GPUs than its own, or none"
        ),
        "remove NVIDIA_VISIBLE_DEVICES from env",
    ),
    (
        {"securityContext": PRIVILEGED},
        "securityContext.privileged",
        "a privileged container sees all GPUs of the node, whatever it requests",
        "remove privileged: true, unless it needs other devices of the node",
    ),
    (
        {"volumeMounts": [{"name": "driver", "mountPath": "/usr/local/nvidia/lib64"}], "spec": DRIVER},
        "volumeMounts[0]",
        (
            "the container requests GPUs and mounts /usr/local/nvidia/lib64 of the node, "
            "which may differ from what the runtime mounts"
        ),
        "remove the mount; the container runtime mounts the driver",
    ),
    (
        {"env": {"NVIDIA_DRIVER_CAPABILITIES": "utility, video"}},
        "env[0]",
        "NVIDIA_DRIVER_CAPABILITIES=utility, video is without compute: programs may find no libcuda.so",
        "add compute to NVIDIA_DRIVER_CAPABILITIES",
    ),
    (
        {"env": {"CUDA_VISIBLE_DEVICES": "0,1"}},
        "env[0]",
        (
            "CUDA_VISIBLE_DEVICES=0,1 names GPU 1, but the container has 1, counted from 0: "
            "CUDA ignores this one and all after it"
        ),
        "remove CUDA_VISIBLE_DEVICES from env",
    ),
    (
        {"env": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}},
        "env[0]",
        (
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE has no effect unless the node shares its GPUs by MPS: "
            "the container requests no share of MPS"
        ),
        "remove CUDA_MPS_ACTIVE_THREAD_PERCENTAGE from env",
    ),
]


@pytest.mark.parametrize(("fields", "path", "reason", "remedy"), CONTRADICTIONS)
def test_mission_2_a_setting_that_contradicts_a_whole_gpu_is_a_warning(
    fields: dict[str, Any], path: str, reason: str, remedy: str
) -> None:
    """At its place, with what to change; a rule can turn it off."""
    (finding,) = check(**fields)

    assert f"spec.containers[0].{path}" == field_path(finding.path)
    assert (Level.UNSTABLE, reason, remedy) == (finding.level, finding.reason.en, finding.remedy.en)
    assert [] == check(OFF, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"env": {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}},
        {"env": {"NVIDIA_DRIVER_CAPABILITIES": "all"}},
        {"env": {"NVIDIA_DRIVER_CAPABILITIES": ""}},
        {"env": {"NVIDIA_DRIVER_CAPABILITIES": "$(FROM_ELSEWHERE)"}},
        {"securityContext": {"privileged": False}},
        {"securityContext": "malformed"},
        {"volumeMounts": [{"name": "data", "mountPath": "/usr/local/nvidia"}]},
        {"volumeMounts": ["malformed", {"name": ["malformed"]}], "spec": {"volumes": ["malformed", {}]}},
        {"spec": DRIVER},
        {"env": {"CUDA_VISIBLE_DEVICES": "0"}},
        {"env": {"CUDA_VISIBLE_DEVICES": "0,-1,7"}},
        {"env": {"CUDA_VISIBLE_DEVICES": "GPU-5d5ba0d6"}},
        {"env": {"CUDA_VISIBLE_DEVICES": ""}},
        {"env": {"CUDA_VISIBLE_DEVICES": "7,6,5,4,3,2,1,0"}, "limits": {"nvidia.com/gpu": 8}},
        {"env": {"CUDA_VISIBLE_DEVICES": "1"}, "limits": {"nvidia.com/mig-1g.10gb": 1}},
        {
            "env": {"CUDA_MPS_PIPE_DIRECTORY": "/mps/pipe"},
            "volumeMounts": [{"name": "pipe", "mountPath": "/mps/"}],
        },
        {
            "env": {"CUDA_MPS_PIPE_DIRECTORY": "/mps"},
            "command": ["sh", "-c", "nvidia-cuda-mps-control -d; run"],
        },
        {"env": {"CUDA_MPS_PIPE_DIRECTORY": "/mps"}, "spec": {"hostIPC": True}},
        {"env": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}, "limits": {"nvidia.com/mps-core": 50}},
    ],
)
def test_mission_2_settings_that_suit_the_gpu_are_fine(fields: dict[str, Any]) -> None:
    """Those that the suggested fixes lead to, unknown values, and malformed ones, which others report."""
    assert [] == check(**fields)


RDMA: dict[str, Any] = {"nvidia.com/gpu": 1, "rdma/ib": 1}


@pytest.mark.parametrize("fields", [{}, {"securityContext": {"capabilities": {"add": ["NET_ADMIN", {}]}}}])
def test_rdma_devices_beside_a_gpu_without_ipc_lock_are_a_warning(fields: dict[str, Any]) -> None:
    """RDMA locks memory, of whole GPUs and of shares."""
    (finding,) = check(limits=RDMA, **fields)
    (of_share,) = check(VIRTUAL, RDMA, **fields)

    assert finding == of_share
    assert "spec.containers[0].securityContext.capabilities" == field_path(finding.path)
    assert (Level.UNSTABLE, "rdma/ib without the capability IPC_LOCK: RDMA may fail to lock memory") == (
        finding.level,
        finding.reason.en,
    )
    assert [] == check(OFF, RDMA, **fields)


@pytest.mark.parametrize(
    ("limits", "context"),
    [
        (RDMA, {"capabilities": {"add": ["IPC_LOCK"]}}),
        (RDMA, {"capabilities": {"add": ["CAP_IPC_LOCK"]}}),
        (RDMA, {"capabilities": {"add": ["SYS_RESOURCE"]}}),
        ({"nvidia.com/gpu": 1, "rdma/ib": "0"}, {}),
        ({"rdma/ib": 1}, {}),
        ({"rdma/ib": 1, "rdma/hca": 1}, {}),
    ],
)
def test_rdma_devices_with_a_capability_or_without_a_gpu_are_fine(
    limits: dict[str, Any], context: dict[str, Any]
) -> None:
    """Devices of storage are not the business of these rules."""
    assert [] == check(limits=limits, securityContext=context)


@pytest.mark.parametrize("limits", [{"amd.com/gpu": 1}, {"cpu": 1}])
def test_mission_2_devices_of_others_have_other_variables(limits: dict[str, Any]) -> None:
    """They are for NVIDIA's runtime."""
    assert [] == [finding for fields, *_ in CONTRADICTIONS for finding in check(limits=limits, **fields)]


def test_mission_2_of_shares_only_the_libraries_of_the_driver_are_compared() -> None:
    """The rules of the shares warn of variables that choose a GPU."""
    share = {"nvidia.com/gpumem": 3000}

    findings = [finding for fields, *_ in CONTRADICTIONS for finding in check(VIRTUAL, share, **fields)]

    assert ["add compute to NVIDIA_DRIVER_CAPABILITIES"] == [finding.remedy.en for finding in findings]


def test_mission_2_a_container_that_may_see_all_gpus_counts_from_the_first_of_the_node() -> None:
    """So CUDA_VISIBLE_DEVICES may be right there."""
    (finding,) = check(securityContext=PRIVILEGED, env={"CUDA_VISIBLE_DEVICES": "3"})

    assert "remove privileged: true, unless it needs other devices of the node" == finding.remedy.en


@pytest.mark.parametrize(("before", "count"), [(255, 1), (256, 0)])
def test_the_volumes_that_are_read_for_each_container_are_bounded(before: int, count: int) -> None:
    """A pod may have thousands, and a hundred containers."""
    volumes = [{"name": f"v{number}", "emptyDir": {}} for number in range(before)] + DRIVER["volumes"]
    mounts = [{"name": "driver", "mountPath": "/driver"}]

    assert count == len(check(volumeMounts=mounts, spec={"volumes": volumes}))


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("NVIDIA_TF32_OVERRIDE", "1", True),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1", True),
        ("NVIDIA_TF32_OVERRIDE", "0", False),
        ("NVIDIA_TF32_OVERRIDE", "", False),
    ],
)
def test_tf32_has_no_effect_below_compute_capability_8(name: str, value: str, found: bool) -> None:
    """Nothing is said of a GPU that has it, of an unknown one, and of what turns it off."""
    document = pod(container(env=[{"name": name, "value": value}]))
    required = requirements_of(container_facts(Pod(document, document).containers[0], {}), built_in_catalog())
    text = f"{name} has no effect: compute capability 7.5 has no TF32, which 8.0 or higher has"

    t4 = GpuSettingsCheck().on_node(WARN, required, gpu("7.5"))
    others = [
        finding
        for node in (gpu("8.0"), NodeCapabilities())
        for finding in GpuSettingsCheck().on_node(WARN, required, node)
    ]

    assert ([(Level.UNSTABLE, text)] if found else []) == [(result.level, result.reason.en) for result in t4]
    assert [] == [*others, *GpuSettingsCheck().on_node(OFF, required, gpu("7.5"))]
