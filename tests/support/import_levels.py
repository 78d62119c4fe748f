"""Import levels and cycles of a folder of packages: `python -m tests.support.import_levels rules`.

A level is a step of the longest chain of imports, imports under TYPE_CHECKING included. Units are the
packages directly below the folder, or with `--modules` single modules.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Graph = Mapping[str, set[str]]


def imports_of(folder: Path, *, modules: bool) -> Graph:
    """Return for each unit of a folder the other units that it imports."""
    graph: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        name = _module(folder, path)
        if name == folder.name:  # the public face imports what it exports
            continue
        unit = _unit(name, modules=modules)
        imported_units = {_unit(module, modules=modules) for module in _imported(folder, path)}
        graph.setdefault(unit, set()).update(imported_units - {unit, folder.name})
    return graph


def levels(graph: Graph) -> int:
    """Return the number of levels. Raises CycleError."""
    depth: dict[str, int] = {}
    for unit in TopologicalSorter(graph).static_order():
        depth[unit] = 1 + max((depth[below] for below in graph.get(unit, ())), default=0)
    return max(depth.values(), default=0)


def _module(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _unit(name: str, *, modules: bool) -> str:
    return name if modules else ".".join(name.split(".")[:2])


def _imported(folder: Path, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == folder.name:
            for alias in node.names:
                inner = folder.parent.joinpath(*node.module.split("."), alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else node.module


if __name__ == "__main__":
    for word in ("packages", "modules"):
        found = imports_of(Path(sys.argv[1]).resolve(), modules=word == "modules")
        try:
            print(f"{word}: {len(found)}, levels: {levels(found)}, cycles: 0")
        except CycleError as error:
            print(f"{word}: {len(found)}, cycle: {' -> '.join(error.args[1])}")
