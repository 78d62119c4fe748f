"""A release of facts in a ConfigMap of a real cluster: in force for the next pod, refused if it is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rules.schema.config_map import DEFAULT_NAMESPACE
from tests.e2e.installed import GPU, OFFERED, TEAM, Installed
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node, pod
from tests.support.fact_builders import bundle, facts_config_map

# Seconds from `kubectl apply` to the first pod that the new facts decide.
LIVE_S = 2.0
VLLM = "vllm/vllm-openai:v0.6.3"
NEEDS_BFLOAT16 = json.dumps(
    {
        **(document := json.loads(pod("serves", {GPU: "1"}))),
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "new"},
            "containers": [
                {**document["spec"]["containers"][0], "image": VLLM, "args": ["--dtype", "bfloat16"]}
            ],
        },
    }
)


def _with_old_gpu(tables: dict[str, Any]) -> None:
    """Add a GPU that no built-in row knows, and that has no bfloat16."""
    row = {"product": "X1", "label": "X1", "compute": "7.0", "arch": "volta", "segment": "datacenter"}
    tables["gpus"].append({**row, "brand": "nvidia", "source": "none", "status": "verified"})


def _wrong(tables: dict[str, Any]) -> None:
    """Leave a driver branch without CUDA."""
    _with_old_gpu(tables)
    del tables["drivers"]["branches"][-1]["cuda"]


@pytest.fixture(scope="module")
def cluster(installed: Installed) -> Iterator[Installed]:
    """Return an installation with a node whose GPU is new."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-X1", "kubernetes.io/hostname": "new"}
    installed.cluster.kubectl("create", "-f", "-", input=node("new", labels, OFFERED))
    eventually(lambda: installed.server.sample("gpugate_inventory_nodes") == 2)
    yield installed
    installed.cluster.kubectl("delete", "configmap", "gpugate-facts", "-n", DEFAULT_NAMESPACE)


def _apply(cluster: Installed, text: str, *, check: bool = True) -> str:
    document = json.dumps(facts_config_map(text, packed=True))
    return cluster.cluster.kubectl("apply", "-f", "-", input=document, check=check).stderr


def test_facts_decide_the_next_pod_within_two_seconds(cluster: Installed) -> None:
    before = cluster.refusal(NEEDS_BFLOAT16)
    _apply(cluster, bundle(_with_old_gpu, date="2026-11-01"))
    eventually(lambda: "compute capability 8.0" in cluster.refusal(NEEDS_BFLOAT16), LIVE_S)

    assert "" == before
    assert cluster.server.sample("gpugate_facts_age_seconds") > 0


def test_wrong_facts_are_denied_with_their_place_and_the_last_good_ones_stay(cluster: Installed) -> None:
    _apply(cluster, bundle(_with_old_gpu))
    eventually(lambda: "compute capability 8.0" in cluster.refusal(NEEDS_BFLOAT16))
    message = _apply(cluster, bundle(_wrong), check=False)

    assert "binaryData[facts.json.gz]: tables.drivers.branches[" in message
    assert "required key 'cuda' is missing" in message
    assert "compute capability 8.0" in cluster.refusal(NEEDS_BFLOAT16)


def test_the_last_good_facts_stay_also_over_a_restart_if_wrong_ones_get_past_the_webhook(
    cluster: Installed,
) -> None:
    """An Event on the ConfigMap says why."""
    _apply(cluster, bundle(_with_old_gpu))
    eventually(lambda: "compute capability 8.0" in cluster.refusal(NEEDS_BFLOAT16))
    cluster.cluster.kubectl("delete", "validatingwebhookconfiguration", "gpugate")
    _apply(cluster, bundle(_wrong))
    cluster.apply()
    eventually(lambda: cluster.server.sample('gpugate_rules{state="stale"}') == 1)
    eventually(cluster.trusted)
    shown = cluster.cluster.kubectl(
        *("events", "-n", DEFAULT_NAMESPACE, "--for", "configmap/gpugate-facts", "--types=Warning")
    ).stdout

    assert "the previous version stays in force" in shown
    assert "required key 'cuda' is missing" in shown
    assert "compute capability 8.0" in cluster.refusal(NEEDS_BFLOAT16)
    cluster.server.kill()
    cluster.server.start()
    eventually(cluster.in_force)
    assert "compute capability 8.0" in cluster.refusal(NEEDS_BFLOAT16)


def test_without_the_config_map_the_built_in_facts_are_in_force(cluster: Installed) -> None:
    _apply(cluster, bundle(_with_old_gpu))
    eventually(lambda: "compute capability 8.0" in cluster.refusal(NEEDS_BFLOAT16))
    label = ("label", "configmap", "gpugate-facts", "-n", DEFAULT_NAMESPACE, "gpugate.dev/enabled=false")
    cluster.cluster.kubectl(*label, "--overwrite")
    eventually(lambda: cluster.refusal(NEEDS_BFLOAT16, TEAM) == "", LIVE_S)
