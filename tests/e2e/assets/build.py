"""Builds the programs of e2e tests from the versions in go.mod: Kubernetes, its packages, Karpenter, Helm.

There is no archive to download and trust: the Go module proxy serves the sources, go.sum holds them to their
checksums, and the result is kept in the user's cache, one folder a pair of versions, outside the tree.

Run as a script it builds what is missing and prints the folder for KUBEBUILDER_ASSETS; the steps are on
stderr. The argument is a version of Kubernetes, v1.31 (its newest patch) or v1.31.4; without one, it is that
of go.mod. `--cluster` leaves out Karpenter and Helm. It needs Go (go.mod says from which version on), the
module proxy the first time, and the standard library only.
"""
# ruff: noqa: T201 - a build prints its steps

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

MODULE = Path(__file__).resolve().parent
# The oldest Kubernetes that gpugate supports. README.md names it.
OLDEST_MODULE = MODULE / "oldest"
KUBERNETES = "k8s.io/kubernetes"
ETCD = "go.etcd.io/etcd/server/v3"
KARPENTER = "sigs.k8s.io/karpenter"
# A module of its own, because it requires an older Kubernetes.
KARPENTER_MODULE = MODULE / "karpenter"
HELM = "helm.sh/helm/v3"
# A module of its own, because it has its own versions of Kubernetes's packages.
HELM_MODULE = MODULE / "helm"

# What each program is built from: the `tool` lines of go.mod, under the names that envtest gives them.
PROGRAMS = {
    "etcd": ETCD,
    "kube-apiserver": f"{KUBERNETES}/cmd/kube-apiserver",
    "kube-scheduler": f"{KUBERNETES}/cmd/kube-scheduler",
    "kubectl": f"{KUBERNETES}/cmd/kubectl",
    "kube-controller-manager": f"{KUBERNETES}/cmd/kube-controller-manager",
}
# Answers by Kubernetes's own code what the tests compare with ours; compiles with the version of go.mod only.
ORACLE = "./oracle"

# Static programs run on any Linux; a go.work above this tree must not change their versions.
_ENVIRONMENT = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}


def pinned(module: str, by: Path = MODULE) -> str:
    """Read from go.mod which version of a module it requires, as "v1.2.3"; LookupError when none."""
    match = re.search(rf"^\s*{re.escape(module)} (v\S+)", (by / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise LookupError(f"{by / 'go.mod'} requires no {module}")
    return match[1]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpugate" / "e2e"


def folder(module: Path = MODULE) -> Path:
    """Name the folder of the programs that a go.mod pins, whether they have been built or not."""
    return _cache() / f"kubernetes-{pinned(KUBERNETES, module)}-etcd-{pinned(ETCD, module)}"


def module_of(version: str) -> Path:
    """Name the folder of the go.mod for a Kubernetes, "v1.31" or "v1.31.4", whether it exists or not.

    ValueError when the text is no such version. A module in the tree is used if its patch fits.
    """
    if not re.fullmatch(r"v1\.\d+(\.\d+)?", version):
        raise ValueError(f"{version!r} is no version of Kubernetes: write v1.31 or v1.31.4")
    for module in (MODULE, OLDEST_MODULE):
        if f"{pinned(KUBERNETES, module)}.".startswith(f"{version}."):
            return module
    return _cache() / "modules" / version


def module_file(published: str, version: str) -> str:
    """Compose the go.mod for a Kubernetes, "v1.2.3", from the one that it publishes; Go completes ours.

    It requires its own packages as v0.0.0, which are published as v0.2.3
    (https://github.com/kubernetes/kubernetes/tree/master/staging).
    """
    language, etcd = (
        re.search(rf"^\s*{name} (\S+)", published, re.MULTILINE) for name in ("go", re.escape(ETCD))
    )
    if language is None or etcd is None:
        raise LookupError(f"the go.mod of Kubernetes {version} requires no Go or no {ETCD}")
    packages = re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0$", published, re.MULTILINE)
    required = f"\t{ETCD} {etcd[1]}\n\t{KUBERNETES} {version}\n"
    replaced = "".join(f"\t{package} => {package} v0.{version.split('.', 1)[1]}\n" for package in packages)
    return (
        f"// The programs of Kubernetes {version}, written by build.py.\n"
        f"module gpugate.dev/tests/e2e/assets\n\ngo {language[1]}\n\n"
        f"require (\n{required})\n\nreplace (\n{replaced})\n"
    )


def write_module(module: Path, go: str) -> None:
    """Write the go.mod of a Kubernetes that the tree has no module of; CalledProcessError when go fails."""
    command = [go, "mod", "download", "-json", f"{KUBERNETES}@{module.name}"]
    done = subprocess.run(
        command, cwd=MODULE, env=_ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=False
    )
    document = json.loads(done.stdout)
    if done.returncode:
        print(document["Error"], file=sys.stderr)
        done.check_returncode()
    module.mkdir(parents=True, exist_ok=True)
    unfinished = module / f"go.mod.{os.getpid()}"
    unfinished.write_text(module_file(Path(document["GoMod"]).read_text(), document["Version"]))
    unfinished.replace(module / "go.mod")


def karpenter() -> Path:
    """Name the folder of `karpenter` and its CRDs, `*.yaml`, whether it has been built or not."""
    return _cache() / f"karpenter-{pinned(KARPENTER, KARPENTER_MODULE)}"


def helm() -> Path:
    """Name the folder of `helm`, whether it has been built or not."""
    return _cache() / f"helm-{pinned(HELM, HELM_MODULE)}"


def helm_linker_flags() -> str:
    """Compose the `go build -ldflags` of Helm: no symbols, and the versions of Helm and Kubernetes in it.

    As its Makefile does: https://github.com/helm/helm/blob/v3.22.0/Makefile
    """
    minor = pinned("k8s.io/client-go", HELM_MODULE).split(".")[1]
    stamps = {"internal/version.version": pinned(HELM, HELM_MODULE)}
    for package in ("pkg/chartutil", "pkg/lint/rules"):
        stamps |= {f"{package}.k8sVersionMajor": "1", f"{package}.k8sVersionMinor": minor}
    return " ".join(["-s -w", *(f"-X {HELM}/{name}={value}" for name, value in stamps.items())])


def linker_flags(module: Path = MODULE) -> str:
    """Compose the `go build -ldflags`: no symbols, and the version that /version and --version answer.

    Kubernetes keeps its version in two packages, which its release build fills in the same way
    (https://github.com/kubernetes/kubernetes/blob/master/hack/lib/version.sh).
    """
    version = pinned(KUBERNETES, module)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(
        ["-s -w", *(f"-X {p}.{name}={value}" for p in packages for name, value in stamps.items())]
    )


def build(
    package: str,
    target: Path,
    go: str,
    module: Path = MODULE,
    flags: str = "",
    *added: str,
    **environment: str,
) -> None:
    """Build one program into target, which appears whole or not at all; CalledProcessError when go fails.

    A go.sum of the tree is complete. One in the cache grows, and Go compares it with its checksum database.
    flags: for the linker, else by the module; added: further options of `go build`; environment: variables.
    """
    unfinished = target.with_suffix(f".{os.getpid()}")
    flags = flags or {KARPENTER_MODULE: "-s -w", HELM_MODULE: helm_linker_flags()}.get(module, "")
    flags = flags or linker_flags(module)
    known = "readonly" if module.is_relative_to(MODULE) else "mod"
    options = ["-trimpath", f"-modfile={module / 'go.mod'}", f"-mod={known}", "-ldflags", flags, *added]
    command = [go, "build", *options, "-o", str(unfinished), package]
    try:
        subprocess.run(command, cwd=MODULE, env=_ENVIRONMENT | environment, check=True)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def copy_definitions(go: str) -> None:
    """Copy the CRDs of Karpenter and of its KWOK provider, which are files of its module."""
    karpenter().mkdir(parents=True, exist_ok=True)
    command = [go, "mod", "download", "-json", KARPENTER]  # `go list` names no folder before the download
    completed = subprocess.run(
        command, cwd=KARPENTER_MODULE, env=_ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True
    )
    for part in ("pkg", "kwok"):
        for source in Path(json.loads(completed.stdout)["Dir"], part, "apis/crds").glob("*.yaml"):
            shutil.copyfile(source, karpenter() / source.name)


def find_go() -> str | None:
    """Return the path of `go`, or say that there is none."""
    # The second place is where the archive of go.dev is unpacked to; it is often not on a script's PATH.
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        print("there is no `go` on the PATH: install Go, or set KUBEBUILDER_ASSETS", file=sys.stderr)
    return go


def main(arguments: list[str]) -> int:
    """Build what is missing, printing each step; exit 2 when there is no Go, as go does when it fails."""
    go = find_go()
    if go is None:
        return 2
    versions = [argument for argument in arguments if argument != "--cluster"]
    try:
        kubernetes = module_of(versions[0]) if versions else MODULE
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        if not (kubernetes / "go.mod").exists():
            write_module(kubernetes, go)
        programs = PROGRAMS | ({"oracle": ORACLE} if kubernetes == MODULE else {})
        for name, package in programs.items():
            build_missing(folder(kubernetes) / name, package, go, kubernetes)
        if versions == arguments:
            if not any(karpenter().glob("*.yaml")):
                copy_definitions(go)
            build_missing(karpenter() / "karpenter", f"{KARPENTER}/kwok", go, KARPENTER_MODULE)
            build_missing(helm() / "helm", f"{HELM}/cmd/helm", go, HELM_MODULE)
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(folder(kubernetes))
    return 0


def build_missing(
    target: Path, package: str, go: str, module: Path, flags: str = "", *added: str, **environment: str
) -> None:
    """Build one program if it is missing, printing that; CalledProcessError when go fails. As `build`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    name, state = target.name, "kept"
    if not target.exists() or package.startswith("./"):  # ours changes, whatever the versions
        print(f"{name}: building {package} ...", file=sys.stderr, flush=True)
        started = time.monotonic()
        build(package, target, go, module, flags, *added, **environment)
        state = f"built in {time.monotonic() - started:.0f} s"
    print(f"{name}: {state}, {target.stat().st_size / 2**20:.0f} MiB", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
