"""Measures `gpugate audit` of a large cluster: `python -m tests.e2e.audit_scale`.

A real API server has the objects; a tenth of the workloads are denied. No kubelet runs: pods are bound to
nodes, and have the status and managed fields that kubelets write.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.e2e.cluster import ControlPlane, assets
from tests.e2e.scale_objects import gpu_node
from webhook.cluster.client import ClusterApi
from webhook.cluster.resource import NODES

_CLIENTS: Final = 8
_NAMESPACES: Final = 20
_BAD: Final = 10  # each so many-th workload requests a part of a GPU


def _template(number: int) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": "0.5" if number % _BAD == 0 else "1"}
    environment = [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(20)]
    image = f"vllm/vllm-openai:v0.{number % 8 + 1}.0"
    container = {"name": "main", "image": image, "env": environment, "resources": {"limits": gpus}}
    return {"containers": [container], "tolerations": [{"operator": "Exists"}]}


def _deployment(number: int, replicas: int) -> tuple[str, dict[str, Any]]:
    """Return the path and the document of a Deployment, whose pods this module creates."""
    namespace, labels = f"team-{number % _NAMESPACES}", {"app": f"web-{number}"}
    template = {"metadata": {"labels": labels}, "spec": _template(number)}
    return f"/apis/apps/v1/namespaces/{namespace}/deployments", {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"web-{number}", "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def _pod(number: int, index: int, nodes: int) -> tuple[str, dict[str, Any]]:
    """Return the path and the document of a pod of a Deployment; a part of a GPU is what it got before."""
    namespace, spec = f"team-{number % _NAMESPACES}", _template(number)
    # The API server accepts no part of a GPU.
    spec["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    if number % _BAD == 0:
        spec["containers"][0] |= {"image": "vllm/vllm-openai:v0.6.3", "args": ["--dtype=bfloat16"]}
        spec["nodeSelector"] = {"nvidia.com/gpu.product": "Tesla-T4"}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"web-{number}", "controller": True}
    metadata: dict[str, Any] = {
        "name": f"web-{number}-{index}",
        "namespace": namespace,
        "labels": {"app": f"web-{number}"},
    }
    metadata["ownerReferences"] = [owner | {"uid": f"{number:08}-0000-0000-0000-000000000000"}]
    spec["nodeName"] = f"scale-{(number * 10 + index) % nodes:05}"
    return f"/api/v1/namespaces/{namespace}/pods", {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
    }


def _fill(api: ClusterApi, pods: int, workloads: int, nodes: int) -> None:
    """Create all objects."""

    def create(entry: tuple[str, dict[str, Any]]) -> None:
        api.create(*entry)

    def objects() -> Iterator[tuple[str, dict[str, Any]]]:
        replicas = pods // workloads
        yield from ((NODES, gpu_node(number)) for number in range(nodes))
        for number in range(workloads):
            path, document = _deployment(number, replicas)
            if number % _BAD:
                yield path, document
            yield from (_pod(number, index, nodes) for index in range(replicas))

    for number in range(_NAMESPACES):
        name = f"team-{number}"
        api.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        api.create(f"/api/v1/namespaces/{name}/serviceaccounts", account)
    with ThreadPoolExecutor(_CLIENTS) as pool:
        for done, _ in enumerate(pool.map(create, objects())):
            if done % 5000 == 0:
                sys.stderr.write(f"{done} objects created\n")


def measured(command: list[str]) -> tuple[float, float, int, bytes]:
    """Run a command; return its seconds, those of its CPU, its most resident memory in bytes, its stdout."""
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        elapsed = time.monotonic() - started
        return elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output.read()


def main() -> None:
    """Fill a cluster, and print what the audit takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("pods", 50_000), ("workloads", 5_000), ("nodes", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    sizes = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder, ControlPlane(assets(), Path(folder)) as cluster:
        api = ClusterApi.of_kubeconfig(str(cluster.kubeconfig))
        _fill(api, **sizes)
        api.close()
        audit = [sys.executable, "-m", "webhook", "audit", "--kubeconfig", str(cluster.kubeconfig)]
        for output in ("table", "html"):
            elapsed, cpu, memory, text = measured([*audit, "--rules", "builtin", "-o", output])
            first = text.decode().splitlines()[0]
            sys.stdout.write(
                f"{output}: {elapsed:.1f} s, {cpu:.1f} s of CPU, {memory / 2**20:.0f} MiB; {first}\n"
            )


if __name__ == "__main__":
    main()
