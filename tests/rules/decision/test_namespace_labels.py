"""Labels of namespaces in expressions: known, or unknown, which denies nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rules.decision.pipeline import Snapshot, decide
from rules.model.decision import Decision
from tests.support.builders import (
    DEVICE,
    NO_NODES,
    container,
    injection_rule,
    pod,
    policy,
    request,
    resource_rule,
    warning_texts,
)
from tests.support.command import gpugate

ALLOWED = "'gpus' in pod.namespaceLabels && pod.namespaceLabels['gpus'] == 'allowed'"
CHECK = [{"expression": ALLOWED, "messageEn": "gpus=allowed on the namespace"}]
RULE = resource_rule(validations=CHECK)
UNKNOWN = "the labels of namespace 'team' are unknown here"


def decided(rule: str, namespaces: Mapping[str, Mapping[str, str]] | None) -> Decision:
    """Return the decision on a new pod in the namespace `team`, which may be patched."""
    return decide(Snapshot(policy(rule), NO_NODES, None, namespaces), request(pod(), mutating=True))


@pytest.mark.parametrize(
    ("labels", "allowed"), [({"gpus": "allowed"}, True), ({"gpus": "no"}, False), ({}, False)]
)
def test_a_validation_reads_the_labels_of_the_namespace(labels: dict[str, str], *, allowed: bool) -> None:
    """Of that of the request."""
    assert allowed is decided(RULE, {"team": labels, "other": {}}).allowed


@pytest.mark.parametrize("namespaces", [None, {"other": {"gpus": "no"}}])
def test_unknown_labels_deny_nothing_and_are_reported_once(
    namespaces: Mapping[str, Mapping[str, str]] | None,
) -> None:
    """Whatever the failurePolicy: neither rule nor pod is at fault."""
    two = resource_rule(validations=[*CHECK, {"expression": f"!({ALLOWED})"}])
    decision = decided(two, namespaces)

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    assert [("metadata.namespace", UNKNOWN)] == [(part.path, part.reason.en) for part in decision.not_checked]


def test_a_condition_of_an_injection_rule_with_unknown_labels_injects_nothing() -> None:
    """And says why."""
    rule = injection_rule({"hostIPC": True}, match={"conditions": [ALLOWED]})
    unknown, known = decided(rule, None), decided(rule, {"team": {"gpus": "allowed"}})

    assert ((), UNKNOWN) == (unknown.patch, unknown.not_checked[-1].reason.en)
    assert any(operation["path"] == "/spec/hostIPC" for operation in known.patch)


def test_preview_reads_the_namespaces_among_the_files(tmp_path: Path) -> None:
    """Without one, the labels are unknown."""
    (tmp_path / "rule.yaml").write_text(RULE)
    document = pod(container({DEVICE: "1"}), metadata={"namespace": "team"})
    (tmp_path / "pod.yaml").write_text(str(document))
    (tmp_path / "namespace.yaml").write_text(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {gpus: denied}}\n"
    )
    preview = ("preview", "--rules", tmp_path / "rule.yaml", "-f", tmp_path / "pod.yaml")
    alone, together = gpugate(*preview), gpugate(*preview, "-f", tmp_path / "namespace.yaml")

    assert (0, 1) == (alone.exit_code, together.exit_code)
    assert UNKNOWN in alone.output
    assert "gpus=allowed on the namespace" in together.output
