"""The stored form of the built-in rules has the rules of the rule files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules import load_rules
from rules.schema.built_in import FILE, built_in_rules
from tests.support.stored_forms import built_in_text
from webhook.cli.inputs.files import catalog_path, read_path


def _files() -> tuple[list[tuple[str, str]], str]:
    return [*read_path(folder := str(catalog_path()))], folder


def test_it_is_made_of_the_rule_files_as_they_are(request: pytest.FixtureRequest) -> None:
    """`--update-golden` makes it anew."""
    files, folder = _files()
    loaded = load_rules(files)
    assert ((), ()) == (loaded.errors, loaded.warnings)
    text = built_in_text(files, folder, loaded.rules)
    if request.config.getoption("--update-golden"):
        FILE.write_text(text, "utf-8")

    assert text == FILE.read_text("utf-8")


def test_it_reads_as_the_rules_that_it_was_made_of() -> None:
    """With their locations in the files, wherever these are."""
    files, folder = _files()
    moved = [(f"/other{name.removeprefix(folder)}", text) for name, text in files]

    rules = built_in_rules(moved, "/other")

    assert rules is not None
    assert FILE.read_text("utf-8") == built_in_text(moved, "/other", rules)
    assert [rule.location for rule in load_rules(moved).rules] == [rule.location for rule in rules]


def test_it_is_not_used_after_a_change_to_a_rule_file() -> None:
    """Nor after one is added or removed."""
    (first, text), *others = _files()[0]
    folder = str(catalog_path())

    assert built_in_rules([(first, f"{text}# more"), *others], folder) is None
    assert built_in_rules(others, folder) is None
    assert built_in_rules([(first, text), *others, (str(Path(folder, "new.yaml")), "")], folder) is None
