"""The GitHub Action: its steps are run in a Git repository, as a runner runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.builders import DEVICE, resource_rule
from tests.support.paths import ROOT
from tests.support.webhooks import pod

pytestmark = pytest.mark.slow

ACTION: Final[dict[str, Any]] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
_BAD: Final = json.dumps(pod({"nvidia.com/gpu": "1.5"}), indent=1)
_GOOD: Final = json.dumps(pod({"nvidia.com/gpu": "1"}), indent=1)
_BASH: Final = shutil.which("bash") or "bash"


@dataclass(frozen=True)
class Job:
    """What a run of the action leaves."""

    status: int
    log: str
    summary: str
    results: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Repository:
    """A Git repository, and a folder of a runner next to it that has gpugate."""

    root: Path
    runner: Path

    def git(self, *arguments: str) -> str:
        """Return the output of a Git command."""
        settings = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        command = ["git", *settings, *arguments]
        return subprocess.run(
            command, cwd=self.root, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, **files: str | None) -> str:
        """Write files by name, or delete them; return the commit."""
        for name, text in files.items():
            path = self.root / name
            if text is None:
                path.unlink()
            else:
                path.write_text(text, "utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")
        return self.git("rev-parse", "HEAD")

    def run(self, base: str, **inputs: str) -> Job:
        """Run the action's own step; base: the commit before the change. Inputs have _ for -."""
        (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "check")
        given = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        environment = dict(os.environ) | {
            "PATH": f"{self.runner}/bin:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.runner),
            **{name: str(self.runner / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")},
        }
        for name, value in step["env"].items():
            match = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)
            environment[name] = given[match[1]] if match else base
        for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
            (self.runner / name).unlink(missing_ok=True)
        (self.runner / "script").write_text(step["run"], "utf-8")
        # https://docs.github.com/actions/reference/workflow-syntax-for-github-actions#jobsjob_idstepsshell
        command = [_BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", str(self.runner / "script")]
        ended = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        summary, output = (self.runner / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"))
        folder = Path(output.read_text("utf-8").strip().removeprefix("sarif=")) if output.exists() else None
        results = {
            path.stem: json.loads(path.read_text("utf-8"))["runs"][0]["results"]
            for path in (sorted(folder.iterdir()) if folder else ())
        }
        text = summary.read_text("utf-8") if summary.exists() else ""
        return Job(ended.returncode, ended.stdout + ended.stderr, text, results)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a repository without manifests."""
    made = Repository(tmp_path / "repository", tmp_path / "runner")
    made.root.mkdir()
    program = made.runner / "bin/gpugate"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec env PYTHONPATH={ROOT} {sys.executable} -m webhook "$@"\n', "utf-8")
    program.chmod(0o755)
    (program.parent / "python").symlink_to(sys.executable)
    made.git("init", "--quiet")
    made.commit(**{"old.yaml": _BAD, "package.json": "{}"})
    return made


def test_a_change_with_a_pod_that_would_be_denied_fails_the_job(repository: Repository) -> None:
    """Annotations, summary and SARIF name the changed file, and no other."""
    base = repository.git("rev-parse", "HEAD")
    repository.commit(**{"a pod.yaml": _BAD, "good.yaml": _GOOD, "package.json": '{"name": "a"}'})
    job = repository.run(base)

    assert 1 == job.status, job.log
    assert "::error file=a pod.yaml,line=15," in job.log
    assert "old.yaml" not in job.log
    assert "2 objects: " in job.summary
    assert "| error | a pod.yaml:15 |" in job.summary
    assert [("error", "a%20pod.yaml")] == [
        (each["level"], each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        for each in job.results["preview"]
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"readme.md": "text"}, "no manifests to check"),
        ({"old.yaml": None}, "no manifests to check"),
        ({"chart.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: {{ .Values.name }}}\n"}, "no manifests"),
        ({"good.yaml": _GOOD}, "1 object: "),
    ],
    ids=["no manifest", "deleted", "template", "allowed"],
)
def test_a_change_without_a_denial_passes(
    files: dict[str, str | None], message: str, repository: Repository
) -> None:
    """Whatever other files have."""
    base = repository.git("rev-parse", "HEAD")
    repository.commit(**files)
    job = repository.run(base)

    assert (0, True) == (job.status, message in job.summary), job.log


_PARTS: Final = _BAD.partition('"apiVersion": "v1",')


@pytest.mark.parametrize(
    "text",
    [
        f"# {{{{ .Values.x }}}}\n{_BAD}",
        f"{_PARTS[0]}'apiVersion': v1,{_PARTS[2]}",
        json.dumps({"kind": "Pod", **json.loads(_PARTS[0] + _PARTS[2]), "apiVersion": "v1"}),
        f"{_PARTS[0]}!!str apiVersion: v1,{_PARTS[2]}",
        f"{_PARTS[0]}? apiVersion : v1,{_PARTS[2]}",
        f"\ufeff{_BAD}",
    ],
    ids=["braces in a comment", "quotes", "at the end of a line", "tag", "question mark", "byte order mark"],
)
def test_no_spelling_hides_a_manifest(text: str, repository: Repository) -> None:
    """The author of a change does not choose whether it is checked."""
    base = repository.git("rev-parse", "HEAD")
    repository.commit(**{"pod.YAML": text})
    job = repository.run(base)

    assert (1, True) == (job.status, "::error file=pod.YAML" in job.log), job.log


def test_each_changed_file_that_is_not_checked_has_a_notice(repository: Repository) -> None:
    """With the reason."""
    base = repository.git("rev-parse", "HEAD")
    template = "apiVersion: v1\nkind: Pod\nmetadata: {name: {{ .Values.name }}}\n"
    repository.commit(**{"chart,1.yaml": template, "package.json": '{"name": "a"}', "good.yaml": _GOOD})
    job = repository.run(base)
    notices = [line for line in job.log.splitlines() if line.startswith("::notice")]

    assert (0, 2) == (job.status, len(notices)), job.log
    assert "::notice file=chart%2C1.yaml::not checked: it is no YAML, such as a template" in notices[0]
    assert "::notice file=package.json::not checked: it contains no Kubernetes object" == notices[1]


def test_packages_are_installed_by_hash() -> None:
    """As in the image; only gpugate itself is built."""
    (script,) = (step["run"] for step in ACTION["runs"]["steps"] if step["name"] == "Install gpugate")
    installs = [line.split()[1:] for line in script.splitlines() if line.split()[:1] == ["install"]]

    assert 3 == len(installs)
    assert all("--require-hashes" in install or "--no-deps" in install for install in installs)


def test_nothing_fails_the_job_if_asked(repository: Repository) -> None:
    """The findings are shown all the same."""
    base = repository.git("rev-parse", "HEAD")
    repository.commit(**{"pod.yaml": _BAD})
    job = repository.run(base, fail_on="none")

    assert (0, 1) == (job.status, len(job.results["preview"]))
    assert "::error file=pod.yaml" in job.log


def test_rules_are_checked_and_used_together_with_the_built_in_rules(repository: Repository) -> None:
    """An error in a rule is one of lint; a manifest can be named, whether it changed or not."""
    rule, unshared = resource_rule(), json.dumps(pod({"tencent.com/vcuda-core": "150", DEVICE: "0.5"}))
    other = resource_rule("vendor.com/other", group="other")
    repository.commit(**{"rule.yaml": rule, "other.yaml": other, "old.yaml": unshared})
    both = repository.run("0" * 40, rules="rule.yaml\nother.yaml\n", files="old.yaml\n")
    own = repository.run("0" * 40, rules="rule.yaml", builtin="false", files="old.yaml\n")
    (repository.root / "rule.yaml").write_text(rule.replace("dataType:", "dataTypo:"), "utf-8")
    wrong = repository.run("0" * 40, rules="rule.yaml")

    built_in, added = "cf-crl-gpu-manager-vcuda-core", "cf-crl-group-device"
    assert (1, []) == (both.status, both.results["lint"]), both.log
    assert {built_in, added} <= {result["ruleId"] for result in both.results["preview"]}
    assert {added} == {result["ruleId"] for result in own.results["preview"]} - {"not-checked"}, own.log
    assert 1 == wrong.status
    assert "::error file=rule.yaml,line=" in wrong.log
    assert "### gpugate lint" in wrong.summary


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"fail_on": "never"}, "fail-on: expected deny, warn, unchecked or none, got never"),
        ({"builtin": "no"}, "builtin: expected true or false, got no"),
        ({"files": "none.yaml"}, "none.yaml: No such file"),
        ({"files": "old.yaml", "nodes": "none.yaml", "fail_on": "none"}, "none.yaml: No such file"),
    ],
)
def test_what_cannot_be_read_fails_the_job(
    inputs: dict[str, str], message: str, repository: Repository
) -> None:
    """With the reason in its log, also if denials do not."""
    job = repository.run("0" * 40, **inputs)

    assert (2, True) == (job.status, message in job.log), job.log


def test_each_input_is_used_and_none_is_part_of_a_script() -> None:
    """A value of a pull request must not be run."""
    steps = ACTION["runs"]["steps"]
    used = {name for step in steps for name in re.findall(r"inputs\.([\w-]+)", str(step["env"]))}

    assert set(ACTION["inputs"]) == used
    assert not [step["name"] for step in steps if "${{" in step["run"]]
    assert all(each.get("description") for each in ACTION["inputs"].values())
