"""The built-in rules: valid, listed, in two languages, and consistent with each vendor's documentation."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.decision.policy import Policy, compile_policy
from rules.model.decision import Decision
from rules.model.rule import InjectionRule, ResourceRule
from rules.schema.config_map import Loaded
from rules.schema.loader import load_rules
from tests.support.builders import container, decision, defaulted, patched, pod

CATALOG = Path(str(files("rules"))) / "catalog"
RULE_FILES = sorted(
    path
    for path in CATALOG.rglob("*.yaml")
    if path.name != "kustomization.yaml" and not path.name.endswith(".test.yaml")
)
FOLDERS = sorted(path.parent for path in CATALOG.rglob("kustomization.yaml"))

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
MPS_CORE, MPS_MEMORY = "nvidia.com/mps-core", "nvidia.com/mps-memory"
GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


@cache
def _catalog() -> Loaded:
    return load_rules((str(path.relative_to(CATALOG)), path.read_text("utf-8")) for path in RULE_FILES)


@cache
def _policy(*switched: str) -> Policy:
    """Return the policy of the catalogue, with the given files enabled if disabled, and vice versa."""
    texts = []
    for path in RULE_FILES:
        text = path.read_text("utf-8")
        if str(path.relative_to(CATALOG)) in switched:
            on, off = 'enabled: "true"', 'enabled: "false"'
            text = text.replace(on, off) if on in text else text.replace(off, on)
        texts.append((path.name, text))
    read = load_rules(texts)
    assert [] == [str(error) for error in read.errors]
    return compile_policy(read.rules)


def _decision(limits: dict[str, str], *, policy: Policy | None = None, **fields: Any) -> Decision:
    """Return the decision on a pod as it arrives from the API server."""
    return decision(policy or _policy(), defaulted(pod(container(limits, **fields))))


def _expected(limits: dict[str, str]) -> list[str]:
    """Return the expected values in the violations of a container's resources."""
    return [
        violation.message.en.partition(", expected ")[2].partition(" (")[0].partition("; ")[0]
        for violation in _decision(limits).violations
    ]


def _stored(limits: dict[str, str], policy: Policy | None = None, **fields: Any) -> dict[str, Any]:
    """Return the container as it is stored."""
    document = defaulted(pod(container(limits, **fields)))
    answer = decision(policy or _policy(), document)
    assert answer.denial.en == ""
    stored: dict[str, Any] = patched(document, answer)["spec"]["containers"][0]
    return stored


def test_the_catalogue_is_valid() -> None:
    """No errors, no warnings and no conflicts."""
    read = _catalog()

    assert ((), (), len(RULE_FILES)) == (read.errors, read.warnings, len(list(read.rules)))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_kustomization_lists_all_files_of_its_folder(folder: Path) -> None:
    """A file that is not listed is never applied."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))["resources"]
    present = {path.name for path in folder.iterdir() if path.is_dir() or path in RULE_FILES}

    assert (present, len(present)) == (set(listed), len(listed))


def test_every_rule_is_described_in_both_languages() -> None:
    """Messages to users contain the description."""
    assert [] == [rule.name for rule in _catalog().rules if not (rule.description.en and rule.description.zh)]


def test_every_validation_has_a_message_in_both_languages() -> None:
    """An expression is not an explanation."""
    assert [] == [
        rule.name
        for rule in _catalog().rules.resources
        for validation in rule.validations
        if not (validation.message.en and validation.message.zh)
    ]


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.name)
def test_a_rule_names_its_source(path: Path) -> None:
    """So that readers can verify the vendor's arithmetic."""
    assert "\n# Source: " in path.read_text("utf-8")


def test_rules_that_could_break_other_systems_are_disabled_by_default() -> None:
    """The comment in each file explains when to enable it."""
    assert {
        "cf-crl-hami-gpu",
        "cf-crl-rdma",
        "mps-pipe-directory",
        "ascend-runtime-class",
        "enflame-scheduler",
        "hygon-scheduler",
        "injection-gpu-tolerations",
        "injection-gpu-topology-required",
        "injection-rdma-ipc-lock",
        "injection-runtime-class-nvidia",
        "injection-shared-memory",
        "orionx-client",
    } == {
        rule.name
        for rule in _catalog().rules
        if isinstance(rule, ResourceRule | InjectionRule) and not rule.enabled and not _is_guardrail(rule)
    }


def _is_guardrail(rule: ResourceRule | InjectionRule) -> bool:
    return isinstance(rule, ResourceRule) and rule.additional


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        # GPU-Manager: shares of a card, or whole cards in hundreds
        ({CORE: "1"}, ["tencent.com/vcuda-memory in addition, without which GPU-Manager allocates no share"]),
        ({CORE: "1", MEMORY: "1"}, []),
        ({CORE: "100"}, []),
        ({CORE: "300"}, []),
        ({CORE: "0"}, []),
        ({CORE: "150"}, ["1 to 100, or a multiple of 100"]),
        ({CORE: "0.5"}, ["a whole number"]),
        ({CORE: "-20"}, ["zero or more"]),
        ({CORE: "20", MEMORY: "8"}, []),
        ({CORE: "20", MEMORY: "0"}, ["a count of 256 MiB blocks, 8 for 2 GiB"]),
        ({CORE: "20", MEMORY: "2Gi"}, ["a count of 256 MiB blocks, 8 for 2 GiB"]),
        # MPS: percent of the threads, GiB of memory
        ({MPS_CORE: "1"}, []),
        ({MPS_CORE: "100"}, []),
        ({MPS_CORE: "0"}, []),
        ({MPS_CORE: "101"}, ["1 to 100"]),
        ({MPS_CORE: "30", MPS_MEMORY: "4"}, []),
        ({MPS_CORE: "30", MPS_MEMORY: "4Gi"}, ["a count of GiB, 4 for 4 GiB"]),
        ({MPS_CORE: "30", MPS_MEMORY: "0"}, ["a count of GiB, 4 for 4 GiB"]),
        # whole cards and slices
        ({GPU: "8"}, []),
        ({GPU: "0.5"}, ["a whole number"]),
        ({SLICE: "1"}, []),
        ({SLICE: "0.5"}, ["a whole number"]),
        # HAMi
        ({"nvidia.com/gpumem": "10240", "nvidia.com/gpucores": "30"}, []),
        ({"nvidia.com/gpumem": "10Gi"}, ["a count of MiB, 10240 for 10 GiB"]),
        ({"nvidia.com/gpumem-percentage": "50"}, []),
        ({"nvidia.com/gpumem-percentage": "101"}, ["0 to 100"]),
        ({"nvidia.com/gpucores": "101"}, ["0 to 100"]),
        ({"nvidia.com/priority": "1"}, []),
        ({"nvidia.com/priority": "2"}, ["0 or 1"]),
        ({"nvidia.com/gpualloc": "1"}, []),
        ({GPU: "1", "nvidia.com/gpumem": "1024"}, []),
    ],
)
def test_a_value_must_satisfy_the_vendors_arithmetic(limits: dict[str, str], expected: list[str]) -> None:
    """As in the sources of each rule."""
    assert expected == _expected(limits)


IN_MIB = [
    "nvidia.com/gpumem",
    "volcano.sh/vgpu-memory",
    "volcano.sh/gpu-memory",
    "elasticgpu.io/gpu-memory",
    "amd.com/gpumem",
    "hygon.com/dcumem",
    "hygon.com/hcumem",
    "enflame.com/gcu-memory",
    "kunlunxin.com/vxpu-memory",
    "huawei.com/Ascend310P-memory",
    "huawei.com/Ascend910-memory",
    "huawei.com/Ascend910A-memory",
    "huawei.com/Ascend910B3-memory",
    "huawei.com/Ascend910C-memory",
]


@pytest.mark.parametrize("quantity", ["1Gi", "2G", "16Gi"])
@pytest.mark.parametrize("key", IN_MIB)
def test_memory_that_counts_mebibytes_is_not_given_in_bytes(key: str, quantity: str) -> None:
    """`1Gi` of it would be a million GiB."""
    assert {"a count of MiB", "a plain number"} & {
        expected.partition(",")[0] for expected in _expected({key: quantity})
    }


# A memory resource of each system that shares NVIDIA's GPUs.
SHARES = [
    "nvidia.com/gpumem",
    "nvidia.com/mps-memory",
    "volcano.sh/vgpu-memory",
    "volcano.sh/gpu-memory",
    "aliyun.com/gpu-mem",
    "tencent.com/vcuda-memory",
    "elasticgpu.io/gpu-memory",
    "koordinator.sh/gpu-memory",
    "tke.cloud.tencent.com/qgpu-memory",
]


@pytest.mark.parametrize(("one", "other"), list(combinations(SHARES, 2)))
def test_a_container_cannot_request_memory_in_the_units_of_two_systems(one: str, other: str) -> None:
    """A complaint: HAMi's MiB together with Aliyun's GiB. No node has both."""
    expecteds = [
        expected for expected in _expected({one: "8", other: "8"}) if expected.startswith("only one of")
    ]

    assert any(one in expected or other in expected for expected in expecteds)


@pytest.mark.parametrize("other", [GPU, MPS_CORE, MPS_MEMORY, SLICE])
def test_gpu_manager_excludes_other_sharing_methods(other: str) -> None:
    """A container is in one sharing mode only."""
    assert f"only one of {CORE} and {other}" in _expected({CORE: "20", MEMORY: "1", other: "1"})


@pytest.mark.parametrize("other", [GPU, SLICE])
def test_mps_excludes_whole_gpus_and_mig_devices(other: str) -> None:
    """MPS is not offered on MIG."""
    assert f"only one of {MPS_CORE} and {other}" in _expected({MPS_CORE: "20", other: "1"})


@pytest.mark.parametrize("own", ["nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage"])
@pytest.mark.parametrize("other", [CORE, MEMORY, MPS_CORE, MPS_MEMORY, SLICE])
def test_hami_excludes_other_sharing_methods(own: str, other: str) -> None:
    """Except nvidia.com/gpu, which it serves itself."""
    assert f"only one of {own} and {other}" in _expected({own: "1", other: "1"})


def test_hamis_own_gpu_resource_excludes_that_of_nvidias_plugin() -> None:
    """A container requests one or the other."""
    assert f"only one of nvidia.com/gpualloc and {GPU}" in _expected({"nvidia.com/gpualloc": "1", GPU: "1"})


def test_two_systems_with_one_resource_name_are_alternatives() -> None:
    """NVIDIA's plugin and HAMi both serve nvidia.com/gpu; by default one rule is enabled."""
    texts = {
        name: (CATALOG / name).read_text("utf-8").replace('enabled: "false"', 'enabled: "true"')
        for name in ("pgpu/gpu.yaml", "hami/gpu.yaml")
    }
    errors = [(error.code, error.location.file, error.message) for error in load_rules(texts.items()).errors]

    others = "the others"

    assert [
        (
            "conflict",
            one,
            f"'{GPU}' is also used by {name} ({other}:{line}:1); keep one rule, or disable {others} by label",
        )
        for one, other, name, line in (
            ("pgpu/gpu.yaml", "hami/gpu.yaml", "cf-crl-hami-gpu", 5),
            ("hami/gpu.yaml", "pgpu/gpu.yaml", "cf-crl-pgpu-gpu", 4),
        )
    ] == errors


def test_a_request_that_differs_from_the_limit_is_denied() -> None:
    """Extended resources cannot be overcommitted."""
    answer = decision(_policy(), pod(container({GPU: "2"}, {GPU: "1"})))

    assert ["cf-crl-pgpu-gpu"] == [violation.rule for violation in answer.violations]


def test_a_pod_that_requests_only_gpu_memory_gets_default_cores() -> None:
    """The default of GPU-Manager."""
    assert {CORE: "20", MEMORY: "8"} == _stored({MEMORY: "8"})["resources"]["limits"]


def test_an_mps_client_gets_its_share_of_threads_and_memory() -> None:
    """But no pipe directory, which would break NVIDIA's own."""
    assert [
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "30"},
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=4G"},
    ] == _stored({MPS_CORE: "30", MPS_MEMORY: "4"})["env"]


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({MPS_CORE: "30"}, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        ({MPS_MEMORY: "4"}, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
    ],
)
def test_an_mps_client_gets_only_the_variable_of_its_resource(limits: dict[str, str], name: str) -> None:
    """The other has no value."""
    assert [name] == [entry["name"] for entry in _stored(limits)["env"]]


def test_an_mps_client_keeps_its_own_value() -> None:
    """From any source."""
    own = [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "10"}]

    assert own == _stored({MPS_CORE: "30"}, env=own)["env"]


def test_the_pipe_directory_is_injected_with_its_mounts_if_enabled() -> None:
    """For daemons that are started on the host manually."""
    stored = _stored({MPS_CORE: "30"}, _policy("mps/pipe-directory.yaml"))

    assert {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/tmp/nvidia-mps"} in stored["env"]
    assert ["/tmp/nvidia-mps", "/dev/shm"] == [mount["mountPath"] for mount in stored["volumeMounts"]]


def test_hamis_count_of_gpus_is_one_if_its_rule_is_enabled() -> None:
    """Instead of the rule for whole cards."""
    hami = _policy("hami/gpu.yaml", "pgpu/gpu.yaml")

    assert {GPU: "1", "nvidia.com/gpumem": "1024"} == (
        _stored({"nvidia.com/gpumem": "1024"}, hami)["resources"]["limits"]
    )


PADDLE = [{"name": "FLAGS_allocator_strategy", "value": "naive_best_fit"}]


@pytest.mark.parametrize(
    ("limits", "image", "labels", "env"),
    [
        ({CORE: "20", MEMORY: "8"}, "registry.example.com:5000/paddlepaddle/paddle:2.6.1", {}, PADDLE),
        ({CORE: "20", MEMORY: "8"}, "team/PaddleOCR-serving:1".lower(), {}, PADDLE),
        ({MEMORY: "8"}, "team/paddle", {}, PADDLE),
        ({CORE: "20", MEMORY: "8"}, "team/train:1", {"framework": "PaddlePaddle"}, PADDLE),
        ({CORE: "20", MEMORY: "8"}, "team/train:1", {"framework": "pytorch"}, None),
        ({CORE: "20", MEMORY: "8"}, "team/train:1", {}, None),
        ({GPU: "1"}, "team/paddle:2.6", {}, None),
    ],
)
def test_paddle_on_gpu_managers_shares_gets_its_allocator(
    limits: dict[str, str], image: str, labels: dict[str, str], env: list[Any] | None
) -> None:
    """Only if the image or a label contains Paddle."""
    document = defaulted(pod(container(limits, image=image), metadata={"labels": labels}))
    stored = patched(document, decision(_policy(), document))

    assert env == stored["spec"]["containers"][0].get("env")


def test_paddle_keeps_its_own_allocator() -> None:
    """The user's value is kept."""
    own = [{"name": "FLAGS_allocator_strategy", "value": "auto_growth"}]

    assert own == _stored({CORE: "20", MEMORY: "8"}, image="team/paddle:2.6", env=own)["env"]
