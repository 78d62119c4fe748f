"""gpugate, installed as the page says and run with a token of its account, in a cluster of its own."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import yaml

from tests.e2e.cluster import ControlPlane
from tests.e2e.daemon import Daemon, reserve_port
from tests.e2e.gate import eventually
from tests.e2e.manifests import MANIFESTS, Object, commands, render
from tests.e2e.test_control_plane import node, pod

TEAM = "ml"
VCUDA_CORE, VCUDA_MEMORY, GPU = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"
CUDA = {"cuda-major-version": "12", "cuda-minor-version": "2"}
OFFERED = {GPU: "8", VCUDA_CORE: "800", VCUDA_MEMORY: "1000", "pods": "110"}
# What the gate shows of itself is read without a look at who shows it; the API server looks.
_UNVERIFIED = ssl.create_default_context()
_UNVERIFIED.check_hostname, _UNVERIFIED.verify_mode = False, ssl.CERT_NONE


@dataclass(frozen=True)
class Installed:
    """A cluster with the overlay dev, at a free port, and the gate that it calls."""

    cluster: ControlPlane
    gate: Daemon
    port: int
    objects: list[Object]

    def page(self, path: str) -> str:
        """Return one of the gate's pages; raises HTTPError for those that are not there, or not yet."""
        with urlopen(f"https://127.0.0.1:{self.port}{path}", timeout=10, context=_UNVERIFIED) as answer:
            text: str = answer.read().decode()
        return text

    def sample(self, name: str) -> float:
        """Return a metric's value, by its name with labels; 0 where there is none yet."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.page("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def ready(self) -> bool:
        """Tell whether the gate says that it is ready."""
        try:
            return bool(self.page("/readyz"))
        except HTTPError:
            return False

    def apply(self) -> None:
        """Apply the overlay again, but for its rules, which are many."""
        again = [each for each in self.objects if each["kind"] != "ConfigMap"]
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(again))

    def create(self, document: str, *flags: str, namespace: str = TEAM) -> Object | str:
        """Create a pod; return it as the API server stored it, or would, or why it is refused."""
        created = ("create", "-n", namespace, "-o", "json", "-f", "-", *flags)
        done = self.cluster.kubectl(*created, input=document, check=False)
        return done.stderr if done.returncode else json.loads(done.stdout)

    def refusal(self, document: str, namespace: str = TEAM) -> str:
        """Return why a pod would not be created; nothing where it would."""
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


@contextmanager
def installation(cluster: ControlPlane, folder: Path) -> Iterator[Installed]:
    """Install and run it as the page says, but for the port, until the block ends. folder: for its log."""
    with reserve_port() as held:
        port = held.getsockname()[1]
        text = yaml.safe_dump_all(render(MANIFESTS / "overlays/dev")).replace(":8443/", f":{port}/")
        cluster.kubectl("apply", "-f", "-", input=text)
        cluster.kubectl("create", "namespace", TEAM)
        cluster.kubectl("create", "-f", "-", input=node("fits", CUDA, OFFERED))
        _, serve = commands("install.md", "On a developer's machine")
        kubeconfig = cluster.service_account("gpugate", "gpugate")
        words = shlex.split(serve.replace("$KUBECONFIG", str(kubeconfig)))[1:]
        argv = [sys.executable, "-m", "webhook", *words, f"--port={port}", "--drain-seconds=0"]
        gate = Daemon(argv, port, "/readyz", _UNVERIFIED, folder / "serve.log")
        gate.start()
        try:
            installed = Installed(cluster, gate, port, list(yaml.safe_load_all(text)))
            eventually(installed.in_force)
            yield installed
        finally:
            gate.stop()
