"""NodeProfile files: compiled rules, and errors with their locations."""

from __future__ import annotations

from typing import Any

import pytest

from rules.kube.tolerations import Taint
from rules.model.rule import NodeProfile
from rules.nodes.node_capabilities import NodeCapabilities
from rules.schema.loader import load_rules
from rules.text.i18n import Text
from tests.rules.schema.test_compatibility_rule import INVALID, mistakes, written
from tests.support.invalid_documents import invalid_documents
from tests.support.node_builders import node_profile

VALID = """\
description: {en: H100, zh: H100 节点}
match: {nodeLabels: {karpenter.sh/nodepool: gpu-h100}}
labelsAtCreation: {karpenter.sh/nodepool: gpu-h100, karpenter.k8s.aws/instance-gpu-name: h100}
taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}, {key: slow, effect: PreferNoSchedule}]
offers:
  resources: {nvidia.com/gpu: 8}
  product: NVIDIA-H100-80GB-HBM3
  cuda: "13.0"
  driver: "580.95"
  computeCapability: "9.0"
  memory: 81559
canScale: true
"""
VALUE = "expected at most 63 characters of A-Z, a-z, 0-9, -, _ and ., "
RESTRICTED = " cannot be used: Karpenter ignores pods whose node affinity uses it; remove it"


def profile(text: str) -> NodeProfile:
    """Return the one NodeProfile of a text."""
    loaded = load_rules([("rule.yaml", text)])
    assert [] == [str(error) for error in loaded.errors]
    (rule,) = loaded.rules.profiles
    return rule


def test_a_profile_says_where_its_nodes_are_and_what_they_offer() -> None:
    """All keys."""
    rule = profile(written("NodeProfile", VALID))

    assert ("rule", Text("H100", zh="H100 节点"), True) == (rule.name, rule.description, rule.enabled)
    assert (("karpenter.sh/nodepool", "gpu-h100"),) == rule.match
    assert (
        ("karpenter.sh/nodepool", "gpu-h100"),
        ("karpenter.k8s.aws/instance-gpu-name", "h100"),
    ) == rule.labels
    assert (Taint("nvidia.com/gpu", "present"), Taint("slow", effect="PreferNoSchedule")) == rule.taints
    assert (("nvidia.com/gpu", 8),) == rule.resources
    assert (
        NodeCapabilities(
            cuda=(13, 0),
            driver="580.95",
            compute_capability=(9, 0),
            product="NVIDIA-H100-80GB-HBM3",
            memory_mib=81559,
        )
        == rule.capabilities
    )
    assert rule.can_scale


def test_what_a_profile_does_not_state_is_unknown() -> None:
    """Only the resources are required; the nodes may be added."""
    rule = profile(node_profile())

    assert (NodeCapabilities(), (), True) == (rule.capabilities, rule.taints, rule.can_scale)


def test_a_profile_that_cannot_scale_needs_no_labels_at_creation() -> None:
    """No pod is directed to new nodes."""
    rule = profile(node_profile(labelsAtCreation={}, canScale=False))

    assert ((), False) == (rule.labels, rule.can_scale)


@pytest.mark.parametrize(("document", "errors"), invalid_documents(INVALID / "node_profile.diff"))
def test_an_error_in_a_profile_has_its_location(document: str, errors: list[str]) -> None:
    """Line and column in the document."""
    assert errors == mistakes("NodeProfile", document)


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        ({"cuda": "130"}, "expected a CUDA version such as '12.4', got '130'"),
        ({"cuda": "cu13"}, "expected a CUDA version such as '12.4', got 'cu13'"),
        ({"driver": "58095000"}, "expected a driver version such as '580.95', got '58095000'"),
        ({"driver": "R580"}, "expected a driver version such as '580.95', got 'R580'"),
        ({"computeCapability": "sm_90"}, "expected a compute capability such as '8.0', got 'sm_90'"),
        ({"product": "NVIDIA H100"}, VALUE),
        ({"memory": 85_520_809_984}, "input should be less than or equal to 4194304"),
        ({"resources": {"nvidia.com/*": 8}}, "expected the name of an extended resource, such as "),
        ({"resources": {"cpu": 8}}, "expected a resource name with its domain, such as vendor.com/device"),
    ],
)
def test_an_offer_that_cannot_be_is_an_error(offers: dict[str, Any], message: str) -> None:
    """Versions, memory in bytes, a product that is not a label value, resources that are not extended."""
    (error,) = load_rules([("p", node_profile(**offers))]).errors

    assert error.message.startswith(message)
    assert error.path.startswith("offers")


@pytest.mark.parametrize("key", ["karpenter.sh/registered", "karpenter.sh/initialized", "karpenter.sh/x"])
def test_labels_that_karpenter_sets_itself_are_errors(key: str) -> None:
    """With the reason: it ignores pods that use them."""
    labels = {"karpenter.sh/nodepool": "a", "karpenter.sh/capacity-type": "spot", key: "true"}
    (error,) = load_rules([("p", node_profile(labelsAtCreation=labels))]).errors

    assert f"{key}{RESTRICTED}" == error.message


@pytest.mark.parametrize(
    "keys",
    [
        {"match": {"nodeLabels": {f"k{number}": "a" for number in range(101)}}},
        {"labelsAtCreation": {f"karpenter.sh/k{number}": "a" for number in range(101)}},
        {"taints": [{"key": "a", "effect": "NoExecute"}] * 101},
        {"resources": {f"a.com/r{number}": 1 for number in range(101)}},
    ],
)
def test_a_profile_has_at_most_a_hundred_entries_of_a_kind(keys: dict[str, Any]) -> None:
    """Its labels end up in the affinity of pods; one error."""
    (error,) = load_rules([("p", node_profile(**keys))]).errors

    assert "should have at most 100 items" in error.message
