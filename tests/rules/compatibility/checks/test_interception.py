"""What keeps the library of a sharing system from working in a container."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.interception import InterceptionCheck
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Pod
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.text.paths import field_path
from tests.support.check_builders import checked

SHARES = SharingPolicy(checks=Checks(), virtual=True)
OFF = SharingPolicy(checks=Checks(interception=Level.COMPATIBLE), virtual=True)
WHOLE = SharingPolicy(checks=Checks())
HAMI: dict[str, Any] = {"nvidia.com/gpumem": 3000}
VOLCANO: dict[str, Any] = {"volcano.sh/vgpu-memory": 3000}
KOORDINATOR: dict[str, Any] = {"koordinator.sh/gpu-memory-ratio": 50}
GPU_MANAGER: dict[str, Any] = {"tencent.com/vcuda-core": 20}
QGPU: dict[str, Any] = {"tke.cloud.tencent.com/qgpu-memory": 5}
OTHER: dict[str, Any] = {"aliyun.com/gpu-mem": 3}
PRIVILEGED: dict[str, Any] = {"securityContext": {"privileged": True}}


def check(limits: dict[str, Any], policy: SharingPolicy = SHARES, **fields: Any) -> list[CheckResult]:
    """Return the findings on a container; env: values by name."""
    env = [{"name": name, "value": value} for name, value in fields.pop("env", {}).items()]
    return checked(InterceptionCheck(), policy, limits=limits, env=env, **fields)


def runtime_class(name: str) -> dict[str, Any]:
    """Return the field of a pod with a RuntimeClass."""
    return {"spec": {"runtimeClassName": name}}


OBSTACLES: list[tuple[dict[str, Any], dict[str, Any], Level, str, tuple[str, str]]] = [
    (
        HAMI,
        PRIVILEGED,
        Level.INCOMPATIBLE,
        "containers[0].securityContext.privileged",
        (
            "a privileged container, which HAMi denies or leaves unscheduled",
            "remove privileged from the container's securityContext",
        ),
    ),
    *[
        (
            limits,
            PRIVILEGED,
            Level.UNSTABLE,
            "containers[0].securityContext.privileged",
            (
                "a privileged container sees all GPUs of the node, whatever it requests",
                "remove privileged: true, unless it needs other devices of the node",
            ),
        )
        for limits in (VOLCANO, KOORDINATOR, GPU_MANAGER, QGPU)
    ],
    *[
        (
            limits,
            runtime_class(name),
            Level.UNSTABLE,
            "runtimeClassName",
            (
                (
                    f"the library of {system} does not work with runtimeClassName {name}: "
                    "programs do not start, or have no limits"
                ),
                "use another runtimeClassName, such as nvidia",
            ),
        )
        for limits, system, name in (
            (HAMI, "HAMi", "gvisor"),
            (VOLCANO, "Volcano", "runsc"),
            (KOORDINATOR, "Koordinator", "gvisor"),
            (HAMI, "HAMi", "kata-qemu"),
            (GPU_MANAGER, "GPU-Manager", "kata"),
        )
    ],
    (
        VOLCANO,
        {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
        Level.UNSTABLE,
        "containers[0].env[0]",
        (
            (
                "NVIDIA_VISIBLE_DEVICES set by hand replaces the value of the device plugin: "
                "the container may see other GPUs than its own, or none"
            ),
            "remove NVIDIA_VISIBLE_DEVICES from env",
        ),
    ),
    (
        GPU_MANAGER,
        {"env": {"CUDA_VISIBLE_DEVICES": "1"}},
        Level.UNSTABLE,
        "containers[0].env[0]",
        (
            "CUDA_VISIBLE_DEVICES=1 does not start with 0: a container counts its own GPUs from 0",
            "remove CUDA_VISIBLE_DEVICES from env",
        ),
    ),
    (
        KOORDINATOR,
        {"env": {"GPU_CORE_UTILIZATION_POLICY": "strict"}},
        Level.UNSTABLE,
        "containers[0].env[0]",
        (
            "GPU_CORE_UTILIZATION_POLICY=strict is unknown to Koordinator, and has no effect",
            "set GPU_CORE_UTILIZATION_POLICY to one of default, force, disable",
        ),
    ),
    (
        HAMI,
        {"env": {"CUDA_DISABLE_CONTROL": "true"}},
        Level.UNSTABLE,
        "containers[0].env[0]",
        (
            "CUDA_DISABLE_CONTROL=true turns off the limits of HAMi: the container can use the whole GPU",
            "remove CUDA_DISABLE_CONTROL from env",
        ),
    ),
    (
        VOLCANO,
        {"env": {"CUDA_DISABLE_CONTROL": "false"}},
        Level.UNSTABLE,
        "containers[0].env[0]",
        (
            (
                "CUDA_DISABLE_CONTROL=false turns off the limits of Volcano: "
                "the container can use the whole GPU"
            ),
            "remove CUDA_DISABLE_CONTROL from env",
        ),
    ),
    (
        GPU_MANAGER,
        {"env": {"LD_LIBRARY_PATH": "/opt/lib"}},
        Level.UNSTABLE,
        "containers[0].env[0]",
        (
            (
                "LD_LIBRARY_PATH replaces that of GPU-Manager: "
                "programs may not find its library in /usr/local/nvidia/lib64"
            ),
            "add /usr/local/nvidia/lib64 to LD_LIBRARY_PATH",
        ),
    ),
]


@pytest.mark.parametrize(("limits", "fields", "level", "place", "texts"), OBSTACLES)
def test_what_keeps_the_library_of_a_share_from_working_is_found(
    limits: dict[str, Any], fields: dict[str, Any], level: Level, place: str, texts: tuple[str, str]
) -> None:
    """At its place, with what to change; a rule can turn it off."""
    (finding,) = check(limits, **fields)

    assert (level, f"spec.{place}") == (finding.level, field_path(finding.path))
    assert texts == (finding.reason.en, finding.remedy.en)
    assert [] == check(limits, OFF, **fields)


@pytest.mark.parametrize(
    ("limits", "fields"),
    [
        (HAMI, {}),
        (HAMI, {"securityContext": {"privileged": False}}),
        (HAMI, {"securityContext": "malformed"}),
        (HAMI, PRIVILEGED | {"spec": {"schedulerName": "volcano"}}),
        (HAMI, runtime_class("nvidia")),
        (HAMI, {"spec": {"runtimeClassName": ["malformed"]}}),
        (GPU_MANAGER, runtime_class("gvisor")),
        (GPU_MANAGER, {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}),
        (HAMI, {"env": {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DISABLE_CONTROL": "false"}}),
        (HAMI, {"env": {"CUDA_VISIBLE_DEVICES": "-1"}}),
        (HAMI, {"env": {"CUDA_VISIBLE_DEVICES": "", "ACTIVE_OOM_KILLER": ""}}),
        (HAMI, {"env": {"CUDA_VISIBLE_DEVICES": "$(GPUS)"}}),
        (HAMI, {"env": {"GPU_CORE_UTILIZATION_POLICY": "FORCE", "ACTIVE_OOM_KILLER": "0"}}),
        (HAMI, {"env": {"LD_LIBRARY_PATH": "/opt/lib"}}),
        (GPU_MANAGER, {"env": {"LD_LIBRARY_PATH": "/opt/lib:/usr/local/nvidia/lib64"}}),
        (
            QGPU,
            runtime_class("gvisor") | {"env": {"CUDA_DISABLE_CONTROL": "true", "LD_LIBRARY_PATH": "/opt"}},
        ),
        (OTHER, PRIVILEGED | runtime_class("gvisor") | {"env": {"CUDA_DISABLE_CONTROL": "true"}}),
    ],
)
def test_what_the_library_of_a_share_works_with_is_fine(
    limits: dict[str, Any], fields: dict[str, Any]
) -> None:
    """Those that the suggested fixes lead to, unknown values, malformed ones, and systems without a row."""
    assert [] == check(limits, **fields)


def test_whole_gpus_have_no_library_of_a_sharing_system() -> None:
    """Though Koordinator names them as it names shares."""
    assert [] == [finding for limits, fields, *_ in OBSTACLES for finding in check(limits, WHOLE, **fields)]


SINCE = "the pod has a privileged container, {!r}, which HAMi denies since release 2.10"
APART = "remove privileged from its securityContext, or run it in a pod of its own"
AGENT: dict[str, Any] = {"name": "agent"} | PRIVILEGED


@pytest.mark.parametrize("scheduler", ["", "default-scheduler", "hami-scheduler"])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_mission_2_a_privileged_container_beside_a_share_of_hami_warns(scheduler: str, kind: str) -> None:
    """HAMi 2.10 denies the pod, older releases run it, and which one runs is unknown."""
    (finding,) = beside(HAMI, AGENT, kind, schedulerName=scheduler)

    assert (Level.UNSTABLE, SINCE.format("agent"), APART) == (
        finding.level,
        finding.reason.en,
        finding.remedy.en,
    )
    assert f"spec.{kind}[{int(kind == 'containers')}].securityContext.privileged" == field_path(finding.path)


@pytest.mark.parametrize(
    ("limits", "other", "spec"),
    [
        (HAMI, {"name": "agent"}, {}),
        (HAMI, AGENT, {"schedulerName": "volcano"}),
        (VOLCANO, AGENT, {}),
        (HAMI, AGENT | {"resources": {"limits": HAMI}}, {}),
    ],
)
def test_mission_2_a_privileged_container_beside_other_shares_is_fine(
    limits: dict[str, Any], other: dict[str, Any], spec: dict[str, Any]
) -> None:
    """One with a share of its own is denied by that share."""
    assert [] == beside(limits, other, **spec)


def test_mission_2_hami_s_own_scheduler_runs_a_privileged_share_before_2_10() -> None:
    """So it is a warning, unlike with the default scheduler."""
    (finding,) = check(HAMI, **PRIVILEGED, spec={"schedulerName": "hami-scheduler"})

    assert (Level.UNSTABLE, SINCE.format("main")) == (finding.level, finding.reason.en)
    assert "remove privileged from the container's securityContext" == finding.remedy.en


def test_a_privileged_sidecar_has_no_share() -> None:
    """Only containers with a share are compared."""
    assert [] == check({}, **PRIVILEGED)


def beside(
    limits: dict[str, Any], other: dict[str, Any], kind: str = "containers", **spec: Any
) -> list[CheckResult]:
    """Return the findings on a container with a share in a pod with another container."""
    spec["containers"] = [{"name": "main", "resources": {"limits": limits}}]
    spec[kind] = [*spec.get(kind, []), other]
    pod = Pod({"spec": spec}, {"spec": spec})
    return [*InterceptionCheck().on_container(SHARES, GpuRequirements(), pod.containers[0], pod)]


def test_the_place_of_a_runtime_class_is_in_the_template() -> None:
    """Of a Deployment, whose pods are made from it."""
    spec = {"runtimeClassName": "gvisor", "containers": [{"name": "main", "resources": {"limits": HAMI}}]}
    document = {"spec": {"template": {"spec": spec}}}
    template = Pod(document, document["spec"]["template"], ("spec", "template"))

    (finding,) = InterceptionCheck().on_container(SHARES, GpuRequirements(), template.containers[0], template)

    assert "spec.template.spec.runtimeClassName" == field_path(finding.path)
