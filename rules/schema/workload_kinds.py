"""The pod template paths of workload kinds that a configuration adds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rules.model.workload_kinds import EVERY, Steps, Workloads, built_in_workloads
from rules.schema.errors import Code, RuleError, kind_of, suggested
from rules.text.i18n import Message
from rules.text.paths import Path
from rules.text.yaml_document import Document, SourceError, read

_GROUP_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*|")
_KIND_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
_PATH: Final = re.compile(r"((\w+|\*)(\.(\w+|\*))*)?", re.ASCII)
# The notation of other tools for `*`: tasks[*], tasks[], tasks[0].
_INDEX: Final = re.compile(r"\[[*\d]*\]")
_GROUP: Final = Message("expected an API group without its version, got {actual!r}{hint}")
_KIND: Final = Message("expected a kind, such as PyTorchJob, got {actual!r}{hint}")
_GROUPS: Final = Message("expected an object of API groups, got {actual}")
_KINDS: Final = Message("expected an object of kinds, got {actual}")
_PATHS: Final = Message("expected a list of paths, such as [spec.template], got {actual}")
_NO_PATH: Final = Message("expected a path, such as spec.template, got {actual}")
_NAMES: Final = Message("expected dot-separated names, with * for every member, got {actual!r}{hint}")
_ONCE: Final = Message("expected * at most once, got {actual!r}")


def read_workloads(texts: Iterable[tuple[str, str]]) -> tuple[Workloads, list[RuleError]]:
    """Return the kinds in (file name, text) pairs (format: `facts/workloads.yaml`), and the errors."""
    workloads, errors = Workloads({}), []
    for file, text in texts:
        for document in read(text, file):
            if isinstance(document, SourceError):
                errors.append(RuleError(document.location, (), document.problem, code=Code.NOT_YAML))
            elif document.value is not None:
                reader = _Reader(document)
                workloads |= reader.workloads()
                errors += reader.errors
    return workloads, errors


class _Reader:
    """Reads one document and collects its errors."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.errors = [
            RuleError(error.location, (), error.problem, code=Code.DUPLICATE_KEY)
            for error in document.duplicates
        ]

    def workloads(self) -> Workloads:
        paths: dict[tuple[str, str], tuple[Steps, ...]] = {}
        for group, kinds in self._members(self._document.value, (), _GROUPS):
            if not _GROUP_NAME.fullmatch(group):
                hint = suggested(group, [group.partition("/")[0].lower()])
                self._add_error((group,), _GROUP.having(actual=group, hint=hint))
            for kind, texts in self._members(kinds, (group,), _KINDS):
                if not _KIND_NAME.fullmatch(kind):
                    hint = suggested(kind.capitalize(), _known_kinds())
                    self._add_error((group, kind), _KIND.having(actual=kind, hint=hint))
                paths[group, kind] = tuple(self._steps(texts, (group, kind)))
        return Workloads(paths)

    def _members(self, value: Any, path: Path, problem: Message) -> Iterable[tuple[str, Any]]:
        if not isinstance(value, dict):
            self._add_error(path, problem.having(actual=kind_of(value)))
            return ()
        return value.items()

    def _steps(self, texts: Any, path: Path) -> Iterator[Steps]:
        if not isinstance(texts, list) or not texts:
            self._add_error(path, _PATHS.having(actual=kind_of(texts)))
            return
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                self._add_error((*path, index), _NO_PATH.having(actual=kind_of(text)))
            elif not _PATH.fullmatch(text):
                plain = _INDEX.sub(f".{EVERY}", text).strip("$./").replace("/", ".")
                hint = suggested(text, [plain] if _PATH.fullmatch(plain) else [])
                self._add_error((*path, index), _NAMES.having(actual=text, hint=hint))
            elif text.count(EVERY) > 1:
                self._add_error((*path, index), _ONCE.having(actual=text))
            else:
                yield tuple(text.split(".")) if text else ()

    def _add_error(self, path: Path, message: Message) -> None:
        self.errors.append(RuleError(self._document.locate(path), path, message))


def _known_kinds() -> set[str]:
    return {kind for _, kind in built_in_workloads().paths}
