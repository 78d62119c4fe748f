"""`gpugate why` of pods that fail on real nodes; docs/why-failures.md has what it says.

`--update-golden` writes the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from rules.cuda.tables import read_table
from tests.e2e.node.images import write_image
from tests.e2e.node.pods import pod
from tests.e2e.node.real_cluster import DRIVER_535, DRIVER_570, RealCluster
from tests.e2e.serve_process import eventually
from tests.support.command import gpugate
from tests.support.paths import ROOT

ROWS: Final = {row["name"]: row for row in read_table("failures")}
PAGES: Final = {"en": ROOT / "docs/why-failures.md", "zh": ROOT / "docs/zh/why-failures.md"}
DEVELOPER: Final = "developer"
OTHER_CPU: Final = "localhost/other-cpu:1"
# An ELF header for 64-bit Arm, and nothing else: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html
ARM_PROGRAM: Final = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00\x01\x00\x00\x00" + bytes(104)
DOUBLE: Final = "x=aaaaaaaa; while :; do x=$x$x; done"
# Rows that no pod of these nodes can have, and why.
OF_PROGRAMS: Final = "a program with CUDA, or another one that has no part here, writes it"
OF_CONTROL_PLANE: Final = "the API server or the scheduler says it: `tests/e2e/test_why.py`"
OF_DRA_DRIVER: Final = "NVIDIA's DRA driver says it, which a small program replaces"
NOT_HERE: Final = {
    "unsatisfied-condition": "the runtime loads no libcuda.so.1, and nvidia-container-cli is replaced",
    "gpu-is-lost": "the NVML of the tests has no GPU that can be lost",
    "unregistered-device": "the kubelet forgets a device plugin five minutes after it has stopped",
    "topology-affinity": "the kubelets have no topology manager, and the machine one NUMA node",
    "claim-strategy-gate": OF_DRA_DRIVER,
    **dict.fromkeys(("claim-config-refused", "claim-not-prepared", "claim-not-unprepared"), OF_DRA_DRIVER),
    "claims-not-prepared": "only with another message, which has its own row",
    **dict.fromkeys(("dra-driver-unavailable", "device-plugin-unavailable"), "no driver ends during a call"),
    **dict.fromkeys(("device-plugin-error", "unknown-device"), "NVIDIA's device plugin says it"),
    "unexpected-admission-error": "only with another message, which has its own row",
    "device-permission": "containerd gives the device files of CDI to the user of the container",
    "no-platform": "no registry can be reached",
    "evicted": "it would take all memory of the machine",
    "mps-not-ready": "there is no MPS",
    "several-replicas": "the device plugin of the tests shares no GPU",
    "container-cli-initialization": "nvidia-container-cli is replaced by a small program",
    "driver-in-image": "nvidia-container-cli is replaced by a small program",
    "insufficient-together": "each of these pods lacks one resource",
    "excluded-by-scheduler": "these pods have no volume, no affinity to pods and no spread constraint",
    "no-scale-up": "there is no cluster autoscaler",
    "gpushare-no-gpu": "there is no gpushare",
    "xid": "the kernel module of the driver writes it",
    **dict.fromkeys(
        ("gang-waits", "scheduling-gated", "denied-by-gpugate", "exceeded-quota"), OF_CONTROL_PLANE
    ),
    **dict.fromkeys(("pod-security", "webhook-unavailable", "creation-failed"), OF_CONTROL_PLANE),
    **{name: OF_PROGRAMS for name, row in ROWS.items() if row["seen"] == ["log"] and name != "xid"},
    **dict.fromkeys(("no-libcuda", "no-driver"), OF_PROGRAMS),
}


@dataclass(frozen=True)
class Case:
    """A pod that fails. how: what is done, in words. row: of failures.yaml, that `why` names first.

    message: in the evidence in the long run, if another one comes before it.
    """

    row: str
    certain: bool
    how: str
    pod: Mapping[str, Any]
    message: str = ""

    @property
    def name(self) -> str:
        """Name of the pod."""
        return str(self.pod["metadata"]["name"])


def _case(
    row: str,
    how: str,
    name: str,
    gpus: int = 0,
    *,
    certain: bool = True,
    message: str = "",
    **options: Any,
) -> Case:
    return Case(row, certain, how, pod(name, gpus, **options), message)


def _visible(devices: str, runtime: str = "nvidia", **more: str) -> dict[str, Any]:
    """Return the fields of a pod that names GPUs by hand."""
    return {"env": {"NVIDIA_VISIBLE_DEVICES": devices, **more}, "runtimeClassName": runtime}


def _container(case: Case, **fields: Any) -> Case:
    """Return a case with further fields of its container."""
    (container,) = case.pod["spec"]["containers"]
    spec = case.pod["spec"] | {"containers": [container | fields]}
    return replace(case, pod=dict(case.pod) | {"spec": spec})


@contextmanager
def _without_cdi(real: RealCluster) -> Iterator[None]:
    real.nodes["gpu-1"].run("rm", "/var/run/cdi/nvidia.yaml")
    yield
    real.nodes["gpu-1"].install_driver(DRIVER_570)


@contextmanager
def _broken_nvml(real: RealCluster, result: int) -> Iterator[None]:
    real.nodes["gpu-2"].break_nvml(result, DRIVER_535)
    yield
    real.nodes["gpu-2"].install_driver(DRIVER_535)


@contextmanager
def _tainted(real: RealCluster) -> Iterator[None]:
    real.kubectl("taint", "node", "gpu-2", "maintenance=yes:NoSchedule")
    yield
    real.kubectl("taint", "node", "gpu-2", "maintenance-")


@contextmanager
def _without_plugin(real: RealCluster) -> Iterator[None]:
    real.nodes["gpu-2"].use_device_plugin(None)
    yield
    real.nodes["gpu-2"].use_device_plugin("envvar")


@contextmanager
def _claim_of_absent_driver(real: RealCluster) -> Iterator[None]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "allocated"},
        "spec": {"devices": {"requests": [request]}},
    }
    device = {"request": "gpu", "driver": "gpu.example.com", "pool": "gpu-2", "device": "gpu-0"}
    # The scheduler would add a missing time, which the API server denies: an allocation does not change.
    allocation = {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [device]}}
    status = {"status": {"allocation": allocation}}
    real.kubectl("create", "-f", "-", input=json.dumps(claim))
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps(status))
    real.kubectl("patch", "resourceclaim/allocated", *patch)
    yield
    real.kubectl("delete", "resourceclaim/allocated")


Phase = tuple[Callable[[RealCluster], AbstractContextManager[None]], Sequence[Case]]
# Pods that fail at the same time, each with the state of the nodes meanwhile.
PHASES: Final[Sequence[Phase]] = (
    (
        lambda _: nullcontext(),
        (
            _case(
                "no-nvidia-runtime",
                "a RuntimeClass whose handler containerd does not have",
                "no-runtime",
                runtimeClassName="absent",
            ),
            _case(
                "requirement-not-read",
                "`NVIDIA_REQUIRE_CUDA=cuda>=99`, runtime in mode csv",
                "requires",
                **_visible("all", "nvidia-csv", NVIDIA_REQUIRE_CUDA="cuda>=99"),
                nodeName="gpu-2",
            ),
            _case(
                "gpu-id-unknown",
                "`NVIDIA_VISIBLE_DEVICES=GPU-0`",
                "no-id",
                **_visible("GPU-0"),
                nodeName="gpu-2",
            ),
            _case(
                "gpu-not-found", "`NVIDIA_VISIBLE_DEVICES=99`", "no-index", **_visible("99"), nodeName="gpu-2"
            ),
            _case(
                "gpu-not-found",
                "`NVIDIA_VISIBLE_DEVICES` with the UUID of another GPU",
                "no-uuid",
                **_visible("GPU-11111111-2222-3333-4444-555555555555"),
                nodeName="gpu-2",
            ),
            _case(
                "devices-unavailable",
                "3 GPUs, `nodeName` of a node with 2",
                "too-many-for-node",
                3,
                nodeName="gpu-2",
            ),
            _container(
                _case(
                    "node-is-full",
                    "more memory than the node has, with `nodeName`",
                    "no-memory",
                    nodeName="gpu-1",
                ),
                resources={"requests": {"memory": "900Ti"}},
            ),
            _container(
                _case("oom-killed", "a program above its memory limit", "oom", command=["sh", "-c", DOUBLE]),
                resources={"limits": {"memory": "24Mi"}},
            ),
            _container(
                _case("insufficient-resource", "a resource that no node offers", "no-resource"),
                resources={"limits": {"example.com/gpu": "1"}},
            ),
            _case(
                "node-affinity", "a nodeSelector that no node has", "elsewhere", nodeSelector={"pool": "none"}
            ),
            _case(
                "rejected-by-affinity",
                "a nodeSelector that the node does not match, with `nodeName`",
                "other-labels",
                nodeName="gpu-2",
                nodeSelector={"pool": "none"},
            ),
            _container(
                _case(
                    "image-pull",
                    "a registry that does not answer",
                    "no-registry",
                    message="ImagePullBackOff",  # ErrImagePull while it is tried, also again
                    image="registry.invalid/a:1",
                ),
                imagePullPolicy="IfNotPresent",
            ),
            _case(
                "image-pull",
                "`imagePullPolicy: Never` without the image",
                "no-image",
                image="localhost/none:1",
            ),
            _case("image-pull", "a name that is no image", "bad-image", image="Localhost/A:1"),
            _case(
                "exec-format",
                "a program for 64-bit Arm",
                "other-cpu",
                certain=False,
                image=OTHER_CPU,
                command=["/app"],
            ),
            _case(
                "no-gpu-device",
                "1 GPU, device plugin with strategy envvar, no RuntimeClass",
                "no-device",
                1,
                certain=False,
                command=["sh", "-c", "ls /dev/nvidia0"],
                nodeSelector={"kubernetes.io/hostname": "gpu-2"},
            ),
            _case(
                "no-gpu-device", "`nvidia-smi` without a GPU", "no-smi", certain=False, command=["nvidia-smi"]
            ),
            _container(
                _case(
                    "sandbox-not-ready",
                    "a volume of a ConfigMap that does not exist",
                    "no-volume",
                    certain=False,
                    volumes=[{"name": "a", "configMap": {"name": "none"}}],
                ),
                volumeMounts=[{"name": "a", "mountPath": "/a"}],
            ),
        ),
    ),
    (
        _without_cdi,
        (
            _case(
                "cdi-device-missing",
                "no CDI specification; device plugin with strategy cdi-cri",
                "no-cdi",
                1,
                nodeSelector={"kubernetes.io/hostname": "gpu-1"},
            ),
            _case(
                "cdi-device-missing",
                "no CDI specification; runtime in mode cdi",
                "no-cdi-mode",
                **_visible("all", "nvidia-cdi"),
                nodeName="gpu-1",
            ),
        ),
    ),
    (
        lambda real: _broken_nvml(real, 9),
        (
            _case(
                "nvml-not-initialized",
                "NVML without its driver",
                "no-nvml",
                **_visible("all"),
                nodeName="gpu-2",
            ),
        ),
    ),
    (
        lambda real: _broken_nvml(real, 18),
        (
            _case(
                "nvml-mismatch",
                "NVML of another version than the driver",
                "other-nvml",
                **_visible("all"),
                nodeName="gpu-2",
            ),
        ),
    ),
    (
        _tainted,
        (
            _case(
                "untolerated-taint",
                "a taint on the only node that is selected",
                "tainted",
                nodeSelector={"kubernetes.io/hostname": "gpu-2"},
            ),
        ),
    ),
    (
        _without_plugin,
        (
            _case(
                "unhealthy-devices",
                "1 GPU, `nodeName` of a node whose device plugin has stopped",
                "no-plugin",
                1,
                nodeName="gpu-2",
            ),
        ),
    ),
    (
        _claim_of_absent_driver,
        (
            _container(
                _case(
                    "dra-driver-not-registered",
                    "a claim for a device whose DRA driver does not run on the node",
                    "no-dra-driver",
                    resourceClaims=[{"name": "gpu", "resourceClaimName": "allocated"}],
                ),
                resources={"claims": [{"name": "gpu"}]},
            ),
        ),
    ),
)
UNHEALTHY: Final = _case(
    "device-unhealthy",
    "the device plugin reports the GPU of a running pod as unhealthy",
    "unhealthy",
    1,
    certain=False,
    nodeSelector={"kubernetes.io/hostname": "gpu-2"},
)
IN_CHINESE: Final = {
    "no-runtime": "RuntimeClass 的 handler 在 containerd 中不存在",
    "requires": "`NVIDIA_REQUIRE_CUDA=cuda>=99`，csv 模式的运行时",
    "no-id": "`NVIDIA_VISIBLE_DEVICES=GPU-0`",
    "no-index": "`NVIDIA_VISIBLE_DEVICES=99`",
    "no-uuid": "`NVIDIA_VISIBLE_DEVICES` 为另一块 GPU 的 UUID",
    "too-many-for-node": "3 块 GPU，`nodeName` 指定有 2 块的节点",
    "no-memory": "内存超过节点，并指定 `nodeName`",
    "oom": "程序超过其内存限制",
    "no-resource": "没有节点提供的资源",
    "elsewhere": "没有节点符合的 nodeSelector",
    "other-labels": "节点不符合 nodeSelector，并指定 `nodeName`",
    "no-registry": "镜像仓库没有响应",
    "no-image": "`imagePullPolicy: Never`，但没有该镜像",
    "bad-image": "不是镜像的名称",
    "other-cpu": "64 位 Arm 的程序",
    "no-device": "1 块 GPU，设备插件策略为 envvar，没有 RuntimeClass",
    "no-smi": "没有 GPU 时运行 `nvidia-smi`",
    "no-volume": "卷引用不存在的 ConfigMap",
    "no-cdi": "没有 CDI 规范；设备插件策略为 cdi-cri",
    "no-cdi-mode": "没有 CDI 规范；cdi 模式的运行时",
    "no-nvml": "NVML 没有驱动",
    "other-nvml": "NVML 与驱动版本不同",
    "tainted": "所选的唯一节点带有污点",
    "no-plugin": "1 块 GPU，`nodeName` 指定设备插件已停止的节点",
    "no-dra-driver": "申领的设备的 DRA 驱动未在节点上运行",
    "unhealthy": "设备插件报告运行中 Pod 的 GPU 不健康",
}
CASES: Final = (*(case for _, cases in PHASES for case in cases), UNHEALTHY)
Results = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def results(real: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return what `why` says of each case, by its pod: once it names row and message, else after a while."""
    archive = tmp_path_factory.mktemp("image") / "other-cpu.tar"
    real.import_image(write_image(archive, OTHER_CPU, {"/app": ARM_PROGRAM}))
    absent = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "absent"}}
    real.kubectl("apply", "-f", "-", input=json.dumps(absent | {"handler": "absent"}))
    real.kubectl("create", "serviceaccount", DEVELOPER)
    subject = f"--serviceaccount=default:{DEVELOPER}"
    real.kubectl("create", "rolebinding", DEVELOPER, "--clusterrole=view", subject)
    by_pod: dict[str, Mapping[str, Any]] = {}
    for state, cases in PHASES:
        with state(real), _pods(real, cases):
            by_pod |= {case.name: _result(real, case) for case in cases}
    with _pods(real, [UNHEALTHY]):
        real.kubectl("wait", "pod/unhealthy", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
        real.nodes["gpu-2"].use_device_plugin("envvar", unhealthy=2)
        by_pod[UNHEALTHY.name] = _result(real, UNHEALTHY)
    real.nodes["gpu-2"].use_device_plugin("envvar")
    return by_pod


@contextmanager
def _pods(real: RealCluster, cases: Sequence[Case]) -> Iterator[None]:
    items = {"apiVersion": "v1", "kind": "List", "items": [case.pod for case in cases]}
    real.kubectl("create", "-f", "-", input=json.dumps(items))
    try:
        yield
    finally:
        real.kubectl("delete", "pods", "--ignore-not-found", *(case.name for case in cases))


def _why(real: RealCluster, name: str, *words: str, kubeconfig: Path | None = None) -> Mapping[str, Any]:
    config = str(kubeconfig or real.control.kubeconfig)
    done = gpugate("why", "--kubeconfig", config, name, "-o", "json", *words)
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document


def _result(real: RealCluster, case: Case) -> Mapping[str, Any]:
    said: list[Mapping[str, Any]] = []

    def is_named() -> bool:
        said.append(_why(real, case.name))
        return any(
            case.row == cause["name"] and (not case.message or case.message in cause["evidence"][0]["text"])
            for cause in said[-1]["causes"][:1]
        )

    try:
        eventually(is_named)
    except AssertionError:
        return said[-1]
    (in_chinese, *_) = _why(real, case.name, "--lang", "zh")["causes"]
    developer = real.control.service_account("default", DEVELOPER)
    return {
        **said[-1],
        "zh": in_chinese["cause"],
        "developer": _why(real, case.name, kubeconfig=developer),
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_cause_of_a_real_failure_is_named(case: Case, results: Results) -> None:
    """First, and certain only where a program of the cluster reports it."""
    result = results[case.name]
    causes = [(cause["name"], cause["certainty"]) for cause in result["causes"]]

    assert (case.row, "certain" if case.certain else "likely") == next(iter(causes), None), result


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_developer_who_may_only_view_the_namespace_is_told_the_same(case: Case, results: Results) -> None:
    """And that rules and nodes could not be read."""
    told = results[case.name]["developer"]
    causes = [(cause["name"], cause["certainty"]) for cause in told["causes"]]

    assert (case.row, "certain" if case.certain else "likely") == next(iter(causes), None), told
    assert 2 == sum("cannot list" in note for note in told["notes"]), told["notes"]


def test_each_known_failure_is_produced_here_or_said_not_to_be() -> None:
    """Not both."""
    assert ROWS.keys() == {case.row for case in CASES} | NOT_HERE.keys()
    assert set() == {case.row for case in CASES} & NOT_HERE.keys()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("language", PAGES)
def test_the_page_has_what_why_says_of_each(
    language: str, results: Results, request: pytest.FixtureRequest
) -> None:
    """Between its marks; the messages without numbers that differ between machines."""
    page, table = PAGES[language], _table(language, results)
    before, _, rest = page.read_text("utf-8").partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- end -->\n")
    text = f"{before}<!-- table -->\n{table}<!-- end -->\n{after}"
    if request.config.getoption("--update-golden"):
        page.write_text(text, "utf-8")

    assert page.read_text("utf-8") == text


def _table(language: str, results: Results) -> str:
    heads = {
        "en": "| done | message of the cluster | what `why` says |\n|---|---|---|\n",
        "zh": "| 操作 | 集群的消息 | `why` 的说明 |\n|---|---|---|\n",
    }
    certainties = {"en": ("certain: ", "likely: "), "zh": ("确定：", "可能：")}[language]
    lines = []
    for case in CASES:
        first = results[case.name]["causes"][0]
        how, cause = case.how, first["cause"]
        if language == "zh":
            how, cause = IN_CHINESE[case.name], results[case.name]["zh"]
        message = _stable(_matched(case.row, first["evidence"][0]["text"]))
        certainty = certainties[0 if case.certain else 1]
        lines.append(f"| {how} | `{message}` | {certainty}{_stable(cause)} |\n")
    return heads[language] + "".join(lines)


def _matched(row: str, text: str) -> str:
    """Return the part of a message that a row matches."""
    match = re.search(ROWS[row]["pattern"], text)
    assert match is not None
    return match[0]


def _stable(text: str) -> str:
    """Return a text without UUIDs and numbers of bytes, and without what ends a cell."""
    return re.sub(r"(?<=GPU-)[0-9a-f-]{36}|\d{6,}", "…", text).replace("|", "\\|")
