"""Differences of facts in words: of rows by what they are about, and of other lists by number."""

from __future__ import annotations

from typing import Any

import pytest

from rules.cuda.tables import built_in_tables
from webhook.cli.facts.differences import _NOUNS, differences

BRANCH = {"branch": 610, "cuda": "13.3", "source": "a", "status": "verified"}
LTS = {"branch": 620, "cuda": "13.5", "kind": "lts", "end": "2029-09", "source": "a", "status": "verified"}
GPU = {"product": "T4", "label": "T4", "compute": "7.5"}


def text(old: Any, new: Any) -> list[str]:
    """Return the differences in English, each with its kind."""
    return [
        f"{difference.table} {difference.change}: {difference.text.en}"
        for difference in differences(old, new)
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": [BRANCH]}, {"a": [BRANCH]}, []),
        (
            {"drivers": {"branches": [BRANCH]}},
            {"drivers": {"branches": [BRANCH, LTS]}},
            ["drivers.branches added: branch 620 added: CUDA 13.5, LTS to 2029-09"],
        ),
        (
            {"drivers": {"branches": [BRANCH, LTS]}},
            {"drivers": {"branches": [BRANCH]}},
            ["drivers.branches removed: branch 620 removed"],
        ),
        (
            {"drivers": {"branches": [BRANCH]}},
            {"drivers": {"branches": [BRANCH | {"cuda": "13.4", "kind": "production"}]}},
            ["drivers.branches changed: branch 610: cuda 13.3 → 13.4, kind - → production"],
        ),
        ({}, {"toolkit_wheels": [{"cuda": "13.5"}]}, ["toolkit_wheels added: CUDA 13.5 added"]),
        (
            {"gpus": [GPU, GPU]},
            {"gpus": [GPU, GPU | {"compute": "8.0"}]},
            ["gpus changed: GPU T4: compute 7.5 → 8.0"],
        ),
        (
            {"cloud_gpus": {"values": {"aws": [{"v": 1}, {"v": 2}]}}},
            {"cloud_gpus": {"values": {"aws": [{"v": 2}, {"v": 3}, {"v": 4}], "gke": [{"v": 1}]}}},
            [
                "cloud_gpus.values.aws changed: cloud_gpus.values.aws: 2 rows added, 1 removed",
                "cloud_gpus.values.gke changed: cloud_gpus.values.gke: 1 rows added, 0 removed",
            ],
        ),
        (
            {"failures": [{"name": "a"}, {"name": "b"}]},
            {"failures": [{"name": "b"}, {"name": "a"}]},
            ["failures changed: failures: another order"],
        ),
        (
            {"sources": {"a": "x", "b": "y"}},
            {"sources": {"b": "z", "c": "w"}},
            [
                "sources removed: sources.a removed",
                "sources.b changed: sources.b: y → z",
                "sources added: sources.c added",
            ],
        ),
    ],
)
def test_differences_are_said_in_words(old: Any, new: Any, expected: list[str]) -> None:
    assert expected == text(old, new)


def test_the_columns_that_name_a_row_are_columns_of_its_table() -> None:
    tables = built_in_tables()

    for place, noun in _NOUNS.items():
        value = tables
        for name in place.split("."):
            value = value[name]
        assert all(name in row for row in value for name in noun.keys), place
