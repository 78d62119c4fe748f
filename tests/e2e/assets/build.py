"""Builds the programs of e2e tests from the versions in go.mod: Kubernetes, its packages, Karpenter, Helm.

There is no archive to download and trust: the Go module proxy serves the sources, go.sum holds them to their
checksums, and the result is kept in the user's cache, one folder a pair of versions, outside the tree.

Run as a script it builds what is missing and ends by printing the folder for KUBEBUILDER_ASSETS. It needs Go
(go.mod says from which version on), the module proxy the first time, and the standard library only.
"""
# ruff: noqa: T201 - a build prints its steps

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

MODULE = Path(__file__).resolve().parent
KUBERNETES = "k8s.io/kubernetes"
ETCD = "go.etcd.io/etcd/server/v3"
KARPENTER = "sigs.k8s.io/karpenter"
# A module of its own, because it requires an older Kubernetes.
KARPENTER_MODULE = MODULE / "karpenter"
HELM = "helm.sh/helm/v3"
# A module of its own, because it has its own versions of Kubernetes's packages.
HELM_MODULE = MODULE / "helm"

# What each program is built from: the `tool` lines of go.mod, under the names that envtest gives them; an
# oracle, which answers by Kubernetes's own code what the tests compare with ours; its ReplicaSet controller
# alone, because kube-controller-manager does not build from published modules.
PROGRAMS = {
    "etcd": ETCD,
    "kube-apiserver": f"{KUBERNETES}/cmd/kube-apiserver",
    "kube-scheduler": f"{KUBERNETES}/cmd/kube-scheduler",
    "kubectl": f"{KUBERNETES}/cmd/kubectl",
    "oracle": "./oracle",
    "replicaset-controller": "./replicaset",
}

# Static programs run on any Linux; a go.work above this tree must not change their versions.
_ENVIRONMENT = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}


def pinned(module: str, by: Path = MODULE) -> str:
    """Read from go.mod which version of a module it requires, as "v1.2.3"; LookupError when none."""
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)", (by / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"{by / 'go.mod'} requires no {module}")
    return found[1]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpugate" / "e2e"


def folder() -> Path:
    """Name the folder of the pinned programs, whether they have been built or not."""
    return _cache() / f"kubernetes-{pinned(KUBERNETES)}-etcd-{pinned(ETCD)}"


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


def linker_flags() -> str:
    """Compose the `go build -ldflags`: no symbols, and the version that /version and --version answer.

    Kubernetes keeps its version in two packages, which its release build fills in the same way
    (https://github.com/kubernetes/kubernetes/blob/master/hack/lib/version.sh).
    """
    version = pinned(KUBERNETES)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(
        ["-s -w", *(f"-X {p}.{name}={value}" for p in packages for name, value in stamps.items())]
    )


def build(package: str, target: Path, go: str, module: Path = MODULE) -> None:
    """Build one program into target, which appears whole or not at all; CalledProcessError when go fails."""
    unfinished = target.with_suffix(f".{os.getpid()}")
    flags = {MODULE: linker_flags, HELM_MODULE: helm_linker_flags}.get(module, lambda: "-s -w")()
    try:
        subprocess.run(
            [go, "build", "-trimpath", "-ldflags", flags, "-o", unfinished, package],
            cwd=module,
            env=_ENVIRONMENT,
            check=True,
        )
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def copy_definitions(go: str) -> None:
    """Copy the CRDs of Karpenter and of its KWOK provider, which are files of its module."""
    asked = [go, "list", "-m", "-f", "{{.Dir}}", KARPENTER]
    found = subprocess.run(
        asked, cwd=KARPENTER_MODULE, env=_ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True
    )
    for part in ("pkg", "kwok"):
        for source in Path(found.stdout.strip(), part, "apis/crds").glob("*.yaml"):
            shutil.copyfile(source, karpenter() / source.name)


def main() -> int:
    """Build what is missing, printing each step; exit 2 when there is no Go, as go does when it fails."""
    # The second place is where the archive of go.dev is unpacked to; it is often not on a script's PATH.
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        print("there is no `go` on the PATH: install Go, or set KUBEBUILDER_ASSETS", file=sys.stderr)
        return 2
    targets = [(folder() / name, package, MODULE) for name, package in PROGRAMS.items()]
    targets.append((karpenter() / "karpenter", f"{KARPENTER}/kwok", KARPENTER_MODULE))
    targets.append((helm() / "helm", f"{HELM}/cmd/helm", HELM_MODULE))
    for target, package, module in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
        name, state = target.name, "kept"
        if not target.exists() or package.startswith("./"):  # ours changes, whatever the versions
            print(f"{name}: building {package} ...", flush=True)
            started = time.monotonic()
            try:
                if module == KARPENTER_MODULE:
                    copy_definitions(go)  # before the program, which then means that everything is there
                build(package, target, go, module)
            except subprocess.CalledProcessError as error:
                return error.returncode
            state = f"built in {time.monotonic() - started:.0f} s"
        print(f"{name}: {state}, {target.stat().st_size / 2**20:.0f} MiB", flush=True)
    print(folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
