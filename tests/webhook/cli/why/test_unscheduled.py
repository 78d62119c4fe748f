"""What nodes say about a pod that the scheduler found no node for."""

from __future__ import annotations

from typing import Any

import pytest

from rules.model.decision import ALLOWED
from rules.nodes.inventory_document import inventory_of
from rules.text.i18n import Text
from tests.support.node_builders import GPU, node
from webhook.cli.why.failures import Cause, Source, Statement, causes
from webhook.cli.why.unscheduled import Unscheduled

MIG = "nvidia.com/mig-3g.40gb"
WITH_MIG: dict[str, Any] = {MIG: 2}
INSTALL = "request a resource that a node offers, or install what provides {}: a device plugin or a scheduler"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def _cause(line: str, nodes: list[Any], amount: int = 1, name: str = GPU, **spec: Any) -> Cause:
    resources = {"limits": {name: str(amount)}, "requests": {name: str(amount)}}
    pod = Unscheduled(inventory_of(nodes), {"containers": [{"name": "main", "resources": resources}], **spec})
    (cause,) = causes(ALLOWED, [Statement(Source.EVENT, Text("event"), line)], pod)
    return cause


@pytest.mark.parametrize(
    ("name", "text", "fix"),
    [
        (
            "nvidia.com/gpus",
            "no node offers nvidia.com/gpus – did you mean nvidia.com/gpu?",
            "write nvidia.com/gpu",
        ),
        (
            "nvidia.com/mig-7g.80gb",
            "no node offers nvidia.com/mig-7g.80gb – did you mean nvidia.com/mig-3g.40gb?",
            "write nvidia.com/mig-3g.40gb",
        ),
        (
            "nvidia.com/pgpumem-of-another",
            "no node offers nvidia.com/pgpumem-of-another; some offer nvidia.com/gpu, nvidia.com/mig-3g.40gb",
            INSTALL.format("nvidia.com/pgpumem-of-another"),
        ),
        ("example.com/device", "no node offers example.com/device", INSTALL.format("example.com/device")),
    ],
)
def test_a_resource_that_no_node_offers_is_said_to_be_offered_by_none(name: str, text: str, fix: str) -> None:
    """To wait would not help."""
    nodes = [node("a"), node("b", **WITH_MIG)]
    cause = _cause(f"0/2 nodes are available: 2 Insufficient {name}.", nodes, name=name)

    assert (text, fix) == (cause.text.en, cause.fix.en)


def test_of_several_resources_the_one_that_no_node_offers_is_named() -> None:
    """Else the one that is short on most nodes."""
    line = "0/40 nodes are available: 40 Insufficient nvidia.com/gpu, 40 Insufficient nvidia.com/gpumem."
    fewer = "0/9 nodes are available: 2 Insufficient nvidia.com/gpu, 9 Insufficient nvidia.com/mig-3g.40gb."

    with_cpu = "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient nvidia.com/gpus."

    assert "no node offers nvidia.com/gpumem" in _cause(line, [node("a")]).text.en
    assert "did you mean nvidia.com/gpu?" in _cause(with_cpu, [node("a")]).text.en
    assert MIG in _cause(fewer, [node("a"), node("b", **WITH_MIG)]).text.en
    assert MIG in _cause(fewer, []).text.en


def test_a_request_that_is_larger_than_every_node_is_no_matter_of_waiting() -> None:
    """Nor are nodes that are not ready."""
    line = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    away = node("a") | {"status": {"allocatable": {GPU: "0"}, "capacity": {GPU: "8"}}}

    assert (
        "the pod requests 9 nvidia.com/gpu, and the largest node has 8"
        == _cause(line, [node("a")], 9).text.en
    )
    assert "wait until other pods end, request fewer, or add nodes" == _cause(line, [node("a")], 8).fix.en
    assert "check the nodes a" == _cause(line, [away]).fix.en


def test_taints_that_the_scheduler_does_not_name_are_those_of_the_selected_nodes() -> None:
    """Without those that the pod tolerates."""
    line = "0/3 nodes are available: 3 node(s) had untolerated taint(s)."
    other = {"key": "team", "value": "b", "effect": "NoExecute"}
    nodes = [
        node("a", {"zone": "a"}) | {"spec": {"taints": [TAINT]}},
        node("b", {"zone": "b"}) | {"spec": {"taints": [other]}},
    ]
    end = "nodes have a taint that the pod does not tolerate"
    tolerated = [{"key": "team", "operator": "Exists"}]

    assert f"{end}: nvidia.com/gpu=present:NoSchedule, team=b:NoExecute" == _cause(line, nodes).text.en
    assert f"{end}: team=b:NoExecute" == _cause(line, nodes, nodeSelector={"zone": "b"}).text.en
    assert f"{end}: nvidia.com/gpu=present:NoSchedule" == _cause(line, nodes, tolerations=tolerated).text.en
    assert end == _cause(line, []).text.en
