"""The CPU time of large objects with each bound, and without it: `python -m tests.fuzz.bounds`.

A bound stays while an object without it takes about half a second, or more with another one. The figures are
in docs/adr/0013-one-form-for-each-thing.md.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final, NamedTuple

from rules.affinity import node_affinity
from rules.compatibility import claims
from rules.decision import size_limit
from rules.text import bounded_cache, glob
from tests.fuzz import cost
from tests.fuzz.large_cluster import inventory
from tests.fuzz.large_objects import Shape


class _Bound(NamedTuple):
    """A bound, and the shape that takes the longest without it. name: its constant, which callers read."""

    module: ModuleType
    name: str
    shape: Shape


_OF_RULES: Final = {"image": 3, "policy": 2, "group": 39, "value": 2, "require": 1, "groups": 3, "factor": 7}
_BOUNDS: Final = (
    _Bound(size_limit, "MOST_COST", {"kind": 2, "templates": 250, "containers": 1, "said": 1}),
    _Bound(size_limit, "MOST_READ", {"kind": 2, "plain": 20_000}),
    _Bound(size_limit, "MOST_NAMES", {"containers": 1, "names": 1000}),
    _Bound(
        size_limit, "MOST_EVALUATIONS", {"kind": 2, "templates": 60, "containers": 1, "vary": 1} | _OF_RULES
    ),
    _Bound(bounded_cache, "MOST_STEPS", {"containers": 100, "args": 1000, "arg": 2, "vary": 1, "env": 10}),
    _Bound(
        node_affinity,
        "MOST_PAIRS",
        {
            "containers": 3,
            "vary": 1,
            "groups": 5,
            "factor": 7,
            "key": 5,
            "operator": 5,
            "require": 3,
            "terms": 1000,
        },
    ),
    _Bound(
        claims,
        "_MOST_EVALUATIONS",
        {"containers": 33, "vary": 1, "claims": 30, "uses": 30, "cluster": 1, "claim": 1},
    ),
    _Bound(glob, "MOST_COMPARED", {"containers": 16, "vary": 1, "names": 110, "glob": 4}),
)


@contextmanager
def _without(bound: _Bound) -> Iterator[None]:
    before, init = getattr(bound.module, bound.name), bounded_cache.Budget.__init__
    defaults = init.__defaults__
    setattr(bound.module, bound.name, sys.maxsize)
    if bound.module is bounded_cache and defaults:  # the constant is a default
        init.__defaults__ = (sys.maxsize, *defaults[1:])
    try:
        yield
    finally:
        setattr(bound.module, bound.name, before)
        init.__defaults__ = defaults


def main() -> None:
    """Print the times."""
    inventory(0), inventory(1)
    gc.freeze()
    for bound in _BOUNDS:
        limited = cost.measured(bound.shape, "with")
        with _without(bound):
            free = cost.measured(bound.shape, "without")
        seconds = f"{limited.cost.total:.2f} s, without {free.cost.total:.2f} s"
        sys.stdout.write(f"{bound.module.__name__}.{bound.name}: {seconds}, {free.length:,} bytes\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
