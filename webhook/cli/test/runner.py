"""Runner of rule tests, with the loader and the decision of admission."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import jsonpatch
from msgspec import Struct
from msgspec.structs import replace

from rules import (
    Decision,
    Language,
    Loaded,
    ObjectError,
    Policy,
    RuleError,
    RuleSet,
    Snapshot,
    Workloads,
    compile_policy,
    decide,
    load_rules,
)
from rules.kube.json_patch import value_at
from rules.schema.config_map import ENABLED_LABEL, LABEL_PREFIXES
from rules.schema.errors import suggested
from rules.text.glob import glob
from rules.text.i18n import Joined, Message, MessageError
from rules.text.yaml_document import Document, SourceError, read
from webhook.cli.inputs.files import catalog_path, read_path
from webhook.cli.inputs.yaml_edit import Edit, edited, list_edit, scalar_edit
from webhook.cli.terminal.console import BadInputError
from webhook.cli.terminal.vocabulary import NOT_NAMED, RULE_NOUN
from webhook.cli.test.cases import Case, RuleTest, read_tests
from webhook.cli.test.comparison import Difference, differences

# Prefix of paths in the folder of the built-in rules.
BUILT_IN: Final = "shipped:"

Select = Callable[[str], bool]

_NO_RULES: Final = Message("no rules in {paths}")
_NO_PODS: Final = Message(
    "objects of kind {kind} of API group {group!r} do not contain pods, so no rule applies"
)
_ENABLED: Final = (ENABLED_LABEL, *(f"{prefix}enabled" for prefix in LABEL_PREFIXES))


class CaseResult(Struct, frozen=True):
    """Result of one case."""

    case: Case
    policy: Policy
    decision: Decision
    differences: tuple[Difference, ...]
    seconds: float  # duration of the decision

    @property
    def stale(self) -> bool:
        """Whether only the expected patch differs."""
        return [difference.key for difference in self.differences] == ["patch"]


class FileResult(Struct, frozen=True):
    """Result of a test file."""

    file: str
    results: tuple[CaseResult, ...]
    skipped: int  # cases that are not selected
    errors: tuple[RuleError, ...]  # in the file or its rules
    written: int = 0  # patches

    @property
    def failed(self) -> int:
        """The number of failed cases."""
        return sum(bool(result.differences) for result in self.results)


class Runner:
    """Runs test files; each set of rules is loaded once.

    namespace: of the rules. workloads: kinds that contain pods. select: returns whether to run a case, by
    name. with_facts: returns rules with the facts that replace theirs.
    """

    def __init__(
        self,
        namespace: str,
        workloads: Workloads,
        select: Select,
        with_facts: Callable[[RuleSet], RuleSet] = lambda rules: rules,
    ) -> None:
        self._namespace = namespace
        self._workloads = workloads
        self._select = select
        self._with_facts = with_facts
        self._loaded: dict[_Key, _Rules] = {}

    def run(self, file: str, text: str) -> FileResult:
        """Run a test file, except documents with errors in them or in their rules."""
        tests, errors = read_tests(text, file, lambda name: _documents(resolve(file, name)))
        results: list[CaseResult] = []
        skipped = 0
        for test in tests:
            selected = [case for case in test.cases if self._select(case.name)]
            skipped += len(test.cases) - len(selected)
            policy = self._policy(test, errors)
            if policy is None:
                continue
            for case in selected:
                try:
                    results.append(run_case(case, policy))
                except (ObjectError, _NoPodsError) as error:
                    where = (*case.path, "pod")
                    errors.append(RuleError(case.document.locate(where), where, error.text))
        return FileResult(file, tuple(results), skipped, tuple(errors))

    def update(self, file: str, text: str) -> FileResult:
        """Run a test file, and update the expected patch of each case in which only that differs."""
        before = self.run(file, text)
        edits = [edit for result in before.results if result.stale and (edit := _patch_edit(result))]
        if not edits:
            return before
        text = edited(text, edits)
        after = self.run(file, text)
        if after.errors:  # for example, an edit removed an anchor that is used elsewhere
            return before
        Path(file).write_bytes(text.encode())
        return replace(after, written=len(edits))

    def _policy(self, test: RuleTest, errors: list[RuleError]) -> Policy | None:
        """Return the policy of a test; if it is invalid, add its errors to `errors` and return None."""
        document = test.document
        paths = tuple(resolve(document.file, name) for name in test.rules)
        key = _Key(paths, test.enable, test.disable, test.language)
        if key not in self._loaded:
            self._loaded[key] = _load(key, self._namespace, self._compiled)
        rules = self._loaded[key]
        new_errors = list(rules.loaded.errors)
        for at, path in enumerate(paths):
            if reason := rules.unread.get(path):
                new_errors.append(RuleError(document.locate(("rules", at)), ("rules", at), reason))
        if not new_errors and not rules.names:
            new_errors.append(
                RuleError(
                    document.locate(("rules",)), ("rules",), _NO_RULES.having(paths=Joined(", ", paths))
                )
            )
        for field, patterns in (("enable", test.enable), ("disable", test.disable)):
            for at, pattern in enumerate(patterns if not new_errors else ()):
                if not any(map(glob(pattern).fullmatch, rules.names)):
                    hint = suggested(pattern, rules.names)
                    message = NOT_NAMED.having(noun=RULE_NOUN, name=pattern, hint=hint)
                    new_errors.append(RuleError(document.locate((field, at)), (field, at), message))
        errors += new_errors
        return None if new_errors else rules.policy

    def _compiled(self, rules: RuleSet, language: Language) -> Policy:
        return compile_policy(self._with_facts(rules), language, self._workloads)


class _Key(NamedTuple):
    """The rule files of a test, and their settings."""

    paths: tuple[str, ...]
    enable: tuple[str, ...]
    disable: tuple[str, ...]
    language: Language


class _Rules(Struct, frozen=True):
    """The rules of a test."""

    loaded: Loaded
    unread: Mapping[str, Message]  # reason by path that cannot be read
    names: frozenset[str]
    policy: Policy


def _load(key: _Key, namespace: str, compiled: Callable[[RuleSet, Language], Policy]) -> _Rules:
    texts: dict[str, str] = {}
    unread: dict[str, Message] = {}
    for path in key.paths:
        try:
            texts |= read_path(path)
        except BadInputError as error:
            unread[path] = error.text
    states = [
        *((glob(name), "true") for name in key.enable),
        *((glob(name), "false") for name in key.disable),
    ]
    if states:
        texts = {name: _with_states(name, text, states) for name, text in texts.items()}
    loaded = load_rules(texts.items(), namespace)
    names = frozenset(rule.name for rule in loaded.rules)
    return _Rules(loaded, unread, names, compiled(loaded.rules, key.language))


def _with_states(file: str, text: str, states: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """Return a rule file with the `enabled` label set in rules whose names match; the last match is used.

    The text is edited, not the loaded rules, because the loader reports conflicts between enabled rules.
    """
    edits = []
    for document in read(text, file):
        if isinstance(document, SourceError):
            continue
        for path, value in document.objects():
            name = str(value_at(value, "/metadata/name"))
            matches = [state for pattern, state in states if pattern.fullmatch(name)]
            for label in _ENABLED if matches else ():
                place = (*path, "metadata", "labels", label)
                edits.append(scalar_edit(document, place, f'"{matches[-1]}"'))
    return edited(text, filter(None, edits))


class _NoPodsError(MessageError):
    """The kind of the object does not contain pods. The fault of the case's author."""


def run_case(case: Case, policy: Policy) -> CaseResult:
    """Run a case. Raises ObjectError or _NoPodsError if its object cannot be evaluated."""
    request = case.request
    if not policy.workloads.holds_pods(request.group, request.kind):
        raise _NoPodsError(_NO_PODS.having(kind=request.kind, group=request.group))
    start = perf_counter()
    inventory = case.inventory.with_facts(policy.facts)
    decision = decide(Snapshot(policy, inventory, namespaces=case.namespaces), request, case.now)
    seconds = perf_counter() - start
    patched = request.object
    if case.expect.fields:
        patched = jsonpatch.apply_patch(deepcopy(patched), list(decision.patch), in_place=True)
    return CaseResult(
        case, policy, decision, tuple(differences(case.expect, decision, patched, policy.language)), seconds
    )


def _patch_edit(result: CaseResult) -> Edit | None:
    case = result.case
    return list_edit(case.document, (*case.path, "expect", "patch"), result.decision.patch)


def resolve(file: str, name: str) -> str:
    """Return the path of a name in a test file: relative to that file's folder, or in the built-in rules."""
    if name.startswith(BUILT_IN):
        return str(catalog_path() / name.removeprefix(BUILT_IN))
    return os.path.normpath(Path(file).parent / name)


def _documents(path: str) -> list[Document]:
    """Return the documents of a file. Raises MessageError."""
    documents: list[Document] = []
    try:
        for name, text in read_path(path):
            for document in read(text, name):
                if isinstance(document, SourceError):
                    raise document
                documents.append(document)
    except BadInputError as error:
        raise MessageError(error.text) from None
    return documents
