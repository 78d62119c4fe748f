"""gpugate in a cluster of its own: installed as the page says, run with a token of its account."""

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
from tests.e2e.gate import SERVE, AdmissionHandler, eventually
from tests.e2e.manifests import MANIFESTS, Object, commands, render
from tests.e2e.test_control_plane import node, pod

TEAM = "ml"
VCUDA_CORE, VCUDA_MEMORY, GPU = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"
CUDA = {"cuda-major-version": "12", "cuda-minor-version": "2"}
OFFERED = {GPU: "8", VCUDA_CORE: "800", VCUDA_MEMORY: "1000", "pods": "110"}


@dataclass(frozen=True)
class Installation:
    """A cluster with the overlay dev, which calls the gate at a port of this machine.

    objects: those of the overlay. options: of `gpugate serve`, as the page has them.
    """

    cluster: ControlPlane
    port: int
    objects: list[Object]
    options: list[str]

    def serve(
        self, log: Path, *options: str, port: int | None = None, program: Sequence[str] = SERVE
    ) -> AdmissionHandler:
        """Return a gate of this cluster, to be started: at the port that is called, or another."""
        options = ("--drain-seconds=0", *options)  # whatever is given last holds
        return AdmissionHandler(self.port if port is None else port, [*self.options, *options], log, program)

    def apply(self) -> None:
        """Apply the overlay again, but for its rules, which are many."""
        again = [each for each in self.objects if each["kind"] != "ConfigMap"]
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(again))

    def create(self, document: str, *flags: str, namespace: str = TEAM) -> Object | str:
        """Create an object; return it as the API server stored it, or would, or why it is refused."""
        created = ("create", "-n", namespace, "-o", "json", "-f", "-", *flags)
        done = self.cluster.kubectl(*created, input=document, check=False)
        return done.stderr if done.returncode else json.loads(done.stdout)

    def refusal(self, document: str, namespace: str = TEAM) -> str:
        """Return why an object would not be created; nothing where it would."""
        found = self.create(document, "--dry-run=server", namespace=namespace)
        return found if isinstance(found, str) else ""

    def limits(self) -> Any:
        """Return the limits of a new pod that asks for vGPU memory alone; none where it is refused."""
        found = self.create(pod("asks", {VCUDA_MEMORY: "8"}), "--dry-run=server")
        return None if isinstance(found, str) else found["spec"]["containers"][0]["resources"]["limits"]

    def in_force(self) -> bool:
        """Tell whether the gate is called and answers."""
        return bool(self.limits() == {VCUDA_MEMORY: "8", VCUDA_CORE: "20"})

    def webhooks(self) -> list[Object]:
        """Return the webhooks as they are: to mutate, to validate, and for rules."""
        kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
        shown = self.cluster.kubectl("get", kinds, "gpugate", "-o", "json").stdout
        return [webhook for each in json.loads(shown)["items"] for webhook in each["webhooks"]]

    def trusted(self) -> bool:
        """Tell whether the gate has put its CA into every webhook: seconds after they were applied anew."""
        return all(webhook["clientConfig"].get("caBundle") for webhook in self.webhooks())


@dataclass(frozen=True)
class Installed(Installation):
    """One with a gate that runs."""

    gate: AdmissionHandler

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill the gate for the length of a block; after it everything is as before."""
        self.gate.kill()
        try:
            yield
        finally:
            self.apply()
            self.gate.start()  # looks at once
            eventually(self.in_force)


def install(cluster: ControlPlane, port: int) -> Installation:
    """Install it as the page says, but for the port, with a namespace of its users and a node."""
    text = yaml.safe_dump_all(render(MANIFESTS / "overlays/dev")).replace(":8443/", f":{port}/")
    cluster.kubectl("apply", "-f", "-", input=text)
    cluster.kubectl("create", "namespace", TEAM)
    cluster.kubectl("create", "-f", "-", input=node("fits", CUDA, OFFERED))
    _, command = commands("install.md", "On a developer's machine")
    kubeconfig = cluster.service_account("gpugate", "gpugate")
    _, _, *options = shlex.split(command.replace("$KUBECONFIG", str(kubeconfig)))
    return Installation(cluster, port, list(yaml.safe_load_all(text)), options)


@contextmanager
def running(installation: Installation, log: Path, *options: str) -> Iterator[Installed]:
    """Run the gate of an installation, from when it is in force until the block ends."""
    with installation.serve(log, *options) as gate:
        installed = Installed(
            installation.cluster, installation.port, installation.objects, installation.options, gate
        )
        eventually(installed.in_force)
        yield installed
