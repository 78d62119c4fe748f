"""The cause of a violation or warning: what objects with the same fault share."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rules import AdmissionRequest, Language, Policy, Snapshot, compile_policy, decide
from rules.model.finding import Finding
from rules.model.rule import Action
from rules.nodes.inventory_document import inventory_of
from rules.schema.loader import load_rules
from tests.support.builders import decision, loaded, pod, policy, resource_rule, warning_texts
from tests.support.paths import ROOT

FOLDERS: Final = sorted(path.parent for path in ROOT.glob("tests/complaints/*/pod.yaml"))


@cache
def _policy(own: Path) -> Policy:
    catalog = sorted((ROOT / "rules/catalog").rglob("*.yaml"))
    files = [*catalog, *([own] if own.exists() else [])]
    return compile_policy(load_rules((str(path), path.read_text("utf-8")) for path in files).rules)


def _documents(path: Path) -> Iterator[Any]:
    for document in yaml.safe_load_all(path.read_text("utf-8")):
        yield from document["items"] if document["kind"] == "List" else [document]


def _said(folder: Path, name: str, nodes: int) -> list[Finding]:
    """Return what is said of the pod of a complaint, with a name and with the nodes so many times."""
    (document,) = _documents(folder / "pod.yaml")
    for number, document_container in enumerate(document["spec"]["containers"]):
        document_container["name"] = f"{name}-{number}"
    inventory = []
    for number in range(nodes):
        for node in map(deepcopy, _documents(folder / "nodes.yaml")):
            node["metadata"]["name"] += f"-{number}" if number else ""
            inventory.append(node)
    request = AdmissionRequest("CREATE", "", "Pod", "team", document)
    made = decide(Snapshot(_policy(folder / "rules.yaml"), inventory_of(inventory)), request)
    return [*made.violations, *made.notices]


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_pods_that_differ_in_names_and_numbers_of_nodes_have_the_same_causes(
    folder: Path, language: Language
) -> None:
    """Their reasons differ; so many pods make one row of an audit."""
    one, other = _said(folder, "one", 1), _said(folder, "other", 3)
    causes = [[finding.cause.in_language(language) for finding in said] for said in (one, other)]
    reasons = [[finding.reason.in_language(language) for finding in said] for said in (one, other)]

    assert causes[0] == causes[1]
    assert all(causes[0])
    assert reasons[0] != reasons[1]


@pytest.mark.parametrize("language", Language)
def test_the_reason_contains_the_cause(language: Language) -> None:
    """Nothing is said twice in other words."""
    said = [finding for folder in FOLDERS for finding in _said(folder, "main", 2)]
    texts = [(finding.cause.in_language(language), finding.reason.in_language(language)) for finding in said]

    assert [] == [reason for cause, reason in texts if cause not in reason]


# A violation and a warning for each container.
WARNS: Final = resource_rule(
    enforcementAction="warn",
    failurePolicy="Ignore",
    validations=[{"expression": "value < 1"}, {"expression": "limits['a.com/b'] == 1"}],
)


def test_notices_are_the_warnings_that_are_no_violations() -> None:
    """The lines have both."""
    made = decision(policy(WARNS), pod())

    assert 1 == len(made.violations)
    assert 1 == len(made.notices)
    assert 2 == len(warning_texts(made))
    assert "limits['a.com/b'] == 1 could not be evaluated" in made.notices[0].cause.en


def test_an_object_of_several_pods_has_the_notices_of_each() -> None:
    """As it has their violations."""
    document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {
            "pytorchReplicaSpecs": {
                name: {"template": {"spec": pod()["spec"]}} for name in ("Master", "Worker")
            }
        },
    }
    made = decision(policy(WARNS), document)

    assert (2, 2, 4) == (len(made.violations), len(made.notices), len(warning_texts(made)))


def test_an_effect_capped_by_dryrun_has_no_notices() -> None:
    """Nothing is answered but audit annotations."""
    made = decision(compile_policy(loaded(WARNS).rules, enforcement=Action.DRYRUN), pod())

    assert (1, 0, 0) == (len(made.violations), len(made.notices), len(warning_texts(made)))
