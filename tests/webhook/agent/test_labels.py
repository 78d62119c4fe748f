"""Labels of a probe: golden, valid, readable by the rules, and never wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from rules.kube.names import is_label_key, is_label_value
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeReader
from tests.support.nvml import RECORDED, library, recorded
from webhook.agent.labels import (
    GPUS_ANNOTATION,
    LABELS,
    PREFIX,
    Difference,
    capabilities_of,
    differences,
    is_own,
    metadata_of,
)
from webhook.agent.nvml_probe import Gpu, Probe, probe

T4 = Gpu("Tesla T4", "GPU-1", ComputeCapability(7, 5), 15360)
A100 = Gpu("NVIDIA A100-SXM4-40GB", "GPU-2", ComputeCapability(8, 0), 40960, mig=False)
DISCOVERED = {
    "nvidia.com/cuda.driver-version.full": "535.129.03",
    "nvidia.com/cuda.runtime-version.full": "12.2",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.memory": "40960",
}

versions = st.builds(CudaVersion, st.integers(9, 20), st.integers(0, 9))
gpus = st.builds(
    Gpu,
    name=st.none() | st.sampled_from(["Tesla T4", "NVIDIA H200"]) | st.text(max_size=90),
    uuid=st.none() | st.text(max_size=40),
    compute_capability=st.none() | st.builds(ComputeCapability, st.integers(3, 12), st.integers(0, 9)),
    memory_mib=st.none() | st.integers(1, 300_000),
    mig=st.none() | st.booleans(),
    mig_profiles=st.none() | st.lists(st.sampled_from(["1g.5gb", "1g.5gb+me", "1c.3g.20gb"])).map(tuple),
    compute_mode=st.none() | st.sampled_from(["Default", "Prohibited", "Exclusive_Process"]),
    nvlink=st.none() | st.booleans(),
)
probes = st.builds(
    Probe,
    driver=st.none() | st.from_regex(r"\A[1-9]\d{2}\.\d{1,3}(\.\d{2})?\Z").map(DriverVersion.parse),
    cuda=st.none() | versions,
    gpus=st.lists(gpus, max_size=4).map(tuple),
    mps=st.just(()) | st.just(("/tmp/nvidia-mps",)),
)


def probe_of(*gpus: Gpu, **others: Any) -> Probe:
    """Return a probe of these GPUs on a driver of branch 535."""
    return replace(Probe(DriverVersion.parse("535.129.03"), CudaVersion(12, 2), gpus), **others)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_probe_has_its_golden_labels(name: str) -> None:
    """From the calls of pynvml to the labels, for every recorded machine."""
    with library(name):
        node_probe = probe(())

    assert isinstance(node_probe, Probe)
    assert recorded(name)["labels"] == metadata_of(node_probe).labels


@given(probes)
def test_any_labels_are_valid_and_the_agents_own(node_probe: Probe) -> None:
    """Kubernetes rejects the whole patch if one label is invalid."""
    metadata = metadata_of(node_probe)

    assert all(is_label_key(key) and is_own(key) for key in metadata.labels)
    assert all(is_label_value(value) and value for value in metadata.labels.values())


@given(probes)
@example(Probe(None, None, (replace(T4, name="0"),)))  # a number names no product
def test_the_rules_read_the_facts_of_nvml_from_the_labels(node_probe: Probe) -> None:
    """No fact is lost or changed in the node's object."""
    reader = NodeReader("n", metadata_of(node_probe).labels)

    assert capabilities_of(node_probe) == reader.capabilities(LabelNames())
    assert [] == reader.problems


def test_every_gpugate_label_that_rules_read_is_set_by_the_agent() -> None:
    """Each is in its table."""
    names = LabelNames()
    of_families = [key for family in (*names.driver, *names.compute_capability) for key in family.keys]
    read = [*of_families, *names.product, *names.memory, *names.mig_strategy, *names.mig_devices]
    read += [*names.runtime_mode, *names.toolkit_version]

    assert {key for key in read if key.startswith(PREFIX)} <= LABELS.keys()


@given(probes, st.randoms(use_true_random=False))
def test_the_order_of_gpus_changes_no_label(node_probe: Probe, order: Any) -> None:
    """The index of a GPU may change from one start to the next."""
    shuffled = list(node_probe.gpus)
    order.shuffle(shuffled)

    assert metadata_of(node_probe).labels == metadata_of(replace(node_probe, gpus=tuple(shuffled))).labels


def test_labels_of_mixed_gpus_have_the_lowest_values() -> None:
    """A program must run on any of them; memory is independent of the product."""
    big_old = replace(T4, name="Quadro RTX 8000", memory_mib=46080)
    labels = metadata_of(probe_of(A100, big_old)).labels

    assert {
        "gpugate.dev/gpu.mixed": "true",
        "gpugate.dev/gpu.product": "Quadro-RTX-8000",
        "gpugate.dev/gpu.compute.major": "7",
        "gpugate.dev/gpu.compute.minor": "5",
        "gpugate.dev/gpu.memory": "40960",
    }.items() <= labels.items()


def test_a_fact_that_is_unknown_for_one_gpu_has_no_label() -> None:
    """The lowest value of the others may be too high."""
    labels = metadata_of(
        probe_of(A100, replace(T4, name=None, compute_capability=None, memory_mib=None))
    ).labels

    assert {"gpugate.dev/gpu.count"} == {key for key in labels if key.startswith("gpugate.dev/gpu.")}


@pytest.mark.parametrize(
    ("connected", "expected"),
    [
        ([True, True], "nvlink"),
        ([True, False], "pcie"),
        ([False, False], "pcie"),
        ([None, False], "pcie"),
        ([True, None], None),
        ([None], None),
        ([], None),
    ],
)
def test_the_topology_is_nvlink_if_each_gpu_is_connected(
    connected: list[bool | None], expected: str | None
) -> None:
    """And pcie if one is not; no label for a single GPU, or if NVML does not report it."""
    labels = metadata_of(probe_of(*(replace(A100, nvlink=links) for links in connected))).labels

    assert expected == labels.get("gpugate.dev/gpu-topology")


def test_the_annotation_has_the_full_name_of_a_gpu() -> None:
    """A label value has at most 63 characters of a limited set."""
    name = "NVIDIA (TM) Prototype / Ω " + "x" * 60
    metadata = metadata_of(probe_of(replace(T4, name=name)))
    label = metadata.labels["gpugate.dev/gpu.product"]

    assert "NVIDIA--TM--Prototype---" in label
    assert len(label) <= 63
    assert name == json.loads(metadata.annotations[GPUS_ANNOTATION])[0]["product"]


@pytest.mark.parametrize(
    ("gpu", "cuda", "expected"),
    [
        (A100, CudaVersion(12, 2), "true"),
        (A100, CudaVersion(11, 4), "false"),
        (replace(A100, compute_capability=ComputeCapability(6, 1)), CudaVersion(12, 2), "false"),
        (replace(A100, mig=True), CudaVersion(12, 2), "false"),
        (replace(A100, compute_mode="Prohibited"), CudaVersion(12, 2), "false"),
        (replace(A100, compute_capability=None), CudaVersion(12, 2), "true"),
        (replace(A100, name="Prototype", compute_capability=None), CudaVersion(12, 2), None),
    ],
)
def test_mps_capable_follows_the_built_in_rule(gpu: Gpu, cuda: CudaVersion, expected: str | None) -> None:
    """Volta or newer, CUDA 11.5 or newer, whole GPUs, and compute allowed; no label if a fact is unknown."""
    assert expected == metadata_of(probe_of(gpu, cuda=cuda)).labels.get("gpugate.dev/mps.capable")


def test_consistent_labels_of_gpu_feature_discovery_are_no_difference() -> None:
    """Including sharing, a MIG slice and its memory, or one of several products."""
    slice_of_it = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "nvidia.com/gpu.memory": "4864",
    }

    assert () == differences(DISCOVERED, probe_of(A100))
    assert () == differences(DISCOVERED | slice_of_it, probe_of(A100))
    assert () == differences(DISCOVERED, probe_of(A100, T4))
    assert () == differences({}, probe_of(A100))


def test_stale_labels_of_gpu_feature_discovery_are_differences() -> None:
    """For example after an upgrade of the driver on a node whose discovery does not run any more."""
    upgraded = probe_of(A100, driver=DriverVersion.parse("580.95.05"), cuda=CudaVersion(13, 0))

    assert (
        Difference("driver", "535.129.03", "580.95.05"),
        Difference("driver CUDA", "12.2", "13.0"),
    ) == differences(DISCOVERED, upgraded)
