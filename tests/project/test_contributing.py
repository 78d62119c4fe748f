"""The page for those who change gpugate knows the modules that there are."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

PAGE = (ROOT / "docs/contributing.md").read_text("utf-8")


def test_every_package_of_the_decision_is_in_the_table() -> None:
    """A newcomer finds where a stage is."""
    packages = {path.parent.name for path in (ROOT / "rules").glob("*/__init__.py")}
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert packages == named


def test_the_classes_and_files_that_it_names_exist() -> None:
    """Where a key of a rule is added."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "rules").rglob("*.py"))
    for name in re.findall(r"`(\w+(?:Document|Data))`", PAGE):
        assert f"class {name}(" in source, name
    for path in re.findall(r"`((?:rules|webhook|tests|docs)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists() or (ROOT / f"{path}.py").exists(), path
