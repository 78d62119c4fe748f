"""Drafts of rules with the cases of their tests, and builders of the pods and nodes in cases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rules import DEFAULT_NAMESPACE, RuleSet, compile_policy, load_rules
from rules.cuda.versions import CudaVersion
from rules.lint.rule_checks import rule_warnings
from rules.nodes.label_families import LabelNames
from rules.schema.builder import DOCUMENT_KEY
from rules.schema.errors import Code
from rules.schema.loader import ENABLED_LABEL, TYPE_LABEL
from rules.text.paths import field_path
from webhook.cli.test.cases import read_tests
from webhook.cli.test.runner import Result, run_case
from webhook.cli.test.schema import KIND
from webhook.yaml_output import dump_yaml

# An image without information about CUDA.
IMAGE: Final = "registry.example.com/team/app:1"
# Warnings about a rule without effect; `lint` prints others, such as those about names.
_INEFFECTIVE: Final = (Code.NEVER_MATCHES, Code.NEVER_SATISFIED)
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")

Json = dict[str, Any]
# Files: name and text.
Texts = Iterable[tuple[str, str]]


class DraftError(ValueError):
    """The rule or its test would be invalid. The caller's fault."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A rule ConfigMap and the cases of its test. other_rules: files of other rules in the test."""

    name: str
    labels: Mapping[str, str]
    data: Mapping[str, str]
    cases: tuple[Json, ...] = ()
    other_rules: tuple[str, ...] = ()

    @classmethod
    def of_document(cls, name: str, kind: str, document: Json, *cases: Json) -> Draft:
        """Return the draft of a rule whose document is in the key `rule.yaml`."""
        labels = {TYPE_LABEL: kind, ENABLED_LABEL: "true"}
        return cls(name, labels, {DOCUMENT_KEY: dump_yaml(document)}, cases)

    @property
    def file(self) -> str:
        """The name of the rule's file, without its suffix."""
        return self.name.removeprefix("cf-crl-")

    @property
    def rule(self) -> str:
        """The text of the rule's file."""
        metadata = {"name": self.name, "namespace": DEFAULT_NAMESPACE, "labels": dict(self.labels)}
        data = dict(self.data)
        return dump_yaml({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    @property
    def test(self) -> str:
        """The text of the rule's test file."""
        return _test([f"{self.file}.yaml", *self.other_rules], self.cases)

    def checked(self, other_rules: Texts = ()) -> Draft:
        """Return the draft if its test passes; other_rules: their texts. Raises DraftError."""
        results = run([(f"{self.file}.yaml", self.rule), *other_rules], self.cases)
        for result in results:
            lines = [text for difference in result.differences for _, text in difference.lines]
            if lines:
                raise DraftError(f"{result.case.name!r} fails with this rule: {'; '.join(lines)}")
        return self

    def with_rules(self, *files: str) -> Draft:
        """Return the draft with additional rule files for its test."""
        return replace(self, other_rules=(*self.other_rules, *files))

    def with_cases(self, *cases: Json) -> Draft:
        """Return the draft with more cases."""
        return replace(self, cases=(*self.cases, *cases))


def rules_of(texts: Texts) -> RuleSet:
    """Return the rules in texts. Raises DraftError for every error, and for a rule without effect."""
    loaded = load_rules(texts)
    found = [f"{error.path}: {error.message}" for error in loaded.errors]
    warnings = (warning for rule in loaded.rules for warning in rule_warnings(rule))
    found += [
        f"{field_path(warning.path)}: {warning.message.en}"
        for warning in warnings
        if warning.code in _INEFFECTIVE
    ]
    if found:
        raise DraftError("; ".join(found))
    return loaded.rules


def run(texts: Texts, cases: Sequence[Json]) -> list[Result]:
    """Run cases with the rules in texts. Raises DraftError for errors in either."""
    policy = compile_policy(rules_of(texts))
    tests, errors = read_tests(_test(["."], cases), "test", lambda _: [])
    if errors:
        raise DraftError("; ".join(error.message for error in errors))
    return [run_case(case, policy) for test in tests for case in test.cases]


def _test(rules: Sequence[str], cases: Sequence[Json]) -> str:
    document = {"apiVersion": "gpugate.dev/v1", "kind": KIND, "rules": [*rules], "cases": [*cases]}
    return dump_yaml(document)


def allowed(name: str, pod: Json, expect: Mapping[str, Any] | None = None, **given: Any) -> Json:
    """Return a case whose pod is allowed. given: its namespace, nodes, time."""
    return {"name": name} | given | {"pod": pod, "expect": {"allowed": True} | dict(expect or {})}


def denied(name: str, pod: Json, rule: str, message: str = "", **given: Any) -> Json:
    """Return a case whose pod is denied by a rule with a message."""
    violation = {"rule": rule} | ({"message": message} if message else {})
    return {"name": name} | given | {"pod": pod, "expect": {"allowed": False, "violations": [violation]}}


def pod_of(limits: Mapping[str, Any], **fields: Any) -> Json:
    """Return a pod of one container; fields: other fields of the container."""
    return {
        "containers": [{"name": "main", "image": IMAGE} | fields | {"resources": {"limits": dict(limits)}}]
    }


def node_of(cuda: CudaVersion, device: str) -> Json:
    """Return a node with the CUDA version of its driver, in the labels with the highest priority."""
    names = LabelNames()
    labels = dict(zip(names.cuda[0].keys, (str(cuda.major), str(cuda.minor)), strict=True))
    labels |= dict(zip(names.compute_capability[0].keys, ("8", "0"), strict=True))
    return {"name": f"driver-{cuda.major}-{cuda.minor}", "labels": labels, "allocatable": {device: 8}}


def cuda_image(cuda: CudaVersion) -> str:
    """Return an image whose tag has a CUDA version, and of which no other requirement is known."""
    return f"team/app:cuda{cuda}"


def image_like(patterns: Sequence[str]) -> str:
    """Return an image that the first glob matches; any image if there is none."""
    if not patterns:
        return IMAGE
    whole = re.sub(r"^\*/", "registry.example.com/", patterns[0]).replace(":*", ":1")
    return whole.replace("*", "").replace("?", "x")


def without_globs(pattern: str) -> str:
    """Return a name that a glob matches."""
    return pattern.replace("*", "x").replace("?", "x")


def word_of(text: str) -> str:
    """Return a text as part of a ConfigMap name."""
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("-")
