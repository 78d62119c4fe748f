"""A release of facts is a rule: a ConfigMap with a bundle, which replaces the built-in facts as a whole."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from typing import Any

import pytest

from rules import Inventory, RuleSet, compile_policy, load_rules
from rules.cuda.fact_bundle import MAX_BYTES
from rules.cuda.tables import BUILT_IN, gpu_model
from tests.support.fact_builders import DATE, bundle, facts_config_map, with_gpu
from tests.support.node_builders import node


def read(*config_maps: dict[str, Any]) -> RuleSet:
    """Return the rules of valid ConfigMaps."""
    loaded = load_rules([(f"map {at}", config_map) for at, config_map in enumerate(config_maps)])
    assert () == loaded.errors
    return loaded.rules


def errors(*config_maps: dict[str, Any]) -> list[str]:
    """Return why ConfigMaps are refused."""
    loaded = load_rules([(f"map {at}", config_map) for at, config_map in enumerate(config_maps)])
    return [str(error) for error in loaded.errors]


@pytest.mark.parametrize("packed", [False, True])
def test_a_bundle_in_a_config_map_replaces_the_facts(packed: bool) -> None:
    rules = read(facts_config_map(bundle(with_gpu), packed=packed))
    facts = compile_policy(rules).facts
    model = gpu_model(facts, "NVIDIA-X1")

    assert DATE == facts.date
    assert (None, "X1") == (gpu_model(BUILT_IN, "NVIDIA-X1"), model and model.product)


def test_a_release_that_is_switched_off_changes_nothing() -> None:
    config_map = facts_config_map(bundle(with_gpu))
    config_map["metadata"]["labels"]["gpugate.dev/enabled"] = "false"

    assert BUILT_IN is compile_policy(read(config_map)).facts


def test_nodes_are_judged_by_the_facts_of_the_policy() -> None:
    facts = compile_policy(read(facts_config_map(bundle(with_gpu)))).facts
    inventory = Inventory().with_node(node("new", {"nvidia.com/gpu.product": "NVIDIA-X1"}))
    kinds = inventory.with_facts(facts).classes(inventory.everything)

    assert [(11, 0)] == [kind.capabilities.gpu_capability for kind in kinds]


def test_what_is_wrong_in_a_bundle_has_its_place() -> None:
    def wrong(tables: dict[str, Any]) -> None:
        tables["drivers"]["branches"][-1]["cuda"] = "thirteen"

    (error,) = errors(facts_config_map(bundle(wrong)))
    last = len(json.loads(bundle())["tables"]["drivers"]["branches"]) - 1

    assert (
        f"map 0: data[facts.json]: tables.drivers.branches[{last}].cuda: 'thirteen' is not a version" == error
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"data": {}}, "map 0: data: required key 'facts.json' is missing"),
        (
            {"data": {"facts.jsn": "{}"}},
            "map 0: data[facts.jsn]: unknown key 'facts.jsn' – did you mean 'facts.json'?",
        ),
        ({"data": {"facts.json": "{"}}, "map 0: data[facts.json]: 1:2: not JSON: "),
        ({"binaryData": {"facts.json.gz": "?"}}, "map 0: binaryData[facts.json.gz]: not gzip in base64: "),
    ],
    ids=["no bundle", "a misspelt key", "no JSON", "no base64"],
)
def test_a_config_map_without_a_bundle_that_can_be_read_is_refused(
    change: dict[str, Any], expected: str
) -> None:
    config_map = {**facts_config_map(bundle()), "data": {}, **change}

    assert errors(config_map)[0].startswith(expected)


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused_before_all_of_it_is_unpacked() -> None:
    bomb = b64encode(gzip.compress(b" " * 20 * MAX_BYTES)).decode()
    config_map = {**facts_config_map("{}"), "data": {}, "binaryData": {"facts.json.gz": bomb}}

    assert ["map 0: binaryData[facts.json.gz]: larger than 2,097,152 bytes"] == errors(config_map)


def test_of_two_releases_none_is_in_force() -> None:
    """It is unknown which one is meant; each is reported."""
    place, advice = "metadata.labels[gpugate.dev/type]", "keep one rule, or disable the others by label"

    assert [
        f"map 0: {place}: 'Facts' is also used by others (map 1); {advice}",
        f"map 1: {place}: 'Facts' is also used by gpugate-facts (map 0); {advice}",
    ] == errors(facts_config_map(bundle()), facts_config_map(bundle(), name="others"))


def test_a_pattern_that_could_stop_the_gate_is_an_error_at_its_place_in_the_config_map() -> None:
    """It is `(?:a|a)*!`; the same texts match `a*!`, as its message says."""
    slow = bundle(lambda tables: tables["images"][0].update(tag="(?:a|a)*!"))
    fast = bundle(lambda tables: tables["images"][0].update(tag="a*!"))

    (error,) = errors(facts_config_map(slow))
    assert error.startswith("map 0: data[facts.json]: tables.images[0].tag: matching this regular expression")
    assert [] == errors(facts_config_map(fast))
