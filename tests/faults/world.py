"""A cluster with gpugate in it that can be broken: a control plane, the wire to it, and gates."""

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

from rules.schema.loader import DEFAULT_NAMESPACE
from tests.e2e.cluster import ControlPlane
from tests.e2e.daemon import HOST, reserve_port
from tests.e2e.gate import SERVE, AdmissionHandler, eventually
from tests.e2e.installed import install
from tests.e2e.service import Service
from tests.faults.load import RIGHT, Client
from tests.faults.probes import Probe, edited, edited_rule, joined, late_node, rules
from tests.faults.wire import Way, Wire
from webhook.cluster.client import NODES, ClusterApi, config_maps

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES: Final = config_maps(DEFAULT_NAMESPACE)
_CONFIGURATION: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpugate"
# Bytes of a page of memory in /proc/PID/statm.
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Serve:
    """How the gate is run.

    prefix: a command before its own. log: `full` for a disk that is, `stuck` for a pipe that nobody reads;
    else a file. clock: whether its program reads `World.clock`. files: by the certificate that
    `World.write_certificate` writes, in place of the Secret's.
    """

    program: tuple[str, ...] = SERVE
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    log: str = ""
    replicas: int = 1
    files: bool = False
    clock: bool = False


def empty(kind: str, name: str) -> dict[str, Any]:
    """Return an object of ours as the manifests have it; applying all of them is a fault of its own."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "gpugate"}}


class Prefixed(AdmissionHandler):
    """A gate that another command starts, which becomes it."""

    def __init__(
        self, port: int, options: Sequence[str], log: Path, program: Sequence[str], prefix: Sequence[str]
    ) -> None:
        """Take what Gate takes, and the command."""
        super().__init__(port, options, log, program)
        self._argv = [*prefix, *self._argv]

    def logged(self) -> str:
        """Return its log."""
        return self._log.read_text("utf-8")

    def size(self) -> tuple[float, int]:
        """Return its resident memory, MB, and how many files it has open."""
        process = Path(f"/proc/{self.pid}")
        pages = int((process / "statm").read_text("utf-8").split()[1])
        return pages * _PAGE / 1e6, len(list((process / "fd").iterdir()))


class World:
    """One cluster for all faults; a context manager. folder: for keys, data and logs; empty."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        """Take where the binaries of the control plane are."""
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
            held = stack.enter_context(reserve_port())
            stack.enter_context(self.cluster)
            installation = install(self.cluster, held.getsockname()[1])
            self.wire = stack.enter_context(Wire(self.cluster.url, self.cluster.ca_pem))
            mine = self.cluster.service_account("gpugate", "gpugate")
            wired = str(self.wire.kubeconfig(mine))
            options = [wired if option == str(mine) else option for option in installation.options]
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
        """Where the API server calls the gate."""
        return self.installation.port

    @property
    def gate(self) -> Prefixed:
        """The gate, or the first of two."""
        return self.gates[0]

    def serve(self, how: Serve) -> None:
        """Run the gate so; one that runs so already, and is well, goes on."""
        if self._as == how and self.well():
            return
        self.end()
        stack = ExitStack()
        self._serving = stack
        ports = [self.port]
        if how.replicas > 1:
            held = [stack.enter_context(reserve_port()) for _ in range(how.replicas)]
            ports = [each.getsockname()[1] for each in held]
        self.gates = [self._gate(how, port) for port in ports]
        for gate in self.gates:
            stack.enter_context(gate)
        if how.replicas > 1:
            stack.enter_context(Service(self.port, ports))
        self._as = how
        eventually(self.well)

    def end(self) -> None:
        """Run none."""
        self._as = None
        if self._serving is not None:
            self._serving.close()
            self._serving = None
        self.gates = []

    def well(self) -> bool:
        """Tell whether the API server's calls are answered, and by the rules that there are."""
        ready = all(gate.ready() for gate in self.gates)
        return ready and (bool(self._as and self._as.files) or self.installation.in_force())

    def write_certificate(self, certificate_pem: bytes, key_pem: bytes) -> None:
        """Write the files that a gate of Serve.files has."""
        for path, content in zip(self._certificate, (certificate_pem, key_pem), strict=True):
            path.write_bytes(content)

    def log(self) -> str:
        """Return what the gate, or the first of two, has logged."""
        return self.gate.logged()

    def put(self, document: dict[str, Any], path: str = RULES) -> None:
        """Create an object, or make it so."""
        name = document["metadata"]["name"]
        self.api.apply(f"{path}/{name}", document, "faults")

    def remove(self, path: str) -> None:
        """Delete an object or, by a query, several, where there are any."""
        self.cluster.kubectl("delete", "--raw", path, check=False)

    def change(self) -> Change:
        """Return an edit of a rule and a node that joins, neither of them made before."""
        return Change(self, next(self._rounds))

    def answers(self, probe: Probe) -> bool:
        """Tell whether each gate gives the right answer."""
        return all(self._answers(gate.port, probe) for gate in self.gates)

    @contextmanager
    def broken(self, way: Way) -> Iterator[None]:
        """Have the wire in another way while the block runs; what is open is cut at its begin."""
        self.wire.way = way
        self.wire.cut()
        try:
            yield
        finally:
            self.wire.way = Way()

    @contextmanager
    def past_the_webhook(self) -> Iterator[None]:
        """Have the API server ask nobody about rules while the block runs."""
        document = self.api.get(_CONFIGURATION)
        (place,) = (
            place
            for place, each in enumerate(document["webhooks"])
            if each["name"] == "validate.rules.gpugate.dev"
        )
        path = f"/webhooks/{place}/namespaceSelector"
        nowhere = {"matchLabels": {"kubernetes.io/metadata.name": "nowhere"}}
        self.api.patch(_CONFIGURATION, [{"op": "replace", "path": path, "value": nowhere}])
        bad = edited_rule(0)
        bad["data"]["limits"] = "optinal"
        self.until(partial(self.accepts, bad))
        try:
            yield
        finally:
            before = document["webhooks"][place]["namespaceSelector"]
            self.api.patch(_CONFIGURATION, [{"op": "replace", "path": path, "value": before}])

    def accepts(self, rule: dict[str, Any]) -> bool:
        """Tell whether a rule, which need not be a good one, would be taken."""
        asked = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
        return self.cluster.kubectl(*asked, input=json.dumps(rule), check=False).returncode == 0

    @staticmethod
    def until(happened: Callable[[], bool], within_s: float = 60.0) -> None:
        """Look until something is so; AssertionError where it is not in time."""
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
        """Make a pipe that is full, and held open so that it can be written to."""
        os.mkfifo(pipe)
        held = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._stack.callback(os.close, held)
        with suppress(BlockingIOError):
            while True:
                os.write(held, b"." * 4096)

    @property
    def clock(self) -> Path:
        """The file that says by how much the clock of a gate is shifted."""
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
    """An edit of a rule, and a node that joins: what has to be in force afterwards."""

    def __init__(self, world: World, number: int) -> None:
        """Take a number that none before had."""
        self._world, self._number = world, number

    def make(self) -> None:
        """Make both; raises KubernetesError where the API server is away."""
        self._world.put(edited_rule(self._number))
        self._world.api.create(NODES, late_node(self._number))

    def in_force(self) -> bool:
        """Tell whether all gates know of both."""
        return all(self._world.answers(probe) for probe in (edited(self._number), joined(self._number)))

    def forget(self) -> None:
        """Take the node away."""
        self._world.remove(f"{NODES}/late-{self._number}")
