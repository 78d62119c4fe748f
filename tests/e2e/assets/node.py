"""Builds what a node consists of: kubelet, containerd, runc, CNI plugins, NVIDIA's Container Toolkit.

Run as `python -m tests.e2e.assets.node` it makes what is missing, next to the programs of build.py, and
prints the folders. It needs Go, a C compiler, and apt, for Debian's packages, which it unpacks and does not
install.
"""
# ruff: noqa: T201 - a build prints its steps

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.e2e.assets import build

_CONTAINERD: Final = "github.com/containerd/containerd/v2"
_CONTAINERD_MODULE: Final = build.MODULE / "containerd"
# They are for file systems that no test uses.
_CONTAINERD_TAGS: Final = "-tags=no_btrfs,no_devmapper,no_zfs,no_aufs"
_TOOLKIT: Final = "github.com/NVIDIA/nvidia-container-toolkit"
_TOOLKIT_MODULE: Final = build.MODULE / "toolkit"
# NVML is opened at run time, as its Makefile does:
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.20.1/Makefile
_TOOLKIT_LINKING: Final = "-s -w -extldflags=-Wl,-z,lazy"
_TOOLKIT_ENVIRONMENT: Final = {
    "CGO_ENABLED": "1",
    "CGO_CFLAGS": "-O1 -Wno-deprecated-declarations",
    "CGO_LDFLAGS": "-Wl,--unresolved-symbols=ignore-in-object-files",
}
# `.cdi` and `.legacy` are the program with a fixed mode, as the GPU Operator's RuntimeClasses name them.
_TOOLKIT_PROGRAMS: Final = (
    "nvidia-ctk",
    "nvidia-cdi-hook",
    "nvidia-container-runtime",
    "nvidia-container-runtime.cdi",
    "nvidia-container-runtime.legacy",
    "nvidia-container-runtime-hook",
)
_DEBIAN: Final = ("runc", "containernetworking-plugins", "busybox-static")
_STANDINS: Final = build.MODULE / "standins"


def containerd() -> Path:
    """Name the folder of containerd, its shim and ctr, whether they have been built or not."""
    return build.folder().parent / f"containerd-{build.pinned(_CONTAINERD, _CONTAINERD_MODULE)}"


def toolkit() -> Path:
    """Name the folder of the Container Toolkit's programs, whether they have been built or not."""
    return build.folder().parent / f"nvidia-container-toolkit-{build.pinned(_TOOLKIT, _TOOLKIT_MODULE)}"


def debian() -> Path:
    """Name the folder that Debian's packages are unpacked in, whether they have been or not."""
    return build.folder().parent / "debian"


def standins() -> Path:
    """Name the folder of what replaces NVIDIA's own NVML, device plugin and DRA driver."""
    return build.folder().parent / "node"


def missing() -> list[str]:
    """Return which programs are missing."""
    needed = (
        build.folder() / "kubelet",
        containerd() / "containerd",
        toolkit() / "nvidia-ctk",
        debian() / "bin/busybox",
        standins() / "gpu-plugin",
        standins() / "cuda-program",
    )
    return [path.name for path in needed if not path.is_file()]


def unfit() -> str:
    """Return why this machine can run no node, whatever is built; empty if it can."""
    if os.geteuid():
        return "needs root"
    if not Path("/sys/fs/cgroup/memory/cgroup.procs").exists():
        return "needs cgroup v1"
    namespaces = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--mount-proc",
        "--ipc",
        "--uts",
        "--cgroup",
    ]
    tried = [*namespaces, "mount", "-t", "tmpfs", "none", "/run"]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return f"needs namespaces: {done.stderr.strip()}" if done.returncode else ""


def build_containerd(go: str) -> None:
    """Build containerd's programs, which say their version."""
    version = build.pinned(_CONTAINERD, _CONTAINERD_MODULE)
    flags = f"-s -w -X {_CONTAINERD}/version.Version={version}"
    for name in ("containerd", "containerd-shim-runc-v2", "ctr"):
        package = f"{_CONTAINERD}/cmd/{name}"
        build.build_missing(containerd() / name, package, go, _CONTAINERD_MODULE, flags, _CONTAINERD_TAGS)


def build_toolkit(go: str) -> None:
    """Build the Container Toolkit."""
    for name in _TOOLKIT_PROGRAMS:
        package = f"{_TOOLKIT}/cmd/{name}"
        build.build_missing(
            toolkit() / name, package, go, _TOOLKIT_MODULE, _TOOLKIT_LINKING, **_TOOLKIT_ENVIRONMENT
        )


def unpack_debian() -> None:
    """Download Debian's packages and unpack them; their folder appears whole or not at all."""
    if debian().is_dir():
        return
    debian().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=debian().parent) as folder:
        download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *_DEBIAN]
        subprocess.run(download, cwd=folder, check=True)
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, f"{folder}/root"], check=True)
        Path(folder, "root").rename(debian())


def build_standins(go: str) -> None:
    """Build the plugin, NVML with every function of nvml.h, libcuda and a program that is linked to it."""
    build.build_missing(standins() / "gpu-plugin", "./standins/gpu-plugin", go, build.MODULE)
    go_list = [go, "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml"]
    completed = subprocess.run(go_list, cwd=_TOOLKIT_MODULE, stdout=subprocess.PIPE, text=True, check=True)
    header = Path(completed.stdout.strip(), "gen/nvml/nvml.h").read_text("utf-8")
    names = sorted(set(re.findall(r"nvmlReturn_t DECLDIR (\w+)\(", header)))
    attributes = '__attribute__((weak, alias("gpugate_not_supported")))'
    rest = [
        "int gpugate_not_supported(void) { return 3; }",
        *(f"int {name}(void) {attributes};" for name in names),
    ]
    with tempfile.TemporaryDirectory() as folder:
        sources = {"rest.c": "\n".join(rest), "cuda.c": "", "program.c": "int main(void) { return 0; }"}
        for name, text in sources.items():
            Path(folder, name).write_text(f"{text}\n", "utf-8")
        for command in (
            f"-shared -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 {_STANDINS}/nvml.c {folder}/rest.c",
            f"-shared -Wl,-soname,libcuda.so.1 -o libcuda.so.1 {folder}/cuda.c",
            f"-o cuda-program {folder}/program.c -Wl,--no-as-needed libcuda.so.1",
        ):
            subprocess.run(["gcc", "-fPIC", *command.split()], cwd=standins(), check=True)


def main() -> int:
    """Make what is missing, if a node can run here; exit 2 without Go, else as the step does that fails."""
    if reason := unfit():
        print(f"nothing is built for nodes: this machine can run none, {reason}")
        return 0
    go = build.find_go()
    if go is None:
        return 2
    try:
        unpack_debian()
        build.build_missing(build.folder() / "kubelet", f"{build.KUBERNETES}/cmd/kubelet", go, build.MODULE)
        build_containerd(go)
        build_toolkit(go)
        build_standins(go)
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(build.folder(), containerd(), toolkit(), debian(), standins(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
