"""Replicas of `gpugate serve` on a real API server, and a load on it."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

from certs.kube import KubernetesError
from tests.build import resource_rule
from tests.e2e.daemon import HOST
from tests.e2e.gate import PATIENCE_S, ROOT, eventually
from tests.e2e.service import ask
from tests.e2e.test_control_plane import pod
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import ControlPlane

SECRET: Final = "gpugate-certs"  # noqa: S105 - the name of one
VCUDA_CORE: Final = "tencent.com/vcuda-core"
VCUDA_MEMORY: Final = "tencent.com/vcuda-memory"
# Creations a second, and by how many clients: each waits for its answer before it asks again.
RATE: Final = 50.0
CLIENTS: Final = 8
# One creation of so many is no dry run.
REAL: Final = 25


class Replica:
    """A process of `gpugate serve --certs-secret`; a context manager that starts it and ends it.

    It follows the rules in the namespace of its Secret. module: what is run. log: all that it said.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        log: Path,
        module: str = "webhook",
        drain_s: float = 0,
    ) -> None:
        self.port = 0
        self._log = log
        self._command = [
            *(sys.executable, "-m", module, "serve", "--host", HOST, "--port", "0", "--name", HOST),
            *("--kubeconfig", str(control_plane.kubeconfig), "--rules-namespace", namespace),
            *("--certs-secret", SECRET, "--certs-namespace", namespace, "--drain-seconds", str(drain_s)),
        ]

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stderr=log, cwd=ROOT)
        eventually(lambda: bool(self._listening()) or self._process.poll() is not None)
        found = self._listening()
        assert found, self.log
        self.port = int(found[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text("utf-8")

    def ready(self) -> bool:
        """Tell whether it says that it is ready."""
        return ask(self.port, "/readyz")[0] == http.HTTPStatus.OK

    def terminate(self) -> int:
        """Send SIGTERM; return the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)

    def shown(self) -> bytes:
        """Return the certificate that a new connection is shown, as PEM."""
        return ssl.get_server_certificate((HOST, self.port), timeout=10).encode()

    def reviews(self) -> float:
        """Return how many reviews it has answered."""
        samples = re.findall(
            r"^gpugate_admission_requests_total\{.*\} (\S+)$", ask(self.port, "/metrics")[1], re.MULTILINE
        )
        return sum(map(float, samples))

    def _listening(self) -> re.Match[str] | None:
        return re.search(rf"https://{re.escape(HOST)}:(\d+)", self.log)


def apply_rules(control_plane: ControlPlane, namespace: str) -> None:
    """Put rules into a namespace that give a container with cores memory too."""
    for key, default in ((VCUDA_CORE, ""), (VCUDA_MEMORY, "8")):
        rule = yaml.safe_load(resource_rule(key, defaultValue=default))
        rule["metadata"]["namespace"] = namespace
        control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump(rule))


def is_completed(control_plane: ControlPlane, namespace: str) -> bool:
    """Tell whether a new pod is given what those rules say: the API server calls, and is answered."""
    shown = control_plane.kubectl(
        *("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-"),
        input=pod("new", {VCUDA_CORE: "20"}),
        check=False,
    )
    return f'"{VCUDA_MEMORY}": "8"' in shown.stdout


@contextlib.contextmanager
def called_at(control_plane: ControlPlane, port: int) -> Iterator[None]:
    """Have the API server call the shipped webhooks at a port of this machine while the block runs."""
    documents = []
    for path in sorted((ROOT / "manifests/base").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            if document["kind"].endswith("WebhookConfiguration"):
                documents.append(document)
                for webhook in document["webhooks"]:
                    url = f"https://{HOST}:{port}{webhook['clientConfig']['service']['path']}"
                    webhook["clientConfig"] = {"url": url}
    control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    try:
        yield
    finally:
        control_plane.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(documents))


class Load:
    """Creates pods through the API server, at RATE, until its block ends: dry runs, and some that stay.

    failures: what the API server said instead of yes.
    """

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._calls = [0] * CLIENTS
        self.failures: list[str] = []
        self._kubeconfig = str(control_plane.kubeconfig)
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._create, args=(each,)) for each in range(CLIENTS)]

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    @property
    def calls(self) -> int:
        """How many creations were answered."""
        return sum(self._calls)

    def go_on(self) -> None:
        """Return when as many pods were created as there are clients, all begun from now on."""
        before = self.calls
        eventually(lambda: self.calls >= before + 2 * CLIENTS)

    def _create(self, client: int) -> None:
        api = ClusterApi.of_kubeconfig(self._kubeconfig)
        for number in itertools.count(client, CLIENTS):
            if self._stopping.wait(max(0.0, self._start + number / RATE - time.monotonic())):
                break
            document: dict[str, Any] = json.loads(pod(f"pod-{number}", {VCUDA_CORE: "20"}))
            try:
                api.create(self._path if number % REAL == 0 else f"{self._path}?dryRun=All", document)
            except KubernetesError as error:
                self.failures.append(str(error))
            self._calls[client] += 1
        api.close()
