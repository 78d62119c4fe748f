"""The page for those who change gpugate knows the modules that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/contributing.md").read_text("utf-8")


def test_every_module_of_the_decision_is_in_the_table() -> None:
    """A newcomer finds where a stage is."""
    modules = {path.stem for path in (ROOT / "rules").glob("*.py")} - {"__init__", "model"}
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert set() == modules - named


def test_the_classes_and_files_that_it_names_are_there() -> None:
    """Where a key of a rule is added."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "rules").glob("*.py"))
    for name in re.findall(r"`(\w+(?:Document|Data))`", PAGE):
        assert f"class {name}(" in source, name
    for path in re.findall(r"`((?:rules|webhook|tests|docs)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists() or (ROOT / f"{path}.py").exists(), path
