"""Evaluation of the texts of the page: the decision of admission, with lines."""

from __future__ import annotations

from typing import Any

import pytest

from rules.text.yaml_document import MAX_DEPTH
from tests.support.ui_questions import POD, T4, asked, new_page
from webhook.cli.ui.cases import examples
from webhook.cli.ui.evaluation import MAX_OBJECTS, evaluate
from webhook.cli.ui.page import Question

_HALF = POD.replace("bfloat16", "half")


def _evaluate(question: Question, nodes: str | None = None) -> dict[str, Any]:
    return evaluate(new_page(nodes), question)


def _only(question: Question, nodes: str | None = None) -> dict[str, Any]:
    """Return the result of the only object; there are no errors."""
    answer = _evaluate(question, nodes)
    assert [] == answer["errors"]
    (document,) = answer["objects"]
    assert isinstance(document, dict)
    return document


def test_a_model_server_without_a_gpu_is_named_at_its_container() -> None:
    container = "\n  - name: main\n    command: [vllm, serve, Qwen/Qwen3-8B]\n"
    shown = _only(asked(pod=f"apiVersion: v1\nkind: Pod\nspec:\n  containers:{container}"))

    assert shown["allowed"]
    (finding,) = [finding for finding in shown["findings"] if finding["line"]]
    assert ("notChecked", 5) == (finding["level"], finding["line"])
    assert "no container asks for a GPU, which vLLM in container 'main' needs" in finding["message"]


def test_a_denied_pod_has_its_violation_at_a_line_with_a_fix() -> None:
    shown = _only(asked())

    assert not shown["allowed"]
    assert ("✗", "denied", "red") == (shown["mark"], shown["result"], shown["colour"])
    ((violation),) = shown["findings"]
    assert ("deny", 9, "compatibility-pgpu") == tuple(violation[key] for key in ("level", "line", "rule"))
    assert violation["fixes"][0].startswith("set --dtype=half")
    assert "\n" not in violation["message"]
    assert ["nodes", "GPU", "driver", "CUDA", "compute", "reason"] == violation["table"][0]
    assert ["1", "Tesla-T4", "?", "12.4", "7.5"] == violation["table"][1][:5]
    assert [] == shown["nodes"]


def test_a_certain_fix_is_a_change_of_the_text() -> None:
    """In units of JavaScript, where a character outside the basic plane counts twice."""
    pod = "# 🚀\n" + POD.replace("--dtype=bfloat16", "--tensor-parallel-size=4")
    ((finding),) = [
        finding for finding in _only(asked(pod))["findings"] if "needs 4 GPUs" in finding["message"]
    ]

    change = finding["change"]
    text = pod.encode("utf-16-le")
    changed = text[: 2 * change["start"]] + change["text"].encode("utf-16-le") + text[2 * change["end"] :]
    assert "--tensor-parallel-size=4 → --tensor-parallel-size=1" == change["what"]
    expected = pod.replace("size=4", "size=1")
    assert expected == changed.decode("utf-16-le")
    assert finding["fixes"]


def test_a_fix_that_is_not_certain_is_no_change() -> None:
    pod = POD.replace("--dtype=bfloat16", "--attention-backend=FLASHMLA")

    assert [None] == [finding["change"] for finding in _only(asked(pod))["findings"]]


def test_a_text_without_objects_has_neither_result_nor_error() -> None:
    answer = _evaluate(asked("# nothing yet\n"))

    assert ([], []) == (answer["errors"], answer["objects"])


def test_a_rule_is_named_by_its_path_in_the_built_in_rules() -> None:
    ((container),) = _only(asked(language="zh"))["explanation"]

    assert "容器" == container["kind"]
    assert "builtin/pgpu/gpu.yaml:4" in [rule["source"] for rule in container["rules"]]


def test_messages_are_in_the_language_of_the_question() -> None:
    assert "拒绝" == _only(asked(language="zh"))["result"]


def test_an_allowed_pod_has_the_nodes_that_it_may_run_on() -> None:
    ((nodes),) = _only(asked(_HALF))["nodes"]

    assert (1, 1) == (nodes["count"], nodes["of"])
    assert [["t4"]] == [node_class["names"] for node_class in nodes["classes"]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nvidia.com/gpu: 1", "nvidia.com/gpu: 5"),  # more than is allocatable
        ("  containers:", "  nodeSelector: {kubernetes.io/hostname: other}\n  containers:"),
    ],
)
def test_a_node_that_the_scheduler_cannot_choose_is_no_candidate(old: str, new: str) -> None:
    """Labels and amounts are compared."""
    pod = _HALF.replace(old, new)
    a100 = T4.replace("t4", "a100").replace('"4"}', '"8"}')

    for nodes in _only(asked(pod, f"{T4}---\n{a100}"))["nodes"]:
        assert "t4" not in [name for node_class in nodes["classes"] for name in node_class["names"]]


def test_a_pod_tolerates_the_taints_of_its_nodes_or_has_no_candidate() -> None:
    tainted = T4.replace("status:", "spec: {taints: [{key: a, effect: NoSchedule}]}\nstatus:")
    tolerant = _HALF.replace("  containers:", "  tolerations: [{key: a, operator: Exists}]\n  containers:")

    assert [0] == [node["count"] for node in _only(asked(_HALF, tainted))["nodes"]]
    assert [1] == [node["count"] for node in _only(asked(tolerant, tainted))["nodes"]]


def test_nodes_of_a_template_are_those_of_its_pods() -> None:
    """A Deployment is not patched; its pods are, as the diff of its template shows."""
    spec = "\n".join(f"    {line}" for line in _HALF.partition("spec:\n")[2].splitlines())
    deployment = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: serve}\n"
        f"spec:\n  template:\n    spec:\n{spec}\n"
    )

    shown = _only(asked(deployment))

    assert [1] == [node["count"] for node in shown["nodes"]]
    assert shown["result"] == "unchanged; its pods: ✎ patched"
    assert any("nodeAffinity" in line for line in shown["diff"])


def test_without_nodes_the_page_says_that_cuda_is_not_checked() -> None:
    ((finding),) = _only(asked(node_text=""))["findings"]

    assert "notChecked" == finding["level"]
    assert "CUDA compatibility not checked: no nodes chosen" == finding["message"]


def test_the_nodes_of_the_command_are_used_if_they_are_chosen() -> None:
    assert not _only(asked(node_text="", nodes="given"), T4)["allowed"]


def test_a_patch_is_a_diff_of_the_object() -> None:
    pod = POD.replace("vllm/vllm-openai:v0.6.3", "pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime")
    old = T4.replace("t4", "old").replace('minor: "4"', 'minor: "0"').replace('major: "12"', 'major: "11"')

    diff = _only(asked(pod, f"{T4}---\n{old}"))["diff"]

    assert diff[0].startswith("@@ ")
    assert "+  affinity:" in diff


def test_the_rules_of_each_container_are_explained() -> None:
    ((container),) = _only(asked())["explanation"]
    marks = {rule["name"]: rule["mark"] for rule in container["rules"]}

    assert ("✓", "✗") == (marks["cf-crl-pgpu-gpu"], marks["compatibility-pgpu"])


@pytest.mark.parametrize(
    ("pod", "line", "message"),
    [
        ("a: [1\nb: 2\n", 2, "not YAML"),
        ("kind: Pod\n", 1, "expected a Kubernetes object with apiVersion and kind"),
        (f"{POD}---\n{POD.replace('kind: Pod', 'kind: pod')}", 14, "did you mean 'Pod'?"),
        (POD.replace("limits:", "limit:"), 11, "unknown field 'limit'"),
        (POD.partition("  containers:")[0] + "  containers: 1\n", 5, "spec.containers: expected"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n" * 40, 3, "not YAML: found duplicate anchor"),
        (f"{'[' * (MAX_DEPTH + 1)}{']' * (MAX_DEPTH + 1)}", 1, "nested deeper than"),
        ("a: \x00\n", 1, "#x0000"),
    ],
)
def test_an_error_has_its_line(pod: str, line: int, message: str) -> None:
    """Of malicious texts, too."""
    error = _evaluate(asked(pod))["errors"][0]

    assert message in error["message"]
    assert ("pod", line) == (error["where"], error["line"])


def test_aliases_do_not_expand_without_limit() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]\n" for at in range(1, 10))

    assert "aliases expand too much" in _evaluate(asked(bomb))["errors"][0]["message"]


@pytest.mark.parametrize(
    ("nodes", "line", "message"),
    [
        (f"{T4}---\nkind: Nope\n", 14, "expected one of Node"),
        ("a: b: c\n", 1, "not YAML"),
        ("# nothing\n", 1, "contains no nodes"),
    ],
)
def test_an_error_in_the_nodes_has_its_line_there(nodes: str, line: int, message: str) -> None:
    (error,) = _evaluate(asked(POD, nodes))["errors"]

    assert message in error["message"]
    assert ("nodes", line) == (error["where"], error["line"])


def test_an_error_in_one_object_does_not_hide_the_others() -> None:
    answer = _evaluate(asked(f"kind: Pod\n---\n{POD}"))

    assert [1] == [error["line"] for error in answer["errors"]]
    assert ["serve"] == [document["name"] for document in answer["objects"]]


def test_a_duplicate_key_is_a_warning() -> None:
    (duplicate,) = _evaluate(asked(POD.replace("kind: Pod", "kind: Pod\nkind: Pod")))["duplicates"]

    assert (3, "duplicate key 'kind': remove one of them; the last value is used") == (
        duplicate["line"],
        duplicate["message"],
    )


def test_more_objects_than_a_page_has_room_for_are_an_error() -> None:
    answer = _evaluate(asked("---\n".join([_HALF] * (MAX_OBJECTS + 1))))

    assert MAX_OBJECTS == len(answer["objects"])
    assert ["the others are not checked"] == [
        error["message"].partition("; ")[2].partition(" (")[0] for error in answer["errors"]
    ]


def test_a_quota_of_the_text_warns() -> None:
    quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: ml}\n"
    quota += "spec: {hard: {requests.nvidia.com/gpu: 0}}\n"

    answer = _evaluate(asked(f"{_HALF}---\n{quota}"))

    assert "ResourceQuota 'gpus'" in answer["objects"][0]["findings"][0]["message"]


@pytest.mark.parametrize("case", examples(), ids=lambda case: case.title.en)
def test_an_example_shows_something_in_both_languages(case: Any) -> None:
    """Without errors: a violation, a warning or a patch."""
    assert case.title.zh
    for language in ("en", "zh"):
        question = asked(case.pod, case.nodes, namespace=case.namespace, language=language)
        shown = _only(question)
        assert shown["findings"] or shown["diff"]
        assert "notChecked" not in [finding["level"] for finding in shown["findings"]]
