"""Versions are exact and ordered; an invalid version is None."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion

numbers = st.integers(min_value=0, max_value=99)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("12.4", CudaVersion(12, 4)),
        ("12.4.1", CudaVersion(12, 4)),
        ("12.9.1.012", CudaVersion(12, 9)),
        ("12", CudaVersion(12, 0)),
        (" 13.0\n", CudaVersion(13, 0)),
        ("121", None),
        ("cu121", None),
        ("v12.4", None),
        ("12.", None),
        ("12,4", None),
        (".4", None),
        ("12.4-rc1", None),
        ("-12.4", None),
        ("", None),
        ("١٢.٤", None),
    ],
)
def test_a_cuda_version_is_major_and_minor(text: str, version: CudaVersion | None) -> None:
    """The patch level is ignored; only dotted numbers of two digits are valid."""
    assert version == CudaVersion.parse(text)


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("8.6", ComputeCapability(8, 6)),
        ("8", ComputeCapability(8, 0)),
        ("12.1", ComputeCapability(12, 1)),
        ("86", None),
        ("120", None),
        ("sm_86", None),
        ("8.6+PTX", None),
        ("", None),
    ],
)
def test_a_compute_capability_is_not_an_sm_number(text: str, capability: ComputeCapability | None) -> None:
    """86 is the compilers' notation for 8.6; as a capability it would exclude every GPU."""
    assert capability == ComputeCapability.parse(text)


@pytest.mark.parametrize(
    ("text", "branch"),
    [("535.104.05", 535), ("580", 580), ("570.26", 570), ("535.", None), ("R535", None), ("", None)],
)
def test_a_driver_version_has_a_branch(text: str, branch: int | None) -> None:
    """The branch is the first number; leading zeros stay in the text."""
    driver = DriverVersion.parse(text)

    assert (branch, branch and text) == (driver and driver.branch, driver and str(driver))


def test_minors_compare_as_numbers() -> None:
    """12.10 is after 12.9, and 535.54.03 before 535.104.05."""
    drivers = [DriverVersion.parse("535.104.05"), DriverVersion.parse("535.54.03")]

    assert CudaVersion(12, 10) > CudaVersion(12, 9)
    assert drivers[0] is not None
    assert drivers[1] is not None
    assert drivers[1] < drivers[0]


@given(st.text())
def test_parsing_a_version_never_raises(text: str) -> None:
    """For any text."""
    for kind in (CudaVersion, ComputeCapability, DriverVersion):
        parsed = kind.parse(text)

        assert parsed is None or kind.parse(str(parsed)) == parsed


@given(numbers, numbers)
def test_a_version_parses_its_own_text(major: int, minor: int) -> None:
    """Formatting and parsing are inverse."""
    assert CudaVersion(major, minor) == CudaVersion.parse(str(CudaVersion(major, minor)))


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=3))
def test_versions_are_totally_ordered(pairs: list[tuple[int, int]]) -> None:
    """In the order of the pairs of numbers."""
    versions = [CudaVersion(*pair) for pair in pairs]

    assert [CudaVersion(*pair) for pair in sorted(pairs)] == sorted(versions)


@pytest.mark.parametrize(
    ("gpu", "code", "runs"),
    [
        ((8, 0), (8, 0), True),
        ((8, 9), (8, 0), True),
        ((8, 0), (8, 6), False),
        ((9, 0), (8, 0), False),
        ((10, 3), (10, 0), True),
        ((12, 0), (10, 0), False),
    ],
)
def test_code_runs_on_the_same_major_and_no_lower_minor(
    gpu: tuple[int, int], code: tuple[int, int], runs: bool
) -> None:
    """The rule of binary compatibility in the CUDA programming guide."""
    assert runs == ComputeCapability(*gpu).runs(ComputeCapability(*code))
