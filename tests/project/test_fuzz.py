"""Every fuzz target keeps its promise on its seeds and on what once broke it; `make fuzz` looks for more."""

from __future__ import annotations

import importlib

import pytest

from tests.fuzz.targets import TARGETS, kept


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_keeps_its_promise_on_seeds_and_past_finds(name: str) -> None:
    """The promise is the docstring of its `check`."""
    target = importlib.import_module(f"tests.fuzz.{name}")
    inputs = [*target.seeds(), *kept(name)]

    assert inputs
    for data in inputs:
        target.check(data)
