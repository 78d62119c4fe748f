"""`make demo`: a cluster with two kinds of GPUs, and what gpugate does in it with three Deployments.

As root, on a machine that can run them, its nodes are real: kubelet, containerd, NVIDIA Container Toolkit,
with stand-ins for the GPUs (tests/e2e/node). Elsewhere nodes are objects, and pods stay Pending on them. The
image of the pods is a stand-in, too: busybox under the name of an image of PyTorch.
"""

# ruff: noqa: T201 - a person reads what it prints

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e.cluster import ControlPlane, assets, missing
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import TEAM, install, running
from tests.e2e.node.images import write_image
from tests.e2e.node.real_cluster import RealCluster, cluster, environment, reason_to_skip
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node
from tests.support.paths import ROOT

_MANIFESTS: Final = Path("docs/demo")
_IMAGE: Final = "docker.io/pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"
_COLUMNS: Final = "custom-columns=POD:.metadata.labels.app,STATUS:.status.phase,NODE:.spec.nodeName"
# Nodes as objects: their GPUs, and the labels that the node agent writes for those of tests/e2e/node.
_OBJECTS: Final = {
    "gpu-1": ("8", "12.8", "570.86.15", "8.0", "40960", "NVIDIA-A100-SXM4-40GB"),
    "gpu-2": ("2", "12.2", "535.129.03", "7.5", "15360", "Tesla-T4"),
}


class Demo:
    """What is typed and printed, in a cluster where gpugate runs. real: whether its nodes are."""

    def __init__(self, control: ControlPlane, *, real: bool) -> None:
        self._environment = environment(control) | {"HOME": str(control.logs), "NO_COLOR": "1"}
        self._control, self._real = control, real

    def run(self) -> None:
        """Apply the three Deployments."""
        self._say("Two nodes, labelled with their GPU and the CUDA version of their driver:")
        self._type("gpugate", "nodes")
        self._say(
            "A server that asks for bfloat16 on a T4. The API server denies it, with the reason and a fix:"
        )
        self._type("kubectl", "apply", "-f", str(_MANIFESTS / "denied.yaml"))
        self._say(
            "A pod that needs CUDA 12.8. gpugate adds node affinity, so it avoids the node with CUDA 12.2:"
        )
        self._type("kubectl", "apply", "-f", str(_MANIFESTS / "placed.yaml"))
        eventually(self._is_placed)
        self._type("kubectl", "-n", TEAM, "get", "pods", "-l", "app=train", "-o", _COLUMNS)
        self._say("A pod that asks for all GPUs of that node. It waits; why?")
        self._type("kubectl", "apply", "-f", str(_MANIFESTS / "waiting.yaml"))
        eventually(self._waits)
        self._type("gpugate", "why", "deployment/pretrain", "-n", TEAM)

    def shell(self) -> None:
        """Let a person work in the cluster, in a shell."""
        self._say("You are in this cluster: kubectl and gpugate work; `exit` ends it.")
        subprocess.run([os.environ.get("SHELL", "/bin/sh")], cwd=ROOT, env=self._environment, check=False)

    def _say(self, text: str) -> None:
        print(f"\n# {text}", flush=True)

    def _type(self, *command: str) -> None:
        """Print a command as a person types it, and what it prints."""
        print(f"$ {shlex.join(command)}", flush=True)
        program = [sys.executable, "-m", "webhook"] if command[0] == "gpugate" else command[:1]
        subprocess.run(
            [*program, *command[1:]], cwd=ROOT, env=self._environment, stderr=subprocess.STDOUT, check=False
        )

    def _is_placed(self) -> bool:
        """Return whether the pod runs, or, on a node that is an object, is bound."""
        if self._real:
            return any(pod["status"]["phase"] == "Running" for pod in self._pods("train"))
        return any("nodeName" in pod["spec"] for pod in self._pods("train"))

    def _waits(self) -> bool:
        pods = self._pods("pretrain")
        conditions = [condition for pod in pods for condition in pod["status"].get("conditions", ())]
        return any(
            condition["type"] == "PodScheduled" and condition["status"] == "False" for condition in conditions
        )

    def _pods(self, app: str) -> list[dict[str, Any]]:
        shown = self._control.kubectl("-n", TEAM, "get", "pods", "-l", f"app={app}", "-o", "json").stdout
        items: list[dict[str, Any]] = json.loads(shown)["items"]
        return items


@contextmanager
def _cluster(folder: Path, *, real: bool) -> Iterator[ControlPlane]:
    """Run a cluster with two labelled nodes and gpugate while the block runs."""
    with _nodes(folder, real=real) as (control, nodes), reserve_port() as held:
        installation = install(control, held.getsockname()[1], nodes)
        with running(installation, folder / "serve.log"):
            yield control


@contextmanager
def _nodes(folder: Path, *, real: bool) -> Iterator[tuple[ControlPlane, list[str]]]:
    """Run a cluster; yield it with the nodes that are still to be created, as JSON."""
    if real:
        with cluster(folder / "cluster") as running_nodes:
            _prepare(running_nodes, folder)
            yield running_nodes.control, []
        return
    with ControlPlane(assets(), folder / "cluster", scheduler=True) as control, control.controllers():
        yield control, [_object(name) for name in _OBJECTS]


def _prepare(real: RealCluster, folder: Path) -> None:
    """Label the nodes, as the node agent does, and give them the image of the pods."""
    real.import_image(write_image(folder / "image.tar", _IMAGE))
    for name, node_object in real.nodes.items():
        label = (sys.executable, "-m", "webhook", "node", "label", "--node-name", name)
        node_object.run(*label, "--kubeconfig", str(real.control.kubeconfig))


def _object(name: str) -> str:
    """Return a Node, as JSON."""
    count, cuda, driver, compute, mib, product = _OBJECTS[name]
    labels = {
        "gpugate.dev/gpu.product": product,
        "gpugate.dev/gpu.memory": mib,
        "gpugate.dev/gpu.count": count,
    }
    for prefix, versions in (("cuda-{}-version", cuda), ("gpugate.dev/gpu.compute.{}", compute)):
        labels |= {
            prefix.format(part): text
            for part, text in zip(("major", "minor"), versions.split("."), strict=True)
        }
    labels["gpugate.dev/cuda.driver-version.full"] = driver
    return node(name, labels, {"nvidia.com/gpu": count, "cpu": "8", "memory": "32Gi", "pods": "110"})


def main() -> int:
    """Show the demo; on a terminal, let a person go on in a shell. Exit status 2 without the programs."""
    reason = reason_to_skip()
    if absent := missing(assets()):
        print(f"no {', '.join(absent)} in {assets()}: run `make e2e-assets`", file=sys.stderr)
        return 2
    if reason:
        print(f"# Nodes are objects, and no pod starts on them: a real node {reason}.")
    with tempfile.TemporaryDirectory() as folder, _cluster(Path(folder), real=not reason) as control:
        demo = Demo(control, real=not reason)
        demo.run()
        if sys.stdin.isatty():
            demo.shell()
    return 0


if __name__ == "__main__":
    sys.exit(main())
