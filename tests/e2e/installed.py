"""gpugate in its own cluster: installed as the page describes, with a token of its service account."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import ControlPlane
from tests.e2e.manifests import MANIFESTS, Object, commands, render
from tests.e2e.serve_process import SERVE, ServeProcess, eventually
from tests.e2e.test_control_plane import node, pod

TEAM = "ml"
VCUDA_CORE, VCUDA_MEMORY, GPU = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"
CUDA = {"cuda-major-version": "12", "cuda-minor-version": "2"}
OFFERED = {GPU: "8", VCUDA_CORE: "800", VCUDA_MEMORY: "1000", "pods": "110"}


@dataclass(frozen=True)
class Installation:
    """A cluster with the overlay dev, which calls gpugate at a port of this machine.

    objects: of the overlay. options: of `gpugate serve`, from the page.
    """

    cluster: ControlPlane
    port: int
    objects: list[Object]
    options: list[str]

    def serve(
        self, log: Path, *options: str, port: int | None = None, program: Sequence[str] = SERVE
    ) -> ServeProcess:
        """Return a server of this cluster that is not started: at the port of the webhooks, or another."""
        options = ("--drain-seconds=0", *options)  # the last value of an option applies
        return ServeProcess(self.port if port is None else port, [*self.options, *options], log, program)

    def apply(self) -> None:
        """Apply the overlay again, except its many rules."""
        again = [document for document in self.objects if document["kind"] != "ConfigMap"]
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(again))

    def create(self, document: str, *flags: str, namespace: str = TEAM) -> Object | str:
        """Create an object; return it as the API server stores it, or the error."""
        created = ("create", "-n", namespace, "-o", "json", "-f", "-", *flags)
        done = self.cluster.kubectl(*created, input=document, check=False)
        return done.stderr if done.returncode else json.loads(done.stdout)

    def refusal(self, document: str, namespace: str = TEAM) -> str:
        """Return the error for an object that would be denied; empty if it would be created."""
        created = self.create(document, "--dry-run=server", namespace=namespace)
        return created if isinstance(created, str) else ""

    def limits(self) -> Any:
        """Return the limits of a new pod that requests only vGPU memory; None if it is denied."""
        created = self.create(pod("asks", {VCUDA_MEMORY: "8"}), "--dry-run=server")
        return None if isinstance(created, str) else created["spec"]["containers"][0]["resources"]["limits"]

    def in_force(self) -> bool:
        """Return whether the API server calls gpugate and gets answers."""
        return bool(self.limits() == {VCUDA_MEMORY: "8", VCUDA_CORE: "20"})

    def webhooks(self) -> list[Object]:
        """Return the current webhooks: mutating, validating, and for rules."""
        kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
        shown = self.cluster.kubectl("get", kinds, "gpugate", "-o", "json").stdout
        return [webhook for item in json.loads(shown)["items"] for webhook in item["webhooks"]]

    def trusted(self) -> bool:
        """Return whether gpugate has set its CA in every webhook: seconds after they are applied again."""
        return all(webhook["clientConfig"].get("caBundle") for webhook in self.webhooks())


@dataclass(frozen=True)
class Installed(Installation):
    """An installation with a running server."""

    server: ServeProcess

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill the server while the block runs; afterwards everything is as before."""
        self.server.kill()
        try:
            yield
        finally:
            self.apply()
            self.server.start()  # it checks immediately
            eventually(self.in_force)


def install(cluster: ControlPlane, port: int, nodes: Sequence[str] | None = None) -> Installation:
    """Install it as the page describes, with another port, a namespace of users and nodes, as JSON.

    nodes: default, one with GPUs and shares of them.
    """
    text = yaml.safe_dump_all(render(MANIFESTS / "overlays/dev")).replace(":8443/", f":{port}/")
    cluster.kubectl("apply", "-f", "-", input=text)
    cluster.kubectl("create", "namespace", TEAM)
    for document in [node("fits", CUDA, OFFERED)] if nodes is None else nodes:
        cluster.kubectl("create", "-f", "-", input=document)
    _, command = commands("install.md", "On a developer's machine")
    kubeconfig = cluster.service_account("gpugate", "gpugate")
    _, _, *options = shlex.split(command.replace("$KUBECONFIG", str(kubeconfig)))
    return Installation(cluster, port, list(yaml.safe_load_all(text)), options)


@contextmanager
def running(installation: Installation, log: Path, *options: str) -> Iterator[Installed]:
    """Run the server of an installation while the block runs."""
    with installation.serve(log, *options) as server:
        installed = Installed(
            installation.cluster, installation.port, installation.objects, installation.options, server
        )
        eventually(installed.in_force)
        yield installed
