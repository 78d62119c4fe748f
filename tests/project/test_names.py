"""Names of product code say what a value is, in the field's standard terms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# Words that fit any value.
VAGUE_NAMES = {"found", "each", "asked", "said"}
FOLDERS = ["certs", "rules", "webhook"]


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names of variables, arguments, attributes and functions, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.keyword(arg=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


def vague_names(file: Path) -> list[str]:
    """Return the vague names in a file, with their places."""
    place = file.relative_to(ROOT).as_posix()
    tree = ast.parse(file.read_text("utf-8"))
    return [f"{place}:{line}: {name}" for name, line in names(tree) if name in VAGUE_NAMES]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_is_vague(folder: str) -> None:
    """A comprehension over nodes has a `node`, the result of a search a `match`."""
    assert [] == [name for file in sorted((ROOT / folder).rglob("*.py")) for name in vague_names(file)]


def test_no_name_of_the_page_s_scripts_is_vague() -> None:
    """Their comments are lines of their own."""
    vague = re.compile(rf"\b(?:{'|'.join(VAGUE_NAMES)})\b")
    lines = [
        f"{file.name}:{number}: {line.strip()}"
        for file in sorted((ROOT / "webhook/cli/ui/static").glob("*.js"))
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1)
    ]
    assert len(lines) > 100
    assert [] == [line for line in lines if vague.search(line.partition("//")[0])]
