"""Hints on resources that may be misspelt."""

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
def test_a_misspelt_resource_of_a_rule_is_reported(name: str, meant: str) -> None:
    (hint,) = HINTS.of(request(pod(container({name: 1}))))

    assert (
        f"container 'main' requests {name}, which does not match any rule – did you mean {meant!r}?"
    ) == hint


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
def test_a_known_or_an_unrelated_resource_is_not_reported(name: str) -> None:
    """No false hints."""
    assert () == HINTS.of(request(pod(container({name: 1}))))


def test_a_resource_of_an_injection_rule_is_not_reported() -> None:
    """Although it is similar to another."""
    match: dict[str, Any] = {"resources": ["vendor.com/devices"]}
    rules = loaded(resource_rule("vendor.com/device"), injection_rule({"hostIPC": True}, match=match)).rules

    assert () == Hints(rules, compile_policy(rules)).of(request(pod(container({"vendor.com/devices": 1}))))


def test_every_container_of_a_workload_is_checked_once_for_limits_and_requests() -> None:
    """Includes init containers; in the language of the policy."""
    asks = {"resources": {part: {"nvidia.com/gpus": 1} for part in ("limits", "requests")}}
    containers = [{"name": "warm", **asks}]
    template = {"spec": {"containers": [{"name": "main"}], "initContainers": containers}}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}
    hints = Hints(SHIPPED, compile_policy(SHIPPED, Language.ZH))

    assert (
        "容器 'warm' 申请了 nvidia.com/gpus，没有规则匹配该资源；是否应为 'nvidia.com/gpu'？",
    ) == hints.of(request(document))


@pytest.mark.parametrize(
    ("resources", "shown"), [({"nvidia.com/gpu": 1}, True), ({"amd.com/gpu": 1}, False), ({"cpu": 1}, False)]
)
def test_without_nodes_the_hint_says_that_cuda_is_not_checked(resources: dict[str, int], shown: bool) -> None:
    """Without it, the pod seems compatible with all nodes."""
    requests = [request(pod(container({"cpu": 1}))), request(pod(container(resources)))]

    assert shown is ("CUDA compatibility not checked" in HINTS.without_nodes(requests))


def test_without_rules_or_pods_there_are_no_hints() -> None:
    """An object that is not evaluated may be malformed."""
    empty = loaded().rules

    assert () == Hints(empty, compile_policy(empty)).of(request(pod(container({"nvidia.com/gpus": 1}))))
    assert () == HINTS.of(request({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 5}}))
    assert () == HINTS.of(request({"apiVersion": "v1", "kind": "Service"}))
