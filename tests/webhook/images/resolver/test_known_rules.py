"""Known rules: the resources that count, and the images that need not be read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.builders import resource_rule
from tests.support.fact_builders import bundle, facts_config_map
from tests.support.node_builders import compatibility_rule, image_catalog
from webhook.cluster.reflector import Applied, Deleted, Listed
from webhook.images.resolver.fact_store import NAMES, TIMES_ANNOTATION, Content
from webhook.images.resolver.known_rules import KnownRules, rules_resource

APP = "registry.example.com/team/app:1"


def object_of(text: str, version: int = 1) -> dict[str, Any]:
    """Return a ConfigMap as the API server sends it."""
    document: dict[str, Any] = yaml.safe_load(text)
    document["metadata"]["resourceVersion"] = str(version)
    return document


def known(*texts: str) -> KnownRules:
    """Return what these rules say."""
    rules = KnownRules("kube-public")
    rules.change(Listed([object_of(text) for text in texts]))
    rules.update()
    return rules


def test_the_resources_are_those_of_enabled_compatibility_rules() -> None:
    """Not of resource rules, which are not watched either."""
    rules = known(
        compatibility_rule(name="a", match={"resources": ["nvidia.com/gpu", "nvidia.com/mig-*"]}),
        compatibility_rule(name="b", match={"resources": ["vendor.com/off"]}, enabled="false"),
        resource_rule("vendor.com/device"),
    )

    assert {"nvidia.com/gpu", "nvidia.com/mig-*"} == rules.resources
    assert "gpugate.dev/type in (CompatibilityRule,Facts,ImageCatalog)" == rules_resource("x").selector


def test_a_rule_with_an_error_has_no_effect_until_it_is_corrected() -> None:
    """The others have theirs."""
    good = compatibility_rule(name="b", match={"resources": ["nvidia.com/gpu"]})
    rules = known(compatibility_rule(name="a", sharing="no such"), good)
    before = rules.resources
    rules.change(Applied(object_of(compatibility_rule(name="a", match={"resources": ["x.com/y"]}), 2)))

    assert {"nvidia.com/gpu"} == before
    assert rules.update()
    assert {"nvidia.com/gpu", "x.com/y"} == rules.resources


def test_the_last_good_version_stays_in_force_while_the_newest_has_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of facts too: a broken bundle does not bring the built-in facts back. Each error is logged once."""
    image = "vllm/vllm-openai:v0.6.5"
    facts = facts_config_map(bundle(_without_vllm))
    facts["metadata"]["resourceVersion"] = "1"
    rules = known(compatibility_rule(name="a", match={"resources": ["nvidia.com/gpu"]}))
    rules.change(Applied(facts))
    rules.update()
    rules.change(Applied(object_of(compatibility_rule(name="a", sharing="no such"), 2)))
    rules.change(
        Applied(
            facts | {"data": {"facts.json": "{"}, "metadata": facts["metadata"] | {"resourceVersion": "2"}}
        )
    )
    rules.update()
    rules.change(Applied(object_of(compatibility_rule(name="b"))))
    rules.update()

    assert rules.resources == {"nvidia.com/gpu"}
    assert not rules.is_known(image)
    assert ["ConfigMap a: the previous", f"ConfigMap {facts['metadata']['name']}: the previous"] == [
        message.partition(" version stays in force: ")[0] for message in caplog.messages
    ]


def test_wrong_facts_at_the_start_leave_the_built_in_ones_in_force_and_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    facts = facts_config_map(bundle(_without_vllm)) | {"data": {"facts.json": "{"}}
    facts["metadata"]["resourceVersion"] = "1"
    rules = KnownRules("kube-public")
    rules.change(Listed([facts]))
    rules.update()

    assert rules.is_known("vllm/vllm-openai:v0.6.5")
    (message,) = caplog.messages
    assert message.startswith(f"ConfigMap {facts['metadata']['name']}: not in force: ")


def test_a_deleted_rule_has_no_effect_and_an_unchanged_one_is_no_update() -> None:
    """As rules are listed again after each failure of the watch."""
    text = compatibility_rule(name="a")
    rules = known(text)
    rules.change(Listed([object_of(text)]))
    again = rules.update()
    rules.change(Deleted(object_of(text)))

    assert (False, True, frozenset()) == (again, rules.update(), rules.resources)


@pytest.mark.parametrize(
    ("row", "stated"),
    [
        ({"image": "*/team/app:*", "cuda": "12.4"}, True),
        ({"image": APP, "computeCapabilities": ["8.0"]}, True),
        ({"image": "*/team/other:*", "cuda": "12.4"}, False),
    ],
)
def test_an_image_that_a_catalogue_of_the_cluster_has_is_stated(row: dict[str, Any], stated: bool) -> None:
    """By any fact: a row of the resolver would take precedence over a pattern."""
    rules = known(image_catalog(row, name="ours"))

    assert [stated, stated] == [rules.is_stated(APP), rules.is_known(APP)]


def test_its_own_config_maps_state_nothing() -> None:
    """They are what it has read itself."""
    own = object_of(image_catalog({"image": APP, "cuda": "12.4"}, name=NAMES[3]))
    own["metadata"]["annotations"] = {TIMES_ANNOTATION: "{}"}
    rules = KnownRules("kube-public")
    rules.change(Listed([own]))

    assert (False, False) == (rules.update(), rules.is_stated(APP))
    assert Content(own["data"]["rule.yaml"], "{}") == rules.own()[NAMES[3]]
    assert {Content()} == {content for name, content in rules.own().items() if name != NAMES[3]}


@pytest.mark.parametrize(
    ("image", "is_known"),
    [
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", True),
        ("vllm/vllm-openai:v0.6.5", True),
        ("vllm/vllm-openai:latest", False),  # CUDA 13.0 or newer
        ("pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", False),  # its requirement is unknown
        (APP, False),
    ],
)
def test_an_image_is_known_if_its_cuda_version_and_requirement_are(image: str, is_known: bool) -> None:
    """By the built-in catalogue, and certainly."""
    assert is_known is known().is_known(image)


def _without_vllm(tables: dict[str, Any]) -> None:
    tables["images"] = [row for row in tables["images"] if not row["name"].startswith("vllm/")]


def test_an_image_is_known_by_the_facts_in_force() -> None:
    """As the gate knows it: a ConfigMap of facts replaces the built-in ones, while it is enabled."""
    image = "vllm/vllm-openai:v0.6.5"
    config_map = facts_config_map(bundle(_without_vllm), packed=True)
    config_map["metadata"]["resourceVersion"] = "1"
    rules = KnownRules("kube-public")
    rules.change(Listed([config_map]))
    rules.update()
    with_facts = rules.is_known(image), rules.knows_cuda(image)
    rules.change(Deleted(config_map))
    rules.update()

    assert ((False, False), (True, True)) == (with_facts, (rules.is_known(image), rules.knows_cuda(image)))
