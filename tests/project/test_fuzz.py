"""Every fuzz target keeps its promise on its seeds and on what once broke it; `make fuzz` looks for more."""

from __future__ import annotations

import importlib

import pytest

from tests.fuzz.cost import is_too_large
from tests.fuzz.targets import CORPUS, TARGETS, kept


@pytest.mark.slow
@pytest.mark.timeout(600)  # the largest objects of `cost` take a minute, on a busy machine several
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_keeps_its_promise_on_seeds_and_past_finds(name: str) -> None:
    """The promise is the docstring of its `check`."""
    target = importlib.import_module(f"tests.fuzz.{name}")
    inputs = [*target.seeds(), *kept(name)]

    assert inputs
    for data in inputs:
        target.check(data)


def test_a_shape_that_is_named_for_the_size_limit_is_within_it() -> None:
    """One beyond it is denied before it costs anything."""
    shapes = {path.name: path.read_bytes() for path in (CORPUS / "cost").glob("*-within-the-limit")}

    assert shapes
    assert not [name for name, data in shapes.items() if is_too_large(data)]
