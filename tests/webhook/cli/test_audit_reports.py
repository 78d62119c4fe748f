"""`gpugate audit -o html|sarif|junit|github|markdown|openreports`, and what --write does in a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from click.testing import Result
from jinja2 import UndefinedError
from msgspec.structs import replace

from rules import Language
from tests.support.builders import resource_rule
from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running
from tests.support.report_schemas import junit_errors, open_report_errors, sarif_errors
from webhook.cli.report import policy_reports
from webhook.cli.report.html import html, page
from webhook.cli.report.model import DENY, NOT_CHECKED, Fix, RenderedFinding, Report, Target
from webhook.cli.report.policy_reports import open_reports

KEY = "vendor.com/device"
REPORTS = "/apis/openreports.io/v1alpha1"


def _pod(name: str, namespace: str = "ml", value: str = "1") -> dict[str, Any]:
    resources = {"limits": {KEY: value}, "requests": {KEY: value}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "main", "image": "busybox", "resources": resources}]},
    }


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a rule, and a denied pod and a good one in a file."""
    one_at_most = [{"expression": "value <= 1", "messageEn": "one device at most"}]
    (tmp_path / "rule.yaml").write_text(
        resource_rule(KEY, name="cf-crl-device", validations=one_at_most), "utf-8"
    )
    pods = (_pod("bad", value="2"), _pod("good", "web"))
    (tmp_path / "pods.yaml").write_text("\n---\n".join(map(json.dumps, pods)), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _audit(output: str, *arguments: str) -> Result:
    words = ("audit", "--rules", "rule.yaml", "-o", output, *(arguments or ("-f", "pods.yaml")))
    return gpugate(*words)


def test_sarif_has_the_place_in_the_file_and_the_object() -> None:
    """By the schema of OASIS; the exit status is that of the table."""
    result = _audit("sarif")
    (check_result,) = json.loads(result.stdout)["runs"][0]["results"]
    (place,) = check_result["locations"]

    assert 1 == result.exit_code
    assert [] == sarif_errors(result.stdout)
    assert ("cf-crl-device", "error") == (check_result["ruleId"], check_result["level"])
    assert ("pods.yaml", 1) == (
        place["physicalLocation"]["artifactLocation"]["uri"],
        place["physicalLocation"]["region"]["startLine"],
    )
    assert [{"fullyQualifiedName": "Pod ml/bad", "kind": "object"}] == place["logicalLocations"]


def test_junit_has_a_suite_for_the_file() -> None:
    """By the schema of Jenkins."""
    result = _audit("junit")
    (suite,) = ET.fromstring(result.stdout)

    assert [] == junit_errors(result.stdout)
    assert ("pods.yaml", "2", "1") == (suite.get("name"), suite.get("tests"), suite.get("failures"))
    assert ["Pod ml/bad", "Pod web/good"] == [case.get("name") for case in suite]


def test_github_marks_the_field_of_the_pod() -> None:
    """As `preview` does."""
    assert _audit("github").stdout.startswith(
        "::error file=pods.yaml,line=1,col=210,title=cf-crl-device::Pod ml/bad"
    )


def test_github_without_files_is_a_usage_error() -> None:
    """It says what to use instead."""
    result = _audit("github", "--context", "production")

    assert 2 == result.exit_code
    assert "-o github marks lines of files: use -f FILE, or -o markdown" in result.stderr


@pytest.mark.parametrize("arguments", [("table",), ("openreports", "-f", "pods.yaml")])
def test_writing_needs_open_reports_of_a_cluster(arguments: tuple[str, ...]) -> None:
    """A usage error otherwise."""
    result = _audit(*arguments, "--write")

    assert 2 == result.exit_code
    assert (
        "--write requires -o openreports and all workloads of a cluster (no --filename, names or --filter)"
        in result.stderr
    )


def test_open_reports_are_valid_by_the_schema_of_their_definition() -> None:
    """One for each namespace; the schema refuses other fields."""
    bad, good = yaml.safe_load_all(_audit("openreports").stdout)

    assert [] == open_report_errors(bad) + open_report_errors(good)
    assert open_report_errors(bad | {"results": [{"result": "fail"}]})
    assert ["ml", "web"] == [report["metadata"]["namespace"] for report in (bad, good)]
    assert (1, 0) == (bad["summary"]["fail"], bad["summary"]["pass"])
    assert [("cf-crl-device", "fail", "high", "bad")] == [
        (result["policy"], result["result"], result["severity"], result["resources"][0]["name"])
        for result in bad["results"]
    ]
    assert ["pass"] == [result["result"] for result in good["results"]]


def test_a_report_that_is_too_big_has_the_worst_results_and_how_many_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The summary counts all of them."""
    monkeypatch.setattr(policy_reports, "_MOST_BYTES", 1000)
    (report,) = open_reports(_report(*(_target(f"pod-{number}") for number in range(50))))
    *kept, last = report["results"]

    assert [] == open_report_errors(report)
    assert (50, 50) == (report["summary"]["pass"], report["summary"]["fail"])
    assert {"fail"} == {result["result"] for result in kept}
    assert last["message"].startswith(f"{100 - len(kept)} more results are left out")


def test_writing_applies_reports_and_deletes_those_of_namespaces_without_results(folder: Path) -> None:
    """Only its own; findings are in the reports, so the exit status is 0."""
    with running(fake := FakeApi()):
        fake.put("/api/v1/pods", _pod("bad", value="2"))
        for name, labels in (("gpugate", {"app.kubernetes.io/managed-by": "gpugate"}), ("other", {})):
            metadata = {"name": name, "namespace": "old", "labels": labels}
            fake.put(f"{REPORTS}/reports", {"metadata": metadata})
            fake.put(f"{REPORTS}/namespaces/old/reports", {"metadata": metadata})
        result = _audit("openreports", "--write", "--kubeconfig", str(fake.kubeconfig(folder)))

    (written,) = fake.objects(f"{REPORTS}/namespaces/ml/reports")
    assert (0, "Reports: 1 written, 1 deleted\n") == (result.exit_code, result.stdout), result.stderr
    assert ("gpugate", 1) == (written["metadata"]["name"], written["summary"]["fail"])
    assert ["other"] == [
        document["metadata"]["name"] for document in fake.objects(f"{REPORTS}/namespaces/old/reports")
    ]


def test_a_cluster_without_open_reports_is_an_error_that_says_so(folder: Path) -> None:
    """The list of Reports fails."""
    with running(fake := FakeApi(statuses={f"{REPORTS}/reports": 404})):
        fake.put("/api/v1/pods", _pod("bad", value="2"))
        result = _audit("openreports", "--write", "--kubeconfig", str(fake.kubeconfig(folder)))

    assert 2 == result.exit_code
    assert "cannot list Reports of openreports.io" in result.stderr


def _finding(fix: str) -> RenderedFinding:
    return RenderedFinding(DENY, f"rule-{fix}", f"message; {fix}", "cause", fix)


def _target(name: str, *fixes: str) -> Target:
    findings = tuple(map(_finding, fixes or ("f",)))
    reference = {"apiVersion": "v1", "kind": "Pod", "namespace": "ml", "name": name}
    return Target(f"Pod ml/{name}", None, findings, ("rule",), f"Pod/{name}", reference)


def _report(*targets: Target) -> Report:
    return Report("gpugate audit", "summary", Language.EN, targets)


def test_a_fix_frees_an_owner_that_needs_nothing_else() -> None:
    """What frees most is first; several objects of an owner are one."""
    one, both, again = _target("a", "x"), _target("b", "x", "y"), _target("c", "x")
    report = _report(one, replace(one, title="twin"), both, again)

    assert [Fix("x", ("rule-x",), 2, 1), Fix("y", ("rule-y",), 0, 1)] == report.fixes()


def test_html_escapes_what_strangers_wrote() -> None:
    """Names, messages and control characters."""
    text = html(_report(_target("<b>\x1b", "<script>&")))

    assert "&lt;script&gt;&amp;" in text
    assert "Pod/&lt;b&gt;\\u001b" in text
    assert "<script" not in text


def test_no_line_of_html_begins_with_what_strangers_wrote() -> None:
    """CI systems read lines of a log as commands; a message of several lines is one line of the page."""
    message = "no node fits\n::error::of a stranger\n##[command]"
    text = html(_report(replace(_target("a"), findings=(RenderedFinding(DENY, "rule", message),))))

    assert '<span class="lines" tabindex="0">::error::of a stranger&#10;##[command]</span>' in text
    assert [] == [line for line in text.splitlines() if line.lstrip().startswith(("::", "##["))]


def test_a_page_fails_if_a_variable_of_its_template_is_absent() -> None:
    """It never shows an empty text in place of a fact."""
    with pytest.raises(UndefinedError, match="is undefined"):
        page("audit.html", Language.EN, summary="s")


def test_html_never_shows_what_was_not_checked_as_fine() -> None:
    """It has a section of its own, and its own number."""
    unchecked = replace(_target("a"), findings=(RenderedFinding(NOT_CHECKED, "", "image unknown"),))
    text = html(_report(unchecked, replace(unchecked, owner="Pod/b")))

    assert "<strong>2</strong>not fully checked" in text
    assert '>image unknown</th><td class="number" data-label="Objects">2</td>' in text
    assert "Nothing was found in what was checked." in text


@pytest.mark.parametrize(("language", "lang"), [("en", "en"), ("zh", "zh-Hans")])
def test_html_is_in_the_language_of_the_command(language: str, lang: str) -> None:
    """And says so."""
    assert f'<html lang="{lang}">' in _audit("html", "-f", "pods.yaml", "--lang", language).stdout
