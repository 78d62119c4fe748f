"""The pod template paths of workload kinds that a configuration adds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rules.model.workload_kinds import EVERY, Steps, Workloads, built_in_workloads
from rules.schema.errors import Code, RuleError, describe, suggestion
from rules.text.paths import Path
from rules.text.yaml_document import Document, SourceError, read

_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*|")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
_PATH: Final = re.compile(r"((\w+|\*)(\.(\w+|\*))*)?", re.ASCII)
# The notation of other tools for `*`: tasks[*], tasks[], tasks[0].
_INDEX: Final = re.compile(r"\[[*\d]*\]")


def read_workloads(texts: Iterable[tuple[str, str]]) -> tuple[Workloads, list[RuleError]]:
    """Return the kinds in (file name, text) pairs (format: `facts/workloads.yaml`), and the errors."""
    workloads, errors = Workloads({}), []
    for file, text in texts:
        for document in read(text, file):
            if isinstance(document, SourceError):
                errors.append(RuleError(document.location, (), document.message, code=Code.NOT_YAML))
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
            RuleError(error.location, (), error.message, code=Code.DUPLICATE_KEY)
            for error in document.duplicates
        ]

    def workloads(self) -> Workloads:
        paths: dict[tuple[str, str], tuple[Steps, ...]] = {}
        for group, kinds in self._members(self._document.value, (), "API groups"):
            if not _GROUP.fullmatch(group):
                hint = suggestion(group, [group.partition("/")[0].lower()])
                self._add_error((group,), f"expected an API group without its version, got {group!r}{hint}")
            for kind, texts in self._members(kinds, (group,), "kinds"):
                if not _KIND.fullmatch(kind):
                    hint = suggestion(kind.capitalize(), _known_kinds())
                    self._add_error((group, kind), f"expected a kind, such as PyTorchJob, got {kind!r}{hint}")
                paths[group, kind] = tuple(self._steps(texts, (group, kind)))
        return Workloads(paths)

    def _members(self, value: Any, path: Path, content: str) -> Iterable[tuple[str, Any]]:
        if not isinstance(value, dict):
            self._add_error(path, f"expected an object of {content}, got {describe(value)}")
            return ()
        return value.items()

    def _steps(self, texts: Any, path: Path) -> Iterator[Steps]:
        if not isinstance(texts, list) or not texts:
            self._add_error(path, f"expected a list of paths, such as [spec.template], got {describe(texts)}")
            return
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                self._add_error(
                    (*path, index), f"expected a path, such as spec.template, got {describe(text)}"
                )
            elif not _PATH.fullmatch(text):
                plain = _INDEX.sub(f".{EVERY}", text).strip("$./").replace("/", ".")
                hint = suggestion(text, [plain] if _PATH.fullmatch(plain) else [])
                message = f"expected dot-separated names, with {EVERY} for every member, got {text!r}{hint}"
                self._add_error((*path, index), message)
            elif text.count(EVERY) > 1:
                self._add_error((*path, index), f"expected {EVERY} at most once, got {text!r}")
            else:
                yield tuple(text.split(".")) if text else ()

    def _add_error(self, path: Path, message: str) -> None:
        self.errors.append(RuleError(self._document.locate(path), path, message))


def _known_kinds() -> set[str]:
    return {kind for _, kind in built_in_workloads().paths}
