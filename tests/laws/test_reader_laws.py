"""The reader that composes documents reads what the reader of events reads: values, locations and errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from rules.text import yaml_document
from tests.fuzz import rule_text
from tests.fuzz.mutator import mutated
from tests.fuzz.targets import kept
from tests.rules.text.test_json_document import paths
from tests.support import event_reader

ROOT = Path(__file__).parent.parent.parent
FILES = [
    path
    for folder in ("docs", "manifests", "rules", "tests/fuzz/corpus/rule_text")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".yaml", ".yml", ".md", "") and path.is_file()
]
# A JSON text may not begin with a comment: both read it as YAML.
COMMENT = "# YAML\n"


def _read(reader: Any, text: str) -> Iterator[str]:
    for document in reader.read(text, "f"):
        if isinstance(document, reader.SourceError):
            yield str(document)
            return
        yield repr(document.value)
        yield from map(str, document.duplicates)
        try:
            document.locate()
        except yaml.YAMLError:  # the old one composes the text of the next document, too
            continue
        for path in paths(document.value):
            yield f"{path} {document.locate(path)} {document.locate(path, key=True)}"


def _same(text: str) -> bool:
    old, new = (list(_read(reader, text)) for reader in (event_reader, yaml_document))
    if old == new[: len(old)]:
        return True
    # A syntax error anywhere in a document takes precedence now over its other errors.
    return "not YAML" in new[-1] or ("aliases expand" in old[-1] and "aliases expand" in new[-1])


@pytest.mark.parametrize("path", FILES, ids=str)
def test_files_are_read_as_by_events(path: Path) -> None:
    """Documents, manifests, the built-in rules, and what fuzzing found."""
    text = path.read_text("utf-8", "surrogateescape")

    assert _same(COMMENT + text)


def test_mutated_rules_are_read_as_by_events() -> None:
    """Anchors, merges, tags, duplicate keys, control characters."""
    seeds = [*rule_text.seeds(), *kept("rule_text")]
    words, chance = list(rule_text.words()), Random(1)  # noqa: S311

    for _ in range(2_000):
        text = mutated(chance.choice(seeds), words, chance).decode("utf-8", "surrogateescape")
        text = COMMENT + text
        assert _same(text), text
