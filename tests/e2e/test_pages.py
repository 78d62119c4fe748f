"""What our pages tell a reader to type in a cluster works there, and prints what they show.

Fences that need more than an API server, such as a Service with pods behind it, are marked `needs: pods` and
are only parsed, by tests/test_docs.py; installation, emergencies and the agent have tests of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import KUBECTL_S, assets
from tests.e2e.installed import TEAM, Installed
from tests.test_docs import ROOT, Fence, fences, same, text_of

# Each with what is there already when the reader comes to it.
PAGES = {
    "docs/app-developers.md": "true",
    "docs/platform-teams.md": "kubectl apply -k docs/tutorial/npu",
    "docs/tutorial-new-vendor.md": "true",
    "docs/export.md": "true",
}
_REFUSED = "denied the request: gpugate refuses"


def _terminal(installed: Installed, folder: Path, script: str) -> tuple[int, str]:
    """Return exit status and what the terminal shows."""
    path = os.pathsep.join([str(assets()), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        "PATH": path,
        "KUBECONFIG": str(folder / "kubeconfig"),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }
    shutil.copy(installed.cluster.kubeconfig, folder / "kubeconfig")
    text = (folder / "kubeconfig").read_text("utf-8")
    (folder / "kubeconfig").write_text(
        text.replace('"name": "e2e", "context"', '"name": "production", "context"').replace(
            '"current-context": "e2e"', '"current-context": "production"'
        )
    )
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=KUBECTL_S,
        check=False,
    )
    return done.returncode, done.stdout


def _wanted(fence: Fence) -> int:
    """Return how the commands of a fence end: kubectl fails where it is refused."""
    return 1 if _REFUSED in (fence.shown or "") else fence.exits


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_with_a_cluster_sees_what_the_page_shows(
    installed: Installed, page: str, tmp_path: Path
) -> None:
    """From its top to its bottom; files that the page has its reader write are written."""
    for name in ("docs", "manifests", "rules"):
        shutil.copytree(ROOT / name, tmp_path / name)
    status, printed = _terminal(installed, tmp_path, PAGES[page])
    assert 0 == status, printed
    for fence in fences(text_of(page), page):
        if fence.file:
            (tmp_path / fence.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / fence.file).write_text(fence.text, "utf-8")
        elif fence.language == "sh" and fence.needs in {"", "cluster", "kubectl"}:
            status, printed = _terminal(installed, tmp_path, fence.text)
            if fence.needs == "cluster":
                assert _wanted(fence) == status, f"{fence.where}: {printed}"
                assert fence.shown is None or same(fence.shown, printed), f"{fence.where}: {printed}"
    installed.cluster.kubectl("delete", "pods", "-n", TEAM, "--all", "--force")
