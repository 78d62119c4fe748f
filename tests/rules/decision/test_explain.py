"""`gpugate explain`: the decision of admission, with each rule that was evaluated and its effect."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from rules.decision.messages import WarningLine
from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import compile_policy
from rules.decision.trace import Edit, Explanation, RuleEvaluation, RuleOutcome, explain
from rules.model.decision import AdmissionRequest
from rules.model.rule import Action, RuleSet
from rules.nodes.inventory import Inventory
from tests.laws.test_decision_laws import pods, policies
from tests.support.builders import (
    DEVICE,
    NO_NODES,
    config_map,
    container,
    injection_rule,
    loaded,
    patched,
    pod,
    request,
    resource_rule,
)
from tests.support.command import gpugate
from tests.support.node_builders import (
    A100,
    GPU,
    T4,
    among,
    compatibility_rule,
    cuda_image,
    gfd,
    gpu_pod,
    image_catalog,
    inventory,
    nodes,
    of_class_legacy,
    required,
    shipped,
)
from tests.support.pseudo_terminal import on_terminal
from webhook.cli.inputs.session import Session

BUILT_IN = Session().rules
CLUSTER = inventory(nodes(2, "new", gfd("12.4", A100)), nodes(1, "old", gfd("11.8", T4)))
ENV = {"env": [{"name": "A", "value": "1"}]}


def _explained(*texts: str, document: Any = None, nodes: Inventory = NO_NODES, **fields: Any) -> Explanation:
    """Return the explanation of an object under rule texts; by default a pod that requests DEVICE."""
    rules = loaded(*texts).rules
    review = request(pod() if document is None else document, **fields)
    return explain(Snapshot(compile_policy(rules), nodes), review, now=0)


def _evaluations(explanation: Explanation, container: int = 0) -> dict[str, RuleEvaluation]:
    """Return the evaluations of the rules for a container of the first pod."""
    return {
        evaluation.rule.name: evaluation
        for evaluation in explanation.pods[0].containers[container].evaluations
    }


def _edited(document: Any, edit: Edit) -> Any:
    """Return a document with an edit; missing parents are created."""

    def put(node: Any, path: tuple[str | int, ...]) -> Any:
        if not path:
            return edit.value
        step, rest = path[0], path[1:]
        if isinstance(step, int):
            entries = list(node or [])
            return [*entries[:step], put((entries[step : step + 1] or [None])[0], rest), *entries[step + 1 :]]
        return {**(node or {}), step: put((node or {}).get(step), rest)}

    return put(document, edit.path)


def _check(snapshot: Snapshot, review: AdmissionRequest) -> None:
    """Compare an explanation with the decision that is made without one."""
    decision, explanation = decide(snapshot, review, 0), explain(snapshot, review, 0)
    containers = [container for pod_object in explanation.pods for container in pod_object.containers]
    evaluations = [evaluation for container in containers for evaluation in container.evaluations]
    violations = [violation for evaluation in evaluations for violation in evaluation.violations]
    lines = {WarningLine(notice) for evaluation in evaluations for notice in evaluation.notices}
    mild = {WarningLine(violation) for violation in decision.violations}
    matched = {
        evaluation.rule.name for evaluation in evaluations if evaluation.outcome is RuleOutcome.MATCHED
    }

    assert decision == explanation.decision
    assert set(decision.rules) == matched
    assert sorted(decision.violations, key=repr) == sorted([*violations, *explanation.violations], key=repr)
    assert set(decision.warning_lines) <= {*lines, *mild, *explanation.warnings}
    assert lines.isdisjoint(explanation.warnings)
    for pod_trace in explanation.pods:
        shown = {
            id(edit)
            for container_document in pod_trace.containers
            for rule in container_document.evaluations
            for edit in rule.edits
        }
        assert {id(edit) for edit in pod_trace.edits} == shown | {id(edit) for edit in pod_trace.own}
        if decision.allowed:
            made = reduce(_edited, pod_trace.edits, deepcopy(dict(review.object or {})))
            assert patched(review.object, decision) == made


# The explanation has the decision of admission


def test_a_warning_of_a_rule_is_shown_with_the_rule_only() -> None:
    """And not among those of the whole object, such as that of the nodes."""
    skipped = [{"expression": "limits['a.com/b'] == 1", "messageEn": "one"}]
    text = resource_rule(GPU, validations=skipped, failurePolicy="Ignore")
    rules = RuleSet.of([*BUILT_IN, *loaded(text).rules])
    explanation = explain(
        Snapshot(compile_policy(rules), inventory(nodes(1, "bare", {}))), request(gpu_pod("a/b:cuda12.4"))
    )
    shown = [
        warning.cause.en
        for container in explanation.pods[0].containers
        for evaluation in container.evaluations
        for warning in evaluation.notices
    ]

    assert 1 == len(shown)
    assert "could not be evaluated" in shown[0]
    assert 1 == len(explanation.warnings)
    assert "compatibility unknown" in explanation.warnings[0].en


@pytest.mark.parametrize("cap", [*Action])
def test_a_violation_is_listed_once_with_the_effect_that_it_has_in_the_decision(cap: Action) -> None:
    """Under each cap of `--enforcement-action`: with its rule, and not again for the whole object."""
    rules = loaded(resource_rule(limits="disabled")).rules
    explanation = explain(Snapshot(compile_policy(rules, enforcement=cap), NO_NODES), request(pod()), now=0)
    (violation,) = _evaluations(explanation)["cf-crl-group-device"].violations

    assert (cap, ()) == (violation.action, explanation.violations)
    assert (violation,) == explanation.decision.violations


@given(policies(), pods())
def test_an_explanation_has_all_of_the_decision_and_nothing_else(
    texts: tuple[str, ...], document: dict[str, Any]
) -> None:
    """The same matched rules; its edits give the same pod as the patch."""
    _check(Snapshot(compile_policy(loaded(*texts).rules), NO_NODES), request(document))


@given(
    st.lists(
        st.tuples(
            st.dictionaries(
                st.sampled_from([rule.key for rule in BUILT_IN.resources if "*" not in rule.key]),
                st.sampled_from(["1", "50", "100", "500m"]),
                max_size=3,
            ),
            st.sampled_from(["busybox", "team/paddle:2", cuda_image("12.2"), cuda_image("13.0")]),
        ),
        min_size=1,
        max_size=2,
    ),
    st.sampled_from(
        [
            {},
            required(among("zone", "a")),
            required(among("nvidia.com/gpu.product", "T4", A100[0]), among("zone", "a"), among("zone", "a")),
        ]
    ),
)
def test_an_explanation_under_the_built_in_rules_has_all_of_the_decision(
    drawn: list[tuple[dict[str, str], str]], affinity: dict[str, Any]
) -> None:
    """In a cluster with nodes, with injected affinity and denials."""
    containers = [container(limits, name=f"c{at}", image=image) for at, (limits, image) in enumerate(drawn)]

    _check(Snapshot(shipped(), CLUSTER), request(pod(*containers, affinity=affinity)))


# Why a rule does not match


@pytest.mark.parametrize(
    ("match", "outcome", "why"),
    [
        ({"namespaces": {"exclude": ["te*"]}}, RuleOutcome.NOT_MATCHED, "namespace team is excluded by te*"),
        (
            {"namespaces": {"include": ["ml", "dev-*"]}},
            RuleOutcome.NOT_MATCHED,
            "namespace team does not match ml, dev-*",
        ),
        (
            {"images": ["*/paddle*"]},
            RuleOutcome.NOT_MATCHED,
            "image registry.example.com/team/train:1 does not match */paddle*",
        ),
        (
            {"podSelector": {"matchLabels": {"app": "a"}}},
            RuleOutcome.NOT_MATCHED,
            "podSelector: label app is 'b', expected In a",
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}},
            RuleOutcome.NOT_MATCHED,
            "podSelector: label tier is absent, expected Exists",
        ),
        (
            {"conditions": ["size(limits) == 1", "pod.namespace == 'ml'"]},
            RuleOutcome.NOT_MATCHED,
            "condition is false: pod.namespace == 'ml'",
        ),
        (
            {"conditions": ["limits['vendor.com/other'] > 1"]},
            RuleOutcome.EVALUATION_ERROR,
            "a condition cannot be evaluated: ",
        ),
        (
            {"resources": ["vendor.com/other", "vendor.com/more"]},
            RuleOutcome.NOT_APPLICABLE,
            "requests none of vendor.com/other, vendor.com/more",
        ),
    ],
)
def test_the_part_of_a_match_that_does_not_match_is_named(
    match: dict[str, Any], outcome: RuleOutcome, why: str
) -> None:
    """The first of several parts, or the condition as written."""
    explanation = _explained(
        injection_rule(ENV, match=match), document=pod(metadata={"labels": {"app": "b"}})
    )
    evaluation = _evaluations(explanation)["injection"]

    assert (outcome, True, ()) == (evaluation.outcome, evaluation.why.en.startswith(why), evaluation.edits), (
        evaluation.why.en
    )


def test_a_resource_rule_applies_if_its_group_is_used() -> None:
    """A disabled rule has an outcome of its own."""
    explanation = _explained(
        resource_rule(),
        resource_rule("other.com/x", group="other"),
        resource_rule("vendor.com/off", enabled=False),
    )

    assert {
        "cf-crl-group-device": (RuleOutcome.MATCHED, ""),
        "cf-crl-other-x": (RuleOutcome.NOT_APPLICABLE, "group other is not used"),
        "cf-crl-group-off": (RuleOutcome.DISABLED, "disabled by its label"),
    } == {
        name: (evaluation.outcome, evaluation.why.en)
        for name, evaluation in _evaluations(explanation).items()
    }


def test_an_exemption_is_named_with_its_end_and_reason() -> None:
    """Instead of the effect of the rule."""
    labels = {"gpugate.dev/type": "Exemption", "gpugate.dev/enabled": "true"}
    document = 'reason: until the migration\nexpires: "2030-01-31"\nrules: [cf-crl-*]\n'
    explanation = _explained(
        resource_rule(defaultValue="1"), config_map("migration", labels, {"rule.yaml": document})
    )
    evaluation = _evaluations(explanation)["cf-crl-group-device"]

    assert (RuleOutcome.EXEMPTED, "migration until 2030-01-31: until the migration") == (
        evaluation.outcome,
        evaluation.why.en,
    )


def test_a_rule_that_matched_once_has_matched_even_if_its_own_label_excludes_it_later() -> None:
    """Rules are matched again after a label is injected."""
    match = {"podSelector": {"matchExpressions": [{"key": "done", "operator": "DoesNotExist"}]}}
    explanation = _explained(injection_rule({"labels": {"done": "1"}}, match=match))

    assert RuleOutcome.MATCHED is _evaluations(explanation)["injection"].outcome


# The effect of a rule


def test_each_edit_has_its_rule_and_its_reason() -> None:
    """Edits of a container are listed for the container, edits of the pod for the pod."""
    explanation = _explained(
        resource_rule("vendor.com/memory", defaultValue="4", requests="fromLimits"),
        resource_rule(runtimeClassName="vendor"),
        injection_rule(ENV | {"hostIPC": True}),
    )
    in_container = {
        edit.path[3:]: (edit.value, edit.reason.en)
        for evaluation in _evaluations(explanation).values()
        for edit in evaluation.edits
    }

    assert {
        ("resources", "limits", "vendor.com/memory"): ("4", "default"),
        ("resources", "requests", "vendor.com/memory"): ("4", "follows the limit"),
        ("env", 0): ({"name": "A", "value": "1"}, "injected"),
    } == in_container
    assert [
        (("spec", "runtimeClassName"), "cf-crl-group-device", "default"),
        (("spec", "hostIPC"), "injection", "injected"),
        (
            ("metadata", "annotations", "gpugate.dev/injected"),
            "",
            "names the rules that changed the pod",
        ),
    ] == [(edit.path, edit.rule, edit.reason.en) for edit in explanation.pods[0].own]


def test_a_dry_run_lists_what_it_would_inject_into_each_container() -> None:
    """Without edits."""
    explanation = _explained(
        injection_rule(ENV, enforcementAction="dryrun"),
        document=pod(container({DEVICE: "1"}), container({DEVICE: "1"}, name="side")),
    )

    assert [(("main: env A",), ()), (("side: env A",), ())] == [
        (evaluation.would, evaluation.edits)
        for at in (0, 1)
        for evaluation in _evaluations(explanation, at).values()
    ]


def test_a_value_that_another_rule_sets_first_or_overrides_is_listed_with_that_rule() -> None:
    """Resource rules apply first, then injection rules by name; `override` replaces the value."""
    explanation = _explained(
        resource_rule(runtimeClassName="vendor"),
        injection_rule(ENV | {"labels": {"team": "a"}}, name="a"),
        injection_rule(
            {"env": [{"name": "A", "value": "2"}], "labels": {"team": "b"}, "runtimeClassName": "x"}, name="b"
        ),
        injection_rule({"labels": {"team": "c"}, "runtimeClassName": "vendor"}, name="c", override=True),
    )
    unused = {
        name: tuple(line.en for line in evaluation.unused)
        for name, evaluation in _evaluations(explanation).items()
    }

    assert {
        "cf-crl-group-device": (),
        "a": ("label team is replaced: rule c overrides it",),
        "b": (
            "env A is not set: rule a applies first and sets another value",
            "runtimeClassName is not set: rule cf-crl-group-device applies first and sets another value",
            "label team is not set: rule a applies first and sets another value",
        ),
        "c": (),
    } == unused


def test_a_value_of_the_user_is_not_listed_as_that_of_a_rule() -> None:
    """Nor one that both rules set alike, or of which one is a dry run."""
    explanation = _explained(
        injection_rule({"runtimeClassName": "x", "labels": {"team": "a"}}, name="a"),
        injection_rule({"runtimeClassName": "x", "labels": {"team": "b"}}, name="b"),
        injection_rule({"runtimeClassName": "y"}, name="c", enforcementAction="dryrun"),
        document=pod(metadata={"labels": {"team": "mine"}}),
    )

    assert {()} == {evaluation.unused for evaluation in _evaluations(explanation).values()}


def test_the_command_shows_which_rule_won(tmp_path: Path) -> None:
    """In text and JSON."""
    rules = [injection_rule({"schedulerName": name}, name=name) for name in ("a", "b")]
    (tmp_path / "rules.yaml").write_text("---\n".join(rules), "utf-8")
    (tmp_path / "pod.yaml").write_text(json.dumps(pod()), "utf-8")
    arguments = ["explain", "-f", str(tmp_path / "pod.yaml"), "--rules", str(tmp_path / "rules.yaml")]
    text, facts = (gpugate(*arguments, *more).stdout for more in ([], ["-o", "json"]))
    line = "schedulerName is not set: rule a applies first and sets another value"
    (container_,) = json.loads(facts)["objects"][0]["pods"][0]["containers"]

    assert f"note  {line}" in text
    assert [[], [line]] == [rule["unused"] for rule in container_["rules"]]


def test_injected_affinity_is_listed_with_the_requirement_and_its_origin() -> None:
    """The user sees which image tag excludes nodes; other edits have other reasons."""
    explanation = _explained(
        compatibility_rule(),
        injection_rule({"hostIPC": True}, match={"resources": [GPU]}),
        document=gpu_pod(cuda_image("12.2")),
        nodes=CLUSTER,
    )
    line, *_ = _evaluations(explanation)["compatibility"].requirements

    assert "CUDA 12.2: image tag `cuda12.2`, base unknown, says CUDA 12.2" == line.en
    assert {
        ("spec", "hostIPC"): "injected",
        ("spec", "affinity"): "only nodes that are compatible with main",
        ("metadata", "annotations"): "names the rules that changed the pod",
    } == {edit.path[:2]: edit.reason.en for edit in explanation.pods[0].own}


def test_the_platforms_of_the_image_and_the_declared_memory_are_listed() -> None:
    """Each with its origin."""
    row = {"image": "team/app:v1", "platforms": ["linux/amd64"], "minGpuMemory": "40Gi"}
    explanation = _explained(compatibility_rule(), image_catalog(row), document=gpu_pod("team/app:v1"))

    assert (
        "GPU memory 40Gi: row images of the image catalogue",
        "CPU architecture amd64: row images of the image catalogue names the platforms of the image",
    ) == tuple(line.en for line in _evaluations(explanation)["compatibility"].requirements[-2:])


def test_of_compute_capabilities_only_the_highest_certain_one_is_listed() -> None:
    """It implies those of the image and of its toolkit."""
    pod = gpu_pod("vllm/vllm-openai:v0.8.5", "--model=x", "--dtype=bfloat16")
    requirements = _evaluations(_explained(compatibility_rule(), document=pod))["compatibility"].requirements

    assert [
        "compute capability 8.0: `--dtype=bfloat16` of vLLM 0.8.5 needs compute capability 8.0 or higher"
    ] == [line.en for line in requirements if line.en.startswith("compute capability")]


def test_the_weights_and_the_data_type_of_the_model_are_listed() -> None:
    """With the sum of the weights."""
    pod = gpu_pod("vllm/vllm-openai:v0.6.3", "--model=Qwen/Qwen2.5-7B-Instruct", "-tp=2", limits={GPU: "2"})
    lines = [
        line.en
        for line in _evaluations(_explained(compatibility_rule(), document=pod))["compatibility"].requirements
    ]

    assert (
        "compute capability 8.0: vLLM 0.6.3 without `--dtype` uses the data type of "
        "Qwen/Qwen2.5-7B-Instruct, bfloat16, which needs compute capability 8.0"
    ) in lines
    assert (
        "7.1 GiB of weights on each GPU, of whose memory 0.9 may be used: vLLM 0.6.3 loads "
        "Qwen/Qwen2.5-7B-Instruct: 7.615 billion parameters, at least 14.2 GiB of weights on 2 × GPU"
    ) in lines


def test_a_workload_is_explained_by_its_pod_template() -> None:
    """With the edits of its future pods; the workload is not patched."""
    template = {"spec": {"containers": [container({DEVICE: "1"})]}}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {"template": template}}
    explanation = _explained(injection_rule(ENV), document=document)

    assert ((), ("spec", "template")) == (explanation.decision.patch, explanation.pods[0].path)
    assert [("spec", "template", "spec", "containers", 0, "env", 0)] == [
        edit.path for edit in _evaluations(explanation)["injection"].edits
    ]


@pytest.mark.parametrize(
    ("document", "fields", "why"),
    [
        ({"apiVersion": "v1", "kind": "Service"}, {}, "no known kind of pods or workloads"),
        (pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), {}, "it is being deleted"),
        (pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), {}, "it mirrors a static pod"),
        (pod(), {"operation": "UPDATE"}, "an update of a kind that rules do not check"),
        (
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {
                    "ownerReferences": [{"controller": True, "apiVersion": "apps/v1", "kind": "Deployment"}]
                },
            },
            {},
            "its owner was checked",
        ),
    ],
)
def test_an_object_that_rules_do_not_check_has_a_reason(
    document: Any, fields: dict[str, Any], why: str
) -> None:
    """And no pods."""
    explanation = _explained(resource_rule(), document=document, **fields)

    assert (True, ()) == (explanation.out_of_scope.en.startswith(why), explanation.pods)


def test_the_reason_is_in_each_language() -> None:
    """As everything else in an explanation."""
    explanation = _explained(resource_rule(), document={"apiVersion": "v1", "kind": "Service"})

    assert "不是已知的 Pod 或工作负载类型" == explanation.out_of_scope.zh


# The command


def _explain(folder: Path, *texts: str, options: tuple[str, ...] = (), document: Any = None) -> Result:
    """Run the command on an object in a file, under rule texts in a folder."""
    rules = folder / "rules"
    rules.mkdir()
    for number, text in enumerate(texts):
        (rules / f"{number}.yaml").write_text(text, "utf-8")
    (folder / "pod.json").write_text(json.dumps(pod() if document is None else document), "utf-8")
    arguments = ["explain", "-f", str(folder / "pod.json"), "--rules", str(rules), *options]
    return gpugate(*arguments)


def test_the_command_prints_a_plain_tree_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Aligned, with the file and line of each rule; rules that are not applicable are counted."""
    monkeypatch.chdir(tmp_path)
    result = _explain(
        Path(),
        resource_rule(validations=[{"expression": "value > 1", "messageEn": "two or more"}]),
        injection_rule(ENV, match={"images": ["*/paddle*"]}),
        resource_rule("other.com/x", group="other"),
    )

    assert (
        result.stdout
        == """\
✗ denied  Pod team/train  pod.json:1
└── container main  registry.example.com/team/train:1  vendor.com/device: 1
    ├── ✗  cf-crl-group-device  rules/0.yaml:1
    │   └── deny  container 'main', spec.containers[0].resources.limits[vendor.com/device]: found 1, \
expected two or more
    ├── ·  injection            rules/1.yaml:1  image registry.example.com/team/train:1 does not match \
*/paddle*
    └── · 1 rule not applicable (use --all to list them)
"""
    )
    assert (1, "note: evaluated with the rules in rules, without the built-in rules") == (
        result.exit_code,
        result.stderr.partition(" (")[0],
    )


def test_on_a_narrow_terminal_nothing_is_aligned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks that align columns break lines that would have had room."""
    monkeypatch.chdir(tmp_path)
    _explain(Path(), resource_rule("a.com/a", group="a"), resource_rule("b.com/device", group="long"))
    document = pod(container({"a.com/a": 1, "b.com/device": 1}))
    Path("pod.json").write_text(json.dumps(document), "utf-8")
    arguments = ["explain", "-f", "pod.json", "--rules", "rules"]
    shown = {columns: on_terminal(arguments, columns)[1].splitlines() for columns in (40, 60)}

    assert [True, False] == [
        f"✓  cf-crl-a-a{' ' * 10}rules/0.yaml:1" in "\n".join(shown[at]) for at in (60, 40)
    ]
    assert any(line.endswith("✓  cf-crl-a-a  rules/0.yaml:1") for line in shown[40])


def test_a_misspelt_resource_is_reported(tmp_path: Path) -> None:
    """In the text and in the JSON."""
    document = pod(container({"vendor.com/devices": 1}))
    path, why = (
        "spec.containers[0].resources.limits[vendor.com/devices]",
        "no enabled rule for resource vendor",
    )
    texts, made = [resource_rule("vendor.com/device")], []
    for output in ("text", "json"):
        folder = tmp_path / output
        folder.mkdir()
        made.append(_explain(folder, *texts, options=("-o", output), document=document).stdout)

    assert f"└── – not checked  {path}: {why}" in made[0]
    (place,) = json.loads(made[1])["objects"][0]["notChecked"]
    assert (path, True) == (place["path"], place["reason"].startswith(why))


def test_json_with_all_lists_every_rule(tmp_path: Path) -> None:
    """For filters such as jq."""
    texts = (resource_rule(), injection_rule(ENV), resource_rule("other.com/x", group="o", enabled=False))
    result = _explain(tmp_path, *texts, options=("-o", "json", "--all"))
    (document,) = json.loads(result.stdout)["objects"]
    (container,) = document["pods"][0]["containers"]

    assert (0, True, "") == (result.exit_code, document["allowed"], document["outOfScope"])
    assert {"cf-crl-group-device": "matched", "injection": "matched", "cf-crl-o-x": "disabled"} == {
        rule["name"]: rule["outcome"] for rule in container["rules"]
    }
    assert [
        {
            "path": "/spec/containers/0/env/0",
            "value": {"name": "A", "value": "1"},
            "rule": "injection",
            "reason": "injected",
        }
    ] == [edit for rule in container["rules"] for edit in rule["edits"]]


def test_a_mistake_in_one_object_does_not_hide_the_others(tmp_path: Path) -> None:
    """It exits with 2, and says where."""
    document = {"kind": "List", "items": [pod(containers=1), pod()]}
    result = _explain(tmp_path, resource_rule(), document=document)

    assert (2, True) == (result.exit_code, "Pod team/train" in result.stdout)
    assert "pod.json:1: spec.containers: expected a list" in result.stderr


def test_a_file_without_objects_is_a_mistake(tmp_path: Path) -> None:
    """As it is for a preview."""
    result = _explain(tmp_path, resource_rule(), document={"kind": "List", "items": []})

    assert (2, "") == (result.exit_code, result.stdout)
    assert result.stderr.endswith("pod.json: contains no objects\n")


def test_the_mode_of_the_container_runtime_that_is_assumed_is_shown_with_its_origin() -> None:
    """For images that it matters for: by the pod, the rule, the node, or unknown."""
    image = "nvidia/cuda:12.4.1-base-ubuntu22.04"
    of_rule = compatibility_rule(name="by-rule", containerRuntime="cdi")
    shown = [
        tuple(
            line.en
            for line in _evaluations(_explained(text, document=document, nodes=CLUSTER))[name].runtimes
        )
        for text, name, document in (
            (compatibility_rule(name="one"), "one", gpu_pod(image)),
            (of_rule, "by-rule", gpu_pod(image)),
            (of_rule, "by-rule", of_class_legacy(gpu_pod(image))),
            (of_rule, "by-rule", gpu_pod("team/app:cuda12.4")),
        )
    ]

    assert [
        ("container runtime in an unknown mode (nodes: 3)",),
        ("container runtime in mode cdi, by containerRuntime of the rule (nodes: 3)",),
        ("container runtime in mode unknown, by runtimeClassName of the pod (nodes: 3)",),
        (),
    ] == shown
