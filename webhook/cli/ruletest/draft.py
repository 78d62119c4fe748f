"""A rule in the making and the cases of its test, and the pods and nodes that cases are about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rules import DEFAULT_NAMESPACE, RuleSet, compile_policy, load_rules
from rules.cuda.versions import CudaVersion
from rules.lint.rule_checks import rule_warnings
from rules.nodes.label_families import LabelNames
from rules.ruletest.cases import read_tests
from rules.ruletest.schema import KIND
from rules.schema.builder import DOCUMENT_KEY
from rules.schema.errors import Code
from rules.schema.loader import ENABLED_LABEL, TYPE_LABEL
from rules.text.paths import field_path
from webhook.cli.ruletest.runner import Result, run_case
from webhook.yaml_output import dump_yaml

# An image that tells nothing of itself.
IMAGE: Final = "registry.example.com/team/app:1"
# Doubts about a rule that make it useless; of others, such as those about its name, lint tells.
_USELESS: Final = (Code.NEVER_MATCHES, Code.NEVER_SATISFIED)
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")

Json = dict[str, Any]
# Files: name and text.
Texts = Iterable[tuple[str, str]]


class DraftError(ValueError):
    """No rule, or no test of it, can be made of this. The fault of who asked for it."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A rule's ConfigMap and the cases of its test. besides: files of other rules, as the test names them."""

    name: str
    labels: Mapping[str, str]
    data: Mapping[str, str]
    cases: tuple[Json, ...] = ()
    besides: tuple[str, ...] = ()

    @classmethod
    def of_document(cls, name: str, kind: str, document: Json, *cases: Json) -> Draft:
        """Return the draft of a rule that stands in `rule.yaml`."""
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
        """The text of its test's file."""
        return _test([f"{self.file}.yaml", *self.besides], self.cases)

    def checked(self, besides: Texts = ()) -> Draft:
        """Return the draft, if its test holds. besides: the texts that it names. Raises DraftError."""
        results = run([(f"{self.file}.yaml", self.rule), *besides], self.cases)
        for result in results:
            lines = [text for difference in result.differences for _, text in difference.lines]
            if lines:
                raise DraftError(f"{result.case.name!r} does not hold under this rule: {'; '.join(lines)}")
        return self

    def about(self, *files: str) -> Draft:
        """Return the draft with other files of rules that its test is about too."""
        return replace(self, besides=(*self.besides, *files))

    def with_cases(self, *cases: Json) -> Draft:
        """Return the draft with more cases."""
        return replace(self, cases=(*self.cases, *cases))


def rules_of(texts: Texts) -> RuleSet:
    """Return the rules in texts. Raises DraftError with every mistake, and where one can have no effect."""
    loaded = load_rules(texts)
    found = [f"{error.path}: {error.message}" for error in loaded.errors]
    rule_set_warnings = (doubt for rule in loaded.rules for doubt in rule_warnings(rule))
    found += [
        f"{field_path(doubt.path)}: {doubt.message}" for doubt in rule_set_warnings if doubt.code in _USELESS
    ]
    if found:
        raise DraftError("; ".join(found))
    return loaded.rules


def run(texts: Texts, cases: Sequence[Json]) -> list[Result]:
    """Return what comes of cases under the rules in texts. Raises DraftError for mistakes in either."""
    policy = compile_policy(rules_of(texts))
    tests, mistakes = read_tests(_test(["."], cases), "test", lambda _: [])
    if mistakes:
        raise DraftError("; ".join(mistake.message for mistake in mistakes))
    return [run_case(case, policy) for test in tests for case in test.cases]


def _test(rules: Sequence[str], cases: Sequence[Json]) -> str:
    document = {"apiVersion": "gpugate.dev/v1", "kind": KIND, "rules": [*rules], "cases": [*cases]}
    return dump_yaml(document)


def allowed(name: str, pod: Json, expect: Mapping[str, Any] | None = None, **given: Any) -> Json:
    """Return a case that is let pass. given: its namespace, nodes, time."""
    return {"name": name} | given | {"pod": pod, "expect": {"allowed": True} | dict(expect or {})}


def refused(name: str, pod: Json, rule: str, message: str = "", **given: Any) -> Json:
    """Return a case that a rule refuses with these words."""
    violation = {"rule": rule} | ({"message": message} if message else {})
    return {"name": name} | given | {"pod": pod, "expect": {"allowed": False, "violations": [violation]}}


def pod_of(limits: Mapping[str, Any], **fields: Any) -> Json:
    """Return a pod of one container as a case has it; fields: others of the container."""
    return {
        "containers": [{"name": "main", "image": IMAGE} | fields | {"resources": {"limits": dict(limits)}}]
    }


def node_of(cuda: CudaVersion, device: str) -> Json:
    """Return a node of a driver's CUDA version, with the labels that rules look at first."""
    names = LabelNames()
    labels = dict(zip(names.cuda[0].keys, (str(cuda.major), str(cuda.minor)), strict=True))
    labels |= dict(zip(names.compute_capability[0].keys, ("8", "0"), strict=True))
    return {"name": f"driver-{cuda.major}-{cuda.minor}", "labels": labels, "allocatable": {device: 8}}


def cuda_image(cuda: CudaVersion) -> str:
    """Return an image of a CUDA version, by its tag."""
    return f"nvidia/cuda:{cuda}.0-base-ubuntu22.04"


def image_like(patterns: Sequence[str]) -> str:
    """Return an image that the first of some globs matches; any where there are none."""
    if not patterns:
        return IMAGE
    whole = re.sub(r"^\*/", "registry.example.com/", patterns[0]).replace(":*", ":1")
    return whole.replace("*", "").replace("?", "x")


def without_globs(pattern: str) -> str:
    """Return a name that a glob matches."""
    return pattern.replace("*", "x").replace("?", "x")


def word_of(text: str) -> str:
    """Return a text as a part of a ConfigMap's name."""
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("-")
