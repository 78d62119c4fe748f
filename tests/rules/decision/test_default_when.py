"""Conditions of defaults: what is set depends on what else a container requests."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.pipeline import Snapshot, decide
from rules.nodes.inventory_document import inventory_of
from tests.support.builders import container, pod, policy, request, resource_rule
from tests.support.paths import ROOT

NONE = inventory_of([])
MEMORY, PERCENTAGE, CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
RULES = (
    resource_rule("nvidia.com/gpu"),
    resource_rule(MEMORY, defaultValue="4096", defaultWhen=f"!('{PERCENTAGE}' in limits)"),
    resource_rule(PERCENTAGE),
    resource_rule(
        CORES,
        defaultValue="100",
        defaultWhen=f"'{PERCENTAGE}' in limits && limits['{PERCENTAGE}'] == 100",
    ),
)


def defaults(limits: dict[str, Any], *rules: str) -> dict[str, str]:
    """Return what a container with these limits gets, by resource."""
    document = pod(container(limits=limits))
    decided = decide(Snapshot(policy(*rules or RULES), NONE), request(document), 0)
    assert decided.allowed
    values = {operation["path"].rpartition("/")[2]: operation["value"] for operation in decided.patch}
    return {name.replace("~1", "/"): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"nvidia.com/gpu": "1"}, {MEMORY: "4096"}),
        ({"nvidia.com/gpu": "1", MEMORY: "3000"}, {}),
        ({"nvidia.com/gpu": "1", PERCENTAGE: "50"}, {}),
        ({"nvidia.com/gpu": "1", PERCENTAGE: "100"}, {CORES: "100"}),
        ({"nvidia.com/gpu": "1", PERCENTAGE: "100", CORES: "30"}, {}),
    ],
)
def test_memory_is_set_only_without_a_percentage_and_cores_with_all_memory(
    limits: dict[str, Any], expected: dict[str, str]
) -> None:
    """A value of the container is kept."""
    assert expected == defaults(limits)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"nvidia.com/priority": "0"}, {}),
        ({"nvidia.com/priority": "0", CORES: "30"}, {"nvidia.com/gpu": "1"}),
        ({CORES: "30"}, {"nvidia.com/gpu": "1"}),
    ],
)
def test_a_priority_alone_sets_no_number_of_gpus(limits: dict[str, Any], expected: dict[str, str]) -> None:
    """By HAMi's built-in rules, if the one of the number is enabled."""
    folder = ROOT / "rules" / "catalog" / "hami"
    rules = [(folder / f"{name}.yaml").read_text("utf-8") for name in ("gpu", "gpucores", "priority")]

    assert expected == defaults(limits, *(rule.replace('"false"', '"true"') for rule in rules))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"nvidia.com/gpualloc": "1"}, {MEMORY: "5000"}),
        ({"nvidia.com/gpualloc": "1", MEMORY: "3000"}, {}),
        ({"nvidia.com/gpualloc": "1", PERCENTAGE: "50"}, {}),
        ({"nvidia.com/gpualloc": "1", PERCENTAGE: "100"}, {CORES: "100"}),
        ({"nvidia.com/gpualloc": "1", PERCENTAGE: "100", CORES: "30"}, {}),
        ({CORES: "30"}, {MEMORY: "5000"}),
        ({"nvidia.com/priority": "0"}, {}),
    ],
)
def test_hamis_rules_set_memory_and_cores_if_a_default_is_added(
    limits: dict[str, Any], expected: dict[str, str]
) -> None:
    """They have the conditions; as they are, HAMi's own defaults apply."""
    values = {"gpualloc": "", "gpumem": "5000", "gpumem-percentage": "", "gpucores": "100", "priority": ""}
    folder = ROOT / "rules" / "catalog" / "hami"
    built_in = {name: (folder / f"{name}.yaml").read_text("utf-8") for name in values}
    added = [
        built_in[name].replace("  dataType:", f'  defaultValue: "{value}"\n  dataType:')
        if value
        else built_in[name]
        for name, value in values.items()
    ]

    assert expected == defaults(limits, *added)
    assert {} == defaults(limits, *built_in.values())


def test_a_condition_that_cannot_be_evaluated_sets_nothing_and_is_told() -> None:
    """It reads a limit that the container does not have."""
    rules = (
        resource_rule("nvidia.com/gpu"),
        resource_rule(CORES, defaultValue="100", defaultWhen=f"limits['{PERCENTAGE}'] == 100"),
    )
    document = pod(container(limits={"nvidia.com/gpu": "1"}))

    decided = decide(Snapshot(policy(*rules), NONE), request(document), 0)

    assert (True, ()) == (decided.allowed, decided.patch)
    (line,) = decided.warning_lines
    assert "cores" in line.en
    assert "no such key" in line.en
