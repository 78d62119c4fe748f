"""Findings of `preview` and `lint` for CI systems: SARIF, workflow commands of GitHub, Markdown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result
from msgspec.structs import replace

from rules import Language
from rules.text.yaml_document import Location
from tests.support.builders import resource_rule
from tests.support.command import gpugate
from tests.support.report_schemas import junit_errors, sarif_errors
from tests.support.webhooks import pod
from webhook.cli.report.annotations import github, markdown
from webhook.cli.report.junit import junit
from webhook.cli.report.model import DENY, WARN, RenderedFinding, Report, Target
from webhook.cli.terminal.vocabulary import MORE_CHANGES, MORE_FINDINGS

# A line each of a denial and of a warning: the second object is at line 2.
_RULES = resource_rule()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a denied pod, one with a warning, and one that is misspelt."""
    (tmp_path / "pods.yaml").write_text(
        "\n---\n".join(
            json.dumps(document) for document in (pod({"nvidia.com/gpu": "1.5"}), pod({"nvidia.com/gpus": 1}))
        ),
        "utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _preview(output: str, *arguments: str) -> Result:
    return gpugate("preview", "-f", "pods.yaml", "-o", output, *arguments)


def _results(output: str) -> list[dict[str, Any]]:
    (run,) = json.loads(output)["runs"]
    codes = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(result["ruleId"] == codes[result["ruleIndex"]] for result in run["results"])
    results: list[dict[str, Any]] = run["results"]
    return results


def _target(file: str, line: int, *findings: RenderedFinding) -> Target:
    return Target("", Location(file, line), findings)


def _report(*targets: Target) -> Report:
    return Report("t", "s", Language.EN, targets)


@pytest.mark.usefixtures("files")
def test_sarif_of_preview_has_a_result_for_each_denial_and_what_was_not_checked() -> None:
    """At the line of the object, by the rule that denies it."""
    result = _preview("sarif")
    denied, misspelt = _results(result.stdout)

    assert 1 == result.exit_code
    assert ("error", "note") == (denied["level"], misspelt["level"])
    assert "not-checked" == misspelt["ruleId"]
    assert [("pods.yaml", 1), ("pods.yaml", 3)] == [
        (place["artifactLocation"]["uri"], place["region"]["startLine"])
        for sarif_result in (denied, misspelt)
        for place in [sarif_result["locations"][0]["physicalLocation"]]
    ]


_LINES = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: ml}
spec:
  template:
    spec:
      containers:
        - name: main
          image: nvidia/cuda:12.4.1-base-ubuntu22.04
          resources:
            limits:
              nvidia.com/gpu: 1.5
          securityContext:
            privileged: true
          env:
            - name: NVIDIA_VISIBLE_DEVICES
              value: all
"""


@pytest.mark.parametrize("command", ["preview", "audit"])
def test_each_finding_is_at_the_line_of_its_field(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same rule in both commands and formats, warnings as well as denials."""
    (tmp_path / "pods.yaml").write_text(_LINES.lstrip(), "utf-8")
    monkeypatch.chdir(tmp_path)
    expected = {(12, "cf-crl-pgpu-gpu"), (14, "compatibility-pgpu"), (16, "compatibility-pgpu")}
    sarif = {
        (result["locations"][0]["physicalLocation"]["region"]["startLine"], result["ruleId"])
        for result in _results(gpugate(command, "-f", "pods.yaml", "-o", "sarif").stdout)
    }
    github = gpugate(command, "-f", "pods.yaml", "-o", "github").stdout
    marked = re.findall(
        r"^::(?:error|warning) file=pods.yaml,line=(\d+),col=\d+,title=([^:]+)::", github, re.MULTILINE
    )

    assert expected == {place_and_rule for place_and_rule in sarif if place_and_rule[1] != "not-checked"}
    assert expected == {(int(line), rule) for line, rule in marked}


@pytest.mark.usefixtures("files")
def test_github_marks_the_field_in_the_diff() -> None:
    """A command for each finding."""
    first, second = _preview("github").stdout.splitlines()

    assert first.startswith("::error file=pods.yaml,line=1,col=")
    assert second.startswith("::notice file=pods.yaml,line=3,col=")


@pytest.mark.usefixtures("files")
def test_markdown_has_the_numbers_and_a_row_for_each_finding() -> None:
    """In both languages."""
    lines, chinese = (_preview("markdown", "--lang", lang).stdout.splitlines() for lang in ("en", "zh"))

    assert ["### gpugate preview", ""] == lines[:2]
    assert "2 objects: 0 patched, 1 denied, 1 unchanged, 0 with warnings" == lines[2]
    assert "CUDA compatibility not checked" in lines[3]
    assert lines[5].startswith("Fix this 1 thing")
    assert ["| LEVEL | SOURCE | FINDING | RULE |", "|---|---|---|---|"] == lines[9:11]
    assert ["| error | pods.yaml:1 ", "| notice | pods.yaml:3 "] == [
        line[: len(start)]
        for line, start in zip(lines[11:], ("| error | pods.yaml:1 ", "| notice | pods.yaml:3 "), strict=True)
    ]
    assert "| 级别 | 来源 | 问题 | 规则 |" in chinese


def test_markdown_of_lint_has_its_summary(tmp_path: Path) -> None:
    """The line that it prints for people."""
    (tmp_path / "rule.yaml").write_text(_RULES, "utf-8")
    result = gpugate("lint", tmp_path, "-o", "markdown")

    assert (0, "### gpugate lint\n\n1 valid rule, 0 errors, 0 warnings\n") == (
        result.exit_code,
        result.stdout,
    )


def test_a_message_is_no_markup_and_no_second_command() -> None:
    """A pull request of a stranger has the names of its objects."""
    report = _report(
        _target("f.yaml", 1, RenderedFinding(DENY, "a", "![x](http://e) <b> | @all `c`\n::error::x\x1b[0m"))
    )
    row = markdown(report).splitlines()[-1]

    assert (
        r"| error | f.yaml:1 | !\[x\](http://e) &lt;b> \| @&#8203;all \`c\`<br>::error::x\\u001b\[0m | a |"
        == row
    )
    assert [
        "::error file=f.yaml,line=1,col=1,title=a::![x](http://e) <b> | @all `c`%0A::error::x\\u001b[0m"
    ] == (github(report).splitlines())


def test_a_change_cannot_end_its_block() -> None:
    """A text of a stranger's object with a fence stays in the block, and a long change is cut."""
    target = Target("Pod a/b", result="patched", change="\n".join([" ````", *["+x"] * 300]))
    lines = markdown(_report(target)).splitlines()

    assert ["**Pod a/b: patched**", "", "`````diff", " ````"] == lines[4:8]
    assert ["+x", "…", "`````"] == lines[-3:]
    assert 200 + 1 == len(lines[7:-1])


def test_a_table_ends_after_200_findings_and_says_how_many_follow() -> None:
    """GitHub cuts a summary at 1 MiB."""
    report = _report(*(_target("f.yaml", line, RenderedFinding(DENY, "a", "m")) for line in range(1, 251)))

    assert ["| error | f.yaml:200 | m | a |", "", "50 more findings"] == markdown(report).splitlines()[-3:]


@pytest.mark.parametrize("language", list(Language))
def test_two_reports_fit_into_one_comment(language: Language) -> None:
    """A table ends at a row and a change at its fence; a line says how many are left out."""
    finding = RenderedFinding(DENY, "a", "@m" * 200)
    targets = [
        Target(f"Pod a/{i}", Location("f.yaml", i), (finding,), change="+x\n" * 150) for i in range(120)
    ]
    for shown in (targets, [replace(target, findings=()) for target in targets]):
        text = markdown(Report("t", "s", language, tuple(shown)))
        lines = text.splitlines()
        rows, blocks = sum(line.endswith("| a |") for line in lines), lines.count("```diff")

        assert 30_000 < len(text) < 65_536 // 2 - 100
        assert blocks == lines.count("```")
        assert ["", MORE_CHANGES.having(count=120 - blocks).in_language(language)] == lines[-2:]
        assert (rows > 0) is (MORE_FINDINGS.having(count=120 - rows).in_language(language) in lines)


@pytest.mark.usefixtures("files")
def test_sarif_is_valid_by_the_schema_of_oasis() -> None:
    """The schema refuses what is not SARIF."""
    text = _preview("sarif").stdout

    assert [] == sarif_errors(text)
    assert sarif_errors(text.replace('"startLine": 1', '"startLine": 0'))


@pytest.mark.usefixtures("files")
def test_junit_has_a_failure_for_a_denial_and_skips_what_was_not_checked() -> None:
    """In a suite for the file, and by the schema of Jenkins."""
    result = _preview("junit")
    (suite,) = ET.fromstring(result.stdout)

    assert 1 == result.exit_code
    assert [] == junit_errors(result.stdout)
    assert ("pods.yaml", "2", "1", "1") == tuple(
        suite.get(key) for key in ("name", "tests", "failures", "skipped")
    )
    assert [("pods.yaml:1", ["failure", "system-out"]), ("pods.yaml:3", ["skipped"])] == [
        (case.get("classname"), [element.tag for element in case]) for case in suite
    ]


def test_junit_has_warnings_as_output_and_no_control_characters() -> None:
    """A case with warnings alone has passed."""
    warnings = [RenderedFinding(WARN, "", message) for message in ("\x1b[1mw", "<x>")]
    text = junit(_report(_target("f", 1, *warnings), _target("f", 2)))
    warned, clean = ET.fromstring(text)[0]

    assert [] == junit_errors(text)
    assert ["warning: \\u001b[1mw\nwarning: <x>"] == [element.text for element in warned]
    assert [] == list(clean)
