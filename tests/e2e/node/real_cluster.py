"""A cluster whose nodes are real: kubelet, containerd, runc, CNI and NVIDIA's Container Toolkit.

Each node runs in namespaces of its own (node.sh), in a network that the whole cluster shares. What only
NVIDIA or a GPU has is replaced (assets/standins): NVML, device plugin, DRA driver and nvidia-container-cli.

    with cluster(folder) as real:
        real.kubectl("apply", "-f", "pods.yaml")       # or any program: real.run("bash")
        real.nodes["gpu-1"].import_image(archive)      # OCI, or `docker save`
        real.nodes["gpu-1"].run("ctr", "-n", "k8s.io", "images", "list")
        real.nodes["gpu-1"].install_driver(DRIVER_535)

While the block runs, the calling thread is in the network of the cluster. Everything ends with the block, and
also with the process, however that ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tests.e2e.assets import build
from tests.e2e.assets import node as assets
from tests.e2e.cluster import KUBERNETES_SERVICE, ControlPlane, missing
from tests.e2e.daemon import READY_S
from tests.e2e.node.images import write_image
from tests.e2e.serve_process import eventually

_PROGRAM: Final = Path(__file__).with_name("node.sh")
_STANDINS: Final = build.MODULE / "standins"
# Of the cluster's network; each node has one address more than the one before it.
_NETWORK: Final = "10.77.0"
CONTROL_PLANE: Final = f"{_NETWORK}.254"
PAUSE: Final = "localhost/pause:1"
BOX: Final = "localhost/box:1"
GPU: Final = "nvidia.com/gpu"
_CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
# Modes of the Container Toolkit, by RuntimeClass, which is also the name for containerd. The first three are
# the GPU Operator's; the last one is for the mode of Tegra.
RUNTIMES: Final = {
    "nvidia": "nvidia-container-runtime",
    "nvidia-cdi": "nvidia-container-runtime.cdi",
    "nvidia-legacy": "nvidia-container-runtime.legacy",
    "nvidia-csv": "nvidia-container-runtime.csv",
}
Strategy = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]


@dataclass(frozen=True)
class Model:
    """A GPU as NVML reports it: name, compute capability (80 is 8.0), memory in MiB, numbers of nvml.h."""

    name: str
    capability: int
    mib: int
    architecture: int
    brand: int
    pci: int


@dataclass(frozen=True)
class Driver:
    """A driver: its version, and its CUDA version (12080 is 12.8)."""

    version: str
    cuda: int


@dataclass(frozen=True)
class NodeSpec:
    """A node: its GPUs, its driver, and the strategy of its device plugin; None: it has no device plugin."""

    name: str
    model: Model
    count: int
    driver: Driver
    strategy: Strategy | None


A100: Final = Model("NVIDIA A100-SXM4-40GB", 80, 40960, 7, 14, 0x20B010DE)
T4: Final = Model("Tesla T4", 75, 15360, 6, 14, 0x1EB810DE)
DRIVER_570: Final = Driver("570.86.15", 12080)
DRIVER_535: Final = Driver("535.129.03", 12020)
NODES: Final = (
    NodeSpec("gpu-1", A100, 8, DRIVER_570, "cdi-cri"),
    NodeSpec("gpu-2", T4, 2, DRIVER_535, "envvar"),
)


def reason_to_skip() -> str:
    """Return why this machine can run no node; empty if it can."""
    absent = [*missing(build.folder()), *assets.missing()]
    return assets.unfit() or (absent and f"no {', '.join(absent)}: run `make e2e-node`") or ""


def kernel_settings() -> dict[str, str]:
    """Return the settings of the kernel, for all namespaces, that a kubelet may change."""
    names = re.findall(r"^shield (\S+)", _PROGRAM.read_text("utf-8"), re.MULTILINE)
    return {name: Path("/proc/sys", name).read_text("utf-8").strip() for name in names}


class Node:
    """A node of a cluster, in its namespaces; `cluster` makes it.

    logs: of its programs. spec: as it was started; drivers and device plugins may have been replaced since.
    """

    def __init__(self, spec: NodeSpec, address: str, folder: Path, control: ControlPlane) -> None:
        self.spec, self.address, self._folder, self._control = spec, address, folder, control
        self.name, self.logs, self.kubelet_configuration = spec.name, folder / "logs", folder / "kubelet.json"
        self._pid = 0
        self._programs: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the node while the block runs; await_gpus() says when it is ready."""
        self._write_files()
        command = ["sh", str(_PROGRAM), self.name, self.address, str(self._folder)]
        # In a session of its own: Ctrl-C is for the test, whose end is the end of the node.
        with (self.logs / "node.log").open("ab") as log:
            first = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        try:
            self._pid = self._await_first_process(first)
            self._start_programs()
            yield
        finally:
            with first:  # closes its standard input, and waits
                pass
            for program in self._programs.values():
                program.wait()

    def run(self, *command: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the node's namespaces; with check, AssertionError with its output if it fails."""
        done = subprocess.run(
            self._inside(*command),
            env=self._environment() | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or not done.returncode, f"{command}: {done.stdout}{done.stderr}"
        return done

    def start(self, name: str, *command: str) -> None:
        """Start a program in the node's namespaces; it ends with the node. Its log is NAME.log."""
        with (self.logs / f"{name}.log").open("ab") as log:
            self._programs[name] = subprocess.Popen(
                # It ends with `nsenter`, its parent here.
                self._inside("setpriv", "--pdeathsig=TERM", *command),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, name: str) -> None:
        """End a program by SIGTERM, if it runs."""
        program = self._programs.pop(name, None)
        if program is not None:
            program.send_signal(signal.SIGTERM)
            program.wait()

    def import_image(self, archive: Path) -> None:
        """Import images of an archive, OCI or of `docker save`; pods need imagePullPolicy Never."""
        self.run(
            "ctr", "--namespace", "k8s.io", "images", "import", "--snapshotter", "overlayfs", str(archive)
        )

    def install_driver(self, driver: Driver | None) -> None:
        """Replace the driver and the CDI specification, as a restart of the node does; None: no driver."""
        root = self._folder / "driver"
        libraries = root / "usr/lib64"
        shutil.rmtree(libraries, ignore_errors=True)
        (root / "gpus").unlink(missing_ok=True)
        if driver is not None:
            libraries.mkdir(parents=True)
            for name in ("libnvidia-ml.so", "libcuda.so"):
                library = libraries / f"{name}.{driver.version}"
                shutil.copyfile(assets.standins() / f"{name}.1", library)
                (libraries / f"{name}.1").symlink_to(library.name)
            self._write_gpus(driver)
        if self._pid:
            self._write_cdi()

    def break_nvml(self, result: int, driver: Driver) -> None:
        """Let nvmlInit return a result of nvml.h, such as 18, while a driver is installed."""
        self._write_gpus(driver, result)

    def use_device_plugin(
        self, strategy: Strategy | None, count: int | None = None, *, unhealthy: int = 0
    ) -> None:
        """Replace the device plugin; the kubelet offers its GPUs when this returns. None: there is none.

        unhealthy: how many GPUs, the first ones, it reports as unhealthy.
        """
        self.stop("gpu-plugin")
        count = self.spec.count if count is None else count
        if strategy is not None:
            # A kubelet that still has the one before would hand its GPUs out as that one does.
            eventually(lambda: self._allocatable() == 0)
            self.start("gpu-plugin", "gpu-plugin", "device", GPU, str(count), strategy, str(unhealthy))
            eventually(lambda: self._allocatable() == count - unhealthy)

    @contextmanager
    def dra_driver(self) -> Iterator[None]:
        """Let a DRA driver offer the GPUs of the node while the block runs, instead of the device plugin."""
        self.use_device_plugin(None)
        model, driver = self.spec.model, self.spec.driver
        major, minor = divmod(model.capability, 10)
        device = {
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": model.name},
                "cudaComputeCapability": {"version": f"{major}.{minor}.0"},
                "driverVersion": {"version": driver.version},
                "cudaDriverVersion": {"version": f"{driver.cuda // 1000}.{driver.cuda % 1000 // 10}.0"},
            },
            "capacity": {"memory": {"value": f"{model.mib}Mi"}},
        }
        self.start("dra-driver", "gpu-plugin", "dra", self.name, str(self.spec.count), json.dumps(device))
        slices = ("resourceslices", f"--field-selector=spec.nodeName={self.name}")
        eventually(lambda: bool(self._control.kubectl("get", *slices, "-o", "name").stdout))
        try:
            yield
        finally:
            self.stop("dra-driver")
            self._control.kubectl("delete", *slices)
            self.use_device_plugin(self.spec.strategy)

    def _allocatable(self) -> int:
        path = f"jsonpath={{.status.allocatable.{GPU.replace('.', chr(92) + '.')}}}"
        return int(self._control.kubectl("get", "node", self.name, "-o", path).stdout or 0)

    def _write_files(self) -> None:
        for name in ("driver/dev", "toolkit", "logs"):
            (self._folder / name).mkdir(parents=True)
        for minor, name in [
            *((i, f"nvidia{i}") for i in range(self.spec.count)),
            (255, "nvidiactl"),
            (254, "nvidia-uvm"),
        ]:
            os.mknod(self._folder / "driver/dev" / name, 0o20666, os.makedev(195, minor))
        self.install_driver(self.spec.driver)
        command_line = _STANDINS / "nvidia-container-cli"
        for mode in ("auto", "csv"):
            text = _TOOLKIT.format(
                mode=mode, toolkit=assets.toolkit(), runc=_runc(), command_line=command_line
            )
            (self._folder / "toolkit" / ("csv.toml" if mode == "csv" else "config.toml")).write_text(text)
        csv = self._folder / "toolkit" / RUNTIMES["nvidia-csv"]
        csv.write_text(_CSV.format(program=assets.toolkit() / RUNTIMES["nvidia"]))
        csv.chmod(0o755)
        self._write("containerd.toml", _containerd(self._folder))
        self._write("cni/node.conflist", json.dumps(_cni(self.address)))
        self._write(self.kubelet_configuration.name, json.dumps(_kubelet(self.address)))

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")

    def _write_gpus(self, driver: Driver, init: int = 0) -> None:
        """Write what NVML says; a reader sees the whole file or the one before."""
        model = self.spec.model
        values = {"init": init, "driver": driver.version, "cuda": driver.cuda, "gpus": self.spec.count}
        values |= {"name": model.name, "capability": model.capability, "mib": model.mib}
        values |= {"architecture": model.architecture, "brand": model.brand, "pci": model.pci}
        unfinished = self._folder / "driver/gpus.new"
        unfinished.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        unfinished.replace(self._folder / "driver/gpus")

    def _write_cdi(self) -> None:
        """Write the CDI specification by NVIDIA's own program, as its service does after an installation."""
        if not (self._folder / "driver/gpus").exists():
            self.run("rm", "-f", "/var/run/cdi/nvidia.yaml")
            return
        driver = "/run/nvidia/driver"
        hook = assets.toolkit() / "nvidia-cdi-hook"
        roots = (f"--driver-root={driver}", f"--dev-root={driver}", f"--nvidia-cdi-hook-path={hook}")
        self.run("nvidia-ctk", "cdi", "generate", "--mode=nvml", *roots, "--output=/var/run/cdi/nvidia.yaml")

    def _await_first_process(self, first: subprocess.Popen[bytes]) -> int:
        """Return the process id of the node's first process, once its mounts are there."""
        assert first.stdout is not None
        if first.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{self.name}: {(self.logs / 'node.log').read_text()}")
        # The program, `unshare` below it, and below that the first process.
        pid = first.pid
        for _ in range(2):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        self._write("pid", str(pid))
        return pid

    def _start_programs(self) -> None:
        self._write_cdi()
        self.start("containerd", "containerd", "--config", str(self._folder / "containerd.toml"))
        eventually(lambda: not self.run("ctr", "version", check=False).returncode, READY_S)
        for name in (PAUSE, BOX):
            archive = self._folder / f"{name.partition('/')[2].partition(':')[0]}.tar"
            self.import_image(write_image(archive, name))
        self.start(
            "kubelet",
            "kubelet",
            f"--config={self.kubelet_configuration}",
            f"--kubeconfig={self._control.kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        )

    def await_gpus(self) -> None:
        """Return once the node is Ready and offers its GPUs."""
        ready = ("wait", "--for=condition=Ready", f"node/{self.name}", "--timeout=1s")
        eventually(lambda: not self._control.kubectl(*ready, check=False).returncode, READY_S)
        if self.spec.strategy is not None:
            self.use_device_plugin(self.spec.strategy)

    def _inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self._pid}", "-m", "-n", "-p", "-i", "-u", "-C", *command]

    def _environment(self) -> dict[str, str]:
        return environment(self._control)


@dataclass(frozen=True)
class RealCluster:
    """A control plane and its nodes, by name."""

    control: ControlPlane
    nodes: dict[str, Node]
    outer_network: int  # of the machine, as a file descriptor

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let the calling thread be in the network of the machine while the block runs, as for a download."""
        with Path("/proc/thread-self/ns/net").open("rb") as inner:
            _enter(self.outer_network)
            try:
                yield
            finally:
                _enter(inner.fileno())

    def kubectl(
        self, *arguments: str, input: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl, as ControlPlane does."""
        return self.control.kubectl(*arguments, input=input, check=check)

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in the network of the cluster, with KUBECONFIG set and kubectl on the PATH."""
        return subprocess.run(
            command, env=environment(self.control), capture_output=True, text=True, check=check
        )

    def import_image(self, archive: Path) -> None:
        """Import the images of an archive on each node."""
        for node in self.nodes.values():
            node.import_image(archive)


@contextmanager
def cluster(folder: Path, specs: Sequence[NodeSpec] = NODES) -> Iterator[RealCluster]:
    """Run a cluster in a folder, which must be new or empty, while the block runs; reason_to_skip() is empty.

    A RuntimeClass for each of RUNTIMES; namespaces get their service account; logs stay in the folder.
    """
    with ExitStack() as stack:
        outer_network = stack.enter_context(_own_network(len(specs)))
        control = ControlPlane(
            build.folder(), folder / "control-plane", scheduler=True, address=CONTROL_PLANE
        )
        stack.enter_context(control)
        stack.enter_context(control.controllers())
        classes = [
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": name},
                "handler": name,
            }
            for name in RUNTIMES
        ]
        control.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": classes})
        )
        nodes = {}
        for index, spec in enumerate(specs, 1):
            nodes[spec.name] = Node(spec, f"{_NETWORK}.{index}", folder / spec.name, control)
            stack.enter_context(nodes[spec.name].running())
        for node in nodes.values():
            node.await_gpus()
        account = ("get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")
        eventually(lambda: bool(control.kubectl(*account).stdout))
        yield RealCluster(control, nodes, outer_network)


def environment(control: ControlPlane) -> dict[str, str]:
    """Return the variables of a program in the cluster: KUBECONFIG, and a PATH with all programs."""
    folders = (build.folder(), assets.containerd(), assets.toolkit(), assets.standins(), _runc().parent)
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    return os.environ | {"KUBECONFIG": str(control.kubeconfig), "PATH": path}


@contextmanager
def _own_network(count: int) -> Iterator[int]:
    """Put the calling thread into a new network while the block runs, with an address for each node.

    Yields the network before, as a file descriptor.
    """
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        if _LIBC.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        try:
            busybox = str(assets.debian() / "bin/busybox")
            addresses = [f"{_NETWORK}.{index}" for index in range(1, count + 1)]
            for command in (
                "link set lo up",
                "link add nodes type bridge",
                *(f"addr add {address}/24 dev nodes" for address in (*addresses, CONTROL_PLANE)),
                f"addr add {KUBERNETES_SERVICE}/32 dev nodes",
                "link set nodes up",
            ):
                subprocess.run([busybox, "ip", *command.split()], check=True)
            yield before.fileno()
        finally:
            _enter(before.fileno())


def _enter(network: int) -> None:
    """Move the calling thread to a network, by a file descriptor."""
    if _LIBC.setns(network, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _runc() -> Path:
    return assets.debian() / "usr/sbin/runc"


def _kubelet(address: str) -> dict[str, Any]:
    """Return a KubeletConfiguration for cgroup v1, without iptables, DNS and changes to the kernel."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "protectKernelDefaults": True,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "healthzPort": 0,
        "readOnlyPort": 0,
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "syncFrequency": "5s",
        "nodeStatusUpdateFrequency": "1s",
    }


def _cni(address: str) -> dict[str, Any]:
    """Return the network of a node's pods: a bridge of its own; pods of all nodes reach each other."""
    number = address.rpartition(".")[2]
    bridge = {
        "type": "bridge",
        "bridge": f"pods{number}",
        "isGateway": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": f"10.88.{number}.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def _containerd(folder: Path) -> str:
    """Return containerd's settings. restrict_oom_score_adj: for a machine without CAP_SYS_RESOURCE."""
    programs = {"runc": _runc()} | {name: assets.toolkit() / program for name, program in RUNTIMES.items()}
    programs["nvidia-csv"] = Path("/etc/nvidia-container-runtime", RUNTIMES["nvidia-csv"])
    runtimes = "".join(_RUNTIME.format(name=name, program=program) for name, program in programs.items())
    cni = assets.debian() / "usr/lib/cni"
    return _CONTAINERD.format(pause=PAUSE, cni=cni, configuration=folder / "cni") + runtimes


_CONTAINERD: Final = """version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{cni}"]
conf_dir = "{configuration}"
"""
_RUNTIME: Final = """[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}.options]
BinaryName = "{program}"
"""
_TOOLKIT: Final = """accept-nvidia-visible-devices-as-volume-mounts = true
[nvidia-container-cli]
root = "/run/nvidia/driver"
path = "{command_line}"
load-kmods = false
[nvidia-container-runtime]
mode = "{mode}"
runtimes = ["{runc}"]
[nvidia-container-runtime-hook]
path = "{toolkit}/nvidia-container-runtime-hook"
[nvidia-ctk]
path = "{toolkit}/nvidia-cdi-hook"
"""
_CSV: Final = """#!/bin/sh
NVIDIA_CTK_CONFIG_FILE_PATH=/etc/nvidia-container-runtime/csv.toml exec {program} "$@"
"""
