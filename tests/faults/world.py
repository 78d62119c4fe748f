"""A cluster with gpugate into which faults are injected: control plane, proxy and gpugate processes."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from rules.schema.config_map import DEFAULT_NAMESPACE
from tests.e2e.cluster import ControlPlane
from tests.e2e.daemon import HOST, reserve_port
from tests.e2e.installed import install
from tests.e2e.serve_process import SERVE, ServeProcess, eventually
from tests.e2e.service import Service
from tests.faults.load import RIGHT, Client
from tests.faults.probes import Probe, edited, edited_rule, joined, late_node, rules
from tests.faults.proxy import Proxy, ProxyMode
from webhook.cluster.client import ClusterApi
from webhook.cluster.resource import NODES, config_maps

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES: Final = config_maps(DEFAULT_NAMESPACE)
_CONFIGURATION: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpugate"
# Bytes of a page of memory in /proc/PID/statm.
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Serve:
    """How gpugate is run.

    prefix: a command that starts it. log: `full` for a full disk, `stuck` for a full pipe that is not read;
    otherwise a file. clock: whether the program reads `World.clock`. files: whether it serves the certificate
    of `World.write_certificate` instead of the one in the Secret.
    """

    program: tuple[str, ...] = SERVE
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    log: str = ""
    replicas: int = 1
    files: bool = False
    clock: bool = False


def empty(kind: str, name: str) -> dict[str, Any]:
    """Return an empty object of the manifests; to apply all manifests is a separate fault."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "gpugate"}}


class Prefixed(ServeProcess):
    """A gpugate process that is started by another command with exec."""

    def __init__(
        self, port: int, options: Sequence[str], log: Path, program: Sequence[str], prefix: Sequence[str]
    ) -> None:
        """Take the arguments of ServeProcess, and the command."""
        super().__init__(port, options, log, program)
        self._argv = [*prefix, *self._argv]

    def logged(self) -> str:
        """Return its log."""
        return self._log.read_text("utf-8")

    def size(self) -> tuple[float, int]:
        """Return its resident memory in MB, and its number of open files."""
        process = Path(f"/proc/{self.pid}")
        pages = int((process / "statm").read_text("utf-8").split()[1])
        return pages * _PAGE / 1e6, len(list((process / "fd").iterdir()))


class World:
    """The cluster for all faults; a context manager. folder: empty, for keys, data and logs."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        """Take the folder of the control plane binaries."""
        self.folder = folder
        self.cluster = ControlPlane(binaries, folder / "cluster")
        self.gates: list[Prefixed] = []
        self._stack = ExitStack()
        self._serving: ExitStack | None = None
        self._as: Serve | None = None
        self._rounds = itertools.count(1)
        self._logs = itertools.count(1)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            reserved = stack.enter_context(reserve_port())
            stack.enter_context(self.cluster)
            installation = install(self.cluster, reserved.getsockname()[1])
            self.proxy = stack.enter_context(Proxy(self.cluster.url, self.cluster.ca_pem))
            mine = self.cluster.service_account("gpugate", "gpugate")
            proxied = str(self.proxy.kubeconfig(mine))
            options = [proxied if option == str(mine) else option for option in installation.options]
            self.installation = replace(installation, options=options)
            self.api = ClusterApi.of_kubeconfig(str(self.cluster.kubeconfig))
            stack.callback(self.api.close)
            stack.callback(self.end)
            for document in rules():
                self.put(document)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def port(self) -> int:
        """The port at which the API server calls gpugate."""
        return self.installation.port

    @property
    def gate(self) -> Prefixed:
        """The gpugate process, or the first of two."""
        return self.gates[0]

    def serve(self, how: Serve) -> None:
        """Run gpugate in this way; a healthy process that runs so already is reused."""
        if self._as == how and self.is_healthy():
            return
        self.end()
        stack = ExitStack()
        self._serving = stack
        ports = [self.port]
        if how.replicas > 1:
            held = [stack.enter_context(reserve_port()) for _ in range(how.replicas)]
            ports = [held_port.getsockname()[1] for held_port in held]
        self.gates = [self._gate(how, port) for port in ports]
        for gate in self.gates:
            stack.enter_context(gate)
        if how.replicas > 1:
            stack.enter_context(Service(self.port, ports))
        self._as = how
        eventually(self.is_healthy)

    def end(self) -> None:
        """Stop all gpugate processes."""
        self._as = None
        if self._serving is not None:
            self._serving.close()
            self._serving = None
        self.gates = []

    def is_healthy(self) -> bool:
        """Return whether all processes are ready and the current rules are in force."""
        ready = all(gate.ready() for gate in self.gates)
        return ready and (bool(self._as and self._as.files) or self.installation.in_force())

    def write_certificate(self, certificate_pem: bytes, key_pem: bytes) -> None:
        """Write the certificate files for Serve.files."""
        for path, content in zip(self._certificate, (certificate_pem, key_pem), strict=True):
            path.write_bytes(content)

    def log(self) -> str:
        """Return the log of the gpugate process, or of the first of two."""
        return self.gate.logged()

    def put(self, document: dict[str, Any], path: str = RULES) -> None:
        """Create or update an object."""
        name = document["metadata"]["name"]
        self.api.apply(f"{path}/{name}", document, "faults")

    def remove(self, path: str) -> None:
        """Delete an object or, with a query, several; missing ones are ignored."""
        self.cluster.kubectl("delete", "--raw", path, check=False)

    def change(self) -> Change:
        """Return a new edit of a rule and a new node, not applied yet."""
        return Change(self, next(self._rounds))

    def answers(self, probe: Probe) -> bool:
        """Return whether each process gives the expected answer."""
        return all(self._answers(gate.port, probe) for gate in self.gates)

    @contextmanager
    def with_proxy_mode(self, mode: ProxyMode) -> Iterator[None]:
        """Set the mode of the proxy during the block; open connections are reset at its start."""
        self.proxy.mode = mode
        self.proxy.cut()
        try:
            yield
        finally:
            self.proxy.mode = ProxyMode()

    @contextmanager
    def without_rule_webhook(self) -> Iterator[None]:
        """Disable the webhook for rules during the block."""
        document = self.api.get(_CONFIGURATION)
        (index,) = (
            index
            for index, webhook in enumerate(document["webhooks"])
            if webhook["name"] == "validate.rules.gpugate.dev"
        )
        path = f"/webhooks/{index}/namespaceSelector"
        nowhere = {"matchLabels": {"kubernetes.io/metadata.name": "nowhere"}}
        self.api.patch(_CONFIGURATION, [{"op": "replace", "path": path, "value": nowhere}])
        bad = edited_rule(0)
        bad["data"]["limits"] = "optinal"
        self.until(partial(self.accepts, bad))
        try:
            yield
        finally:
            before = document["webhooks"][index]["namespaceSelector"]
            self.api.patch(_CONFIGURATION, [{"op": "replace", "path": path, "value": before}])

    def accepts(self, rule: dict[str, Any]) -> bool:
        """Return whether the API server accepts a rule, valid or not."""
        arguments = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
        return self.cluster.kubectl(*arguments, input=json.dumps(rule), check=False).returncode == 0

    @staticmethod
    def until(happened: Callable[[], bool], within_s: float = 60.0) -> None:
        """Wait until a condition is true; AssertionError after the time-out."""
        eventually(happened, within_s)

    def _gate(self, how: Serve, port: int) -> Prefixed:
        log = self.folder / f"gate-{next(self._logs)}.log"
        if how.log == "full":
            log = Path("/dev/full")
        elif how.log == "stuck":
            self._stick(log)
        prefix = how.prefix
        if how.clock:
            self.clock.write_text("0", "utf-8")
            prefix = ("env", f"FAULTS_CLOCK={self.clock}")
        options = [*self.installation.options, "--drain-seconds=0", *how.options]
        if how.files:
            kubeconfig = options[options.index("--kubeconfig") + 1]
            certificate, key = self._certificate
            options = ["--kubeconfig", kubeconfig, "--host", HOST, "--drain-seconds=0"]
            options += ["--tls-cert", str(certificate), "--tls-key", str(key)]
        return Prefixed(port, options, log, how.program, prefix)

    def _stick(self, pipe: Path) -> None:
        """Create a full pipe, and keep it open for reading so that writers can open it."""
        os.mkfifo(pipe)
        held = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._stack.callback(os.close, held)
        with suppress(BlockingIOError):
            while True:
                os.write(held, b"." * 4096)

    @property
    def clock(self) -> Path:
        """The file with the clock offset of the gpugate process."""
        return self.folder / "clock"

    @property
    def _certificate(self) -> tuple[Path, Path]:
        return self.folder / "tls.crt", self.folder / "tls.key"

    @staticmethod
    def _answers(port: int, probe: Probe) -> bool:
        client = Client(port)
        try:
            return client.ask(probe) == RIGHT
        finally:
            client.close()


class Change:
    """An edit of a rule and a new node, which must be in force afterwards."""

    def __init__(self, world: World, number: int) -> None:
        """Take a new number."""
        self._world, self._number = world, number

    def make(self) -> None:
        """Apply both; raises KubernetesError if the API server is not reachable."""
        self._world.put(edited_rule(self._number))
        self._world.api.create(NODES, late_node(self._number))

    def in_force(self) -> bool:
        """Return whether both are in force in all processes."""
        return all(self._world.answers(probe) for probe in (edited(self._number), joined(self._number)))

    def forget(self) -> None:
        """Delete the node."""
        self._world.remove(f"{NODES}/late-{self._number}")
