"""Resources that may be misspelt: those that are told, and those of which nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.policy import compile_policy
from rules.schema.loader import DEFAULT_NAMESPACE
from rules.text.i18n import Language
from tests.support.builders import container, injection_rule, loaded, pod, request, resource_rule
from webhook.cli.input.files import RuleSource
from webhook.cli.input.hints import Hints

SHIPPED = RuleSource(DEFAULT_NAMESPACE).load([]).rules
HINTS = Hints(SHIPPED, compile_policy(SHIPPED))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvida.com/gpu", "nvidia.com/gpu"),
        ("NVIDIA.com/GPU", "nvidia.com/gpu"),
        ("nvidia.com/gpu-memory", "nvidia.com/vgpu-memory"),
        ("nvidia.com/mig1g.5gb", "nvidia.com/mig-*"),
        ("tencent.com/vcuda-cores", "tencent.com/vcuda-core"),
    ],
)
def test_a_resource_that_is_spelt_almost_as_one_that_a_rule_is_for_is_told(name: str, meant: str) -> None:
    (hint,) = HINTS.of(request(pod(container({name: 1}))))

    assert (f"container 'main' asks for {name}, which no rule here is for – did you mean {meant!r}?") == hint


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "nvidia.com/gpu",
        "nvidia.com/mig-7g.80gb",
        "rdma/hca_shared_devices_a",
        "smarter-devices/fuse",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "habana.ai/gaudi",
        "intel.com/qat",
        "example.com/gpu",
    ],
)
def test_a_resource_that_a_rule_is_for_or_that_is_like_none_is_not_told(name: str) -> None:
    """A hint that is wrong is worse than none."""
    assert () == HINTS.of(request(pod(container({name: 1}))))


def test_a_resource_that_an_injection_rule_names_is_no_mistake() -> None:
    """Though it is spelt almost as another."""
    match: dict[str, Any] = {"resources": ["vendor.com/devices"]}
    rules = loaded(resource_rule("vendor.com/device"), injection_rule({"hostIPC": True}, match=match)).rules

    assert () == Hints(rules, compile_policy(rules)).of(request(pod(container({"vendor.com/devices": 1}))))


def test_every_container_of_a_workload_is_looked_at_once_for_limits_and_requests() -> None:
    """Init containers too, in the language of the policy."""
    asks = {"resources": {part: {"nvidia.com/gpus": 1} for part in ("limits", "requests")}}
    containers = [{"name": "warm", **asks}]
    template = {"spec": {"containers": [{"name": "main"}], "initContainers": containers}}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}
    hints = Hints(SHIPPED, compile_policy(SHIPPED, Language.ZH))

    assert (
        "容器 'warm' 申请了 nvidia.com/gpus，没有规则针对该资源；是否应为 'nvidia.com/gpu'？",
    ) == hints.of(request(document))


@pytest.mark.parametrize(
    ("resources", "told"), [({"nvidia.com/gpu": 1}, True), ({"amd.com/gpu": 1}, False), ({"cpu": 1}, False)]
)
def test_where_there_are_no_nodes_what_a_compatibility_rule_is_for_is_told_to_be_unjudged(
    resources: dict[str, int], told: bool
) -> None:
    """Silence would look as if it ran everywhere."""
    requests = [request(pod(container({"cpu": 1}))), request(pod(container(resources)))]

    assert told is ("CUDA was not judged" in HINTS.without_nodes(requests))


def test_without_rules_or_of_what_is_no_pod_nothing_is_told() -> None:
    """An object that is not judged need not be shaped as its kind is."""
    empty = loaded().rules

    assert () == Hints(empty, compile_policy(empty)).of(request(pod(container({"nvidia.com/gpus": 1}))))
    assert () == HINTS.of(request({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 5}}))
    assert () == HINTS.of(request({"apiVersion": "v1", "kind": "Service"}))
