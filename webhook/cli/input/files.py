"""What commands read: rule files, the shipped catalogue, objects."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from rules import Inventory, InventoryError, Loaded, Workloads, load_rules
from rules.model.workload_kinds import built_in_workloads
from rules.schema.workload_kinds import read_workloads
from rules.text.yaml_document import Document, SourceError, read
from webhook.cli.output.console import BadInputError, told

if TYPE_CHECKING:
    from webhook.cluster.client import Cluster

T = TypeVar("T")

BAD_INPUT: Final = 2
NO_RULES: Final = "no rules in it; a rule is a ConfigMap named cf-crl-*, or labelled gpugate.dev/type"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
# Unit tests of the rules beside them: no rules and no manifests.
_TESTS: Final = (".test.yaml", ".test.yml")
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")


def catalog_path() -> Path:
    """Return the folder of the rules that ship, from here where that is shorter."""
    path = Path(str(files("rules"))) / "catalog"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@dataclass(frozen=True, slots=True)
class RuleSource:
    """Where a command takes its rules from: paths, a cluster, or what ships."""

    namespace: str
    kubeconfig: str | None = None
    context: str | None = None

    @property
    def of_cluster(self) -> bool:
        """Whether the options name a cluster."""
        return bool(self.kubeconfig or self.context)

    def ask(self, question: Callable[[Cluster], T]) -> T:
        """Return what the cluster answers. Raises BadInputError."""
        return of_cluster(self.kubeconfig, self.context, question)

    def load(self, paths: Iterable[str]) -> Loaded:
        """Return the rules in files and folders; without any, those of the cluster, or those that ship.

        Raises BadInputError for what cannot be read, and for paths in which there is no rule.
        """
        chosen = list(paths)
        loaded = load_rules(self.texts(chosen), self.namespace)
        if chosen and not loaded.errors and not any(loaded.rules):
            raise BadInputError(f"{', '.join(chosen)}: {NO_RULES}")
        return loaded

    def texts(self, paths: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Return the (name, text) pairs that `load` reads. Raises BadInputError while they are read."""
        chosen = list(paths)
        if not chosen and self.of_cluster:
            return self.ask(lambda cluster: cluster.rules(self.namespace))
        chosen = chosen or [str(catalog_path())]
        return (found for path in chosen for found in read_path(path, lenient=True))


def load_inventory(
    paths: Iterable[str], kubeconfig: str | None = None, context: str | None = None
) -> Inventory:
    """Return the nodes in files; without any, those of the cluster, or none.

    Raises BadInputError for what cannot be read or is no node.
    """
    chosen = list(paths)
    if not chosen and (kubeconfig or context):
        return Inventory.of(of_cluster(kubeconfig, context, lambda cluster: cluster.nodes()))
    documents = [document for path in chosen for document in _documents(path)]
    try:
        return Inventory.of([document.value for document in documents])
    except InventoryError:
        for document in documents:
            _check_nodes(document)
        raise


def _documents(path: str) -> Iterator[Document]:
    """Yield the documents of files that hold one each at least. Raises BadInputError."""
    for name, text in read_path(path):
        empty = True
        for document in read(text, name):
            if isinstance(document, SourceError):
                raise BadInputError(str(document))
            if document.value is not None:
                empty = False
                yield document
        if empty:
            raise BadInputError(f"{name}: no nodes in this file")


def _check_nodes(document: Document) -> None:
    """Raise BadInputError where a document holds no nodes, with its place in the file."""
    try:
        Inventory.of(document.value)
    except InventoryError as error:
        why = f"{document.locate()}: {error}; `kubectl get nodes -o yaml` writes one"
        raise BadInputError(why) from None


def of_cluster(kubeconfig: str | None, context: str | None, ask: Callable[[Cluster], T]) -> T:
    """Return what a cluster answers. Raises BadInputError."""
    # Imported here: the client takes a fifth of a second, and most commands need no cluster.
    from webhook.cluster.client import Cluster, ClusterError  # noqa: PLC0415

    try:
        return ask(Cluster(kubeconfig, context))
    except ClusterError as error:
        raise BadInputError(str(error)) from None


def load_workloads(paths: Iterable[str]) -> Workloads:
    """Return the kinds that ship and those in files. Raises BadInputError, with every mistake in them."""
    found, errors = read_workloads(pair for path in paths for pair in read_path(path))
    if errors:
        raise BadInputError("\n".join(map(str, errors)))
    return built_in_workloads() | found


def read_path(path: str, *, tests: bool = False, lenient: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of a file, of each YAML and JSON file below a folder, or of stdin for `-`.

    tests: of a folder take the tests of rules (`*.test.yaml`), which are left out otherwise. lenient: bytes
    that are not UTF-8 become lone surrogates, which the YAML reader refuses with their place, so that one
    file does not hide the others. Raises BadInputError for what cannot be read.
    """
    if not path:
        raise BadInputError("the name of a file or folder is empty; is a variable not set?")
    if path == "-":
        if sys.stdin is None:
            raise BadInputError("stdin is closed")
        yield "stdin", _decode(sys.stdin.buffer.read(), "stdin", lenient=lenient)
        return
    root = Path(path)
    if os.path.isdir(path):  # noqa: PTH112 - a name that is too long is that of no folder
        names = [
            file
            for file in sorted(_files(root))
            if file.suffix in _SUFFIXES
            and file.name not in _KUSTOMIZATIONS
            and file.name.endswith(_TESTS) is tests
            and file.is_file()
        ]
        if not names:
            what = "no *.test.yaml file in this folder; write one: gpugate test --help" if tests else ""
            raise BadInputError(f"{path}: {what or 'no YAML or JSON file in this folder'}")
    else:
        names = [root]
    for file in names:
        yield str(file), _decode(read_file(file), str(file), lenient=lenient)


def _files(root: Path) -> Iterator[Path]:
    """Yield what is below a folder but for names that start with a dot, as `..data` of a mounted ConfigMap.

    Raises BadInputError for a folder that cannot be listed.
    """

    def refuse(error: OSError) -> NoReturn:
        raise BadInputError(told(error))

    for folder, below, names in os.walk(root, onerror=refuse):
        below[:] = (name for name in below if not name.startswith("."))
        yield from (Path(folder, name) for name in names if not name.startswith("."))


def read_file(file: Path) -> bytes:
    """Return what is in a file. Raises BadInputError, which names it."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadInputError(f"{file}: {error.strerror or error}") from None


def _decode(content: bytes, name: str, *, lenient: bool) -> str:
    try:
        return content.decode("utf-8-sig", "surrogateescape" if lenient else "strict")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{name}:{line}: not UTF-8; save the file as UTF-8") from None
