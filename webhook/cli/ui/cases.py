"""Case files, which hold the texts of the page, and rule tests made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from rules import Decision, InventoryError, Language, ObjectError, Snapshot, decide
from rules.nodes.node_row import objects_of
from rules.schema.exemption import instant
from rules.schema.field_types import NonEmpty, RuleDocument, TextDocument
from rules.schema.validation_errors import schema_errors
from rules.text.i18n import Message, MessageError, Text, located
from rules.text.yaml_document import Document, Location, SourceError
from webhook.cli.inputs.objects import NO_OBJECTS, InputError, ObjectSource, Subject, request_of
from webhook.cli.test.cases import read_tests
from webhook.cli.test.runner import BUILT_IN as SHIPPED
from webhook.cli.test.runner import run_case
from webhook.cli.test.schema import KIND as RULE_TEST
from webhook.cli.ui.page import BUILT_IN, GIVEN, NODE_TEXT, POD_TEXT, Page, Question, documents_in
from webhook.yaml_output import dump_yaml

KIND: Final = "Case"
_VERSION: Final = "gpugate.dev/v1"
_NODE_KEYS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_NO_NODES_OF_CLUSTER: Final = Message(
    "the nodes of a cluster, and long files, are not in the file; write them to a text with "
    "`kubectl get nodes -o yaml` and choose nodes as text"
)
_NO_RULES_OF_CLUSTER: Final = Message("a rule test needs rules in files; start gpugate ui with --rules FILE")
_NOT_REPEATED: Final = Message("a rule test cannot repeat this decision: {why}")
_NO_CASE: Final = Message("expected one document of kind {kind}", kind=KIND)


class CaseError(MessageError):
    """The case cannot be written. The fault of the user; the text says what to do."""


class SavedCase(RuleDocument):
    """What the page shows: a pod and nodes as texts, so that comments and mistakes in them are kept."""

    api_version: Literal["gpugate.dev/v1"] = Field(alias="apiVersion", description="of the format")
    kind: Literal["Case"] = Field(description="of the document")
    title: TextDocument = Field(TextDocument(), description="in the list of examples")
    comment: TextDocument = Field(TextDocument(), description="for readers, above the objects")
    rules: list[NonEmpty] = Field([BUILT_IN], description="the rules that it was made with, for readers")
    namespace: NonEmpty = Field("default", description="for objects that set none")
    pod: str = Field(description="objects as YAML")
    nodes: str = Field("", description="nodes as YAML; empty: none")

    def commented(self, language: Language) -> str:
        """Return the objects below the comment in a language."""
        comment = self.comment.text.in_language(language)
        return "".join(f"# {line}\n" for line in comment.splitlines()) + self.pod


def is_case(text: str) -> bool:
    """Return whether a text is a case file rather than objects."""
    try:
        (document,) = documents_in(text, KIND)
    except ValueError:  # SourceError too: the page shows it
        return False
    value = document.value
    return isinstance(value, dict) and value.get("kind") == KIND and value.get("apiVersion") == _VERSION


def read_case(text: str, name: str = "case") -> SavedCase:
    """Return the case in a text. Raises SourceError."""
    documents = documents_in(text, name)
    if len(documents) != 1:
        raise SourceError(Location(name, 1, 1), _NO_CASE)
    (document,) = documents
    try:
        return SavedCase.model_validate(document.value)
    except ValidationError as error:
        first_error = schema_errors(error, SavedCase, document, (), "")[0]
        problem = first_error.text
        if first_error.path:
            problem = located(first_error.path, problem)
        raise SourceError(first_error.location, problem) from None


def examples() -> list[SavedCase]:
    """Return the built-in examples, in the order of their names."""
    folder = files("webhook.cli.ui") / "examples"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".yaml"))
    return [read_case((folder / name).read_text("utf-8"), name) for name in names]


def write_case(page: Page, question: Question) -> str:
    """Return the case file of a question. Raises CaseError if it cannot contain the nodes."""
    names = page.rules_of(question)
    document: dict[str, Any] = {"apiVersion": _VERSION, "kind": KIND}
    document["rules"] = [*names.paths] or [names.names]
    document |= {"namespace": question.namespace or "default", "pod": question.pod}
    if nodes := _node_text(page, question):
        document["nodes"] = nodes
    return dump_yaml(document)


def _node_text(page: Page, question: Question) -> str:
    if question.nodes == GIVEN and page.nodes:
        if page.nodes.text is None:
            raise CaseError(_NO_NODES_OF_CLUSTER)
        return page.nodes.text
    return question.node_text if question.nodes == "text" else ""


def write_test(page: Page, question: Question) -> str:
    """Return a rule test with a case for each object of a question; it expects the present decisions.

    The test passes. Raises SourceError for errors in the texts, and CaseError if a test cannot express the
    cases.
    """
    language, rules, policy = question.language, page.rules_of(question), page.policy(question)
    if not rules.paths:
        raise CaseError(_NO_RULES_OF_CLUSTER)
    nodes = [*_nodes(documents_in(_node_text(page, question), NODE_TEXT))]
    page.inventory(question)  # errors in the text with their lines
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    cases = []
    for document in documents_in(question.pod, POD_TEXT):
        for place, value in document.objects():
            subject = _subject(document, place, value, question.namespace)
            try:
                decision = decide(
                    Snapshot(policy, page.inventory(question).with_facts(policy.facts)),
                    subject.request,
                    instant(now),
                )
            except ObjectError as error:
                raise SourceError(document.locate(place), error.text) from None
            case: dict[str, Any] = {"name": f"{subject.request.kind} {subject.name}: {_verb(decision)}"}
            if question.namespace != "default":
                case["namespace"] = question.namespace
            if policy.exemptions:
                case["now"] = now
            cases.append(case | {"pod": value, "expect": _expect(decision, policy.language)})
    if not cases:
        raise SourceError(Location(POD_TEXT, 1, 1), NO_OBJECTS)
    paths = [f"{SHIPPED}." if path == BUILT_IN else path for path in rules.paths]
    test: dict[str, Any] = {"apiVersion": _VERSION, "kind": RULE_TEST, "rules": paths, "lang": language.value}
    if nodes:
        test["nodes"] = nodes
    text = dump_yaml(test | {"cases": cases})
    for why in _failures(text, page, question):
        raise CaseError(_NOT_REPEATED.having(why=why))
    return f"# gpugate test FILE; paths of rules are relative to the folder of this file\n{text}"


def _subject(document: Document, place: Any, value: Any, namespace: str) -> Subject:
    source = ObjectSource(document, place)
    try:
        request, name = request_of(source, value, namespace)
    except InputError as error:
        raise SourceError(document.locate(place), error.problem) from None
    return Subject(source, request, name)


def _verb(decision: Decision) -> str:
    if not decision.allowed:
        return "denied"
    return "patched" if decision.patch else "allowed without changes"


def _expect(decision: Decision, language: Language) -> dict[str, Any]:
    """Return a decision as the expectation of a case."""
    expect: dict[str, Any] = {"allowed": decision.allowed}
    if decision.violations:
        expect["violations"] = [
            {"rule": violation.rule, "action": violation.action.value, "path": violation.path}
            for violation in decision.violations
        ]
    if decision.warning_lines:
        expect["warnings"] = [line.in_language(language) for line in decision.warning_lines]
    expect["patch"] = [dict(operation) for operation in decision.patch]
    return expect


def _nodes(documents: list[Document]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        try:
            for node, _ in objects_of(document.value, NODE_TEXT):
                yield {"kind": "Node"} | {key: node[key] for key in _NODE_KEYS if key in node}
        except InventoryError as error:
            raise SourceError(document.locate(), error.text) from None


def _failures(text: str, page: Page, question: Question) -> Iterator[Message]:
    """Yield why a rule test does not pass."""
    tests, errors = read_tests(text, RULE_TEST, lambda _: [])
    yield from (error.located for error in errors)
    policy = page.policy(question)
    for case in (case for test in tests for case in test.cases):
        try:
            result = run_case(case, policy)
        except MessageError as error:  # no pods in this kind
            yield error.text
            continue
        for difference in result.differences:
            yield Text("; ".join(f"{mark} {line}".strip() for mark, line in difference.lines))
