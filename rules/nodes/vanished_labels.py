"""Labels of a GPU that vanish from a node while it is repaired or partitioned anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rules.nodes.label_families import LabelNames

_NAMES = LabelNames()
_CUDA, _DRIVER, _COMPUTE = (
    frozenset(key for family in families for key in family.keys)
    for families in (_NAMES.cuda, _NAMES.driver, _NAMES.compute_capability)
)
# The labels of each fact, of which a node with GPUs has at least one.
_FACTS: tuple[frozenset[str], ...] = (
    _CUDA,
    _DRIVER,
    _COMPUTE,
    frozenset(_NAMES.product),
    frozenset(_NAMES.memory),
)


def tell_driver(keys: Iterable[str]) -> bool:
    """Return whether one of these labels reports the driver, or its CUDA version."""
    return not (_CUDA | _DRIVER).isdisjoint(keys)


def vanished(before: Mapping[str, str], after: Iterable[str]) -> dict[str, str]:
    """Return the labels of each fact that a node reported before, and reports by no label after.

    before: its labels. after: the keys of its labels.
    """
    present = set(after)
    lost = (keys for keys in _FACTS if present.isdisjoint(keys))
    return {key: before[key] for keys in lost for key in sorted(keys & before.keys())}
