"""The time of the checks of one object is linear in what a user sends."""

from __future__ import annotations

from typing import Any

from tests.support.builders import pod
from tests.support.cpu_time import loops
from tests.support.node_builders import inventory, judged, shipped

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
