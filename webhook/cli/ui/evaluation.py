"""The evaluation of a text, by the decision of admission: findings with lines, patch, explanation, nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from time import time
from typing import Any, Final

from msgspec.structs import replace

from rules import Action, AdmissionRequest, Decision, Language, ObjectError, Snapshot, decide, explain
from rules.compatibility.report import NodeTable
from rules.decision.trace import Explanation
from rules.decision.unrequested import requests_devices
from rules.model.finding import Finding
from rules.text.i18n import Joined, Message
from rules.text.paths import Path as FieldPath
from rules.text.yaml_document import Document, SourceError, read
from webhook.cli.commands.explain import MARKS, explanation_facts, result_of
from webhook.cli.inputs.cluster_source import NO_CLUSTER
from webhook.cli.inputs.files import catalog_path
from webhook.cli.inputs.fixes import NotFixable, fixed
from webhook.cli.inputs.not_checked import WITHOUT_NODES, completed, remarks
from webhook.cli.inputs.objects import InputError, ObjectSource, subject_of
from webhook.cli.inputs.quotas import Quotas
from webhook.cli.report.candidate_nodes import admitted, candidate_nodes
from webhook.cli.report.model import warnings_alone
from webhook.cli.terminal.vocabulary import (
    ACTIONS,
    CONTAINER_KINDS,
    CUDA_NOT_CHECKED,
    NOT_CHECKED,
    NOTE,
    QUOTA,
)
from webhook.cli.ui.page import BUILT_IN, NODE_TEXT, POD_TEXT, Page, Question
from webhook.yaml_output import dump_yaml

# Objects in one text that are evaluated: more do not fit on a page.
MAX_OBJECTS: Final = 20
_NO_NODES: Final = Message("CUDA compatibility not checked: no nodes chosen")
_TOO_MANY: Final = Message(
    "more than {most} objects; the others are not checked (use gpugate preview)", most=MAX_OBJECTS
)
_DUPLICATE: Final = Message("{message}; the last value is used")

Json = dict[str, Any]


def evaluate(page: Page, question: Question) -> Json:
    """Return the decision on each object of the text, and the errors in both texts."""
    errors: list[Json] = []
    try:
        inventory = page.inventory(question)
    except SourceError as error:
        return {"errors": [_error(error, NODE_TEXT, question.language)], "duplicates": [], "objects": []}
    policy, language = page.policy(question), question.language
    documents: list[Document] = []
    for entry in read(question.pod, POD_TEXT):
        if isinstance(entry, SourceError):
            errors.append(_error(entry, POD_TEXT, language))
        elif entry.value is not None:
            documents.append(entry)
    values = [(document, *pair) for document in documents for pair in document.objects()]
    objects = [value for _, _, value in values]
    quotas = Quotas(NO_CLUSTER, language)  # of the text
    quotas.add(objects, question.namespace)
    inventory = inventory.with_dra(inventory.dra.with_claims_in(objects, question.namespace))
    snapshot, nodes_given = Snapshot(policy, inventory.with_facts(policy.facts)), page.has_nodes(question)
    results = []
    for document, place, value in values[:MAX_OBJECTS]:
        line = document.locate(place).line
        source = ObjectSource(document, place)
        try:
            subject = subject_of(source, value, question.namespace, policy.workloads)
            explanation = explain(snapshot, subject.request, time())
            decision = completed(explanation.decision, subject.request, policy, nodes_given=nodes_given)
            explanation = replace(explanation, decision=decision)
            result = _Result(page, question, snapshot, quotas, explanation, subject.request)
            results.append({"line": line, "name": subject.name, **result.facts(document, place)})
        except (InputError, ObjectError) as error:
            problem = error.problem if isinstance(error, InputError) else error.text
            source_error = SourceError(source.locate(problem.en), problem)
            errors.append(_error(source_error, POD_TEXT, language))
    if len(values) > MAX_OBJECTS:
        document, place, _ = values[MAX_OBJECTS]
        errors.append(_error(SourceError(document.locate(place), _TOO_MANY), POD_TEXT, language))
    duplicates = [
        _error(duplicate, POD_TEXT, language)
        | {"message": _DUPLICATE.having(message=duplicate.problem).in_language(language)}
        for document in documents
        for duplicate in document.duplicates
    ]
    return {"errors": errors, "duplicates": duplicates, "objects": results}


class _Result:
    """The result for one object."""

    def __init__(
        self,
        page: Page,
        question: Question,
        snapshot: Snapshot,
        quotas: Quotas,
        explanation: Explanation,
        request: AdmissionRequest,
    ) -> None:
        self._page, self._question, self._snapshot, self._own_quotas = page, question, snapshot, quotas
        self._explanation, self._request = explanation, request
        self._language: Language = question.language

    def facts(self, document: Document, place: FieldPath) -> Json:
        """Return the result as JSON, with lines of the document. place: path of the object in it."""
        explanation, request = self._explanation, self._request
        has_devices = requests_devices(self._snapshot.policy, request)
        mark, word, colour = result_of(explanation, has_devices=has_devices)
        decision, parts = explanation.decision, [word]
        if not explanation.out_of_scope:
            parts += remarks(decision, has_devices=has_devices)
        # That no nodes are known is a finding of the page.
        parts = [part for part in parts if part is not CUDA_NOT_CHECKED]
        result = Joined("; ", parts).in_language(self._language)
        changed = admitted(request, decision)
        findings = [*self._findings(document, place), *self._quotas(changed)]
        return {
            "kind": request.kind,
            "namespace": request.namespace,
            "allowed": decision.allowed,
            "mark": mark,
            "result": result,
            "colour": colour,
            "outOfScope": explanation.out_of_scope.in_language(self._language),
            "findings": findings,
            "diff": _diff(request.object, changed) if decision.patch or decision.pods_patch else [],
            "explanation": self._trace(),
            "nodes": [] if explanation.out_of_scope else candidate_nodes(self._snapshot, request, decision),
        }

    def _findings(self, document: Document, place: FieldPath) -> Iterator[Json]:
        """Yield violations, warnings, notes and checks that were not made, as `preview` shows them."""
        decision, language = self._explanation.decision, self._language
        for finding in (*decision.violations, *decision.notices):
            line = ObjectSource(document, place).locate(finding.path).line if finding.path else 0
            level = finding.action.value
            message, fixes = finding.reason.in_language(language), _fixes(finding, language)
            shown = self._finding(level, ACTIONS[finding.action], message, line, fixes, finding.rule)
            change = self._change(document, place, finding) if finding.edits else None
            yield shown | {"table": _table(finding, language), "change": change}
        for warning in warnings_alone(decision):
            yield self._finding("warn", ACTIONS[Action.WARN], warning.in_language(language))
        for note in decision.notes:
            yield self._finding("note", NOTE, note.in_language(language))
        if would := decision.audit.get("would-inject"):
            yield self._finding("dryrun", ACTIONS[Action.DRYRUN], would)
        for path, reason in decision.not_checked:
            alone = reason in WITHOUT_NODES
            text = _NO_NODES if alone and not self._page.has_nodes(self._question) else reason
            line = 0 if alone else ObjectSource(document, place).locate(path).line
            message = text.in_language(language)
            yield self._finding(
                "notChecked", NOT_CHECKED, message if alone or not path else f"{path}: {message}", line
            )

    def _quotas(self, admitted: Json) -> Iterator[Json]:
        """Yield the quotas of the text and of the cluster that leave no room."""
        request, workloads = self._request, self._snapshot.policy.workloads
        if self._explanation.out_of_scope or not self._explanation.decision.allowed:
            return
        of = (request.group, request.kind, request.namespace)
        for quotas in (self._own_quotas, self._page.cluster_quotas(self._language)):
            for quota in quotas.findings(workloads, *of, admitted):
                yield self._finding("warn", QUOTA, quota.message)

    def _finding(
        self,
        level: str,
        word: Message,
        message: str,
        line: int = 0,
        fixes: Sequence[str] = (),
        rule: str = "",
    ) -> Json:
        """Return a finding without nodes as JSON. fixes: alternatives."""
        words = word.in_language(self._language)
        facts = {"level": level, "word": words, "message": message, "line": line, "rule": rule}
        return facts | {"fixes": fixes, "table": [], "change": None}

    def _change(self, document: Document, place: FieldPath, finding: Finding) -> Json | None:
        """Return the change of the text that `preview --fix` would make for a finding, or None."""
        text, source = self._question.pod, ObjectSource(document, place)

        def decide_again(value: Any) -> Decision:
            subject = subject_of(source, value, self._question.namespace, self._snapshot.policy.workloads)
            return decide(self._snapshot, subject.request, time())

        try:
            after = fixed(text, document, place, finding, self._explanation.decision, decide_again)
        except (NotFixable, InputError, ObjectError):
            return None
        start = _equal_characters(text, after)
        rest = _equal_characters(text[start:][::-1], after[start:][::-1])
        end = len(text) - rest
        changes = (f"{old} → {new}" if old else f"+ {path[-1]}: {new}" for path, old, new in finding.edits)
        return {
            "what": ", ".join(changes),
            "start": _units(text[:start]),
            "end": _units(text[:end]),
            "text": after[start : len(after) - rest],
        }

    def _trace(self) -> list[Json]:
        """Return the rules that were evaluated for each container, each with its mark."""
        facts = explanation_facts(self._explanation, self._language, everything=False)
        marks = {outcome.value: mark for outcome, (mark, _) in MARKS.items()}
        containers = []
        for pod in facts["pods"]:
            for container in pod["containers"]:
                rules = [
                    {
                        **rule,
                        "mark": "✗" if _denies(rule) else marks[rule["outcome"]],
                        "source": _shown_path(rule["source"]),
                    }
                    for rule in container["rules"]
                ]
                kind = CONTAINER_KINDS[container["kind"]].in_language(self._language)
                containers.append({**container, "kind": kind, "rules": rules})
        return containers


def _equal_characters(text: str, other: str) -> int:
    """Return how many characters both texts begin with."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(text), len(other)))


def _units(text: str) -> int:
    """Return the length of a text in JavaScript: in UTF-16 code units."""
    return len(text.encode("utf-16-le")) // 2


def _fixes(finding: Finding, language: Language) -> list[str]:
    """Return the alternatives of a fix, each as a text."""
    if not finding.fix:
        return []
    listed = finding.fix[1].get("fixes")
    fixes = listed[1]["items"] if isinstance(listed, Joined) else [finding.fix]
    return [fix.in_language(language) if isinstance(fix, Message) else str(fix) for fix in fixes]


def _table(finding: Finding, language: Language) -> list[list[str]]:
    """Return the rows of a finding's nodes, the headings first; a line without columns is one cell."""
    lines = finding.table[1]["items"] if finding.table else ()
    rows: list[list[str]] = []
    for line in lines:
        if isinstance(line, NodeTable):
            rows += line.cells(language)
        else:
            rows.append([line.in_language(language) if isinstance(line, Message) else str(line)])
    return rows


def _shown_path(source: str) -> str:
    """Return the place of a rule: a path in the built-in rules or from the current folder."""
    file, _, line = source.rpartition(":")
    path, catalog = Path(file).resolve(), catalog_path().resolve()
    if path.is_relative_to(catalog):
        return f"{BUILT_IN}/{path.relative_to(catalog).as_posix()}:{line}"
    return f"{os.path.relpath(file)}:{line}" if Path(file).is_absolute() else source


def _denies(rule: Json) -> bool:
    return any(violation["action"] == Action.DENY for violation in rule["violations"])


def _diff(before: Any, after: Any) -> list[str]:
    """Return the changes of an object as a unified diff, without its two lines of file names."""
    lines = unified_diff(dump_yaml(before).splitlines(), dump_yaml(after).splitlines(), lineterm="", n=2)
    return [*lines][2:]


def _error(error: SourceError, where: str, language: Language) -> Json:
    location, message = error.location, error.problem.in_language(language)
    return {"where": where, "line": location.line, "column": location.column, "message": message}
