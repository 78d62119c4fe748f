"""The time for a rule ConfigMap is bounded, whatever it holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import yaml

from rules import AdmissionRequest, Decision
from rules.schema.config_map import MOST_VALUES
from tests.support.cpu_time import loops
from webhook.admission.rule_configmap import validate_rule

NAMESPACE = "kube-public"
ENV = "inject:\n  env:\n  - {name: A, value: b}\n"


def config_map(text: str, kind: str = "InjectionRule", **metadata: Any) -> dict[str, Any]:
    """Return the ConfigMap of a rule with this text."""
    labels = {"gpugate.dev/type": kind, "gpugate.dev/enabled": "true"}
    named = {"name": "rule", "namespace": NAMESPACE, "labels": labels} | metadata
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {"rule.yaml": text}}


def decided(document: dict[str, Any]) -> Decision:
    """Return the decision on the creation of a ConfigMap, without other rules."""
    return validate_rule(AdmissionRequest("CREATE", "", "ConfigMap", NAMESPACE, document), (), NAMESPACE, 0)


def lines(head: str, entry: str, count: int, tail: str = ENV) -> str:
    """Return a rule with a list of so many entries; entry: with the number as {}."""
    return head + "".join(entry.format(number) + "\n" for number in range(count)) + tail


RESOURCES = "match:\n  resources:\n"
CONDITIONS = "match:\n  resources: [vendor.com/d]\n  conditions:\n"
EXEMPTION = "reason: a\nexpires: 2099-01-01\nrules:\n"
# Objects merged into each other, two into each: 2,047 for a search of a key that is in the last one.
MERGED = (
    "a0: &a0 {}\n"
    + "".join(f"a{at}: &a{at} {{<<: [*a{at - 1}, *a{at - 1}]}}\n" for at in range(1, 10))
    + f"x: &x {{{', '.join(f'k{at}: 1' for at in range(99))}}}\ninject: {{<<: [*a9, *x]}}\n"
)

WORST = {
    "unknown keys": config_map(lines("", "key{}: 1", MOST_VALUES // 2 - 100, "")),
    "duplicate keys": config_map("a: 1\n" * (MOST_VALUES // 2 - 100)),
    "lists in lists": config_map(f"a: [{'[[[[1]]]],' * (MOST_VALUES // 5 - 100)}]"),
    "documents": config_map("---\n" * (MOST_VALUES - 100)),
    "resources": config_map(lines(RESOURCES, "  - vendor.com/*d{}*", 10_000)),
    "conditions": config_map(lines(CONDITIONS, "  - \"limits['vendor.com/d'] > {}\"", 10_000)),
    "exempted rules": config_map(lines(EXEMPTION, "- a*{}*b", 10_000, ""), "Exemption"),
    "aliases of merged objects": config_map(MERGED),
    "merged objects": config_map(f"inject: {{<<: [{','.join(f'{{k{at}: 1}}' for at in range(9000))}]}}"),
    "images": config_map(
        lines("images:\n", "- {{image: '*app{}:*', cuda: '12.4'}}", 4500, ""), "ImageCatalog"
    ),
    "regexes": config_map(
        lines("images:\n", "- {{regex: 'app{}:[0-9]+', cuda: '12.4'}}", 4500, ""), "ImageCatalog"
    ),
    "labels": config_map(
        "", labels={"gpugate.dev/type": "InjectionRule", **{f"k{at}": "v" for at in range(9000)}}
    ),
    "a long line": config_map(f"a: '{chr(39) * 400_000}'"),
}


@pytest.mark.parametrize("what", list(WORST))
def test_the_time_for_a_rule_config_map_is_bounded(what: str) -> None:
    """0.7 s on a usual core; the loop takes about a hundredth. Twice that is for busy machines."""
    assert 140 > loops(partial(decided, WORST[what]))


OVERSIZED: dict[str, dict[str, Any]] = {
    "a list": config_map("- 1\n" * MOST_VALUES),
    "a line": config_map(f"a: [{'1,' * MOST_VALUES}]"),
    "keys of data": config_map("") | {"data": {f"k{at}": "v" for at in range(MOST_VALUES)}},
    "annotations": config_map("", annotations={f"k{at}": "v" for at in range(MOST_VALUES)}),
    "other metadata": config_map("", ownerReferences=[{}] * MOST_VALUES),
}


@pytest.mark.parametrize("what", list(OVERSIZED))
def test_a_rule_config_map_with_too_many_values_is_denied_before_it_is_read(what: str) -> None:
    """By the size limit, with the bound; the time is that of counting."""
    decision = decided(OVERSIZED[what])

    assert (
        "ConfigMap denied by gpugate: the ConfigMap has more than 40,000 values; gpugate reads no more of"
        " one. Split it into several [rule size-limit]"
    ) == decision.denial.en
    assert 10 > loops(partial(decided, OVERSIZED[what]))


def test_a_rule_config_map_above_what_kubernetes_stores_is_denied_before_it_is_read() -> None:
    """The API server asks first and checks the size afterwards."""
    large = config_map(f"a: '{'x' * 6_000_000}'")

    assert "the ConfigMap is larger than 1 MiB, the most that Kubernetes stores" in decided(large).denial.en
    assert 10 > loops(partial(decided, large))


def test_managed_fields_are_not_counted() -> None:
    """The API server writes them, and they are not read."""
    fields: Sequence[Any] = [{"fieldsV1": {f"f:k{at}": {} for at in range(MOST_VALUES)}}]
    rule = config_map(f"match: {{resources: [vendor.com/d]}}\n{ENV}", managedFields=fields)

    assert decided(rule).allowed


def test_a_full_config_map_of_the_image_resolver_is_allowed() -> None:
    """500 images for two platforms each, with the longest requirement of NVIDIA's images."""
    require = "cuda>=12.4 " + " ".join(f"brand=tesla,driver>={at},driver<{at + 1}" for at in range(450, 470))
    rows = [
        {"image": f"registry.example.com/team/app:{at}", "digest": f"sha256:{at:064x}", "cuda": "12.4"}
        | {"platforms": [platform], "require": {"NVIDIA_REQUIRE_CUDA": require}}
        for at in range(250)
        for platform in ("linux/amd64", "linux/arm64")
    ]
    for text in (json.dumps({"images": rows}), yaml.safe_dump({"images": rows})):
        assert "" == decided(config_map(text, "ImageCatalog")).denial.en


def test_more_regexes_than_the_limit_are_denied() -> None:
    """Each is compiled, and compared with the image of each container."""
    few, many = (
        decided(
            config_map(
                lines("images:\n", "- {{regex: 'app{}:[0-9]+', cuda: '12.4'}}", at, ""), "ImageCatalog"
            )
        )
        for at in (256, 257)
    )

    assert "" == few.denial.en
    assert "more than 256 images with `regex`" in many.denial.en
