"""The weekly workflow of facts: its shell steps, run with stand-ins for what is on GitHub.

The sources are small documents on a local server with TLS, `origin` is a bare repository, `gh` records its
arguments, `pip` and `make` do nothing. This shows that the steps work together, not that they run on GitHub.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.fact_sources import FactSources, fact_sources, put_wheels, wheel
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

WORKFLOW: Final[dict[str, Any]] = yaml.safe_load((ROOT / ".github/workflows/facts.yml").read_text("utf-8"))
_BASH: Final = shutil.which("bash") or "bash"
_GIT: Final = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


class Runner:
    """A checkout, its bare remote repository, and a folder with the stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.root, self.remote, self._bin = folder / "checkout", folder / "origin.git", folder / "bin"
        self.log, self._output = folder / "gh.log", folder / "output"
        self._bin.mkdir()
        (self.root / "rules").mkdir(parents=True)
        shutil.copytree(ROOT / "rules/facts", self.root / "rules/facts")
        (self.root / "rules/facts/toolkit_wheels.yaml").unlink()
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=facts")
        self.git("init", "--quiet", "--bare", str(self.remote))
        self.git("remote", "add", "origin", str(self.remote))
        for name in ("pip", "make"):
            self.stand_in(name, "exit 0")
        self.pull_request("")

    def git(self, *arguments: str) -> str:
        """Return the output of a Git command in the checkout."""
        ended = subprocess.run([*_GIT, *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return ended.stdout.strip()

    def stand_in(self, name: str, script: str) -> None:
        """Put a program on PATH."""
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        path.chmod(0o755)

    def pull_request(self, number: str) -> None:
        """Let `gh` list this open pull request, or none."""
        self.stand_in(
            "gh", f'echo "$*" >> {self.log}\ncase "$2" in list) echo {number!r} | grep . ;; esac; exit 0'
        )

    def run(self, sources: FactSources) -> dict[str, int]:
        """Run the shell steps, those with a condition if it holds, until one fails; return their statuses."""
        only = " ".join(f"'{option}'" for option in (*sources.options, "toolkit_wheels"))
        self.stand_in("python", f'exec env PYTHONPATH={ROOT} {sys.executable} "$@" {only}')
        environment = os.environ | {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(self._output),
        }
        statuses: dict[str, int] = {}
        for step in WORKFLOW["jobs"]["update"]["steps"]:
            if "run" not in step:
                continue
            if condition := step.get("if"):
                assert condition == "steps.update.outputs.status == '2'"
                if self._output.read_text("utf-8").splitlines()[-1] != "status=2":
                    continue
            command = [_BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
            ended = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
            )
            statuses[step["name"]] = ended.returncode
            if ended.returncode:
                break
        return statuses

    @property
    def commands(self) -> list[str]:
        """The commands that `gh` got."""
        return self.log.read_text("utf-8").splitlines() if self.log.exists() else []


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Return a runner whose checkout lacks one generated table."""
    (tmp_path / "runner").mkdir()
    return Runner(tmp_path / "runner")


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[FactSources]:
    """Yield sources with one toolkit."""
    with fact_sources(tmp_path) as served:
        put_wheels(served, {"13.5.37": wheel("compute_90", "compute_100")})
        yield served


def test_new_facts_are_pushed_and_one_pull_request_says_what_changed(
    runner: Runner, sources: FactSources
) -> None:
    """The next run with a change renews it; one without a change does nothing."""
    first = runner.run(sources)
    body = (runner.root / "body").read_text("utf-8")
    created = runner.commands
    unchanged = runner.run(sources)
    then = runner.commands
    runner.pull_request("7")
    put_wheels(sources, {"13.6.1": wheel("compute_120")})
    renewed = runner.run(sources)

    assert [0, 0, 0] == [*first.values()] == [*unchanged.values()] == [*renewed.values()]
    assert ["pr list", "pr create"] == [" ".join(command.split()[:2]) for command in created]
    assert created == then
    assert "pr edit facts-update --body-file body" == runner.commands[-1]
    assert "- toolkit_wheels: CUDA 13.5 added: built for 9.0 10.0" in body.splitlines()
    pushed = subprocess.run(
        [*_GIT, "log", "-1", "--format=%s", "--name-only", "facts-update"],
        cwd=runner.remote,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    assert [
        "Refresh facts from public documents",
        "",
        "rules/facts/lock.yaml",
        "rules/facts/toolkit_wheels.yaml",
        "",
    ] == pushed


def test_a_source_that_cannot_be_read_fails_the_last_step(runner: Runner, sources: FactSources) -> None:
    """After the pull request of the others."""
    sources.put("https://pypi.org/pypi/nvidia-cuda-nvcc/json", json.dumps({"releases": 1}).encode())
    statuses = runner.run(sources)

    assert {"Report a source that could not be read": 1} == {
        name: status for name, status in statuses.items() if status
    }
    assert [] == runner.commands
