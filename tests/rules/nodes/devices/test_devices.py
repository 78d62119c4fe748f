"""Facts of devices, and what is unreadable."""

from __future__ import annotations

from typing import Any

import pytest

from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.nodes.devices.devices import (
    MAX_KINDS,
    DeviceFacts,
    DeviceKind,
    DeviceReader,
    KindPool,
    common_facts,
    facts_of,
)
from tests.support.dra_builders import GPU_DRIVER, T4, device


def kind_of(raw: dict[str, Any], driver: str = GPU_DRIVER) -> DeviceKind:
    """Return the kind of a device."""
    return DeviceReader("slice", driver, KindPool()).kind(raw)


def facts(raw: dict[str, Any]) -> DeviceFacts:
    """Return the facts of a GPU."""
    gpu_facts = facts_of(kind_of(raw))
    assert gpu_facts is not None
    return gpu_facts


def problems(raw: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the keys and values of a device that are unreadable."""
    reader = DeviceReader("slice", GPU_DRIVER, KindPool())
    reader.kind(raw)
    return [(key, value) for _, key, value in reader.problems]


def test_all_facts_are_read_from_the_attributes_of_a_gpu() -> None:
    assert DeviceFacts(
        type="gpu",
        has_cuda=True,
        cuda=CudaVersion(13, 0),
        driver="580.65.06",
        compute_capability=ComputeCapability(9, 0),
        product="NVIDIA-H100-80GB-HBM3",
        brand="Nvidia",
        architecture="Hopper",
        memory_mib=81920,
    ) == facts(device())


@pytest.mark.parametrize(
    ("version", "driver"), [("535.104.5", "535.104.05"), ("580.126.20", "580.126.20"), ("570.26.0", "570.26")]
)
def test_a_driver_version_is_told_as_nvidia_smi_prints_it(version: str, driver: str) -> None:
    assert driver == facts(device(driverVersion={"version": version})).driver


def test_a_device_of_v1beta1_has_its_fields_in_basic() -> None:
    raw = device()
    basic = {"name": raw.pop("name"), "basic": raw}
    assert kind_of(device()) == kind_of(basic)


def test_the_product_of_a_mig_device_has_its_profile_as_the_label_has() -> None:
    mig = device(memory="9856Mi", type={"string": "mig"}, profile={"string": "1g.10gb+me"})
    assert ("mig", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me", 9856) == (
        facts(mig).type,
        facts(mig).product,
        facts(mig).memory_mib,
    )


def test_a_device_that_is_passed_through_has_no_cuda() -> None:
    assert facts(device(type={"string": "vfio"})).has_cuda is False


def test_devices_of_other_drivers_report_no_facts_about_gpus() -> None:
    assert facts_of(kind_of(device(), "compute-domain.nvidia.com")) is None


def test_devices_that_differ_only_in_what_is_their_own_are_of_one_kind() -> None:
    one = device("gpu-0", **{"resource.kubernetes.io/pcieRoot": {"string": "pci0000:01"}})
    other = device("gpu-1", **{"resource.kubernetes.io/pcieRoot": {"string": "pci0000:02"}})
    assert kind_of(one) == kind_of(other)


def test_an_attribute_that_is_not_kept_is_known_to_exist() -> None:
    assert ("gpu.nvidia.com/uuid",) == kind_of(device()).hidden


def test_true_and_1_are_different_values() -> None:
    assert kind_of(device(flag={"bool": True})) != kind_of(device(flag={"int": 1}))


def test_a_name_with_a_domain_keeps_it() -> None:
    attributes = dict(kind_of(device(**{"resource.kubernetes.io/numaNode": {"int": 1}})).attributes)
    assert 1 == attributes["resource.kubernetes.io/numaNode"].value


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("cudaDriverVersion", "5739668.0.0"),
        ("cudaDriverVersion", "130.0.0"),
        ("driverVersion", "12345.1.0"),
        ("cudaComputeCapability", "90.0.0"),
    ],
)
def test_an_impossible_version_is_unknown_and_told(attribute: str, value: str) -> None:
    raw = device(**{attribute: {"version": value}})
    fact = {"cudaDriverVersion": "cuda", "driverVersion": "driver"}.get(attribute, "compute_capability")
    assert getattr(facts(raw), fact) is None
    assert [attribute] == [key for key, _ in problems(raw)]


@pytest.mark.parametrize(
    "entry",
    [
        {"version": "580.65.06"},
        {"version": "13"},
        {"version": 13},
        {"string": None},
        {"string": "x" * 65},
        {"int": True},
        {"int": 2**63},
        {"bool": "true"},
        {"string": "a", "int": 1},
        {"future": "a"},
        {"ints": [1, "a"]},
        {},
        None,
        "x",
    ],
)
def test_an_unreadable_attribute_is_hidden_and_told(entry: Any) -> None:
    raw = device(other=None)
    raw["attributes"]["other"] = entry
    assert ("gpu.nvidia.com/other", "gpu.nvidia.com/uuid") == kind_of(raw).hidden
    assert [("other", str(entry)[:64])] == problems(raw)


def test_a_version_of_the_wrong_type_is_no_fact() -> None:
    raw = device(cudaDriverVersion={"string": "13.0.0"})
    assert facts(raw).cuda is None
    assert [("cudaDriverVersion", "13.0.0")] == problems(raw)


@pytest.mark.parametrize("memory", ["many", "0", "-1", None, "12"])
def test_an_unreadable_amount_of_memory_is_unknown(memory: Any) -> None:
    raw = device(memory=memory)
    assert facts(raw).memory_mib is None
    assert ["memory"] == [key for key, _ in problems(raw)]


def test_lists_of_values_are_kept() -> None:
    attributes = dict(kind_of(device(models={"strings": ["a", "b"]})).attributes)
    assert ("a", "b") == attributes["gpu.nvidia.com/models"].value


def test_a_problem_of_a_kind_is_told_once() -> None:
    reader = DeviceReader("slice", GPU_DRIVER, KindPool())
    for number in range(8):
        reader.kind(device(f"gpu-{number}", cudaDriverVersion={"version": "999.0.0"}))
    assert 1 == len(reader.problems)


def test_further_kinds_of_a_driver_than_the_limit_are_unknown() -> None:
    reader = DeviceReader("slice", "nic.example.com", KindPool())
    kinds = [reader.kind({"attributes": {"mac": {"int": number}}}) for number in range(MAX_KINDS + 5)]
    assert {None} == {kind.hidden for kind in kinds[MAX_KINDS:]}
    assert ["more than 256 kinds of devices of nic.example.com"] == [
        problem.value for problem in reader.problems
    ]
    assert MAX_KINDS + 1 == len(set(kinds))


def test_kinds_of_devices_that_are_gone_do_not_count() -> None:
    pool = KindPool()
    reader = DeviceReader("slice", "nic.example.com", pool)
    kinds = [reader.kind({"attributes": {"mac": {"int": number}}}) for number in range(MAX_KINDS)]
    pool.keep(kinds[:1])
    assert () == reader.kind({"attributes": {"mac": {"int": -1}}}).hidden
    assert kinds[0] is reader.kind({"attributes": {"mac": {"int": 0}}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attributes", "x"),
        ("attributes", {str(number): {"int": 1} for number in range(65)}),
        ("attributes", {"x" * 97: {"int": 1}}),
        ("taints", [{"key": 1}]),
        ("taints", ["x"]),
    ],
)
def test_what_is_no_attribute_or_taint_is_told(key: str, value: Any) -> None:
    assert [key] == [told for told, _ in problems({"name": "gpu-0", key: value})]


def test_a_t4_has_its_own_facts() -> None:
    read = facts(device(memory="15Gi", **T4))
    assert ("Tesla-T4", CudaVersion(12, 2), "535.104.05") == (read.product, read.cuda, read.driver)


def test_what_differs_between_the_gpus_of_a_node_is_unknown() -> None:
    common = common_facts(
        [kind_of(device()), kind_of(device(memory="15Gi", **T4)), kind_of({}, "nic.example.com")]
    )
    assert DeviceFacts(type="gpu", has_cuda=True) == common


def test_a_gpu_of_which_nothing_is_known_makes_all_facts_unknown() -> None:
    assert DeviceFacts() == common_facts([kind_of(device()), DeviceKind(GPU_DRIVER, hidden=None)])


def test_devices_that_are_no_gpus_have_no_facts_in_common() -> None:
    assert common_facts([kind_of({}, "nic.example.com")]) is None
