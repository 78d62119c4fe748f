"""The tables of CUDA facts: their values, sources and status, and their load time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from rules.cuda.tables import (
    BUILT_IN,
    FACTS_FOLDER,
    RELEASED,
    Fact,
    Facts,
    Lifecycle,
    Status,
    capability_of,
    certain_branches,
    cuda_error,
    cuda_of_branch,
    first_branch_of,
    forward_compatible,
    gpu_model,
    last_branch_of,
    least_cuda,
    lifecycle_of_branch,
    listed_before,
    minor_version_floor,
    read_table,
    toolkits,
)
from rules.cuda.versions import ComputeCapability, CudaVersion
from tests.support.cpu_time import loops
from tests.support.paths import ROOT
from webhook.cli.facts.extractors import EXTRACTORS

TABLES = (
    "aws_instances",
    "cloud_gpus",
    "drivers",
    "errors",
    "gpu_memory",
    "gpu_resources",
    "gpus",
    "images",
    "mig_profiles",
    "models",
    "frameworks",
    "gpu_profiles",
    "requirements",
    "runtime_modes",
    "toolkit_wheels",
    "toolkits",
)

VERIFIED = {"source": "ptxas", "status": "verified"}


def rows(table: Any) -> Iterator[dict[str, Any]]:
    """Find every object with a source, at any depth."""
    if isinstance(table, dict):
        if "source" in table:
            yield table
        for member in table.values():
            yield from rows(member)
    elif isinstance(table, list):
        for item in table:
            yield from rows(item)


def lowest(cuda: str) -> str:
    """Return the lowest capability that a toolkit compiles for."""
    fact = toolkits(BUILT_IN).get(version(cuda))
    assert fact is not None
    return str(fact.value[0])


def version(text: str) -> CudaVersion:
    """Return a valid version."""
    parsed = CudaVersion.parse(text)
    assert parsed is not None
    return parsed


def value(fact: Fact[Any] | None) -> str | None:
    """Return the value of a fact as text."""
    return None if fact is None else str(fact.value)


@pytest.mark.parametrize(
    ("cuda", "floor"),
    [("9.0", "3.0"), ("10.2", "3.0"), ("11.8", "3.5"), ("12.0", "5.0"), ("12.9", "5.0"), ("13.0", "7.5")],
)
def test_a_toolkit_toolkits_no_gpu_older_than_its_floor(cuda: str, floor: str) -> None:
    """CUDA 13 removed Volta and everything before."""
    assert floor == lowest(cuda)


@pytest.mark.parametrize(
    ("cuda", "gpu", "knows"),
    [
        ("11.7", (9, 0), False),
        ("11.8", (9, 0), True),
        ("12.6", (10, 0), False),
        ("12.8", (10, 0), True),
        ("12.8", (12, 0), True),
        ("13.0", (7, 0), False),
    ],
)
def test_hopper_and_blackwell_need_a_new_toolkit(cuda: str, gpu: tuple[int, int], knows: bool) -> None:
    """Hopper 11.8, Blackwell 12.8."""
    fact = toolkits(BUILT_IN).get(version(cuda))

    assert fact is not None
    assert knows is (gpu in fact.value)


@pytest.mark.parametrize(
    ("branch", "cuda"),
    [(470, "11.4"), (535, "12.2"), (550, "12.4"), (565, "12.7"), (580, "13.0"), (999, None)],
)
def test_a_driver_branch_has_a_cuda_version(branch: int, cuda: str | None) -> None:
    """As printed by nvidia-smi; an unknown branch has none."""
    assert cuda == value(cuda_of_branch(BUILT_IN, branch))


@pytest.mark.parametrize(
    ("branch", "cuda", "by"), [(535, "12.2", 535), (620, "13.5", 620), (621, "13.5", 620), (700, "13.5", 620)]
)
def test_a_branch_above_the_newest_known_has_at_least_its_cuda(branch: int, cuda: str, by: int) -> None:
    """Drivers are backward compatible."""
    assert (version(cuda), by) == least_cuda(BUILT_IN, branch)


@pytest.mark.parametrize("branch", [596, 387, 300])
def test_a_branch_between_known_ones_or_with_an_uncertain_cuda_has_no_least_cuda(branch: int) -> None:
    """596 was never released."""
    assert least_cuda(BUILT_IN, branch) is None


@pytest.mark.parametrize(
    ("branch", "kind", "end"),
    [
        (535, "lts", "2026-06"),
        (580, "lts", "2028-06"),
        (595, "production", "2027-03"),
        (610, "new-feature", "2026-08"),
        (615, "new-feature", None),
        (620, "lts", "2029-09"),
    ],
)
def test_a_branch_has_a_kind_and_an_end_of_support(branch: int, kind: str, end: str | None) -> None:
    """A new feature branch may have no announced end."""
    fact = lifecycle_of_branch(BUILT_IN, branch)

    assert fact is not None
    assert (kind, end) == (fact.value.kind, fact.value.end)
    assert fact.certain


def test_the_support_of_an_unknown_branch_is_unknown() -> None:
    """Also of one that is newer than all known ones."""
    assert lifecycle_of_branch(BUILT_IN, 700) is None


@pytest.mark.parametrize(
    ("gpu", "branch"), [((3, 7), 470), ((5, 2), 580), ((6, 0), 580), ((7, 0), 580), ((7, 5), None)]
)
def test_an_old_gpu_has_a_last_driver_branch(gpu: tuple[int, int], branch: int | None) -> None:
    """Up to Volta."""
    fact = last_branch_of(BUILT_IN, gpu)

    assert branch == (fact.value.branch if fact else None)


@pytest.mark.parametrize(
    ("gpu", "branches"),
    [
        ((7, 5), None),
        ((8, 0), (450, 450)),
        ((9, 0), (520, 520)),
        ((10, 0), (570, 560)),
        ((12, 0), (570, 570)),
    ],
)
def test_a_new_gpu_has_a_first_driver_branch(gpu: tuple[int, int], branches: tuple[int, int] | None) -> None:
    """And one from which on drivers have code for its chip."""
    fact = first_branch_of(BUILT_IN, gpu)

    assert branches == ((fact.value.branch, fact.value.chips) if fact else None)


@pytest.mark.parametrize(
    ("major", "driver"), [(11, "450.80.02"), (12, "525.60.13"), (13, "580.65.06"), (10, None)]
)
def test_minor_version_compatibility_has_a_driver_floor(major: int, driver: str | None) -> None:
    """Before CUDA 11 there was none."""
    assert driver == value(minor_version_floor(BUILT_IN, major))


@pytest.mark.parametrize(
    ("cuda", "branch", "works"),
    [
        ("12.4", 535, "True"),
        ("13.0", 570, "True"),
        ("12.4", 580, "False"),
        ("12.4", 550, None),
        ("11.8", 535, None),
    ],
)
def test_forward_compatibility_is_listed_by_driver_branch(cuda: str, branch: int, works: str | None) -> None:
    """It is unknown for branches that NVIDIA no longer lists."""
    assert works == value(forward_compatible(BUILT_IN, version(cuda), branch))


@pytest.mark.parametrize(
    ("cuda", "branch", "before"),
    [
        ("13.5", 570, "13.4"),
        ("14.0", 535, "13.4"),
        ("13.5", 565, None),
        ("13.4", 570, None),
        ("12.7", 535, None),
    ],
)
def test_only_a_cuda_above_the_newest_list_has_one_before(cuda: str, branch: int, before: str | None) -> None:
    """It is asked for branches that the newest list has."""
    previous = listed_before(BUILT_IN, version(cuda), branch)

    assert before == (str(previous) if previous else None)


@pytest.mark.parametrize(
    ("label", "product", "compute", "segment"),
    [
        ("NVIDIA-A100-SXM4-40GB", "A100", "8.0", "datacenter"),
        ("A100-SXM4-40GB", "A100", "8.0", "datacenter"),
        ("A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100", "8.0", "datacenter"),
        ("NVIDIA-A10", "A10", "8.6", "datacenter"),
        ("NVIDIA-A10-SHARED", "A10", "8.6", "datacenter"),
        ("NVIDIA-L4", "L4", "8.9", "datacenter"),
        ("NVIDIA-L40S", "L40S", "8.9", "datacenter"),
        ("NVIDIA-H100-80GB-HBM3", "H100", "9.0", "datacenter"),
        ("Tesla-V100-SXM2-32GB", "V100", "7.0", "datacenter"),
        ("Tesla-V100S-PCIE-32GB", "V100", "7.0", "datacenter"),
        ("Tesla-T4", "T4", "7.5", "datacenter"),
        ("NVIDIA-B200", "B200", "10.0", "datacenter"),
        ("NVIDIA-GeForce-RTX-4090-D", "GeForce RTX 40", "8.9", "consumer"),
        ("GeForce-RTX-2080-Ti", "GeForce RTX 20", "7.5", "consumer"),
        ("NVIDIA-RTX-A6000", "RTX A6000 to A400", "8.6", "workstation"),
        ("NVIDIA-RTX-A2000-12GB", "RTX A6000 to A400", "8.6", "workstation"),
        ("NVIDIA-RTX-A400", "RTX A6000 to A400", "8.6", "workstation"),
        ("NVIDIA-T1000-8GB", "T2000 to T400", "7.5", "workstation"),
        ("NVIDIA-T600", "T2000 to T400", "7.5", "workstation"),
        ("Tesla-T10", "T10", "7.5", "datacenter"),
        ("NVIDIA-A10M", "A10M", "8.6", "datacenter"),
        ("NVIDIA-A30X", "A30X", "8.0", "datacenter"),
        ("NVIDIA-A100X", "A100X", "8.0", "datacenter"),
        ("NVIDIA-GH200-120GB", "GH200", "9.0", "datacenter"),
        ("NVIDIA-GeForce-RTX-2050", "GeForce RTX 30", "8.6", "consumer"),
        ("NVIDIA-GeForce-GTX-1630", "GeForce GTX 16", "7.5", "consumer"),
        ("NVIDIA-GeForce-GTX-1050-Ti", "GeForce GTX 10", "6.1", "consumer"),
        ("NVIDIA-RTX-2000-Ada-Generation", "RTX Ada", "8.9", "workstation"),
        ("NVIDIA-RTX-4000-SFF-Ada-Generation", "RTX Ada", "8.9", "workstation"),
        ("NVIDIA-RTX-PRO-5000-72GB-Blackwell", "RTX PRO Blackwell", "12.0", "workstation"),
        ("Tesla-P6", "P6", "6.1", "datacenter"),
        ("Quadro-GP100", "Quadro GP100", "6.0", "workstation"),
        ("Quadro-P4000", "Quadro P", "6.1", "workstation"),
        ("Tesla-M4", "M4", "5.2", "datacenter"),
        ("Quadro-M4000", "Quadro M4000", "5.2", "workstation"),
        ("Xavier", "Jetson Xavier", "7.2", "jetson"),
        ("NVIDIA-RTX-6000-Ada-Generation", "RTX Ada", "8.9", "workstation"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX PRO 6000 Blackwell", "12.0", "datacenter"),
        (
            "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
            "RTX PRO 6000 Blackwell",
            "12.0",
            "workstation",
        ),
        (
            "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition",
            "RTX PRO 6000 Blackwell",
            "12.0",
            "workstation",
        ),
    ],
)
def test_a_product_label_names_a_model(label: str, product: str, compute: str, segment: str) -> None:
    """With and without the suffixes of drivers, MIG and sharing."""
    model = gpu_model(BUILT_IN, label)

    assert model is not None
    assert (product, compute, segment) == (model.product, str(model.compute), model.segment)


@pytest.mark.parametrize("label", ["", "NVIDIA-", "NVIDIA-A1000", "NVIDIA-L400", "Radeon", "-SHARED", "T40"])
def test_an_unknown_product_has_no_model(label: str) -> None:
    """A similar name is another GPU."""
    assert gpu_model(BUILT_IN, label) is None


def test_a_model_that_nvidia_does_not_list_is_uncertain() -> None:
    """T4G is specific to a cloud provider, and its label was not seen; that of A10G was, with its brand."""
    models = [
        gpu_model(BUILT_IN, "NVIDIA-T4G"),
        gpu_model(BUILT_IN, "NVIDIA-A10G"),
        gpu_model(BUILT_IN, "NVIDIA-A10"),
    ]

    assert [False, True, True] == [model is not None and model.status.certain for model in models]


@pytest.mark.parametrize(
    ("label", "mib"),
    [
        ("NVIDIA-A800-40GB-Active", 40960),
        ("NVIDIA-A800-PCIE-40GB", 40960),
        ("NVIDIA-A800-SXM4-80GB", 81920),
        ("NVIDIA-A800", None),
        ("NVIDIA-GH200-120GB", 98304),
    ],
)
def test_memory_is_that_of_the_data_sheet_or_of_the_name(label: str, mib: int | None) -> None:
    """A800 is sold with 40 and 80 GB; the name of a GH200 has the memory of its CPU."""
    model = gpu_model(BUILT_IN, label)

    assert model is not None
    assert mib == model.memory_mib


def test_a_compute_capability_that_reports_differ_about_is_left_out() -> None:
    """L20Y is reported with 8.9 and with 9.0."""
    model = gpu_model(BUILT_IN, "NVIDIA-L20Y")

    assert model is not None
    assert model.compute is None
    assert capability_of(BUILT_IN, "NVIDIA-L20Y") is None


def test_an_error_number_has_names_and_a_cause() -> None:
    """An unknown one has none."""
    error = cuda_error(35)

    assert error is not None
    assert ("cudaErrorInsufficientDriver", "") == (error.name, error.driver_name)
    assert "CUDA major version is older" in error.cause.en
    assert cuda_error(1234) is None


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_a_source_and_a_status(name: str) -> None:
    """sources.yaml has every source."""
    sources = read_table("sources")
    table_rows = list(rows(read_table(name)))

    assert len(table_rows) > 1
    assert [] == [row for row in table_rows if row["source"] not in sources]
    assert {row["status"] for row in table_rows if "status" in row} <= set(Status)


def test_every_source_is_used() -> None:
    """sources.yaml has no other entries."""
    used = {row["source"] for name in TABLES for row in rows(read_table(name))}
    used |= {extractor.source for extractor in EXTRACTORS}

    assert set(read_table("sources")) == used


def test_a_row_without_a_source_is_uncertain() -> None:
    """General knowledge must never deny a pod."""
    unsourced = [row for name in TABLES for row in rows(read_table(name)) if row["source"] == "none"]

    assert {"unverified"} == {row["status"] for row in unsourced}


def test_a_row_by_hand_takes_precedence_over_a_generated_one() -> None:
    """With its status: a machine never makes an uncertain fact certain."""
    generated = {"cuda": "13.5", "built_for": "9.0", **VERIFIED}
    by_hand = generated | {"built_for": "8.0", "status": "unverified"}
    values = {"toolkits": [by_hand], "toolkit_wheels": [generated, generated | {"cuda": "13.6"}]}
    facts = toolkits(Facts(values.__getitem__))

    assert [((8, 0), False), ((9, 0), True)] == [(fact.value[0], fact.certain) for fact in facts.values()]


def test_the_support_of_a_branch_by_hand_takes_precedence_over_a_generated_row() -> None:
    """Which knows the kind of a newer branch, but not until when it is supported."""
    generated = [{"branch": 620 + more, "kind": "production", **VERIFIED} for more in (0, 5)]
    lifecycle = [{"branch": 620, "kind": "lts", "end": "2029-09", **VERIFIED}]
    values = {"driver_branches": generated, "drivers": {"lifecycle": lifecycle}}
    facts = Facts(values.__getitem__)

    assert [Lifecycle("lts", "2029-09"), Lifecycle("production", None)] == [
        fact.value for branch in (620, 625) if (fact := lifecycle_of_branch(facts, branch))
    ]


def test_a_generated_row_gives_a_newer_branch_its_cuda() -> None:
    """A row by hand takes precedence."""
    generated = [{"branch": branch, "cuda": "13.7", **VERIFIED} for branch in (620, 630)]
    by_hand = [{"branch": branch, "cuda": "13.5", **VERIFIED} for branch in (620, 615)]
    facts = Facts({"driver_redist": generated, "drivers": {"branches": by_hand}}.__getitem__)
    cudas = [fact.value for branch in certain_branches(facts) if (fact := cuda_of_branch(facts, branch))]

    assert [615, 620, 630] == certain_branches(facts)
    assert [(13, 5), (13, 5), (13, 7)] == cudas


def test_profiles_of_gpus_do_not_contradict_the_table_by_hand() -> None:
    """But for GB300, whose profile has the compute capability of GB200."""
    differing = [
        row["product"]
        for row in read_table("gpu_profiles")
        if (model := gpu_model(BUILT_IN, row["label"])) is None or str(model.compute) != row["compute"]
    ]

    assert ["GB300 NVL"] == differing


def test_every_toolkit_lists_its_capabilities_in_order() -> None:
    """The first is the floor."""
    for row in (*read_table("toolkits"), *read_table("toolkit_wheels")):
        listed = [ComputeCapability.parse(word) for word in row["built_for"].split()]

        assert listed == sorted({item for item in listed if item})


def test_all_tables_together_load_in_the_time_of_twenty_loops() -> None:
    """Best of five, about four times as long as it takes; the CLI should start fast."""
    assert min(loops(lambda: [read_table(name) for name in TABLES]) for _ in range(5)) < 20


def test_each_table_that_is_read_of_facts_belongs_to_their_release() -> None:
    """Or a bundle could not change it, and would be accepted with it."""
    paths = [path for folder in ("rules", "webhook") for path in (ROOT / folder).rglob("*.py")]
    texts = [path.read_text("utf-8") for path in paths]
    read = {name for text in texts for name in re.findall(r'\.table\("(\w+)"\)', text)}
    named = [text for text in texts if ".table(_TABLE)" in text]
    read |= {name for text in named for name in re.findall(r'_TABLE: Final = "(\w+)"', text)}

    assert {"drivers", "gpus", "frameworks", "cloud_gpus"} <= read
    assert set() == read - set(RELEASED)


@pytest.mark.parametrize("page", ["docs/facts.md", "docs/zh/facts.md"])
def test_the_documentation_names_each_table_that_a_bundle_does_not_have(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    names = {path.stem for path in FACTS_FOLDER.glob("*.yaml")}

    assert [] == [name for name in sorted(names - {*RELEASED}) if f"`{name}`" not in text]
