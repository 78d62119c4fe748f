"""NVIDIA_REQUIRE_* has the semantics of libnvidia-container, with unknown properties."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rules.cuda.nvidia_require import Constraint, Host, constraints, parse_constraint
from rules.cuda.versions import CudaVersion

# What NVIDIA's CUDA 12.9 images ask for, shortened to two brands and two branches.
NVIDIA = (
    "cuda>=12.9 brand=tesla,driver>=535,driver<536 brand=geforce,driver>=535,driver<536"
    " brand=tesla,driver>=550,driver<551"
)
KNOWN = Host(cuda=(12, 4), driver="550.54.15", arch=(8, 0), brands=("tesla",))

versions = st.lists(st.integers(0, 20), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
factors = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["cuda", "driver", "arch"]),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        versions,
    ),
    st.builds("brand{}{}".format, st.sampled_from(["=", "!="]), st.sampled_from(["tesla", "geforce"])),
)
groups = st.lists(factors, min_size=1, max_size=3).map(",".join)
expressions = st.lists(groups, min_size=1, max_size=3).map(" ".join)
hosts = st.builds(
    Host,
    cuda=st.none() | st.tuples(st.integers(9, 20), st.integers(0, 9)),
    driver=st.sampled_from([None, "10", "12.0", "535.104.05"]),
    arch=st.none() | st.tuples(st.integers(0, 20), st.integers(0, 9)),
    brands=st.sampled_from([(), ("tesla",), ("geforce",)]),
)


def parse(text: str) -> Constraint:
    """Parse a value of NVIDIA_REQUIRE_CUDA."""
    return parse_constraint("NVIDIA_REQUIRE_CUDA", text)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("cuda>=12.4", True),
        ("cuda>=12.5", False),
        ("cuda>12.4", False),
        ("cuda<=12.4", True),
        ("cuda<12.4", False),
        ("cuda=12.4", True),
        ("cuda!=12.4", False),
        ("cuda=12.4.0", True),
        ("cuda>=12.4.1", False),
        ("cuda>=9.10", True),
        ("cuda>=12.", True),
        ("CUDA>=12.4", True),
        ("driver>=535", True),
        ("driver>=550.54.14,driver<551", True),
        ("driver<550.54.15", False),
        ("arch>=8", True),
        ("arch>=8.6", False),
        ("brand=tesla", True),
        ("brand=TESLA", True),
        ("brand!=tesla", False),
        ("brand!tesla", False),
        ("brand=geforce", False),
        ("cuda>=12.4,arch>=9.0", False),
        ("cuda>=13.0 arch>=8.0", True),
        ("cuda>=13.0  driver>=999", False),
        (",cuda>=12.4,", True),
        (", cuda>=13.0", True),
        ("cuda>=13.0 , cuda>=12.0", False),
        (NVIDIA, True),
        ("", True),
        ("  ", True),
    ],
)
def test_a_space_is_or_and_a_comma_is_and(text: str, holds: bool) -> None:
    """A node with CUDA 12.4, driver 550.54.15, compute capability 8.0, a Tesla."""
    assert (holds, None) == (parse(text).holds(KNOWN), parse(text).problem)


@pytest.mark.parametrize(
    ("text", "host", "holds"),
    [
        ("cuda>=12.4", Host(), None),
        ("cuda>=12.4,arch>=8.0", Host(arch=(7, 5)), False),
        ("cuda>=12.4,arch>=8.0", Host(arch=(8, 0)), None),
        ("cuda>=12.4 arch>=8.0", Host(arch=(8, 0)), True),
        ("cuda>=12.4 arch>=8.0", Host(arch=(7, 5)), None),
        ("driver>=535", Host(driver="unreadable"), None),
        (NVIDIA, Host(cuda=(12, 2), driver="535.104.05"), None),
        (NVIDIA, Host(cuda=(12, 2), driver="535.104.05", brands=("tesla",)), True),
        (NVIDIA, Host(cuda=(12, 2), driver="535.104.05", brands=("quadro",)), False),
        (NVIDIA, Host(cuda=(12, 1), driver="530.30.02"), False),
    ],
)
def test_an_unknown_property_is_neither_true_nor_false(text: str, host: Host, holds: bool | None) -> None:
    """Unless the other operands decide."""
    assert holds == parse(text).holds(host)


@pytest.mark.parametrize(
    ("text", "minimum", "native"),
    [
        ("cuda>=12.4", (12, 4), (12, 4)),
        ("cuda=12.4", (12, 4), (12, 4)),
        ("cuda>12.4", (12, 5), (12, 5)),
        ("cuda>=12.4.1", (12, 5), (12, 5)),
        ("cuda>=12", (12, 0), (12, 0)),
        ("cuda>=11.0,cuda>=12.1", (12, 1), (12, 1)),
        ("cuda>=12.1 cuda>=11.4", (11, 4), (11, 4)),
        ("cuda>=11.0,cuda<12", (11, 0), (11, 0)),
        (NVIDIA, None, (12, 9)),
        ("driver>=535 cuda>=12.1", None, (12, 1)),
        ("driver>=535", None, None),
        ("cuda<=12.4", None, None),
        ("", None, None),
    ],
)
def test_a_constraint_can_have_a_minimum_cuda_version(
    text: str, minimum: tuple[int, int] | None, native: tuple[int, int] | None
) -> None:
    """It has none if a driver can satisfy a group; `native` is set in both cases."""
    constraint = parse(text)

    assert (minimum, native) == (constraint.minimum, constraint.native)


@pytest.mark.parametrize(
    "text",
    [
        "cuda>==12.4",
        "cuda==12.4",
        "cuda=>12.4",
        "cuda>=",
        "cuda",
        ">=12.4",
        "12.4",
        "cuda>=v12.4",
        "cuda>=12.x",
        "cuda>=.4",
        "cuda>=" + "9" * 5000,
        "cudnn>=8",
        "brand>=tesla",
        "cuda>=12.4 brand~tesla",
        "cuda>=12.4\tdriver>=535",
        "cuda>=12.4 " * 2000,
    ],
)
def test_an_invalid_variable_requires_nothing_and_has_a_problem(text: str) -> None:
    """The container runtime fails on it, on every node, so it excludes no node."""
    constraint = parse(text)

    assert (True, None, None) == (constraint.holds(Host(cuda=(1, 0))), constraint.minimum, constraint.native)
    assert constraint.problem is not None
    assert constraint.problem.en.startswith("NVIDIA_REQUIRE_CUDA: `" + text[:20])
    assert constraint.problem.en.endswith("write it as `cuda>=12.4`")
    assert len(constraint.problem.zh) < 200


def test_all_variables_must_be_satisfied() -> None:
    """Every NVIDIA_REQUIRE_* is used, except those for Jetson."""
    env = {
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.4",
        "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS": "base-only",
        "NVIDIA_REQUIRE_DRIVER": "driver>=550",
        "OTHER": "cuda>=99",
    }

    assert ["cuda>=12.4", "driver>=550"] == [constraint.text for constraint in constraints(env)]


@pytest.mark.parametrize(
    ("value", "count"),
    [("true", 0), ("1", 0), ("T", 0), ("TRUE", 0), ("false", 1), ("yes", 1), ("tRue", 1), ("", 1)],
)
def test_requirements_can_be_disabled(value: str, count: int) -> None:
    """By the values that are true in Go's ParseBool, and no others."""
    env = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "NVIDIA_DISABLE_REQUIRE": value}

    assert count == len(constraints(env))


@given(st.text(max_size=80) | st.text(alphabet="cudarivebn<>=!., 0129", max_size=40), hosts)
def test_parsing_never_raises(text: str, host: Host) -> None:
    """A constraint with a problem requires nothing."""
    constraint = parse(text)

    assert constraint.problem is None or constraint.holds(host) is True


@given(expressions, expressions, hosts)
def test_a_space_between_two_expressions_is_or(one: str, other: str, host: Host) -> None:
    """True if one is, false if both are, else unknown."""
    answers = {parse(one).holds(host), parse(other).holds(host)}
    expected = True if True in answers else None if None in answers else False

    assert expected is parse(f"{one} {other}").holds(host)


@given(groups, groups, hosts)
def test_a_comma_between_two_groups_is_and(one: str, other: str, host: Host) -> None:
    """False if one is, true if both are, else unknown."""
    answers = {parse(one).holds(host), parse(other).holds(host)}
    expected = False if False in answers else None if None in answers else True

    assert expected is parse(f"{one},{other}").holds(host)


@given(expressions, hosts)
def test_a_gpu_of_one_of_two_brands_satisfies_what_it_does_with_either(text: str, host: Host) -> None:
    """The brand of a T4 depends on its driver; if the two differ, it is unknown."""
    constraint = parse(text)
    one, other = (constraint.holds(replace(host, brands=(brand,))) for brand in ("tesla", "nvidia"))

    assert (one if one is other else None) is constraint.holds(replace(host, brands=("tesla", "nvidia")))


@given(expressions, hosts, hosts)
def test_more_facts_about_a_node_never_invert_a_result(text: str, known: Host, more: Host) -> None:
    """None can become True or False; True and False stay."""
    filled = Host(
        cuda=known.cuda or more.cuda,
        driver=known.driver or more.driver,
        arch=known.arch or more.arch,
        brands=known.brands or more.brands,
    )
    before = parse(text).holds(known)

    assert before is None or before is parse(text).holds(filled)


@given(expressions)
def test_no_node_below_the_minimum_satisfies(text: str) -> None:
    """With any driver, GPU and brand."""
    constraint = parse(text)
    below = [
        Host(cuda=CudaVersion(major, minor), driver=driver, arch=(8, 0), brands=(brand,))
        for major, minor in product(range(21), (0, 5, 20))
        for driver, brand in product(["10", "535.104.05"], ["tesla", "geforce"])
        if constraint.minimum and (major, minor) < constraint.minimum
    ]

    assert True not in {constraint.holds(host) for host in below}


@given(versions, versions)
def test_versions_compare_as_numbers_with_trailing_zeros_equal(one: str, other: str) -> None:
    """As in libnvidia-container."""
    version = [int(part) for part in one.split(".")]
    required = [int(part) for part in other.split(".")]
    length = max(len(version), len(required))
    version += [0] * (length - len(version))
    required += [0] * (length - len(required))
    host = Host(driver=one)

    assert (version >= required) is parse(f"driver>={other}").holds(host)
    assert (version == required) is parse(f"driver={other}").holds(host)
    assert (version < required) is parse(f"driver<{other}").holds(host)
