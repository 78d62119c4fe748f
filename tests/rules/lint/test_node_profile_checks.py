"""Lint warns about node profiles that contradict themselves or another profile."""

from __future__ import annotations

from typing import Any

import pytest

from rules.lint.rule_set_checks import lint, rule_set_warnings
from rules.text.i18n import Language
from tests.support.builders import loaded
from tests.support.node_builders import node_profile

H100: dict[str, Any] = {"product": "NVIDIA-H100-80GB-HBM3", "cuda": "13.0"}
NOW = 0.0


def warned(*texts: str) -> list[str]:
    """Return code, rule and path of each warning; the rules must be valid."""
    read = lint(((f"{number}.yaml", text) for number, text in enumerate(texts)), NOW)
    assert () == read.errors
    return [f"{warning.code} {warning.rule} {warning.path}" for warning in read.warnings]


def message(text: str, language: Language = Language.EN) -> str:
    """Return the one warning about a rule."""
    (warning,) = lint([("a.yaml", text)], NOW).warnings
    return warning.text.in_language(language)


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        (H100, []),
        ({"cuda": "13.0"}, []),
        ({"product": "Prototype"}, []),
        ({}, ["nothing-known profile offers"]),
        (H100 | {"computeCapability": "9.0", "driver": "580.95"}, []),
        (H100 | {"computeCapability": "8.0"}, ["contradiction profile offers.computeCapability"]),
        (H100 | {"product": "Prototype", "computeCapability": "8.0"}, []),
        (H100 | {"driver": "570.26"}, ["contradiction profile offers.cuda"]),
        (H100 | {"driver": "9999"}, ["contradiction profile offers.cuda"]),
        (H100 | {"driver": "9999", "cuda": "13.5"}, []),
        (H100 | {"driver": "9999", "cuda": "14.2"}, []),
        (H100 | {"driver": "596"}, []),
    ],
)
def test_a_profile_that_contradicts_known_facts_is_reported(
    offers: dict[str, Any], expected: list[str]
) -> None:
    """By the tables of products and drivers; what these do not know contradicts nothing."""
    assert expected == warned(node_profile(**offers))


def test_a_newer_driver_than_all_known_ones_has_at_least_the_cuda_of_the_newest() -> None:
    """An older one contradicts it."""
    assert "driver 9999 has at least CUDA 13.5, not 13.0; correct the one or the other" == message(
        node_profile(**H100 | {"driver": "9999"})
    )


def test_the_messages_say_what_to_write() -> None:
    """The value of the table."""
    compute = node_profile(**H100, computeCapability="8.0")

    assert (
        'NVIDIA-H100-80GB-HBM3 has compute capability 9.0, not 8.0; write "9.0", or correct the product'
        == message(compute)
    )


def test_profiles_with_equal_labels_and_different_offers_are_reported() -> None:
    """At each of them; a pod cannot choose between them."""
    one, same = node_profile(name="one", **H100), node_profile(name="same", **H100)
    other = node_profile(name="other", **H100 | {"resources": {"nvidia.com/gpu": 4}})
    elsewhere = node_profile(name="elsewhere", labelsAtCreation={"pool": "b"}, cuda="12.4")
    disabled = node_profile(name="disabled", enabled="false", cuda="12.4")

    assert [] == warned(one, same, elsewhere, disabled)
    assert ["contradiction one labelsAtCreation", "contradiction other labelsAtCreation"] == warned(
        one, other
    )
    assert ["contradiction one labelsAtCreation", "contradiction other labelsAtCreation"] == warned(
        one, same, other
    )


def test_a_contradiction_is_found_from_either_side() -> None:
    """As the webhook checks the rule that is applied."""
    rules = loaded(node_profile(name="a", **H100), node_profile(name="b", cuda="12.4")).rules
    warned_rules = {
        name: [rule_set_warning.rule for rule_set_warning in rule_set_warnings(rules, NOW, [name])]
        for name in "ab"
    }

    assert {"a": ["a"], "b": ["b"]} == warned_rules
