"""An engine for containers and a registry, both of a test's own, under the name that our pages call it by.

The engine is podman: it needs no daemon, and its images, settings and locks lie in one folder. Containers
are real (namespaces, seccomp, a read-only root); their network is this machine's.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import trustme

from tests.e2e.assets import base
from tests.e2e.daemon import HOST, Daemon, reserve_port

# What Debian calls them, too. crun refuses a machine that has both versions of cgroups, and runc does not.
TOOLS: Final = ("podman", "runc", "docker-registry")
# Seconds for one command; building, the slowest, takes half a minute.
COMMAND_S: Final = 300.0
_CA: Final = "/etc/ssl/certs/ca-certificates.crt"
_STORAGE: Final = '[storage]\ndriver = "overlay"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'
# Limits that every machine allows: podman's own are above what a process without CAP_SYS_RESOURCE may set.
_CONTAINERS: Final = """
[containers]
netns = "host"
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
tmp_dir = "{folder}/tmp"
"""
_REGISTRIES: Final = '[[registry]]\nlocation = "{registry}"\ninsecure = true\n'
_SERVED: Final = """
version: 0.1
storage: {{filesystem: {{rootdirectory: "{folder}/pushed"}}}}
http: {{addr: "{registry}", tls: {{certificate: "{folder}/registry.pem", key: "{folder}/registry.key"}}}}
"""
# What is run in a build has this machine's pip settings and authorities; images and containers do not.
_DOCKER: Final = """#!/bin/sh
export CONTAINERS_STORAGE_CONF={folder}/storage.conf CONTAINERS_CONF={folder}/containers.conf
export CONTAINERS_REGISTRIES_CONF={folder}/registries.conf
case $1 in build) shift; set -- build {volumes} "$@" ;; esac
exec podman "$@"
"""


def missing() -> list[str]:
    """Return what this machine lacks for an engine and the base of an image."""
    absent = [name for name in TOOLS if shutil.which(name) is None]
    if os.geteuid():
        absent.append("root")
    if not base.archive().is_file():
        absent.append(base.archive().name)
    return absent


class Engine:
    """An engine that knows the Dockerfile's base, and its registry; a context manager.

    docker: the program. registry: host and port.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = reserve_port()
        port = self._held.getsockname()[1]
        self.docker, self.registry = folder / "bin" / "docker", f"{HOST}:{port}"
        self._configure()
        self._server = Daemon(
            ["docker-registry", "serve", str(folder / "registry.yaml")],
            port,
            "/v2/",
            self._identity(),
            folder / "registry.log",
        )

    def __enter__(self) -> Self:
        self("import", "--quiet", str(base.archive()), f"localhost/python:{base.tag()}")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._held.close()
        self("rm", "--all", "--force", "--time=0")
        self("image", "umount", "--all")
        # It is mounted on itself as long as there are images.
        subprocess.run(["umount", str(self._folder / "images/overlay")], check=False, capture_output=True)
        shutil.rmtree(self._folder)

    def __call__(self, *arguments: str) -> str:
        """Return what the program prints; AssertionError, with all of it, where it fails."""
        done = subprocess.run(
            [str(self.docker), *arguments], capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        assert not done.returncode, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def _configure(self) -> None:
        volumes = f"--volume {self._folder}/pip.conf:/etc/pip.conf:ro"
        settings, authorities = _pip()
        if authorities:
            volumes += f" --volume {authorities}:{_CA}:ro"
        known = {"folder": self._folder, "registry": self.registry, "volumes": volumes}
        self.docker.parent.mkdir(parents=True)
        for name, text in {
            "storage.conf": _STORAGE,
            "containers.conf": _CONTAINERS,
            "registries.conf": _REGISTRIES,
            "registry.yaml": _SERVED,
            "bin/docker": _DOCKER,
        }.items():
            (self._folder / name).write_text(text.format(**known), "utf-8")
        (self._folder / "pip.conf").write_text(f"[global]\n{settings}", "utf-8")
        self.docker.chmod(0o755)

    def _identity(self) -> ssl.SSLContext:
        """Write the registry's key and certificate, and return what trusts it."""
        authority = trustme.CA()
        identity = authority.issue_cert(HOST)
        identity.private_key_pem.write_to_path(self._folder / "registry.key")
        identity.cert_chain_pems[0].write_to_path(self._folder / "registry.pem")
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        return trust


def _pip() -> tuple[str, str]:
    """Return how this machine's pip reaches its index, as lines of a pip.conf, and whom it trusts, a file."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = dict(re.findall(r"^\S+\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    authorities = settings.get("cert", "")
    reaches = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout")
    chosen = {name: settings[name] for name in reaches if name in settings}
    if authorities:
        chosen["cert"] = _CA
    return "".join(f"{name} = {value}\n" for name, value in chosen.items()), authorities
