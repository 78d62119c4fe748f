"""`gpugate test`: decides cases like admission, and reports differences with their positions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import indent
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rules.decision.pipeline import Snapshot, decide
from rules.model.workload_kinds import built_in_workloads
from rules.schema.config_map import DEFAULT_NAMESPACE
from rules.text.yaml_document import Document, read
from tests.support.builders import (
    DEVICE,
    config_map,
    defaulted,
    injection_rule,
    patched,
    refused_at,
    resource_rule,
)
from tests.support.command import gpugate
from tests.support.node_builders import compatibility_rule
from tests.support.paths import ROOT, TESTS
from webhook.cli.inputs.files import catalog_path, read_path
from webhook.cli.inputs.yaml_edit import flow
from webhook.cli.test.runner import Runner

PAGE = ROOT / "docs" / "rule-tests.md"
SEED = TESTS / "rules" / "catalog" / "seed"

HEAD = "apiVersion: gpugate.dev/v1\nkind: RuleTest\n"
ONE_DEVICE = f"containers: [{{name: main, image: busybox, resources: {{limits: {{{DEVICE}: 1}}}}}}]"

# Labels of a node with a driver of CUDA 11.4.
OLD = '{cuda-major-version: "11", cuda-minor-version: "4"}'
# Its status.
ONE = f"{{allocatable: {{{DEVICE}: 1}}}}"


def _case(expect: str, name: str = "one device", pod: str = ONE_DEVICE, more: str = "") -> str:
    """Return a case, an entry of `cases`; more: other keys of it."""
    return f"  - name: {name}\n{more}    pod:\n{indent(pod, ' ' * 6)}\n    expect: {expect}\n"


def _folder(folder: Path, *cases: str, rules: str = "", head: str = HEAD) -> Path:
    """Write a folder with a rule, for DEVICE by default, and a test with these cases; return the test."""
    (folder / "rule.yaml").write_text(rules or resource_rule(), "utf-8")
    path = folder / "rule.test.yaml"
    path.write_text(f"{head}cases:\n{''.join(cases)}", "utf-8")
    return path


def _test(*arguments: str | Path, **settings: Any) -> Result:
    return gpugate("test", *arguments, **settings)


def _found(*arguments: str | Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_test(*arguments, "-o", "json").stdout)
    return document


def _differences(path: Path) -> list[dict[str, Any]]:
    """Return the differences of the cases of a valid test."""
    report = _found(path)
    assert [] == report["errors"]
    return [difference for case in report["cases"] for difference in case["differences"]]


def _errors(path: Path) -> list[str]:
    """Return the errors on stderr of a command that exits with 2 and runs no case."""
    result = _test(path)
    assert (2, True) == (result.exit_code, "no cases run" in result.stdout)
    return [line.removeprefix("error: ") for line in result.stderr.splitlines()]


# The rules that ship, the format's examples, the page


def test_the_built_in_rules_pass_their_tests_and_every_folder_has_tests() -> None:
    """Without PATH, wherever gpugate is installed."""
    result = _test()
    folders = {path.parent for path in catalog_path().rglob("*.yaml")} - {catalog_path()}

    assert (0, "") == (result.exit_code, result.stderr), result.stdout
    assert folders == {path.parent for path in catalog_path().rglob("*.test.yaml")}


def test_the_examples_pass_in_all_nine_combinations_of_limits_and_requests() -> None:
    """One key, two keys of a group, both languages, and each policy with and without a default."""
    result = _test(SEED)

    assert (0, "") == (result.exit_code, result.stderr), result.stdout
    assert 9 == len(list((SEED / "combinations").glob("*.test.yaml")))


def test_the_example_in_the_documentation_fails_and_passes_after_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/project/test_docs.py checks its output."""
    rule, test = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("my-rules").mkdir()
    Path("my-rules/device.yaml").write_text(rule, "utf-8")
    Path("my-rules/device.test.yaml").write_text(test, "utf-8")

    assert 1 == _test("my-rules").exit_code
    Path("my-rules/device.test.yaml").write_text(test.replace("up to 9", "up to 8"), "utf-8")
    assert 0 == _test("my-rules").exit_code


# What is compared


@pytest.mark.parametrize(
    "expect",
    [
        "{allowed: false, violations: [{}]}",
        "{allowed: false, violations: [{path: 'spec.containers[0].resources'}]}",
        "{allowed: false, violations: [{rule: cf-crl-group-device, action: deny}], warnings: [], patch: []}",
        "{allowed: false, violations: [{message: 'expected    a whole number'}]}",
    ],
)
def test_an_expected_violation_may_set_any_subset_of_fields(tmp_path: Path, expect: str) -> None:
    """A part of the message, a parent path."""
    assert [] == _differences(_folder(tmp_path, _case(expect, pod=ONE_DEVICE.replace(": 1}", ": 500m}"))))


@pytest.mark.parametrize(
    "violation",
    ["{rule: other}", "{path: 'spec.containers[0].res'}", "{message: no such words}", "{action: warn}"],
)
def test_a_violation_that_differs_in_any_set_field_does_not_match(tmp_path: Path, violation: str) -> None:
    """The expected one is missing, and the actual one is unexpected."""
    pod = ONE_DEVICE.replace(": 1}", ": 500m}")
    (difference,) = _differences(
        _folder(tmp_path, _case(f"{{allowed: false, violations: [{violation}]}}", pod=pod))
    )

    assert ("violations", 1, 1) == (difference["what"], len(difference["expected"]), len(difference["found"]))


def test_an_exact_expectation_is_matched_before_a_vague_one(tmp_path: Path) -> None:
    """In any order."""
    pod = f"containers: [{{name: a, resources: {{limits: {{{DEVICE}: 1m}}, requests: {{{DEVICE}: 2m}}}}}}]"
    limits, requests = "{path: 'spec.containers[0].resources.limits'}", "{message: whole}"

    for violations in (f"{{}}, {requests}, {limits}", f"{limits}, {{}}, {requests}"):
        expect = f"{{allowed: false, violations: [{violations}]}}"
        assert [] == _differences(_folder(tmp_path, _case(expect, pod=pod)))


def test_unexpected_violations_also_fail_a_case_that_is_allowed(tmp_path: Path) -> None:
    """A rule that only warns can be tested."""
    rules = resource_rule(limits="disabled", enforcementAction="warn")

    assert ["violations"] == [
        difference["what"]
        for difference in _differences(_folder(tmp_path, _case("{allowed: true}"), rules=rules))
    ]
    expect = "{allowed: true, violations: [{action: warn}], warnings: [may not be there]}"
    (unexpected,) = _differences(_folder(tmp_path, _case(expect), rules=rules))
    assert ("warnings", ["may not be there"], 1) == (
        unexpected["what"],
        unexpected["expected"],
        len(unexpected["found"]),
    )


def test_fields_are_read_from_the_patched_object(tmp_path: Path) -> None:
    """null means absent; a string is not equal to a number."""
    rules = resource_rule() + "---\n" + resource_rule("vendor.com/cores", defaultValue="4")
    limits = "/spec/containers/0/resources/limits/vendor.com~1cores"

    assert [] == _differences(
        _folder(tmp_path, _case(f'{{allowed: true, fields: {{{limits}: "4", /x/0: null}}}}'), rules=rules)
    )
    expect = f"{{allowed: true, fields: {{{limits}: 4, /spec/containers/0/name: null}}}}"
    assert [(limits, ["4"], ['"4"']), ("/spec/containers/0/name", ["absent"], ['"main"'])] == [
        tuple(difference.values())
        for difference in _differences(_folder(tmp_path, _case(expect), rules=rules))
    ]


@pytest.mark.parametrize(
    "pod",
    [
        f"labels: {{app: train}}\n{ONE_DEVICE}",
        f"metadata: {{labels: {{app: train}}}}\n{ONE_DEVICE}",
        f"kind: Pod\nmetadata: {{labels: {{app: train}}}}\nspec: {{{ONE_DEVICE}}}",
        "file: pod.yaml",
    ],
)
def test_a_pod_is_written_short_whole_or_in_a_file(tmp_path: Path, pod: str) -> None:
    """With its labels, which the rule selects here."""
    (tmp_path / "pod.yaml").write_text(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{labels: {{app: train}}}}\nspec: {{{ONE_DEVICE}}}\n", "utf-8"
    )
    match = {"podSelector": {"matchLabels": {"app": "train"}}, "namespaces": {"include": ["team"]}}
    case = _case("{allowed: true, fields: {/spec/hostIPC: true}}", pod=pod, more="    namespace: team\n")

    assert [] == _differences(_folder(tmp_path, case, rules=injection_rule({"hostIPC": True}, match=match)))


@pytest.mark.parametrize(
    "nodes",
    [
        f"[{{name: n, count: 2, labels: {OLD}, allocatable: {{{DEVICE}: 1}}}}]",
        "nodes.yaml",
        "[{file: nodes.yaml}]",
        f"[{{name: a, labels: {OLD}, allocatable: {{{DEVICE}: 1}}}}, {{file: b.yaml}}]",
        f"[{{kind: Node, metadata: {{name: a, labels: {OLD}}}, status: {ONE}}}, {{file: b.yaml}}]",
    ],
)
def test_nodes_are_written_short_whole_or_in_a_file(tmp_path: Path, nodes: str) -> None:
    """Both are too old, as the message says."""
    one, two = (f"{{metadata: {{name: {name}, labels: {OLD}}}, status: {ONE}}}" for name in "ab")
    (tmp_path / "nodes.yaml").write_text(f"kind: NodeList\nitems:\n- {one}\n- {two}\n", "utf-8")
    (tmp_path / "b.yaml").write_text(two, "utf-8")
    rules = compatibility_rule(match={"resources": [DEVICE]})
    pod = ONE_DEVICE.replace("busybox", '"team/app:cuda12.4"')
    expect = "{allowed: false, violations: [{message: 2 nodes checked}]}"

    assert [] == _differences(
        _folder(tmp_path, _case(expect, pod=pod, more=f"    nodes: {nodes}\n"), rules=rules)
    )
    assert [] == _differences(
        _folder(tmp_path, _case(expect, pod=pod), rules=rules, head=f"{HEAD}nodes: {nodes}\n")
    )


@pytest.mark.parametrize("written", ["[{NODE}, {POOL}]", "[{NODE}, {{file: pool.yaml}}]", "all.yaml"])
def test_pools_that_an_autoscaler_brings_stand_among_the_nodes(tmp_path: Path, written: str) -> None:
    """A pod that no present node can run is allowed if a NodePool brings one that can."""
    labels = '{cuda-major-version: "13", cuda-minor-version: "0"}'
    pool = (
        "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: new}, "
        f"spec: {{template: {{metadata: {{labels: {labels}}}}}}}}}"
    )
    node = f"{{kind: Node, metadata: {{name: old, labels: {OLD}}}, status: {ONE}}}"
    (tmp_path / "pool.yaml").write_text(pool, "utf-8")
    (tmp_path / "all.yaml").write_text(f"kind: List\nitems:\n- {node}\n- {pool}\n", "utf-8")
    nodes = written.format(NODE=node, POOL=pool)
    rules = compatibility_rule(match={"resources": [DEVICE]})
    pod = ONE_DEVICE.replace("busybox", '"team/app:cuda12.4"')
    cases = [
        _case("{allowed: true}", "may come", pod, f"    nodes: {nodes}\n"),
        _case("{allowed: false, violations: [{}]}", "alone", pod, f"    nodes: [{node}]\n"),
    ]

    assert [] == _differences(_folder(tmp_path, *cases, rules=rules))


def test_a_case_sets_the_current_time(tmp_path: Path) -> None:
    """For exemptions; the result of a test must not depend on the date."""
    rule = {"reason": "moving house", "expires": "2026-12-31", "rules": ["cf-crl-group-device"]}
    labels = {"gpugate.dev/type": "Exemption", "gpugate.dev/enabled": "true"}
    rules = (
        f"{resource_rule(validations=[{'expression': 'value <= 8'}])}---\n"
        f"{config_map('exemption', labels, {'rule.yaml': json.dumps(rule)})}"
    )
    pod = ONE_DEVICE.replace(": 1}", ": 9}")
    times = {"2026-12-31T23:00:00Z": "true", "2027-01-01T01:00:00Z": "false, violations: [{}]"}
    cases = [
        _case(f"{{allowed: {verdict}}}", name=now, pod=pod, more=f"    now: {now}\n")
        for now, verdict in times.items()
    ]

    assert [] == _differences(_folder(tmp_path, *cases, rules=rules))
    path = _folder(tmp_path, cases[0].replace("T23:00:00Z", ""), rules=rules)
    assert "now: expected a time with zone, such as 2026-12-31T12:00:00Z" in _errors(path)[0]


# Switching rules


def test_a_document_enables_and_disables_rules_like_their_labels(tmp_path: Path) -> None:
    """For two rules of one key, which conflict if both are enabled."""
    one, two = resource_rule(name="cf-crl-a-device"), resource_rule(name="cf-crl-b-device", defaultValue="1")
    path = _folder(
        tmp_path, _case("{allowed: true}"), rules=f"{one}---\n{two}", head=f"{HEAD}disable: [cf-crl-a-*]\n"
    )

    assert [] == _differences(path)
    off = resource_rule(name="cf-crl-b-device", enabled=False)
    path = _folder(tmp_path, _case("{allowed: true}"), rules=f"{one}---\n{off}")
    assert [] == _differences(path)
    head = f"{HEAD}enable: [cf-crl-b-device]\n"
    path = _folder(tmp_path, _case("{allowed: true}"), rules=f"{one}---\n{off}", head=head)
    assert 2 == len([line for line in _errors(path) if "is also used by" in line])


# Mistakes

INVALID = """\
  - nam: x
    pod: {containers: []}
    expcet: {allowed: true}
  - name: y
    pod: {container: []}
    expect:
      allowed: yes please
      patch: [{op: remove, path: /a}]
  - name: z
    nodes: [{nme: n}]
    pod: {kind: Pod, file: pod.yaml}
    expect: {allowed: false, patch: [{op: add, path: a, value: 1}]}
  - name: u
    pod: {containers: []}
    expect: {allowed: false, fields: {/a: 1}}
"""


def test_every_error_of_a_file_is_reported_with_its_position_and_a_suggestion(tmp_path: Path) -> None:
    """And no case of the document is run."""
    path = _folder(tmp_path, INVALID, head=f"{HEAD}rule: [.]\n")

    assert [
        "3:1: rule: unknown key 'rule' – did you mean 'rules'?",
        "5:5: cases[0].nam: unknown key 'nam' – did you mean 'name'?",
        "7:5: cases[0].expcet: unknown key 'expcet' – did you mean 'expect'?",
        (
            "9:5: cases[1].pod: expected `containers`, an object with its `kind`, or `file`; got container – "
            "did you mean 'containers'?"
        ),
        "11:16: cases[1].expect.allowed: expected a boolean, got a string",
        "12:15: cases[1].expect.patch[0]: required key 'value' is missing",
        "12:20: cases[1].expect.patch[0].op: expected one of add, replace, got 'remove'",
        "14:14: cases[2].nodes[0].nme: unknown key 'nme' – did you mean 'name'?",
        "15:5: cases[2].pod: `file` allows no other key",
        "16:54: cases[2].expect.patch[0].path: expected a JSON Pointer such as /spec/hostIPC, got 'a'",
        "19:5: cases[3].expect: a denied object is not patched; remove `fields`",
    ] == [line.removeprefix(f"{path}:") for line in _errors(path)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": no document of kind RuleTest in this file"),
        (f"{HEAD}cases: []\n", ":3:1: cases: no cases; write at least one"),
        (
            "kind: RuleTests\n",
            ":1:7: kind: expected kind: RuleTest, got RuleTests – did you mean 'RuleTest'?",
        ),
        (
            "kind: [\n",
            (
                ":2:1: not YAML: while parsing a flow node did not find expected node content; "
                "close each [ and {, and quote a value that begins with one"
            ),
        ),
    ],
)
def test_a_file_without_cases_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    """It would always pass."""
    path = tmp_path / "x.test.yaml"
    path.write_text(text, "utf-8")

    assert [f"{path}{message}"] == _errors(path)


@pytest.mark.parametrize(
    ("head", "pod", "message"),
    [
        (f"{HEAD}rules: [nowhere]\n", ONE_DEVICE, "rules[0]: {folder}/nowhere: No such file or directory"),
        (f"{HEAD}enable: [cf-crl-grp-*]\n", ONE_DEVICE, "enable[0]: no rule is named 'cf-crl-grp-*'"),
        (f"{HEAD}disable: [cf-crl-grup-device]\n", ONE_DEVICE, "did you mean 'cf-crl-group-device'?"),
        (f"{HEAD}nodes: none.yaml\n", ONE_DEVICE, "nodes[0]: {folder}/none.yaml: No such file or directory"),
        (
            f"{HEAD}nodes: rule.yaml\n",
            ONE_DEVICE,
            "nodes[0]: rule.yaml: document.kind: expected one of Node, ",
        ),
        (HEAD, "kind: Deployment\nspec: {}", "kind Deployment of API group '' do not contain pods"),
        (HEAD, "kind: Pod\nmetadata: 5", "cases[0].pod: expected a Kubernetes object with apiVersion, kind"),
        (HEAD, "labels: 5\ncontainers: []", "cases[0].pod: labels: expected an object, got a number"),
        (HEAD, "{}", "cases[0].pod: expected `containers`, an object with its `kind`, or `file`"),
        (HEAD, "file: none.yaml", "cases[0].pod.file: {folder}/none.yaml: No such file or directory"),
        (HEAD, "file: two.yaml", "cases[0].pod.file: expected a file with one object, found 2"),
        (HEAD, "file: empty.yaml", "cases[0].pod.file: empty.yaml: the file is empty"),
        (HEAD, "file: bad.yaml", "cases[0].pod.file: {folder}/bad.yaml:2:1: not YAML"),
        (f"{HEAD}nodes: [{{}}]\n", ONE_DEVICE, "nodes[0]: expected a node as"),
        (
            f"{HEAD}nodes: [{{name: n, metadata: {{}}}}]\n",
            ONE_DEVICE,
            "nodes[0]: a node with `metadata` is complete",
        ),
        (
            f"{HEAD}nodes: [{{kind: NodePool, name: n}}]\n",
            ONE_DEVICE,
            "nodes[0]: a NodePool has no short form",
        ),
        (
            f"{HEAD}nodes: [{{kind: Pod, metadata: {{}}}}]\n",
            ONE_DEVICE,
            "nodes[0]: document.kind: expected one of Node, ",
        ),
        (
            f"{HEAD}nodes: [{{name: n, file: nodes.yaml}}]\n",
            ONE_DEVICE,
            "nodes[0]: `file` allows no other key",
        ),
        (f"{HEAD}nodes: [{{metadata: {{}}}}]\n", ONE_DEVICE, "expected the node's name"),
        (f"{HEAD}rules: [two.yaml]\n", ONE_DEVICE, "rules: no rules in {folder}/two.yaml"),
        (HEAD, "{containers: [5]}", "cases[0].pod: spec.containers[0]: expected an object, got a number"),
        (
            HEAD,
            "file: rule.test.yaml",
            "objects of kind RuleTest of API group 'gpugate.dev' do not contain pods",
        ),
    ],
)
def test_files_and_rules_of_a_test_must_exist_and_be_valid(
    tmp_path: Path, head: str, pod: str, message: str
) -> None:
    """With the position in the test."""
    (tmp_path / "two.yaml").write_text("kind: Pod\n---\nkind: Pod\n", "utf-8")
    (tmp_path / "bad.yaml").write_text("kind: [\n", "utf-8")
    (tmp_path / "empty.yaml").write_text("# nothing yet\n", "utf-8")
    if "rule" not in head:
        head += "rules: [rule.yaml]\n"
    path = _folder(tmp_path, _case("{allowed: true}", pod=pod), head=head)
    (error,) = _errors(path)

    assert message.format(folder=tmp_path) in error
    assert error.startswith(f"{path}:")


def test_an_invalid_rule_is_reported_and_its_tests_are_not_run(tmp_path: Path) -> None:
    """Although admission would use the other rules: the test covers all of them."""
    path = _folder(tmp_path, _case("{allowed: true}"), rules=resource_rule(limits="optinal"))

    assert "got 'optinal' – did you mean 'optional'?" in _errors(path)[0]
    path = _folder(tmp_path, _case("{allowed: true}"), rules="kind: [", head=f"{HEAD}disable: ['*']\n")
    assert "not YAML" in _errors(path)[0]


def test_two_cases_with_the_same_name_are_an_error(tmp_path: Path) -> None:
    """Reports and --run identify cases by name."""
    path = _folder(tmp_path, _case("{allowed: true}"), _case("{allowed: true}"))

    assert [f"{path}:8:11: cases[1].name: duplicate name: {path}:4:5 has it too"] == _errors(path)


def test_an_error_in_one_file_does_not_hide_the_results_of_others(tmp_path: Path) -> None:
    """The exit status is the worse one."""
    _folder(tmp_path, _case("{allowed: false}"))
    (tmp_path / "a.test.yaml").write_text("kind: [\n", "utf-8")
    result = _test(tmp_path)

    assert 2 == result.exit_code
    assert "1 case in 2 files: 0 passed, 1 failed, 1 file with errors" in result.stdout


def test_a_folder_without_tests_exits_with_2_and_a_remedy(tmp_path: Path) -> None:
    """Not 0, because nothing passed."""
    (tmp_path / "rule.yaml").write_text(resource_rule(), "utf-8")
    result = _test(tmp_path)

    assert 2 == result.exit_code
    assert f"error: {tmp_path}: no *.test.yaml file in this folder" in result.stderr


def test_tests_are_neither_rules_nor_manifests(tmp_path: Path) -> None:
    """lint, rules and preview skip them in folders."""
    _folder(tmp_path, "nonsense")

    assert ["rule.yaml"] == [Path(name).name for name, _ in read_path(str(tmp_path))]


# Options


def test_cases_are_selected_by_a_part_of_their_names_or_a_glob(tmp_path: Path) -> None:
    """A name without a match is wrong usage."""
    path = _folder(tmp_path, _case("{allowed: true}", "memory alone"), _case("{allowed: false}", "cores"))

    assert "1 passed, 1 not selected" in _test(path, "--run", "memory").stdout
    assert 0 == _test(path, "--run", "mem*alone").exit_code
    assert (2, "error: no case matches --run 'mem*cores'") == (
        (result := _test(path, "--run", "mem*cores")).exit_code,
        result.stderr.splitlines()[-1],
    )


def test_additional_workload_kinds_may_be_given(tmp_path: Path) -> None:
    """Like in preview; the path selects their pods."""
    (tmp_path / "kinds").write_text("example.com: {Train: [spec.template]}\n", "utf-8")
    pod = f"apiVersion: example.com/v1\nkind: Train\nspec: {{template: {{spec: {{{ONE_DEVICE}}}}}}}"
    expect = "{allowed: false, violations: [{path: spec.template.spec}]}"
    path = _folder(tmp_path, _case(expect, pod=pod), rules=resource_rule(limits="disabled"))

    assert 0 == _test(path, "--workloads", tmp_path / "kinds").exit_code
    assert "do not contain pods" in _errors(path)[0]


def test_a_difference_is_coloured_on_a_terminal_only(tmp_path: Path) -> None:
    """Expected lines are red, actual lines are green."""
    path = _folder(tmp_path, _case("{allowed: false, violations: []}"))

    assert "\x1b[31m- false\x1b[0m\n          \x1b[32m+ true" in _test(path, color=True).stdout
    assert "\x1b" not in _test(path).stdout


def test_junit_has_a_suite_for_each_file_with_time_file_and_line(tmp_path: Path) -> None:
    """A difference is a failure, an invalid file an error."""
    path = _folder(tmp_path, _case("{allowed: true}"), _case("{allowed: false}", "another"))
    (tmp_path / "z.test.yaml").write_text("kind: [\n", "utf-8")
    suite, mistaken = ET.fromstring(_test(tmp_path, "-o", "junit").stdout)
    passed, failed = suite

    assert {
        "name": str(path),
        "file": str(path),
        "tests": "2",
        "failures": "1",
        "errors": "0",
        "skipped": "0",
    } == {name: fact for name, fact in suite.items() if name != "time"}
    assert ("one device", str(path), "4") == (passed.get("name"), passed.get("file"), passed.get("line"))
    assert float(suite.get("time", "")) >= float(passed.get("time", "")) > 0
    assert [] == list(passed)
    assert "- false" in (failed[0].text or "")
    assert "not YAML" in (mistaken[0][0].text or "")


def test_json_has_all_cases_errors_and_counts(tmp_path: Path) -> None:
    """The format for scripts."""
    path = _folder(tmp_path, _case("{allowed: true}"), _case("{allowed: false}", "another"))
    report = _found(path)
    facts = {"file": str(path), "line": 8, "name": "another", "passed": False}

    assert ["cases", "errors", "summary"] == list(report)
    assert facts == {name: report["cases"][1][name] for name in facts}
    assert [{"what": "allowed", "expected": ["false"], "found": ["true"]}] == report["cases"][1][
        "differences"
    ]
    assert {"files": 1, "passed": 1, "failed": 1, "notChosen": 0, "errors": 0} == report["summary"]


# --update

STALE = """\
# At the top.
---
apiVersion: gpugate.dev/v1
kind: RuleTest
cases:
  - name: in lines # of the name
    pod: {containers: [{name: a, resources: {limits: {vendor.com/device: 1}}}]}
    expect:
      allowed: true
      patch: [] # to be written
      warnings:   []

  # Between.
  - name: in one line
    pod: {containers: [{name: a, resources: {limits: {vendor.com/device: 1}}}]}
    expect: {allowed: true, patch: [{op: add, path: /old, value: 1}], fields: {/x: null}} # kept
  - name: too much
    pod: {containers: [{name: a, resources: {limits: {vendor.com/device: 1, vendor.com/cores: 2}}}]}
    expect:
      allowed: true
      patch:
        - {op: add, path: /old, value: 1}
        - op: add
          path: /older
          value: |
            x

      # After.
  - name: out of date
    pod: {containers: [{name: a, resources: {limits: {vendor.com/device: 1}}}]}
    expect:
      allowed: true
      patch: # as of today
      - {op: add, path: /one, value: 1}
      - {op: add, path: /two, value: 2}
  - name: wrong in more than its patch
    pod: {containers: [{name: a, resources: {limits: {vendor.com/device: 1}}}]}
    expect: {allowed: true, patch: [], fields: {/x: 1}}
"""
OPERATION = '{op: add, path: /spec/containers/0/resources/limits/vendor.com~1cores, value: "4"}'


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_update_writes_the_patches_and_changes_nothing_else(tmp_path: Path, newline: str) -> None:
    """Byte for byte; a case that differs in more than its patch is not changed."""
    (tmp_path / "rule.yaml").write_text(
        resource_rule() + "---\n" + resource_rule("vendor.com/cores", defaultValue="4"), "utf-8"
    )
    path = tmp_path / "rule.test.yaml"
    path.write_bytes(STALE.replace("\n", newline).encode())
    result = _test(path, "--update")
    expected = STALE.replace("patch: [] # to", f"patch:\n        - {OPERATION} # to", 1)
    expected = expected.replace("[{op: add, path: /old, value: 1}]", f"[{OPERATION}]")
    old = expected.index("patch:\n        - {op: add, path: /old"), expected.index("\n\n      # After.")
    expected = f"{expected[: old[0]]}patch: []{expected[old[1] :]}"
    expected = re.sub(r"- {op: add, path: /one.*\n.*/two, value: 2}", f"- {OPERATION}", expected)

    assert (1, "4 passed, 1 failed, 4 patches written") == (
        result.exit_code,
        result.stdout.splitlines()[0].partition("yaml: ")[2],
    )
    assert expected.replace("\n", newline).encode() == path.read_bytes()


ANCHORED = """\
apiVersion: gpugate.dev/v1
kind: RuleTest
cases:
  - name: one
    pod: &pod {containers: [{name: a, resources: {limits: {vendor.com/device: 1}}}]}
    expect: &expect {allowed: true, patch: &patch [{op: add, path: /old, value: 1}]}
  - name: two
    pod: *pod
    expect: {allowed: true, patch: *patch}
  - name: three
    pod: *pod
    expect: {<<: *expect, warnings: []}
"""


def test_an_update_changes_neither_passing_cases_nor_anchors_in_use(tmp_path: Path) -> None:
    """A patch that is an alias is not changed."""
    path = _folder(tmp_path, _case("{allowed: true, patch: []}"))
    before = path.stat()

    assert 0 == _test(path, "--update").exit_code
    assert before.st_mtime_ns == path.stat().st_mtime_ns
    path.write_text(ANCHORED, "utf-8")
    assert 1 == _test(path, "--update").exit_code
    assert ANCHORED == path.read_text("utf-8")
    assert 2 == _test("-", "--update", input=ANCHORED).exit_code


TEXTS = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]))
LEAVES = (
    st.none() | st.booleans() | st.integers() | TEXTS | st.sampled_from(["Off", "1e3", "0x1F", "~", "a: b"])
)


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8))
def test_a_written_value_is_read_back_unchanged(value: Any) -> None:
    """In flow style, by the reader of rule files."""
    (document,) = read(f"[{flow(value)}]", "x.yaml")

    assert isinstance(document, Document)
    assert [value] == document.value


# The API server copies limits into absent requests


def test_every_built_in_case_has_the_result_of_a_pod_after_the_api_server() -> None:
    """Requests are copied from limits, the pod is mutated, defaulted again, and validated."""
    differing = []
    for file, text in read_path(str(catalog_path()), tests=True):
        for result in Runner(DEFAULT_NAMESPACE, built_in_workloads(), lambda _: True).run(file, text).results:
            case = result.case
            if case.request.kind != "Pod":
                continue
            arriving = replace(case.request, object=defaulted(case.request.object))
            snapshot = Snapshot(result.policy, case.inventory, namespaces=case.namespaces)
            decision = decide(snapshot, arriving, case.now)
            stored = defaulted(patched(arriving.object, decision))
            arrived = replace(arriving, object=stored, mutating=False)
            validated = decide(snapshot, arrived, case.now)
            if [refused_at(result.decision)] * 2 != [refused_at(decision), refused_at(validated)]:
                differing.append((file, case.name))

    assert [] == differing
