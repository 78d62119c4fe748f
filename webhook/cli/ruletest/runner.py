"""Runs the unit tests of rule files: the same loader and the same decision as admission."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import jsonpatch

from rules import (
    Decision,
    Language,
    Loaded,
    ObjectError,
    Policy,
    RuleError,
    Workloads,
    compile_policy,
    decide,
    load_rules,
)
from rules.ruletest.cases import Case, RuleTest, read_tests
from rules.ruletest.comparison import Difference, differences, value_at
from rules.schema.errors import suggestion
from rules.schema.loader import ENABLED_LABEL, LABEL_PREFIXES
from rules.text.glob import glob
from rules.text.location import Location
from rules.text.yaml_document import Document, SourceError, read
from webhook.cli.input.files import catalog_path, read_path
from webhook.cli.output.console import BadInputError
from webhook.cli.output.yaml_edit import Edit, edited, list_edit, scalar_edit

# Before the path of a rule that ships, from their folder.
SHIPPED: Final = "shipped:"

Select = Callable[[str], bool]

_ENABLED: Final = (ENABLED_LABEL, *(f"{prefix}enabled" for prefix in LABEL_PREFIXES))


@dataclass(frozen=True, slots=True)
class Result:
    """One case that was run, by which policy. seconds: what the decision took."""

    case: Case
    policy: Policy
    decision: Decision
    differences: tuple[Difference, ...]
    seconds: float

    @property
    def stale(self) -> bool:
        """Whether nothing but the expected patch differs."""
        return [each.what for each in self.differences] == ["patch"]


@dataclass(frozen=True, slots=True)
class FileResult:
    """A test file that was run: its cases, how many were not chosen, and the mistakes in it or its rules."""

    file: str
    results: tuple[Result, ...]
    left_out: int
    mistakes: tuple[RuleError, ...]
    written: int = 0

    @property
    def failed(self) -> int:
        """The number of cases that are not as expected."""
        return sum(bool(result.differences) for result in self.results)


class Runner:
    """Runs test files; rules that several are about are read once.

    namespace: where rules have to be. workloads: the kinds that hold pods. select: tells by its name whether
    a case is run.
    """

    def __init__(self, namespace: str, workloads: Workloads, select: Select) -> None:
        self._namespace = namespace
        self._workloads = workloads
        self._select = select
        self._known: dict[_Key, _Rules] = {}

    def run(self, file: str, text: str) -> FileResult:
        """Return what comes of a test file. Documents with mistakes, or about mistaken rules, are not run."""
        tests, mistakes = read_tests(text, file, lambda name: _documents(beside(file, name)))
        results: list[Result] = []
        left_out = 0
        for test in tests:
            chosen = [case for case in test.cases if self._select(case.name)]
            left_out += len(test.cases) - len(chosen)
            policy = self._policy(test, mistakes)
            if policy is None:
                continue
            for case in chosen:
                try:
                    results.append(run_case(case, policy))
                except (ObjectError, _UnjudgedError) as error:
                    where = (*case.path, "pod")
                    mistakes.append(RuleError(case.document.locate(where), where, str(error)))
        return FileResult(file, tuple(results), left_out, tuple(mistakes))

    def update(self, file: str, text: str) -> FileResult:
        """Run a test file, and write the patch that was found where an expected patch alone differs."""
        before = self.run(file, text)
        edits = [edit for result in before.results if result.stale and (edit := _patch_edit(result))]
        if not edits:
            return before
        text = edited(text, edits)
        after = self.run(file, text)
        if after.mistakes:  # also where the patch went with an anchor that is needed elsewhere
            return before
        Path(file).write_bytes(text.encode())
        return replace(after, written=len(edits))

    def _policy(self, test: RuleTest, mistakes: list[RuleError]) -> Policy | None:
        """Return the policy that a test is about, or None with what is wrong added to mistakes."""
        document = test.document
        paths = tuple(beside(document.file, name) for name in test.rules)
        key = _Key(paths, test.enable, test.disable, test.language)
        if key not in self._known:
            self._known[key] = _load(key, self._namespace, self._workloads)
        rules = self._known[key]
        found = list(rules.loaded.errors)
        for at, path in enumerate(paths):
            if reason := rules.unread.get(path):
                found.append(RuleError(document.locate(("rules", at)), ("rules", at), reason))
        if not found and not rules.names:
            found.append(
                RuleError(document.locate(("rules",)), ("rules",), f"no rules in {', '.join(paths)}")
            )
        for field, patterns in (("enable", test.enable), ("disable", test.disable)):
            for at, pattern in enumerate(patterns if not found else ()):
                if not any(map(glob(pattern).fullmatch, rules.names)):
                    hint = suggestion(pattern, rules.names)
                    message = f"no rule is named {pattern!r}{hint}"
                    found.append(RuleError(document.locate((field, at)), (field, at), message))
        mistakes += found
        return None if found else rules.policy


class _Key(NamedTuple):
    """What rules are read, and how."""

    paths: tuple[str, ...]
    enable: tuple[str, ...]
    disable: tuple[str, ...]
    language: Language


@dataclass(frozen=True, slots=True)
class _Rules:
    """What was read for tests. unread: by path, why it could not be."""

    loaded: Loaded
    unread: Mapping[str, str]
    names: frozenset[str]
    policy: Policy


def _load(key: _Key, namespace: str, workloads: Workloads) -> _Rules:
    texts: dict[str, str] = {}
    unread: dict[str, str] = {}
    for path in key.paths:
        try:
            texts |= read_path(path)
        except BadInputError as error:
            unread[path] = error.format_message()
    switches = [
        *((glob(name), "true") for name in key.enable),
        *((glob(name), "false") for name in key.disable),
    ]
    if switches:
        texts = {name: _switched(name, text, switches) for name, text in texts.items()}
    loaded = load_rules(texts.items(), namespace)
    names = frozenset(rule.name for rule in loaded.rules)
    return _Rules(loaded, unread, names, compile_policy(loaded.rules, key.language, workloads))


def _switched(file: str, text: str, switches: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """Return a rule file as it reads with the label `enabled` of the rules named set, the last switch last.

    In the text, so that rules that were in each other's way may be so no more, and the other way round.
    """
    edits = []
    for document in read(text, file):
        if isinstance(document, SourceError):
            continue
        for path, value in document.objects():
            name = str(value_at(value, "/metadata/name"))
            states = [state for pattern, state in switches if pattern.fullmatch(name)]
            for label in _ENABLED if states else ():
                place = (*path, "metadata", "labels", label)
                edits.append(scalar_edit(document, place, f'"{states[-1]}"'))
    return edited(text, filter(None, edits))


class _UnjudgedError(ValueError):
    """The object is none that rules are about. The fault of the case's author."""


def run_case(case: Case, policy: Policy) -> Result:
    """Return what comes of a case. Raises ObjectError or _UnjudgedError where its object cannot be judged."""
    request = case.request
    if not policy.workloads.holds_pods(request.group, request.kind):
        what = f"{request.kind} of API group {request.group!r}"
        raise _UnjudgedError(f"objects of kind {what} hold no pods, so nothing would be judged")
    start = perf_counter()
    decision = decide(policy, case.inventory, request, case.now)
    seconds = perf_counter() - start
    patched = request.object
    if case.expect.fields:
        patched = jsonpatch.apply_patch(deepcopy(patched), list(decision.patch), in_place=True)
    return Result(case, policy, decision, tuple(differences(case.expect, decision, patched)), seconds)


def _patch_edit(result: Result) -> Edit | None:
    case = result.case
    return list_edit(case.document, (*case.path, "expect", "patch"), result.decision.patch)


def beside(file: str, name: str) -> str:
    """Return the path of what a file names, from its own folder, or of a rule that ships."""
    if name.startswith(SHIPPED):
        return str(catalog_path() / name.removeprefix(SHIPPED))
    return os.path.normpath(Path(file).parent / name)


def _documents(path: str) -> list[Document]:
    """Return the documents of a file. Raises SourceError."""
    found: list[Document] = []
    try:
        for name, text in read_path(path):
            for document in read(text, name):
                if isinstance(document, SourceError):
                    raise document
                found.append(document)
    except BadInputError as error:
        reason = error.format_message().removeprefix(f"{path}: ")
        raise SourceError(Location(path), reason) from None
    return found
