"""Amounts of GPU memory, and what containers request of it."""

from __future__ import annotations

import pytest

from rules.cuda.gpu_memory import RequestedMemory, parse_memory, requested_memory, shown
from rules.cuda.tables import read_table
from rules.kube.json_patch import Recorder
from rules.kube.pod import Container, ContainerKind
from rules.kube.quantity import parse_quantity
from tests.support.node_builders import shipped_rules


def requested(**limits: str) -> RequestedMemory | None:
    """Return the memory that a container with these limits requests."""
    raw = {"name": "main", "resources": {"limits": limits}}
    return requested_memory(Container(raw, (), ContainerKind.REGULAR, Recorder(raw)))


@pytest.mark.parametrize(
    ("text", "mib"), [("40Gi", 40960), ("40G", 38147), ("24564Mi", 24564), ("1048577", 2), ("4Ti", 4194304)]
)
def test_an_amount_is_rounded_up_to_mib(text: str, mib: int) -> None:
    """Any quantity of Kubernetes."""
    assert mib == parse_memory(text)


@pytest.mark.parametrize("text", ["40", "", "40GB", "-1Gi", "5Ti", "nan"])
def test_what_no_gpu_has_is_no_amount(text: str) -> None:
    """Less than 1 MiB, or more than 4 TiB."""
    assert parse_memory(text) is None


def test_an_amount_is_shown_in_the_unit_that_divides_it() -> None:
    """As users write it."""
    assert ["40Gi", "24564Mi"] == [shown(40960), shown(24564)]


def test_the_units_are_those_of_the_built_in_rules() -> None:
    """A rule without a unit leaves it to the system that offers the resource."""
    units = {rule.key: rule.unit for rule in shipped_rules().resources}
    rows = {name: row for row in read_table("gpu_memory") for name in row["names"]}

    assert rows.keys() <= units.keys()
    assert {name: units[name] for name in rows if units[name]} == {
        name: row["unit"] for name, row in rows.items() if units[name]
    }
    assert {"aliyun.com/gpu-mem", "koordinator.sh/gpu-memory", "nvidia.com/mig-*"} == {
        name for name in rows if not units[name]
    }


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("nvidia.com/mig-1g.5gb", 5632),
        ("nvidia.com/mig-1c.3g.20gb", 20992),
        ("nvidia.com/mig-1g.10gb.me", 10752),
        ("nvidia.com/mig-balanced", None),
    ],
)
def test_the_name_of_a_mig_profile_says_its_memory_rounded_to_gib(name: str, mib: int | None) -> None:
    """So the slice has half a GiB more at most."""
    requested_amounts = requested(**{name: "1"})

    assert mib == (requested_amounts.mib if requested_amounts else None)


def test_memory_takes_precedence_over_a_share_in_percent() -> None:
    """As in Volcano's scheduler: the percentage counts only without memory."""
    memory = {"volcano.sh/vgpu-memory": "1000"}

    assert requested(**memory) is not None
    assert requested(**memory) == requested(**memory | {"volcano.sh/vgpu-memory-percentage": "50"})
    assert requested(**{"volcano.sh/vgpu-memory-percentage": "50"}) is None


def test_zero_requests_nothing_and_fractions_are_rounded_up() -> None:
    """The next resource counts."""
    requested_amounts = requested(**{"nvidia.com/gpumem": "0", "tencent.com/vcuda-memory": "1500m"})

    assert requested_amounts is not None
    assert ("tencent.com/vcuda-memory", 384, True) == (
        requested_amounts.resource,
        requested_amounts.mib,
        requested_amounts.certain,
    )
    assert "160" == requested_amounts.amount_for(40960)
    assert int(parse_quantity("256Mi")) == requested_amounts.unit
