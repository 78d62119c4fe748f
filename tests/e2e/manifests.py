"""The rendered manifests, and the commands in our pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.e2e.cluster import KUBECTL_S, assets

if TYPE_CHECKING:
    from tests.e2e.cluster import ControlPlane

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "manifests"

Object = dict[str, Any]


def render(folder: Path) -> list[Object]:
    """Return the objects that `kubectl apply -k` would apply."""
    command = [str(assets() / "kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=KUBECTL_S, check=False)
    assert not done.returncode, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """Return the objects of some kinds."""
    return [document for document in objects if document["kind"] in kinds]


def commands(page: str, heading: str) -> list[str]:
    """Return the command lines in the `sh` blocks below a heading of a page in docs/."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    match = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?:^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"no {heading!r} in {page}"
    blocks = re.findall(r"^```sh\n(.*?)^```", match[1], re.MULTILINE | re.DOTALL)
    assert blocks, f"no commands below {heading!r} in {page}"
    return [line for block in blocks for line in block.splitlines()]


def run(cluster: ControlPlane, command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command line of a page as a reader would: in the root of this repository, or a copy of it."""
    path = os.pathsep.join([str(assets()), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=KUBECTL_S,
        check=False,
    )
