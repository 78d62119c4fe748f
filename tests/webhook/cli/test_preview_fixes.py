"""`gpugate preview --fix` and `--diff`."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import gpugate
from tests.support.paths import MANIFESTS, ROOT, needs_manifests
from webhook.cli.inputs.files import catalog_path
from webhook.cli.inputs.fixes import fix_texts
from webhook.cli.inputs.session import Session

_preview = partial(gpugate, "preview")
# The second object has no finding with a fix.
TEXT = """\
# of the team
kind: Pod
apiVersion: v1
metadata: {name: share}   # 8Gi
spec:
  containers:
    - {image: x, name: c, resources: {limits: {tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 8Gi}}}
---
kind: Pod
apiVersion: v1
metadata: {name: third}
spec:
  containers:
    - {image: x, name: c, resources: {limits: {nvidia.com/gpu: 0.3}}}
"""
FIXED = TEXT.replace("memory: 8Gi", "memory: 32")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of two pods."""
    path = tmp_path / "pods.yaml"
    path.write_text(TEXT, "utf-8")
    return path


def test_fixes_are_written_and_the_result_is_previewed(file: Path) -> None:
    """What has no fix still fails the command."""
    result = _preview("--fix", file)

    assert file.read_text("utf-8") == FIXED
    path = "spec.containers[0].resources.limits[tencent.com/vcuda-memory]"
    assert result.stderr == f"note: {file}:7: fix of {path}: 8Gi → 32\n"
    assert ["✓ unchanged", "✗ denied"] == re.findall(r"^\S (?:unchanged|denied)", result.stdout, re.MULTILINE)
    assert result.exit_code == 1


@pytest.mark.parametrize("command", ["preview", "audit"])
def test_json_has_the_fix_of_a_finding_that_has_only_one(command: str, file: Path) -> None:
    """As a path, the old value and the new one; another finding has none."""
    document = json.loads(gpugate(command, "-f", file, "-o", "json").stdout)
    findings = [
        finding
        for entry in document.get("objects") or document["workloads"]
        for finding in entry.get("violations") or entry["pods"][0]["findings"]
    ]
    path = "spec.containers[0].resources.limits[tencent.com/vcuda-memory]"

    assert [[{"path": path, "old": "8Gi", "new": "32"}]] == [
        finding["edits"] for finding in findings if "edits" in finding
    ]
    assert len(findings) > 1


def test_a_byte_order_mark_and_line_ends_of_windows_stay(file: Path) -> None:
    """They are of the editor, and not of the fix."""
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())

    _preview("--fix", file)

    assert file.read_bytes() == b"\xef\xbb\xbf" + FIXED.replace("\n", "\r\n").encode()


def test_diff_prints_the_fixes_and_writes_nothing(file: Path) -> None:
    """Its exit status is 1, as that of diff."""
    result = _preview("--diff", file)

    assert file.read_text("utf-8") == TEXT
    assert result.stdout.startswith(f"--- {file}\n+++ {file}\n@@ -4,7 +4,7 @@\n")
    assert [line for line in result.stdout.splitlines() if line.startswith(("- ", "+ "))] == [
        f"{sign}{text.splitlines()[6]}" for sign, text in (("-", TEXT), ("+", FIXED))
    ]
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("command", "fixed"),
    [
        ("args: [--model=x, --dtype, bfloat16]", "args: [--model=x, --dtype, half]"),
        ("args: [--model=x, --dtype=bfloat16]", "args: [--model=x, --dtype=half]"),
        (
            'command: [sh, -c, "vllm serve x --dtype bfloat16 --port 80"]',
            'command: [sh, -c, "vllm serve x --dtype half --port 80"]',
        ),
        ('command: [sh, -c, "D=bfloat16; vllm serve x --dtype $D"]', ""),
        ('command: [sh, -c, "test --dtype bfloat16; vllm serve x --dtype bfloat16"]', ""),
    ],
)
def test_a_data_type_that_no_gpu_has_is_replaced_where_it_is_written_once(
    command: str, fixed: str, tmp_path: Path
) -> None:
    """By the first alternative of the facts; a script is changed only if it is certain what sets it."""
    text = f"""\
kind: Pod
apiVersion: v1
metadata: {{name: serve}}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.8.5
      {command}
      resources: {{limits: {{nvidia.com/gpu: 1}}}}
"""
    path = tmp_path / "pod.yaml"
    path.write_text(text, "utf-8")
    result = _preview("--fix", path, "--nodes", "t4@570")

    assert text.replace(command, fixed or command) == path.read_text("utf-8")
    assert (0 if fixed else 1) == result.exit_code


def test_diff_of_a_file_without_fixes_is_empty(file: Path) -> None:
    """Its exit status is 0."""
    file.write_text(FIXED, "utf-8")
    result = _preview("--diff", file)

    assert (0, "", "") == (result.exit_code, result.stdout, result.stderr)


def test_the_fixed_text_of_stdin_is_printed() -> None:
    """Nothing else is."""
    result = _preview("--fix", "-", input=TEXT)

    assert (0, FIXED) == (result.exit_code, result.stdout)


@pytest.mark.parametrize("words", [("--diff",), ("--fix",)])
def test_a_text_with_an_error_is_reported_and_stays(words: tuple[str, ...]) -> None:
    """Its other objects are fixed."""
    result = _preview(*words, "-", input=f"{TEXT}---\n- {{{{ .Values.x }}}}: a\n")

    assert result.exit_code == 2
    assert "error: stdin:16:" in result.stderr
    assert "memory: 32" in result.stdout


def test_a_url_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--diff` reads one."""
    monkeypatch.setattr("webhook.cli.inputs.files.read_url", lambda _: TEXT.encode())

    assert _preview("--diff", "https://example.com/pod.yaml").exit_code == 1
    result = _preview("--fix", "https://example.com/pod.yaml")
    assert (2, True) == (result.exit_code, "a URL cannot be written" in result.stderr)


def test_every_fix_of_the_rule_tests_passes_and_keeps_comments_and_order(tmp_path: Path) -> None:
    """Each pod of the tests of built-in rules, with a comment behind each quantity."""
    folder = catalog_path()
    for number, file in enumerate(sorted(folder.rglob("*.test.yaml"))):
        text = yaml.safe_dump_all(_pods(file), sort_keys=False, width=10**6)
        commented = re.sub(r"^( +\S+/\S+: \S+)$", r"\1   # keep", text, flags=re.MULTILINE)
        (tmp_path / f"{number}.yaml").write_text(commented, "utf-8")
    session, changes = Session(), 0
    for name, before, after, attempts in fix_texts(session, [str(tmp_path)], "default"):
        assert [""] * len(attempts) == [attempt.why_not.en for attempt in attempts]
        Path(name).write_text(after, "utf-8")
        edits = [edit for attempt in attempts for edit in attempt.finding.edits]
        added = sum(not edit.old for edit in edits)
        old, new = before.splitlines(), after.splitlines()
        assert added <= len(new) - len(old) <= 2 * added
        assert len({*new} - {*old}) <= len(edits) + added
        assert before.count("# keep") == after.count("# keep")
        changes += len(edits)

    assert changes >= 27
    assert [] == [fix for *_, fixes in fix_texts(session, [str(tmp_path)], "default") for fix in fixes]


def _pods(file: Path) -> list[Any]:
    cases = [case for document in yaml.safe_load_all(file.read_text("utf-8")) for case in document["cases"]]
    of_pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": case["pod"]}
               for case in cases if "pod" in case]  # fmt: skip
    return [*of_pods, *(case["object"] for case in cases if "kind" in case.get("object", {}))]


@pytest.mark.parametrize(
    "folder",
    [
        ROOT / "docs" / "examples",
        ROOT / "manifests",
        pytest.param(MANIFESTS, marks=needs_manifests),
    ],
)
def test_a_text_without_a_fix_stays_byte_by_byte(folder: Path) -> None:
    """Whatever its layout is."""
    for _, before, after, attempts in fix_texts(Session(), [str(folder)], "default"):
        assert (after == before) is all(attempt.why_not for attempt in attempts)
