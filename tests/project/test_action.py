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
        """Run the action's own steps; base: the commit before the change. Inputs have _ for -."""
        values = {
            f"inputs.{name}": declared.get("default", "") for name, declared in ACTION["inputs"].items()
        }
        values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        values |= {"github.event.pull_request.base.sha || github.event.before": base}
        values |= {"github.event.pull_request.number": "7"}
        for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
            (self.runner / name).unlink(missing_ok=True)
        ended = self._run_step("check", values)
        log = ended.stdout + ended.stderr
        if values["inputs.comment"] == "true":
            commented = self._run_step("comment", values)
            assert 0 == commented.returncode
            log += commented.stdout + commented.stderr
        summary, output = (self.runner / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"))
        folder = Path(output.read_text("utf-8").strip().removeprefix("sarif=")) if output.exists() else None
        results = {
            path.stem: json.loads(path.read_text("utf-8"))["runs"][0]["results"]
            for path in (sorted(folder.iterdir()) if folder else ())
        }
        text = summary.read_text("utf-8") if summary.exists() else ""
        return Job(ended.returncode, log, text, results)

    def _run_step(self, identity: str, values: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a step as a runner does. values: of the expressions of its environment."""
        (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == identity)
        environment = dict(os.environ) | {
            "PATH": f"{self.runner}/bin:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.runner),
            "GITHUB_REPOSITORY": "team/models",
            **{name: str(self.runner / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")},
        }
        for name, value in step["env"].items():
            environment[name] = values[value.removeprefix("${{ ").removesuffix(" }}")]
        (self.runner / "script").write_text(step["run"], "utf-8")
        # https://docs.github.com/actions/reference/workflow-syntax-for-github-actions#jobsjob_idstepsshell
        command = [_BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", str(self.runner / "script")]
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )


# A stand-in of GitHub's command `gh api`: it keeps comments in a file, answers as the API is documented, and
# prints the part that --jq selects; that a token may only read is a file here.
# https://docs.github.com/graphql/reference/objects#issuecomment, https://docs.github.com/rest/issues/comments
_GH: Final = """
import json, pathlib, subprocess, sys

state = pathlib.Path(__file__).parent.parent / "comments"
arguments = sys.argv[1:]
comments = json.loads(state.read_text("utf-8"))
if (state.parent / "forbidden").exists() and "graphql" not in arguments:
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
if "graphql" in arguments:
    fields = {"fullDatabaseId", "viewerDidAuthor", "body"}
    page = {"nodes": [{name: each[name] for name in fields} for each in comments]}
    page["pageInfo"] = {"hasNextPage": False, "endCursor": None}
    answer = {"data": {"repository": {"pullRequest": {"comments": page}}}}
    jq = ["jq", "--raw-output", arguments[arguments.index("--jq") + 1]]
    sys.exit(subprocess.run(jq, input=json.dumps(answer).encode(), check=False).returncode)
(field,) = (each for each in arguments if each.startswith("body=@"))
body = pathlib.Path(field.removeprefix("body=@")).read_text("utf-8")
if len(body) > 65536:
    sys.exit("gh: Validation Failed (HTTP 422)")
path = next(each for each in arguments if each.startswith("repos/"))
match arguments[arguments.index("--method") + 1], path.split("/")[1:]:
    case "POST", ["team", "models", "issues", "7", "comments"]:
        number = str(3_000_000_000 + len(comments))
        comments.append({"fullDatabaseId": number, "viewerDidAuthor": True, "body": body})
    case "PATCH", ["team", "models", "issues", "comments", number]:
        (comment,) = (each for each in comments if each["fullDatabaseId"] == number)
        comment["body"] = body
    case _:
        sys.exit("gh: Not Found (HTTP 404)")
state.write_text(json.dumps(comments), "utf-8")
"""
_MARKER: Final = "<!-- gpugate -->\n"
needs_jq = pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed")


@dataclass(frozen=True)
class GitHub:
    """The comments of a pull request, which the stand-in of `gh` keeps in a folder."""

    folder: Path

    def install(self) -> None:
        """Write the stand-in, and a pull request without comments."""
        program = self.folder / "bin/gh"
        program.write_text(f"#!{sys.executable}\n{_GH}", "utf-8")
        program.chmod(0o755)
        self.write()

    def write(self, *comments: tuple[str, bool]) -> None:
        """Set the comments: their text, and whether the token of the job wrote them."""
        nodes = [
            {"fullDatabaseId": str(number), "viewerDidAuthor": own, "body": body}
            for number, (body, own) in enumerate(comments)
        ]
        (self.folder / "comments").write_text(json.dumps(nodes), "utf-8")

    def forbid(self) -> None:
        """Let the token only read, as that of a pull request of a fork."""
        (self.folder / "forbidden").touch()

    @property
    def comments(self) -> list[str]:
        """The texts of the comments."""
        return [comment["body"] for comment in json.loads((self.folder / "comments").read_text("utf-8"))]


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
    GitHub(made.runner).install()
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
        (result["level"], result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        for result in job.results["preview"]
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"readme.md": "text"}, "no manifests to check"),
        ({"old.yaml": None}, "| removed |"),
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
    assert ["${{ !cancelled() && inputs.comment == 'true' }}"] == [
        step["if"] for step in steps if "if" in step
    ]

    assert set(ACTION["inputs"]) == used
    assert not [step["name"] for step in steps if "${{" in step["run"]]
    assert all(declared.get("description") for declared in ACTION["inputs"].values())


_DEPLOYMENT: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve, namespace: ml}
spec:
  template:
    spec:
      containers:
        - name: main
          image: nvidia/cuda:12.4.1-base-ubuntu22.04
          resources:
            limits:
              nvidia.com/gpu: 1
"""
_WRONG: Final = _DEPLOYMENT.replace("gpu: 1", "gpu: 1.5")
_ROW: Final = (
    "| Deployment ml/serve | unchanged; CUDA not checked | denied: found 1.5, expected a whole number"
)


@needs_jq
def test_a_pull_request_gets_one_comment_that_later_commits_change(repository: Repository) -> None:
    """With the verdicts before and after; the last commit leaves nothing to check."""
    github = GitHub(repository.runner)
    repository.commit(**{"old.yaml": None, "serve.yaml": _DEPLOYMENT})
    base = repository.git("rev-parse", "HEAD")
    github.write(("hello", True), (f"{_MARKER}of another author", False))
    repository.commit(**{"serve.yaml": _WRONG})
    job = repository.run(base, comment="true")

    assert (1, True) == (job.status, "::error file=serve.yaml,line=12," in job.log), job.log
    hello, other, comment = github.comments
    assert ("hello", f"{_MARKER}of another author") == (hello, other)
    assert comment.startswith(f"{_MARKER}### gpugate preview\n")
    assert _ROW in comment
    assert _ROW in job.summary

    repository.commit(**{"serve.yaml": _DEPLOYMENT.replace("gpu: 1", "gpu: 2")})
    assert 0 == repository.run(base, comment="true").status
    assert 3 == len(github.comments)
    assert "verdict changes: 0 workloads" in github.comments[2]

    repository.commit(**{"serve.yaml": _DEPLOYMENT})
    assert 0 == repository.run(base, comment="true").status
    assert ["no manifests to check"] == github.comments[2].splitlines()[1:]


def test_without_the_input_there_is_no_comment(repository: Repository) -> None:
    """It needs a permission."""
    base = repository.commit()
    repository.commit(**{"serve.yaml": _WRONG})
    repository.run(base)

    assert [] == GitHub(repository.runner).comments


@needs_jq
def test_a_token_that_may_not_write_leaves_a_notice(repository: Repository) -> None:
    """The status of the job is that of the check."""
    base = repository.commit()
    repository.commit(**{"serve.yaml": _DEPLOYMENT})
    GitHub(repository.runner).forbid()
    job = repository.run(base, comment="true")

    assert (0, True) == (job.status, "::notice::no comment: the token may not write one" in job.log), job.log
    assert [] == GitHub(repository.runner).comments


def test_renamed_and_deleted_files_are_compared_too(repository: Repository) -> None:
    """An object is the same in another file; one that is in no file any more is removed."""
    repository.commit(**{"serve.yaml": _DEPLOYMENT, ".other.yaml": _DEPLOYMENT.replace("serve", "other")})
    base = repository.git("rev-parse", "HEAD")
    repository.commit(**{"serve.yaml": None, "renamed.yaml": _WRONG, ".other.yaml": None, "new.yaml": _GOOD})
    job = repository.run(base)
    repository.commit(**{"renamed.yaml": None, "new.yaml": None})
    removed = repository.run(base)

    assert "verdict changes: 3 workloads" in job.summary
    assert _ROW in job.summary
    assert "| Deployment ml/other | unchanged; CUDA not checked | removed |" in job.summary
    assert re.search(r"\| Pod \S+ \| new \|", job.summary)
    assert (0, True) == (removed.status, "verdict changes: 2 workloads" in removed.summary), removed.log


def test_named_files_are_compared_if_they_are_in_the_commit(repository: Repository) -> None:
    """A rendered file is in none."""
    repository.commit(**{"serve.yaml": _DEPLOYMENT})
    base = repository.git("rev-parse", "HEAD")
    repository.commit(**{"serve.yaml": _WRONG})
    (repository.root / "rendered.yaml").write_text(_GOOD, "utf-8")

    assert _ROW in repository.run(base, files="serve.yaml").summary
    assert "verdict changes" not in repository.run(base, files="serve.yaml\nrendered.yaml").summary


@needs_jq
def test_a_large_change_has_a_comment_that_github_takes(repository: Repository) -> None:
    """It ends with what is left out."""
    base = repository.commit()
    many = "---\n".join(_WRONG.replace("serve", f"serve-{number}") for number in range(300))
    repository.commit(**{"many.yaml": many})
    repository.run(base, comment="true")
    (comment,) = GitHub(repository.runner).comments

    assert re.search(r"\n\d+ more workloads\n", comment)
    assert re.search(r"\n\d+ more findings$", comment.strip())
