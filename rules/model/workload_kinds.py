"""Kinds of objects that hold pods, and where their pod templates are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rules.cuda.tables import read_table
from rules.kube.json_patch import ObjectError
from rules.text.paths import Path

# In a path: every member of an object or list.
EVERY: Final = "*"
Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Workloads:
    """The paths of the pod templates in each kind. Immutable.

    paths: by API group, empty for the core, and kind: the steps to each pod template, or pod spec.
    """

    paths: Mapping[tuple[str, str], tuple[Steps, ...]]

    def __or__(self, other: Workloads) -> Workloads:
        """Return the kinds of both; of a kind in both, all paths."""
        kinds = self.paths.keys() | other.paths.keys()
        return Workloads(
            {
                kind: tuple(dict.fromkeys((*self.paths.get(kind, ()), *other.paths.get(kind, ()))))
                for kind in sorted(kinds)
            }
        )

    def holds_pods(self, group: str, kind: str) -> bool:
        """Return whether objects of a kind are or hold pods; group is empty for the core API."""
        return (group, kind) in self.paths

    def templates_of(self, group: str, kind: str, document: Mapping[str, Any]) -> dict[Path, Any]:
        """Return the pod, or each pod template, of an object by its path; none for a kind that holds no pods.

        Raises ObjectError where the object is not shaped as its kind is.
        """
        return {
            path: raw for steps in self.paths.get((group, kind), ()) for path, raw in _find(document, steps)
        }


def _find(node: Any, steps: Steps, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each place that the steps lead to; null and absent members lead nowhere."""
    if not steps:
        yield path, node
        return
    step, rest = steps[0], steps[1:]
    if step == EVERY and isinstance(node, list):
        for index, item in enumerate(node):
            if item is not None:
                yield from _find(item, rest, (*path, index))
        return
    if not isinstance(node, dict):
        raise ObjectError(path, "an object", node)
    for name in node if step == EVERY else (step,):
        if node.get(name) is not None:
            yield from _find(node[name], rest, (*path, name))


@cache
def built_in_workloads() -> Workloads:
    """Return the built-in kinds. Source: `data/workloads.yaml`."""
    table = read_table("workloads")
    return Workloads(
        {
            (group, kind): tuple(tuple(path.split(".")) if path else () for path in paths)
            for group, kinds in table.items()
            for kind, paths in kinds.items()
        }
    )
