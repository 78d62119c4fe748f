"""The size limit: an oversized object is denied at once, and a large one is decided in bounded time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rules.decision.size_limit import MOST, MOST_NAMES, RULE
from tests.support.webhooks import body, builtin_handler, pod

GPU = {"limits": {"nvidia.com/gpu": "1"}}


def affinity(count: int) -> dict[str, Any]:
    """Return required node affinity with this number of terms."""
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * count}
        }
    }


def spec(**fields: Any) -> dict[str, Any]:
    """Return a pod whose spec has these fields."""
    document = pod({"nvidia.com/gpu": "1"})
    document["spec"] |= fields
    return document


def deployment_like(count: int) -> dict[str, Any]:
    """Return an object with this number of pod templates."""
    containers = [{"name": "main", "resources": GPU}]
    groups: list[dict[str, Any]] = [{"template": {"spec": {"containers": containers}}} for _ in range(count)]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {"workerGroupSpecs": groups}}


OVERSIZED = {
    "containers": spec(containers=[{"name": f"c{at}", "resources": GPU} for at in range(MOST)]),
    "terms": spec(affinity=affinity(MOST)),
    "templates": deployment_like(MOST + 1),
    "requirements": pod(
        {"nvidia.com/gpu": "1"},
        env=[{"name": f"NVIDIA_REQUIRE_{at}", "value": "cuda>=12.4"} for at in range(MOST)],
    ),
    "debugging containers": spec(ephemeralContainers=[{"name": f"d{at}"} for at in range(MOST)]),
    "names": pod({f"nvidia.com/mig-{at}g": "1" for at in range(2 * MOST_NAMES + 1)}),
}


@pytest.mark.parametrize("endpoint", ["mutate", "validate"])
@pytest.mark.parametrize("what", list(OVERSIZED))
def test_an_oversized_object_is_denied(what: str, endpoint: Any) -> None:
    """With a violation of its own, in less time than a decision would take."""
    debugging = {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
    content = body(OVERSIZED[what], **(debugging if what == "debugging containers" else {}))
    started = time.thread_time()
    response = json.loads(builtin_handler().answer(endpoint, content))["response"]

    assert (False, 403) == (response["allowed"], response["status"]["code"])
    assert f"[rule {RULE}]" in response["status"]["message"]
    assert 1.0 > time.thread_time() - started


HUGE = {
    "the most containers": spec(containers=[{"name": f"c{at}", "resources": GPU} for at in range(2000)]),
    "containers without resources": spec(containers=[{"name": f"c{at}"} for at in range(100_000)]),
    "the most terms": spec(affinity=affinity(MOST - 3)),
    "variables": pod(
        {"nvidia.com/mps-core": "50"}, env=[{"name": f"V{at}", "value": "v" * 30} for at in range(100_000)]
    ),
    "references": pod(
        {"nvidia.com/gpu": "1"},
        env=[{"name": "V0", "value": "x" * 100}]
        + [{"name": f"V{at}", "value": f"$(V{at - 1})" * 2} for at in range(1, 60)],
        args=["vllm", "serve", *["--dtype=$(V9)"] * 10_000],
    ),
    "names of a megabyte": pod(
        {"nvidia.com/gpu": "1" * 2**20, f"nvidia.com/{'g' * 2**20}": "1"}, name="n" * 2**20, image="i" * 2**20
    ),
    "arguments": pod({"nvidia.com/gpu": "1"}, args=["vllm serve --dtype=bfloat16 # $(\n" * 200_000]),
    "selectors": spec(nodeSelector={f"k{at}": "v" for at in range(200_000)}),
    "odd quantities": pod({"nvidia.com/gpu": "1e999999", "tencent.com/vcuda-core": "-1e-999999"}),
    "control characters": pod({"nvidia.com/gpu\x00": "1\x1b"}, name="\u202e\n", image="\ud83d\ude00\x7f"),
}


@pytest.mark.parametrize("what", list(HUGE))
def test_the_time_of_a_large_object_is_bounded_by_its_length(what: str) -> None:
    """At most a thousand times that of parsing its JSON, plus a quarter of a second."""
    content = body(HUGE[what])
    started = time.thread_time()
    json.loads(content)
    reading = time.thread_time() - started
    started = time.thread_time()
    builtin_handler().answer("mutate", content)

    assert 0.25 + 1000 * reading > time.thread_time() - started


def test_variables_without_requirements_are_not_counted() -> None:
    """Even if there are more of them than the limit."""
    env = [{"name": f"V{at}", "value": "v"} for at in range(2 * MOST)]
    content = body(pod({"nvidia.com/gpu": "1"}, env=env))

    assert json.loads(builtin_handler().answer("validate", content))["response"]["allowed"]
