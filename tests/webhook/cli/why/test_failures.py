"""Causes of pods that do not run."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.tables import read_table
from rules.model.decision import ALLOWED, Decision
from rules.model.finding import Basis, Certainty, Finding
from rules.model.rule import Action
from rules.text.i18n import Language, Text
from tests.support.cpu_time import loops
from webhook.cli.why.failures import MAX_LINES, Cause, Source, Statement, causes, log_statements

# A line that each row of failures.yaml matches, in the words of its program.
SAMPLES: Final = {
    "unsatisfied-condition": "requirement error: unsatisfied condition: cuda>=12.8, please update",
    "requirement-not-read": "requirements not met: unsatisfied condition: cuda>=99.0 (cuda=)",
    "no-nvidia-runtime": 'failed to get sandbox runtime: no runtime for "nvidia" is configured',
    "cdi-device-missing": "failed to create containerd container: CDI device injection failed: "
    "unresolvable CDI devices nvidia.com/gpu=GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
    "nvml-not-initialized": 'failed to generate CDI spec for mode "auto": failed to initialize NVML: '
    "Driver Not Loaded: unknown",
    "gpu-id-unknown": 'failed to generate CDI spec for mode "auto": identifier is not a valid UUID or index: '
    '"GPU-0"',
    "gpu-not-found": "failed to get device handle from index: Invalid Argument",
    "node-is-full": "OutOfmemory Pod was rejected: Node didn't have enough resource: memory, requested: "
    "107374182400, used: 0, capacity: 8310091776",
    "no-gpu-device": "ls: /dev/nvidia0: No such file or directory",
    "devices-unavailable": "devices unavailable for nvidia.com/gpu. Requested: 2, Available: 1",
    "unhealthy-devices": "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu,",
    "unregistered-device": "UnexpectedAdmissionError Pod was rejected: Allocate failed due to cannot "
    "allocate unregistered device nvidia.com/gpu, which is unexpected",
    "unknown-device": "Allocate failed due to rpc error: code = Unknown desc = invalid allocation request "
    'for "nvidia.com/gpu": invalid request: unknown device: GPU-4cf8db2d::0, which is unexpected',
    "device-plugin-unavailable": "Allocate failed due to rpc error: code = Unavailable desc = error reading "
    "from server: EOF, which is unexpected",
    "device-plugin-error": "Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: "
    "rpc error: code = Unknown desc = error calling nvml.Init: Unknown Error, which is unexpected",
    "dra-driver-not-registered": "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver "
    "gpu.nvidia.com is not registered",
    "dra-driver-unavailable": "Failed to prepare dynamic resources: prepare dynamic resources: "
    "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
    "claim-not-prepared": "Failed to prepare dynamic resources: prepare dynamic resources: "
    "NodePrepareResources failed for ResourceClaim a-x7k2p: MPS control daemon is not yet ready",
    "claim-not-unprepared": '"Error syncing pod, skipping" err="unprepare dynamic resources: '
    'NodeUnprepareResources failed for ResourceClaim a-x7k2p: the device is busy" pod="a/a"',
    "claims-not-prepared": "Failed to prepare dynamic resources: prepare dynamic resources: old "
    "ResourceClaim with same name a and different UID 0f1e still exists",
    "device-unhealthy": "allocatedResourcesStatus nvidia.com/gpu GPU-4cf8db2d Unhealthy ECC errors",
    "container-cli-initialization": "nvidia-container-cli: initialization error: load library failed: "
    "libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
    "driver-in-image": "nvidia-container-cli: mount error: file creation failed: "
    "/run/containerd/rootfs/usr/lib64/libnvidia-ml.so.1: file exists: unknown",
    "sandbox-not-ready": "PodReadyToStartContainers False",
    "gpu-is-lost": "error creating nvml.Device 5: nvml: GPU is lost",
    "topology-affinity": "TopologyAffinityError Resources cannot be allocated with Topology locality",
    "claim-strategy-gate": "error validating GPU config: unknown GPU sharing strategy: TimeSlicing",
    "claim-config-refused": 'error decoding config parameters: strict decoding error: unknown field "a"',
    "unexpected-admission-error": "UnexpectedAdmissionError Allocate failed due to rpc error",
    "insufficient-resource": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    "insufficient-together": "0/4 nodes are available: 1 Insufficient cpu, 3 Insufficient nvidia.com/gpu.",
    "several-replicas": "UnexpectedAdmissionError Allocate failed due to rpc error: code = Unknown desc = "
    "invalid allocation request for 'nvidia.com/gpu': request for 'nvidia.com/gpu: 2' too large: maximum "
    "request size for shared resources is 1; found 2, which is unexpected",
    "ecc-error": "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    "no-visible-gpu": "RuntimeError: No CUDA GPUs are available",
    "quantization": "ValueError: The quantization method fp8 is not supported for the current GPU. "
    "Minimum capability: 89. Current capability: 75.",
    "gpu-memory-in-use": "ValueError: Free memory on device cuda:0 (9.5/23.65 GiB) on startup is less than "
    "desired GPU memory utilization (0.9, 21.28 GiB).",
    "static-memory": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "excluded-by-scheduler": "0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
    "no-scale-up": "NotTriggerScaleUp: pod didn't trigger scale-up: 2 max node group size reached",
    "untolerated-taint": "1 node(s) had untolerated taint {nvidia.com/gpu: present}",
    "node-affinity": "3 node(s) didn't match Pod's node affinity/selector",
    "rejected-by-affinity": "NodeAffinity Pod was rejected: Predicate NodeAffinity failed: node(s) didn't "
    "match Pod's node affinity/selector",
    "scheduling-gated": "SchedulingGated kueue.x-k8s.io/admission",
    "gang-waits": "minCount (4) cannot be satisfied: 2 scheduled, 0 remaining",
    "oom-killed": "OOMKilled",
    "no-platform": "no match for platform in manifest: not found",
    "exec-format": "exec /app: exec format error",
    "image-pull": "ImagePullBackOff Back-off pulling image",
    "evicted": "The node was low on resource: ephemeral-storage.",
    "no-libcuda": "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    "no-cuda-library": "OSError: libcudart.so.12: cannot open shared object file: No such file or directory",
    "driver-too-old": "The NVIDIA driver on your system is too old (found version 11040).",
    "no-driver": "RuntimeError: Found no NVIDIA driver on your system.",
    "nvml-mismatch": "Failed to initialize NVML: Driver/library version mismatch",
    "nvml-unknown": "Failed to initialize NVML: Unknown Error",
    "bfloat16": "Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
    "unknown-error": "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrect",
    "mps-not-ready": "mps-client: MPS server is not ready",
    "gpushare-no-gpu": "nvidia-container-cli: device error: unknown device id: no-gpu-has-10MiB-to-run",
    "old-ptxas": "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    "kv-cache": "The model's max seq len (32768) is larger than the maximum number of tokens that can be"
    " stored in KV cache (7344).",
    "heads-not-divisible": "number of attention heads (28) must be divisible by tensor parallel size (8)",
    "device-permission": "open /dev/nvidiactl: permission denied",
    "paddle-crash": "FatalError: `Segmentation fault` is detected by the operating system.",
    "denied-by-gpugate": 'FailedCreate: admission webhook "validate.gpugate.dev" denied the request'
    ": Pod denied by gpugate: no schedulable node is compatible [rule compatibility-pgpu]",
    "exceeded-quota": 'FailedCreate: Error creating: pods "a" is forbidden: exceeded quota: gpus, requested: '
    "requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4",
    "pod-security": 'FailedCreate: pods "a" is forbidden: violates PodSecurity "restricted:latest": '
    "runAsNonRoot != true",
    "webhook-unavailable": "FailedCreate: Error creating: Internal error occurred: failed calling webhook "
    '"mutate.gpugate.dev": failed to call webhook: connect: connection refused',
    "creation-failed": 'FailedCreate: pods "a" is forbidden: error looking up service account',
    "flash-attention": "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
    "gpu-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "vgpu-memory": "[HAMI-core ERROR (pid:8)]: Device 0 OOM 11000000000 / 10737418240",
    "shared-memory": "DataLoader worker (pid 7) is killed by signal: Bus error.",
    "nccl-timeout": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)",
    "cpu-build": "AssertionError: Torch not compiled with CUDA enabled",
    "xid": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
}
ROWS: Final = {row["name"]: row for row in read_table("failures")}
ERRORS: Final = read_table("errors")


def found(*lines: str, source: Source = Source.LOG, violations: tuple[Finding, ...] = ()) -> list[Cause]:
    """Return the causes by lines of one source."""
    decision = Decision(allowed=not violations, violations=violations)
    return causes(decision, [Statement(source, Text("place"), line) for line in lines])


def test_every_row_has_a_sample() -> None:
    """The names are unique."""
    assert len(ROWS) == len(read_table("failures"))
    assert SAMPLES.keys() == ROWS.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_names_its_cause_in_both_languages(name: str) -> None:
    """Wherever the row says that it is seen, and nowhere else; no part of the text is left open."""
    line, row = SAMPLES[name], ROWS[name]
    seen = {source for source in Source for log in found(line, source=source) if log.name == name}
    texts = [
        part.in_language(language)
        for language in Language
        for log in found(line, source=Source(row["seen"][0]))
        for part in (log.text, log.fix)
    ]

    assert {*row["seen"]} == seen
    assert texts
    assert not any("{" in text.replace("{nvidia.com/gpu: present}", "") for text in texts)


def test_the_kubelet_that_rejects_a_pod_by_affinity_is_not_the_scheduler() -> None:
    """Both use the same words; the kubelet of Kubernetes 1.30 has the first half only."""
    lines = SAMPLES["rejected-by-affinity"], "NodeAffinity Pod was rejected: Predicate NodeAffinity failed"

    for line in lines:
        assert ["rejected-by-affinity"] == [log.name for log in found(line, source=Source.STATUS)]


@pytest.mark.parametrize("row", ERRORS, ids=[str(row["code"]) for row in ERRORS])
def test_errors_of_cuda_are_found_by_name_by_number_and_by_message(row: dict[str, str]) -> None:
    """The message only in a line about an error of CUDA."""
    lines = [row["runtime"], f"cudaGetDeviceCount returned {row['code']}", f"CUDA error: {row['message']}"]
    lines += [row["driver"]] if row["driver"] else []

    assert all(row["runtime"] in {log.name for log in found(line)} for line in lines)
    elsewhere = f"/usr/local/cuda: {row['message']}"
    assert ("cuda" in row["message"].lower()) is bool({log.name for log in found(elsewhere)})


def test_the_text_that_older_versions_print_for_busy_devices_is_known() -> None:
    """CUDA 13 prints another one."""
    old = "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"

    assert ["cudaErrorDevicesUnavailable"] == [log.name for log in found(old)]


def _violation(basis: Basis) -> Finding:
    reason, fix, table = Text("the driver is too old"), Text("newer driver"), Text("table")
    return Finding("rule", Action.DENY, "path", reason, fix, basis=basis, table=table)


def test_a_violation_by_facts_is_the_cause_and_the_error_that_it_foresees_its_evidence() -> None:
    """Other errors stay causes of their own."""
    lines = ("cudaErrorInsufficientDriver", "CUDA out of memory")
    first, second = found(*lines, violations=(_violation(Basis.FACT),))

    assert ("rule", Certainty.CERTAIN, "the driver is too old", "newer driver") == (
        first.name,
        first.certainty,
        first.text.en,
        first.fix.en,
    )
    assert [lines[0]] == [statement.text for statement in first.evidence]
    assert "gpu-memory" == second.name


def test_what_only_a_log_says_is_not_certain() -> None:
    """The kubelet's word is; a container writes what it likes."""
    line, logged = SAMPLES["unsatisfied-condition"], [row for row in ROWS.values() if row["seen"] == ["log"]]

    assert [Certainty.LIKELY] == [log.certainty for log in found(line)]
    assert [Certainty.CERTAIN] == [log.certainty for log in found(line, source=Source.STATUS)]
    assert [] == [row["name"] for row in logged if "certain" in row]


def test_the_output_of_kubectl_describe_is_read_as_status_and_events() -> None:
    text = """\
Name:             llm-7d9f-x2x
Status:           Pending
Containers:
  vllm:
    Last State:     Terminated
      Reason:       OOMKilled
Events:
  Type     Reason            Age                From               Message
  ----     ------            ----               ----               -------
  Warning  FailedScheduling  72s (x3 over 10m)  scheduler  0/3 nodes are available: 3 Insufficient a/b.
"""
    explained = causes(ALLOWED, log_statements(Text("log"), text))

    assert [Certainty.CERTAIN] * 2 == [cause.certainty for cause in explained]
    assert ["OOMKilled", "FailedScheduling: 0/3 nodes are available: 3 Insufficient a/b."] == [
        cause.evidence[0].text for cause in explained
    ]
    assert [6, 10] == [cause.evidence[0].place[1]["line"] for cause in explained]


def test_a_violation_of_rules_that_may_not_be_in_force_is_no_cause() -> None:
    """A fact stays one."""
    decision = Decision(allowed=False, violations=(_violation(Basis.POLICY),))
    fact = Decision(allowed=False, violations=(_violation(Basis.FACT),))

    assert [] == causes(decision, [], rules_known=False)
    assert 1 == len(causes(fact, [], rules_known=False))


def test_a_violation_by_policy_is_a_likely_cause_that_names_the_rule() -> None:
    """What a rule forbids may run: of a pod that runs, it is one only with evidence."""
    policy = (_violation(Basis.POLICY),)
    decision = Decision(allowed=False, violations=policy)

    assert [("rule", Certainty.LIKELY, "the driver is too old (policy of rule rule)")] == [
        (log.name, log.certainty, log.text.en) for log in found("KeyError: 'a'", violations=policy)
    ]
    assert [] == causes(decision, [], runs=True)
    assert ["rule", "cudaErrorIllegalAddress"] == [
        log.name for log in found("CUDA_ERROR_ILLEGAL_ADDRESS", violations=policy)
    ]


def test_other_texts_of_known_failures_are_found() -> None:
    """Of other programs, or other versions of one."""
    lines = {
        "float16/bfloat16 is only supported on GPUs with compute capability at least 8.0": "bfloat16",
        "ValueError: bfloat16 is only supported on GPUs with compute capability at least 8.0. Current GPU: "
        "Tesla V100-PCIE-16GB, compute capability 7.0": "bfloat16",
        "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2.0GB memory": "gpu-memory",
        "To serve at least one request with the models's max seq len (262144), (24.0 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (3.18 GiB).": "kv-cache",
        "(got `num_heads`: 28 and `num_shards`: 8": "heads-not-divisible",
        "CUDA error: MPS server is not ready to accept new MPS client requests": "cudaErrorMpsServerNotReady",
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.": "no-driver",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.": "no-driver",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: "
        "out of memory": "gpu-memory",
        "status == cudaErrorECCUncorrectable": "ecc-error",
    }

    assert [*lines.values()] == [log.name for line in lines for log in found(line)]


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        (
            "dra-driver-not-registered",
            "failed to get client: plugin name a.com not found in the list of registered DRA plugins",
            "the DRA driver a.com is not registered",
        ),
        (
            "claim-not-prepared",
            "Failed to prepare dynamic resources: NodePrepareResources failed for claim a/b: busy",
            "the devices of claim a/b: busy",
        ),
        (
            "claim-config-refused",
            "NodePrepareResources failed for ResourceClaim a: error validating GPU config: no interval",
            "in the pod's claim: no interval",
        ),
        (
            "device-plugin-unavailable",
            "Allocate failed due to endpoint &{0xc0001 0xc0002} has been stopped, which is unexpected",
            "when it allocated the devices of the pod",
        ),
        (
            "unregistered-device",
            "Allocate failed due to unknown Device Plugin nvidia.com/gpu, which is unexpected",
            "no device nvidia.com/gpu for the pod",
        ),
        ("several-replicas", SAMPLES["several-replicas"], "requests 2 replicas"),
        ("unknown-device", SAMPLES["unknown-device"], "device GPU-4cf8db2d::0 for the pod"),
    ],
)
def test_an_event_of_the_kubelet_about_devices_has_one_certain_cause(
    name: str, line: str, words: str
) -> None:
    """Also in the words of Kubernetes 1.30 and of claims whose configuration is refused."""
    (cause,) = found(line, source=Source.EVENT)

    assert (name, Certainty.CERTAIN) == (cause.name, cause.certainty)
    assert words in cause.text.in_language(Language.EN)


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (SAMPLES["xid"], "79"),
        ("NVRM: Xid (PCI:0000:C1:00.0): 13, pid=7, Graphics Exception", "13"),
        ("XidCriticalError: Xid=94 on Device=GPU-1", "94"),
        ("NVRM: Xid (0000:03:00): 43, Ch 00000010", "43"),
        ("Xid 119", "119"),
    ],
)
def test_an_xid_is_the_number_after_the_address_of_the_gpu(line: str, number: str) -> None:
    """The driver prints the address, which has numbers, first."""
    (cause,) = found(line)

    assert f"the driver reported Xid {number} for a GPU of the node" == cause.text.in_language(Language.EN)


def test_an_advice_against_an_error_is_not_the_error() -> None:
    """Programs print it at their start."""
    advices = (
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid CUDA out of memory errors",
        "this helps against potential CUDA out of memory errors",
        "If you see CUDA out of memory, reduce the batch size",
    )

    assert [] == found(*advices)


def test_of_several_resources_no_single_one_is_said_to_be_missing_on_every_node() -> None:
    """A node without enough CPU may have free GPUs."""
    line = "0/4 nodes are available: 1 Insufficient cpu, 3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes"
    (cause,) = found(line, source=Source.EVENT)

    assert (
        "no node that the pod selects has all that it requests free: 1 Insufficient cpu, "
        "3 Insufficient nvidia.com/gpu"
    ) == cause.text.in_language(Language.EN)


def test_of_an_autoscaler_that_adds_no_node_nothing_is_concluded_about_the_nodes_of_today() -> None:
    """Its reasons are those of node groups."""
    line = (
        "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {nvidia.com/gpu: present}"
    )

    assert ["no-scale-up"] == [cause.name for cause in found(line, source=Source.EVENT)]


@pytest.mark.parametrize(
    "reason",
    [
        "1 node(s) had no available volume zone",
        "1 node(s) didn't find available persistent volumes to bind",
        "1 node(s) didn't match pod anti-affinity rules",
        "1 node(s) didn't match pod topology spread constraints",
        "1 cannot allocate all claims",
    ],
)
def test_no_node_is_said_to_lack_a_resource_if_the_scheduler_gives_a_later_reason(reason: str) -> None:
    """The scheduler gives the first reason of each node, and checks resources before these."""
    line = f"0/4 nodes are available: {reason}, 3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes"

    (cause,) = found(line, source=Source.EVENT)

    assert ("excluded-by-scheduler", Certainty.CERTAIN) == (cause.name, cause.certainty)
    assert reason.removeprefix("1 ").removeprefix("node(s) ") in cause.text.in_language(Language.EN)


def test_what_a_controller_could_not_create_has_one_cause() -> None:
    """The general one only if no other is known."""
    denials = [name for name, row in ROWS.items() if row["cause"]["en"].startswith("its pods are denied")]
    assert 5 == len(denials)
    for name in denials:
        (cause,) = found(SAMPLES[name], source=Source.EVENT)
        assert (name, True) == (cause.name, cause.text.en.startswith("its pods are denied: "))


def test_what_follows_from_another_cause_is_left_out() -> None:
    """Alone, it is named."""
    timeout = SAMPLES["nccl-timeout"]

    assert ["nccl-timeout"] == [log.name for log in found(timeout)]
    assert ["gpu-memory"] == [log.name for log in found(timeout, SAMPLES["gpu-memory"])]


def test_a_cause_is_named_once_with_its_first_evidence() -> None:
    """A log repeats itself."""
    first, second = found(*["CUDA out of memory"] * 9, SAMPLES["cpu-build"])

    assert ("gpu-memory", 3, "cpu-build") == (first.name, len(first.evidence), second.name)


def test_certain_causes_come_first() -> None:
    """Whatever was read first."""
    lines = [(Source.LOG, SAMPLES["gpu-memory"]), (Source.STATUS, SAMPLES["oom-killed"])]
    both = causes(ALLOWED, [Statement(source, Text("place"), line) for source, line in lines])

    assert ["oom-killed", "gpu-memory"] == [cause.name for cause in both]


def test_the_last_lines_of_a_log_are_read_with_their_numbers() -> None:
    """Without colours and control characters, and not longer than a bound."""
    lines = [*map(str, range(MAX_LINES)), "\x1b[31mred\x1b[0m\x07", "x" * 10_000]
    first, *_, red, last = log_statements(Text("log"), "\n".join(lines))

    assert ("log, line 3", "2") == (first.place.en, first.text)
    assert (f"log, line {MAX_LINES + 1}", "red") == (red.place.en, red.text)
    assert 1000 == len(last.text)


@given(st.binary(max_size=3000))
def test_no_log_raises(content: bytes) -> None:
    """Whatever a program writes."""
    text = content.decode(errors="replace")

    assert all(
        log.text
        for log in found(*(log_statement.text for log_statement in log_statements(Text("log"), text)))
    )


def test_a_hostile_log_costs_little() -> None:
    """Lines that begin like every pattern and go on, at the bounds of length and number."""
    line = "".join(sample[: len(sample) // 2] for sample in SAMPLES.values())
    text = "\n".join([(line * 9)[:2000]] * MAX_LINES)

    assert (
        loops(lambda: found(*(log_statement.text for log_statement in log_statements(Text("log"), text))))
        < 2000
    )
