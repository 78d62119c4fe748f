"""A release: version, workflows, notes and the manifest of the plugin; `make try-dist` builds packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.release import RELEASE

WORKFLOWS: Final = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCRIPT: Final = ROOT / ".ci/release.py"
_MAKEFILE: Final = (ROOT / "Makefile").read_text("utf-8")
# The tests of a copy need what the script reads, and what hatchling does.
_READ: Final = (".ci", "docs", "manifests", "CHANGELOG.md", "README.md", "README.zh-CN.md", "pyproject.toml")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the files that have the number of a release."""
    root = tmp_path / "copy"
    root.mkdir()
    for name in _READ:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    return root


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / ".ci/release.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _git(root: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *arguments], cwd=root, check=True, capture_output=True)


def _version(root: Path) -> str:
    """Return the version that the wheel would have."""
    command = [sys.executable, "-m", "hatchling", "version"]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def test_the_version_is_that_of_the_tag(copy: Path) -> None:
    """Then of the commits after it; without a tag or without Git, 0.0.0."""
    without_git = _version(copy)
    _git(copy, "init", "--quiet")
    _git(copy, "add", "--all")
    _git(copy, "commit", "--quiet", "--message", "one")
    without_tag = _version(copy)
    _git(copy, "tag", "v1.2.3")
    of_tag = _version(copy)
    _git(copy, "commit", "--quiet", "--allow-empty", "--message", "two")
    later = _version(copy)

    assert ("0.0.0", "1.2.3") == (without_git, of_tag)
    assert re.fullmatch(r"0\.0\.0\.post1\+g[0-9a-f]+", without_tag)
    assert re.fullmatch(r"1\.2\.3\.post1\+g[0-9a-f]+", later)


def test_make_image_names_a_version_as_the_wheel_does(copy: Path) -> None:
    """Of the same commit."""
    shutil.copy(ROOT / "Makefile", copy)
    _git(copy, "init", "--quiet")
    _git(copy, "add", "--all")
    for message in ("one", "two"):
        _git(copy, "commit", "--quiet", "--allow-empty", "--message", message)
        if message == "one":
            _git(copy, "tag", "v1.2.3")
        dry = subprocess.run(["make", "-n", "image"], cwd=copy, check=True, capture_output=True, text=True)
        (given,) = re.findall(r"VERSION=(\S+)", dry.stdout)

        assert _version(copy)[:20] == given[:20]


def test_an_archive_of_a_commit_has_its_tag(copy: Path, tmp_path: Path) -> None:
    """As GitHub makes archives, which pip installs."""
    for name in (".gitattributes", ".git_archival.txt"):
        shutil.copy(ROOT / name, copy)
    _git(copy, "init", "--quiet")
    _git(copy, "add", "--all")
    _git(copy, "commit", "--quiet", "--message", "one")
    _git(copy, "tag", "v1.2.3")
    archive = tmp_path / "archive.tar"
    _git(copy, "archive", "--output", str(archive), "HEAD")
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(archive, unpacked)

    assert "1.2.3" == _version(unpacked)


def test_bump_changes_every_number_and_names_the_changes(copy: Path) -> None:
    """Afterwards the check passes for that tag alone, and the notes are those of the changelog."""
    before = _run(copy, "check", "v9.8.7")
    bumped = _run(copy, "bump", "9.8.7")
    after, other = _run(copy, "check", "v9.8.7"), _run(copy, "check", f"v{RELEASE}")
    texts = [
        path.read_text("utf-8")
        for folder in ("docs", "manifests")
        for path in (copy / folder).rglob("*")
        if path.suffix in {".md", ".yaml"} and path.name != "releasing.md"
    ]

    assert 1 == before.returncode
    assert f"manifests are of {RELEASE}, not 9.8.7" in before.stderr
    assert (0, 0) == (bumped.returncode, after.returncode), after.stderr
    assert 1 == other.returncode
    assert not [text for text in texts if re.search(rf"gpugate\S*{re.escape(RELEASE)}", text)]
    assert _run(copy, "notes", "v9.8.7").stdout.startswith("### Added\n")


@pytest.mark.parametrize("tag", ["v1", "v1.2", "1.2.x", "v1.2.3-final"])
def test_a_tag_that_is_no_version_is_refused(tag: str) -> None:
    """Helm and krew need semantic versions."""
    result = _run(ROOT, "check", tag)

    assert 1 == result.returncode
    assert "expected a tag such as v1.2.3" in result.stderr


def test_every_index_has_the_first_sentence_of_the_readme() -> None:
    """Who finds gpugate on Artifact Hub, PyPI or krew reads the same words."""
    words = "reflight check and guardrails for GPU pods"
    sentence = f"{words} in Kubernetes: an admission webhook and a command"
    chart = yaml.safe_load((ROOT / "manifests/chart/Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    krew = (ROOT / ".ci/krew.yaml").read_text("utf-8")

    assert f"gpugate is a p{sentence}. " in (ROOT / "README.md").read_text("utf-8").replace("\n", " ")
    assert [f"P{sentence}"] * 2 == [chart["description"], project["description"]]
    assert f"shortDescription: P{words}\n" in krew
    assert {"preflight", "guardrails"} <= {*chart["keywords"]} & {*project["keywords"]}


def test_the_manifest_of_the_plugin_follows_krews_rules(tmp_path: Path) -> None:
    """Those of ValidatePlugin in krew's internal/index/validation/validate.go."""
    archives = [tmp_path / f"gpugate-{name}.tar.gz" for name in ("linux-amd64", "darwin-arm64")]
    for archive in archives:
        archive.write_bytes(archive.name.encode())
    url = "https://example.com/v1.2.3"
    manifest: dict[str, Any] = yaml.safe_load(_run(ROOT, "krew", "v1.2.3", url, *map(str, archives)).stdout)
    spec = manifest["spec"]

    assert ("krew.googlecontainertools.github.com/v1alpha2", "Plugin", "gpugate", "v1.2.3") == (
        manifest["apiVersion"],
        manifest["kind"],
        manifest["metadata"]["name"],
        spec["version"],
    )
    assert spec["shortDescription"]
    assert "\n" not in spec["shortDescription"]
    assert [("darwin", "arm64"), ("linux", "amd64")] == [
        (platform["selector"]["matchLabels"]["os"], platform["selector"]["matchLabels"]["arch"])
        for platform in spec["platforms"]
    ]
    for archive, platform in zip(sorted(archives), spec["platforms"], strict=True):
        assert {"selector", "uri", "sha256", "bin"} == platform.keys()
        assert f"{url}/{archive.name}" == platform["uri"]
        assert sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
        assert f"/{platform['bin']} " in _MAKEFILE or f"/{platform['bin']}\n" in _MAKEFILE


def test_the_packaged_chart_names_the_image_by_its_digest(copy: Path, tmp_path: Path) -> None:
    """With the version of the tag; the chart of the repository names no registry."""
    shutil.copy(ROOT / "Makefile", copy)
    helm = tmp_path / "bin/helm"
    helm.parent.mkdir()
    helm.write_text('#!/bin/sh\ncp "$2/values.yaml" dist/values.yaml\necho "$@"\n', "utf-8")
    helm.chmod(0o755)
    given = ["VERSION=1.2.3", "REPOSITORY=ghcr.io/a/gpugate", "DIGEST=sha256:0123"]
    environment = {**os.environ, "PATH": f"{helm.parent}:{os.environ['PATH']}"}
    command = ["make", "--silent", "package-chart", *given]
    made = subprocess.run(command, cwd=copy, env=environment, check=True, capture_output=True, text=True)
    before, after = (
        yaml.safe_load((copy / path).read_text("utf-8"))
        for path in ("manifests/chart/values.yaml", "dist/values.yaml")
    )

    assert "package dist/chart --version 1.2.3 --app-version 1.2.3 --destination dist\n" in made.stdout
    assert before["image"] | {"repository": "ghcr.io/a/gpugate", "digest": "sha256:0123"} == after["image"]


def _steps(workflow: Path) -> list[dict[str, Any]]:
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    return [step for job in jobs.values() for step in [job, *job.get("steps", [])]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_an_action_of_a_workflow_is_pinned_by_its_commit(workflow: Path) -> None:
    """With its version in a comment; tags move."""
    text = workflow.read_text("utf-8")
    used = [step["uses"] for step in _steps(workflow) if "uses" in step]

    assert used
    for name in used:
        if name.startswith("./"):
            assert (ROOT / name).is_file()
        else:
            assert re.search(rf"uses: {re.escape(name)} # v\d", text), name
            assert re.search(r"@[0-9a-f]{40}$", name), name


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_exists(workflow: Path) -> None:
    """Targets of make, commands of .ci/release.py, and jobs that others need; the token may read alone."""
    document: dict[str, Any] = yaml.safe_load(workflow.read_text("utf-8"))
    scripts = "\n".join(step["run"] for step in _steps(workflow) if "run" in step)
    targets = set(re.findall(r"^([a-z0-9-]+):", _MAKEFILE, re.MULTILINE))
    commands = set(re.findall(r'command == "(\w+)"', SCRIPT.read_text("utf-8")))

    for words in re.findall(r"^make (.+)$", scripts, re.MULTILINE):
        called = [word for word in re.sub(r'"[^"]*"', "", words).split() if "=" not in word]
        assert called
        assert set(called) <= targets
    assert set(re.findall(r"release\.py (\w+)", scripts)) <= commands
    assert {"contents": "read"} == document["permissions"]
    for job in document["jobs"].values():
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(document["jobs"])


def test_no_script_of_a_workflow_contains_an_expression() -> None:
    """Values come in by variables, so that none is run."""
    steps = [step for workflow in WORKFLOWS for step in _steps(workflow) if "run" in step]

    assert steps
    assert not [step["run"] for step in steps if "${{" in step["run"]]
