"""`gpugate lint`: formats, exit status, and unusual texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest
import yaml

from rules.schema.errors import Code
from tests.support.builders import injection_rule, resource_rule
from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running
from tests.support.node_builders import gfd, node, node_profile
from tests.support.paths import ROOT
from webhook.cli.commands.lint import ABOUT

WRONG = resource_rule(limits="optinal")
ERROR = "data.limits: expected one of disabled, required, optional, got 'optinal' – did you mean 'optional'?"
WARNING = "metadata.name: expected to end in -device like the key 'vendor.com/device', got 'cf-crl-group-odd'"


lint = partial(gpugate, "lint")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a rule with an error, one with a warning and a valid one, and go to their folder."""
    (tmp_path / "my rules").mkdir()
    (tmp_path / "my rules/a.yaml").write_text(WRONG, "utf-8")
    (tmp_path / "my rules/b.yaml").write_text(resource_rule(name="cf-crl-group-odd"), "utf-8")
    (tmp_path / "my rules/c.yaml").write_text(injection_rule({"hostIPC": True}), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_text_has_place_level_message_and_code(folder: Path) -> None:
    """In the order of files, on stdout; the summary is on stderr."""
    del folder
    result = lint("my rules")

    assert [
        f"my rules/a.yaml:13:11: error: {ERROR} [wrong-value]",
        f"my rules/b.yaml:4:9: warning: {WARNING} [odd-name]",
    ] == result.stdout.splitlines()
    assert (1, "2 valid rules, 1 error, 1 warning\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("pod.namespce == 'a'", "column 1: unexpected `pod.namespce` – did you mean `pod.namespace`?"),
        ("container.nam == 'a'", "column 1: unexpected `container.nam` – did you mean `container.name`?"),
        ('pod.labels == "1"', "column 1: unexpected `pod.labels` – did you mean `pod.labels['key']`?"),
        ("limits.foo > 1", "column 1: unexpected `limits.foo` – did you mean `limits['vendor.com/foo']`?"),
    ],
)
def test_an_expression_that_can_never_be_evaluated_is_an_error(
    tmp_path: Path, expression: str, mistake: str
) -> None:
    """In validations and in conditions, with its line."""
    (tmp_path / "a.yaml").write_text(resource_rule(validations=[{"expression": expression}]), "utf-8")
    conditional = injection_rule({"hostIPC": True}, match={"conditions": [expression]})
    (tmp_path / "b.yaml").write_text(conditional, "utf-8")
    result = lint(tmp_path)

    assert (1, 2) == (result.exit_code, result.stdout.count(f"CEL: {mistake} [bad-expression]"))


def test_json_has_each_finding_as_an_object(folder: Path) -> None:
    """For scripts."""
    del folder
    first, second = json.loads(lint("my rules", "-o", "json").stdout)["findings"]

    assert {
        "level": "error",
        "code": "wrong-value",
        "file": "my rules/a.yaml",
        "line": 13,
        "column": 11,
        "rule": "cf-crl-group-device",
        "path": "data.limits",
        "message": ERROR.removeprefix("data.limits: "),
    } == first
    assert ("warning", "odd-name") == (second["level"], second["code"])


def test_sarif_has_the_shape_that_code_scanning_reads(folder: Path) -> None:
    """A rule for each code, valid URIs, columns in characters."""
    del folder
    document = json.loads(lint("my rules", "-o", "sarif").stdout)
    (run,) = document["runs"]
    rules, (first, second) = run["tool"]["driver"]["rules"], run["results"]

    assert ("2.1.0", "unicodeCodePoints") == (document["version"], run["columnKind"])
    assert {code.value for code in Code} == {rule["id"] for rule in rules}
    assert ("wrong-value", "error", ERROR) == (first["ruleId"], first["level"], first["message"]["text"])
    assert {
        "artifactLocation": {"uri": "my%20rules/a.yaml"},
        "region": {"startLine": 13, "startColumn": 11},
    } == first["locations"][0]["physicalLocation"]
    assert ("odd-name", "warning") == (rules[second["ruleIndex"]]["id"], second["level"])


def test_sarif_names_files_elsewhere_by_their_whole_uri(folder: Path) -> None:
    """A relative URI is relative to the root of the repository."""
    (result,) = json.loads(lint(folder / "my rules/a.yaml", "-o", "sarif").stdout)["runs"][0]["results"]

    assert (folder / "my rules/a.yaml").as_uri() == result["locations"][0]["physicalLocation"][
        "artifactLocation"
    ]["uri"]


def test_junit_has_a_test_case_for_each_file(folder: Path) -> None:
    """Errors are failures; warnings are output."""
    del folder
    text = lint("my rules", "-o", "junit").stdout
    suite = ET.fromstring(text.encode())

    assert ("3", "1") == (suite.get("tests"), suite.get("failures"))
    assert [["failure"], ["system-out"], []] == [[child.tag for child in case] for case in suite]
    assert ("wrong-value", ERROR) == (suite[0][0].get("type"), suite[0][0].get("message"))


def test_workflow_commands_escape_what_would_end_them(folder: Path) -> None:
    """GitHub shows them in the diff."""
    (folder / "a,b:50%.yaml").write_text(WRONG, "utf-8")

    assert [f"::error file=a%2Cb%3A50%25.yaml,line=13,col=11,title=wrong-value::{ERROR}"] == lint(
        "a,b:50%.yaml", "-o", "github"
    ).stdout.splitlines()


@pytest.mark.parametrize(
    ("files", "options", "status"),
    [
        (["c.yaml"], ["--fail-on", "warn"], 0),
        (["b.yaml"], [], 0),
        (["b.yaml"], ["--fail-on", "warn"], 3),
        (["a.yaml", "b.yaml"], ["--fail-on", "warn"], 1),
        (["none.yaml"], [], 2),
    ],
)
def test_the_exit_status_distinguishes_errors_and_warnings(
    folder: Path, files: list[str], options: list[str], status: int
) -> None:
    """0 clean, 1 errors, 2 usage, 3 only warnings with `--fail-on warn`."""
    assert status == lint(*(folder / "my rules" / file for file in files), *options).exit_code


@pytest.mark.parametrize("kind", ["Configmap", "configmap", "ConfigMaps", "ConifgMap"])
def test_a_misspelt_kind_is_reported(kind: str, tmp_path: Path) -> None:
    """A skipped object would seem clean."""
    path = tmp_path / "a.yaml"
    path.write_text(resource_rule().replace("kind: ConfigMap", f"kind: {kind}"), "utf-8")
    result = lint(path)

    assert (1, "0 valid rules, 1 error, 0 warnings\n") == (result.exit_code, result.stderr)
    assert (
        f"{path}:2:7: error: kind: unknown kind {kind!r} – did you mean 'ConfigMap'? [wrong-value]\n"
    ) == result.stdout


@pytest.mark.parametrize(
    ("group", "kind"),
    [("v1", "Config"), ("v1", "Secret"), ("example.com/v1", "ConfigMaps"), ("v1", 7), ("v1", None)],
)
def test_other_kinds_are_skipped(group: str, kind: object, tmp_path: Path) -> None:
    """Kinds in a kubeconfig or a cluster."""
    path = tmp_path / "a.yaml"
    document = yaml.safe_load(resource_rule()) | {"apiVersion": group, "kind": kind}
    path.write_text(yaml.safe_dump_all([document, yaml.safe_load(resource_rule())]), "utf-8")

    assert (0, "1 valid rule, 0 errors, 0 warnings\n") == (
        (warnings := lint(path)).exit_code,
        warnings.stderr,
    )


def test_each_code_is_documented() -> None:
    """In the tool and in docs/ci.md."""
    text = (ROOT / "docs/ci.md").read_text("utf-8")

    assert set(Code) == set(ABOUT)
    assert [] == [code.value for code, about in ABOUT.items() if f"| `{code.value}` | {about} |" not in text]


def test_the_pre_commit_hook_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its default folder is `rules`."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/a.yaml").write_text(WRONG, "utf-8")
    monkeypatch.chdir(tmp_path)
    command: list[str] = [*hook["entry"].split(), *hook["args"]]

    assert ("gpugate", False) == (command[0], hook["pass_filenames"])
    assert 1 == gpugate(*command[1:]).exit_code


def test_control_characters_in_a_finding_are_escaped(tmp_path: Path) -> None:
    """A rule file must neither control the terminal nor break XML."""
    path = tmp_path / "a.yaml"
    path.write_text(WRONG.replace("dataType:", '"\\e[2J\\n":'), "utf-8")

    assert "data[\\u001b[2J ]: unknown key" in lint(path).stdout
    assert ET.fromstring(lint(path, "-o", "junit").stdout.encode()).get("failures") == "1"


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN_1 = {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"}


@pytest.mark.parametrize(
    ("locale", "output"),
    [(ASCII, "text"), (ASCII, "junit"), (LATIN_1, "json")],
    ids=["text", "junit", "json"],
)
def test_the_locale_changes_nothing(tmp_path: Path, locale: dict[str, str], output: str) -> None:
    """Files are read and findings written as UTF-8, as kubectl does."""
    path = tmp_path / "规则.yaml"
    path.write_text(resource_rule(limits="可选"), "utf-8")
    command = [sys.executable, "-m", "webhook", "lint", str(tmp_path), "-o", output]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, env=environment | locale, capture_output=True, check=False, cwd=ROOT)

    assert (1, True) == (done.returncode, "got '可选'" in done.stdout.decode("utf-8"))
    assert b"Traceback" not in done.stderr


def _many(size: int) -> str:
    rule = yaml.safe_load(resource_rule(enabled=False))
    items = [
        cast("dict[str, Any]", rule) | {"metadata": rule["metadata"] | {"name": f"cf-crl-{number}-device"}}
        for number in range(size // 400)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
ANCHORED = WRONG.replace("limits: optinal", "limits: &limits optional").replace(
    "requests: disabled", "requests: *limits"
)


@pytest.mark.parametrize(
    ("content", "findings"),
    [
        (WRONG.encode("utf-8-sig"), ["13:11 wrong-value"]),
        (WRONG.replace("\n", "\r\n").encode(), ["13:11 wrong-value"]),
        (WRONG.encode("utf-16"), ["1:1 not-yaml"]),
        (WRONG.replace("optinal", "optionél").encode("latin-1"), ["13:17 not-yaml"]),
        (WRONG.replace("  limits", "\tlimits").encode(), ["13:1 not-yaml"]),
        (
            WRONG.replace("  dataType", "  key: a.com/b\n  dataType").encode(),
            ["12:3 duplicate-key", "14:11 wrong-value"],
        ),
        (ANCHORED.encode(), ["14:3 wrong-value"]),
        (LAUGHS.encode(), ["1:5 not-yaml"]),
        (("[" * 900).encode(), ["1:201 not-yaml"]),
        (_many(2_000_000).encode(), []),
        (b"\x00", ["1:1 not-yaml"]),
        (b"", []),
        (b"---\n---\n", []),
    ],
    ids=[
        "byte order mark",
        "CRLF",
        "UTF-16",
        "latin-1",
        "tab",
        "duplicate key",
        "anchor",
        "billion laughs",
        "deep",
        "2 MB",
        "binary",
        "empty",
        "no documents",
    ],
)
def test_an_unusual_text_is_read_correctly_or_reported_with_its_position(
    tmp_path: Path, content: bytes, findings: list[str]
) -> None:
    """And never hides an error in another file."""
    (tmp_path / "hard.yaml").write_bytes(content)
    (tmp_path / "other.yaml").write_text(resource_rule("vendor.com/other", limits="never"), "utf-8")
    reported = json.loads(lint(tmp_path, "-o", "json").stdout)["findings"]

    assert [*findings, "13:11 wrong-value"] == [
        f"{item['line']}:{item['column']} {item['code']}" for item in reported
    ]


def test_a_conflict_with_a_built_in_rule_is_a_warning(tmp_path: Path) -> None:
    """From any folder, also if --rules names the file, too; a rule that replaces one by its name is none."""
    path = tmp_path / "mine.yaml"
    path.write_text(resource_rule("tencent.com/vcuda-core", group="mine"), "utf-8")
    warnings = lint(path)
    name = "cf-crl-gpu-manager-vcuda-core"

    assert 0 == warnings.exit_code
    assert f"data.key: 'tencent.com/vcuda-core' is also used by {name} (" in warnings.stdout
    assert "" == lint(path, "--rules", path).stdout
    assert warnings.stdout == lint(path, "--rules", "builtin", "--rules", path).stdout
    path.write_text(resource_rule("tencent.com/vcuda-core", group="gpu-manager"), "utf-8")
    assert "conflict" not in lint(path).stdout


def test_a_file_without_a_rule_is_reported_as_a_warning(tmp_path: Path) -> None:
    """A misspelt path in CI would always pass."""
    path = tmp_path / "rules.yaml"
    path.write_text("{apiVersion: v1, kind: Service}", "utf-8")
    assert f"{path}: no rules found; a rule is a ConfigMap" in lint(path).stderr
    assert (0, 3) == (lint(path).exit_code, lint(path, "--fail-on", "warn").exit_code)


def test_a_profile_that_given_nodes_contradict_is_a_warning_at_its_fact(tmp_path: Path) -> None:
    """In English and Chinese; without nodes there is no warning."""
    rules, nodes = tmp_path / "rules.yaml", tmp_path / "nodes.json"
    rules.write_text(node_profile(cuda="13.0"), "utf-8")
    nodes.write_text(
        json.dumps([node("a", gfd("12.2", pool="a")), node("b", gfd("12.2", pool="a"))]), "utf-8"
    )
    english, chinese = (
        lint(rules, "--nodes", nodes, "--lang", lang, "--fail-on", "warn") for lang in ("en", "zh")
    )

    assert english.stdout.endswith(
        "warning: offers.cuda: cuda is 13.0 here, but 12.2 on present nodes ('a', 2 in all); "
        "correct the profile, or the labels in its match [contradiction]\n"
    )
    assert "此处 cuda 为 13.0，现有节点上为 12.2（例如 'a'，共 2 个）" in chinese.stdout
    assert (3, 0) == (english.exit_code, lint(rules, "--fail-on", "warn").exit_code)


def test_a_profile_is_compared_with_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    """Without PATH, also its rules are read."""
    fake = FakeApi()
    fake.put("/api/v1/nodes", node("a", gfd("12.2", pool="a")))
    fake.put("/api/v1/namespaces/kube-public/configmaps", yaml.safe_load(node_profile(cuda="13.0")))
    with running(fake):
        warnings = lint("--kubeconfig", fake.kubeconfig(tmp_path))

    assert "offers.cuda: cuda is 13.0 here, but 12.2 on present nodes ('a', 1 in all)" in warnings.stdout
