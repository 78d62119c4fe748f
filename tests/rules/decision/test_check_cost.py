"""The time of the checks of one object is linear in what a user sends."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.policy import Policy, compile_policy
from rules.text.glob import MOST_COMPARED
from tests.support.builders import container, pod
from tests.support.cpu_time import loops
from tests.support.node_builders import GPU, inventory, judged, node, shipped, shipped_rules
from tests.support.similarity_count import comparisons

LIMITS = {"limits": {"nvidia.com/gpu": "1"}}
VLLM: dict[str, Any] = {"image": "vllm/vllm-openai:v0.8.5", "args": ["-tp=4"], "resources": LIMITS}


def test_labels_are_read_once_for_all_containers() -> None:
    """50,000 of them with 900 containers took 5 s when each container looked at them."""
    document = pod(*({"name": f"c{at}"} | VLLM for at in range(900)))
    document["metadata"]["labels"] = {f"x{at}.io/a": "b" for at in range(50_000)}

    assert loops(lambda: judged(shipped(), inventory(), document)) < 60


def test_annotations_are_compared_with_all_containers_at_once() -> None:
    """8,500 for as many containers took 1.6 s one by one."""
    plain = ({"name": f"p{at}", "image": "a:1"} for at in range(8500))
    document = pod({"name": "c"} | VLLM, *plain)
    document["metadata"]["annotations"] = {f"gpugate.dev/cuda-version.p{at}": "12.4" for at in range(8500)}

    assert loops(lambda: judged(shipped(), inventory(), document)) < 20


def fresh() -> Policy:
    """Return the built-in policy with empty caches."""
    return compile_policy(shipped_rules())


def ray_cluster(*templates: dict[str, Any]) -> dict[str, Any]:
    """Return an object of several pod templates."""
    groups = [{"template": template} for template in templates]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {"workerGroupSpecs": groups}}


def template_of(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a pod template that requests one of a resource."""
    return pod(container({name: 1}), metadata={"annotations": annotations or {}})


MISSPELT = {
    "that only a glob matches": pod(
        *(
            container({f"volcano.sh/gpu-m{at}{other:02}or": 1 for other in range(100)}, name=f"c{at}")
            for at in range(19)
        )
    ),
    "of templates": ray_cluster(*(template_of(f"nvidia.com/gpu.share{at:03}") for at in range(150))),
    "of annotations": ray_cluster(
        *(
            template_of(GPU, {f"gpugate.dev/cuda-versio{at:03}{other:02}": "12.4" for other in range(16)})
            for at in range(150)
        )
    ),
}


@pytest.mark.parametrize("document", MISSPELT.values(), ids=MISSPELT)
def test_few_names_of_one_object_are_compared_with_similar_ones(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One comparison takes up to 0.1 ms: 448 names, 14 KB, took more than a second."""
    cluster = inventory(node("n", {}, **{f"nvidia.com/gpu.shared-{at:02}": 1 for at in range(50)}))
    compared = comparisons(lambda: judged(fresh(), cluster, document), monkeypatch)
    known = len(shipped_rules().resources) + len(cluster.resources)

    assert 0 < compared <= MOST_COMPARED * known
