"""The stored form of the tables has the values of the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rules.cuda import tables
from rules.cuda.tables import STORED, read_table
from tests.support.stored_forms import stored_tables


def test_it_is_made_of_the_tables_as_they_are(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--update-golden` makes it anew."""
    monkeypatch.setattr(tables, "STORED", tmp_path / "empty")
    (tmp_path / "empty").touch()
    text = stored_tables()
    if request.config.getoption("--update-golden"):
        STORED.write_text(text, "utf-8")

    assert text == STORED.read_text("utf-8")


@pytest.mark.parametrize("name", sorted(json.loads(STORED.read_text("utf-8"))))
def test_a_table_is_read_from_it_with_the_values_of_its_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON can write all of them."""
    stored = read_table(name)
    monkeypatch.setattr(tables, "STORED", tmp_path / "empty")
    (tmp_path / "empty").touch()

    assert read_table(name) == stored
