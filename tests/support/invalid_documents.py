"""Tables of invalid documents: edits of a valid one, as hunks of a diff, each with the errors that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def invalid_documents(table: Path, valid: str = "") -> list[Any]:
    """Return the parameters (text, errors) of each edit of a valid document; a blank line is between two."""
    documents = []
    for rows in table.read_text("utf-8").split("\n\n"):
        lines = [line for line in rows.splitlines() if not line.startswith("#")]
        before, after = (
            "".join(f"{line[1:]}\n" for line in lines if line[0] in signs) for signs in (" -", " +")
        )
        errors = [line for line in lines if line[0] not in " -+"]
        assert 1 == valid.count(before), before
        changed = [line for line in lines if line[0] == "+"] or [line for line in lines if line[0] == "-"]
        name = " ".join(f"{line[0]} {line[1:].strip()}" for line in changed)
        documents.append(pytest.param(valid.replace(before, after), errors, id=name))
    return documents
