"""DeviceTaintRules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from rules.kube.tolerations import Taint
from rules.nodes.devices.devices import KindPool
from rules.nodes.devices.slices import DeviceInventory, TaintRules, read_slice, read_taint_rule
from tests.support.broken_json import JSON, broken
from tests.support.dra_builders import GPU_DRIVER, device, resource_slice, taint_rule


def taints(*rules: dict[str, Any], device_taints: tuple[dict[str, str], ...] = ()) -> dict[str, list[str]]:
    """Return the taints of the devices `a` of pool `one`, and `a` and `b` of pool `two`, by pool and name."""
    devices = [device(name) | {"taints": list(device_taints)} for name in "ab"]
    slices = [resource_slice("one", devices[:1]), resource_slice("two", devices)]
    read = [read_slice(document, KindPool())[0] for document in slices]
    applied = TaintRules(filter(None, map(read_taint_rule, rules))).applied
    return {
        f"{tainted_slice.pool}/{name}": list(map(str, kind.taints))
        for tainted_slice in map(applied, filter(None, read))
        for name, kind in tainted_slice.devices
    }


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({}, ["one/a", "two/a", "two/b"]),
        ({"driver": GPU_DRIVER}, ["one/a", "two/a", "two/b"]),
        ({"pool": "two"}, ["two/a", "two/b"]),
        ({"device": "a"}, ["one/a", "two/a"]),
        ({"driver": GPU_DRIVER, "pool": "two", "device": "b"}, ["two/b"]),
        ({"driver": "other.example.com"}, []),
        ({"pool": "three"}, []),
        (None, []),  # a rule without a selector
        ({"pool": 2}, []),
    ],
)
def test_a_rule_taints_the_devices_that_it_names(selector: Any, tainted: list[str]) -> None:
    taints_by_device = taints(taint_rule(selector))
    assert tainted == [name for name, values in taints_by_device.items() if values == ["broken:NoSchedule"]]


def test_taints_of_several_rules_and_of_the_device_itself_are_added_once() -> None:
    rules = taint_rule({"pool": "one"}), taint_rule({"device": "a"}), taint_rule({}, key="old", value="yes")
    own = {"key": "old", "value": "yes", "effect": "NoSchedule"}
    assert ["old=yes:NoSchedule", "broken:NoSchedule"] == taints(*rules, device_taints=(own,))["one/a"]


@pytest.mark.parametrize(("effect", "number"), [("NoSchedule", 1), ("NoExecute", 1), ("None", 0), ("New", 0)])
def test_only_effects_that_keep_devices_from_claims_count(effect: str, number: int) -> None:
    assert number == len(taints(taint_rule({}, effect=effect))["one/a"])


def test_devices_that_rules_taint_alike_are_of_one_kind_and_others_stay_as_they_are() -> None:
    document = resource_slice("h", [device("gpu-0"), device("gpu-1"), device("gpu-2")])
    read, _ = read_slice(document, KindPool())
    assert read
    rules = [read_taint_rule(taint_rule({"device": f"gpu-{number}"})) for number in range(2)]
    after = DeviceInventory([TaintRules(filter(None, rules)).applied(read)])
    assert {(Taint("broken"),): 2, (): 1} == {
        kind.taints: number for kind, number in after.by_node["h"].items()
    }


@given(JSON)
def test_any_json_is_read(document: Any) -> None:
    read_taint_rule(document)


@given(broken(taint_rule({"pool": "one"})))
def test_a_broken_rule_is_read(document: Any) -> None:
    read_taint_rule(document)
