"""Case files and the rule tests made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.text.yaml_document import SourceError
from tests.support.command import gpugate
from tests.support.ui_questions import POD, T4, asked, new_page
from webhook.cli.ui.cases import CaseError, examples, is_case, read_case, write_case, write_test
from webhook.cli.ui.page import Nodes, Rules


def test_a_case_that_is_written_is_read_again() -> None:
    """With comments, and mistakes in the texts."""
    pod, nodes = f"# mine\n{POD}\tx: [\n", f"# theirs\n{T4}"

    case = read_case(write_case(new_page(), asked(pod, nodes, namespace="ml")))

    assert (pod, nodes, "ml", ["builtin"]) == (case.pod, case.nodes, case.namespace, case.rules)


def test_a_case_has_the_nodes_of_the_files_of_the_command() -> None:
    assert T4 == read_case(write_case(new_page(T4), asked(node_text="", nodes="given"))).nodes


def test_the_nodes_of_a_cluster_are_in_no_file() -> None:
    page = new_page(T4)
    assert page.nodes
    page.nodes = Nodes("production", page.nodes.inventory, None)

    for write in (write_case, write_test):
        with pytest.raises(CaseError, match="kubectl get nodes -o yaml"):
            write(page, asked(node_text="", nodes="given"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Case\n", "case:1:1: required key 'apiVersion' is missing"),
        ("apiVersion: gpugate.dev/v1\nkind: Case\npod: 1\n", "case:3:6: pod: expected a string"),
        ("apiVersion: gpugate.dev/v1\nkind: Case\npod: x\nnode: y\n", "did you mean 'nodes'"),
        ("a: [\n", "case:2:1: not YAML"),
        ("", "case:1:1: expected one document of kind Case"),
    ],
)
def test_a_file_that_is_no_case_has_an_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        read_case(text)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (write_case(new_page(), asked()), True),
        (POD, False),
        (f"{POD}---\n{POD}", False),
        ("a: [\n", False),
        ("", False),
        ("- kind: Case\n", False),
    ],
)
def test_a_case_is_told_from_objects(text: str, expected: bool) -> None:
    assert expected == is_case(text)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("at", range(len(examples())))
def test_a_rule_test_of_an_example_passes(at: int, language: str, tmp_path: Path) -> None:
    """With `gpugate test`, as the user runs it."""
    case = examples()[at]
    question = asked(case.pod, case.nodes, namespace=case.namespace, language=language)
    file = tmp_path / "case.test.yaml"
    file.write_text(write_test(new_page(), question), "utf-8")

    completed = gpugate("test", file)

    assert "1 passed, 0 failed" in completed.output
    assert 0 == completed.exit_code


def test_a_rule_test_fails_if_the_decision_differs(tmp_path: Path) -> None:
    """It compares: a pod that is denied no longer is after the fix."""
    file = tmp_path / "case.test.yaml"
    text = write_test(new_page(), asked())
    file.write_text(text.replace("bfloat16", "half"), "utf-8")

    assert 1 == gpugate("test", file).exit_code


def test_an_error_in_a_text_keeps_a_rule_test_from_being_written() -> None:
    with pytest.raises(SourceError, match="pod:2"):
        write_test(new_page(), asked("a: [1\nb: 2\n"))
    with pytest.raises(SourceError, match="nodes:1"):
        write_test(new_page(), asked(POD, "kind: Nope\n"))
    with pytest.raises(SourceError, match="contains no objects"):
        write_test(new_page(), asked(""))


def test_an_object_without_pods_is_in_no_rule_test() -> None:
    """A rule test evaluates pods."""
    with pytest.raises(CaseError, match="do not contain pods"):
        write_test(new_page(), asked("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"))


def test_rules_of_a_cluster_are_in_no_rule_test() -> None:
    page = new_page()
    page.rules = {"given": Rules("production", page.rules["builtin"].rules)}

    with pytest.raises(CaseError, match="--rules FILE"):
        write_test(page, asked(rules="given"))
