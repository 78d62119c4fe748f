"""Input files of commands: rules, the built-in catalog, nodes, workload kinds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, Final, NoReturn

import rules
from rules import (
    DEFAULT_NAMESPACE,
    Inventory,
    InventoryError,
    Language,
    Loaded,
    RuleSet,
    Workloads,
    inventory_of,
)
from rules.model.workload_kinds import built_in_workloads
from rules.schema.config_map import Source
from rules.schema.errors import did_you_mean
from rules.schema.workload_kinds import read_workloads
from rules.text.i18n import Text
from rules.text.printable import printable
from rules.text.yaml_document import Document, SourceError, read
from webhook.cli.inputs.cluster_source import NO_CLUSTER, ClusterSource
from webhook.cli.terminal.console import BadInputError, lines, os_error_text, print_warning, progress
from webhook.cli.terminal.vocabulary import (
    BUILT_IN_INSTEAD,
    LAST_VALID_KEPT,
    LAST_VALID_USED,
    NO_CLUSTER_RULES,
    READING_NODES,
    RULES_ELSEWHERE,
)

# A manifest is far smaller; the API server accepts 3 MiB of an object.
_MAX_BYTES: Final = 16 * 1024 * 1024
_CHUNK: Final = 64 * 1024
# Seconds: of one step without data, and of the whole transfer.
_STEP_S: Final = 10.0
_WHOLE_S: Final = 60.0


def is_url(path: str) -> bool:
    """Return whether a path is an http or https address."""
    return path.startswith(("http://", "https://"))


def read_url(url: str) -> bytes:
    """Return the content at an address, by the proxy of the environment. Raises BadInputError."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    end = monotonic() + _WHOLE_S
    content = bytearray()
    try:
        with urlopen(url, timeout=_STEP_S) as answer:  # noqa: S310 - is_url
            while chunk := answer.read1(_CHUNK):
                content += chunk
                if len(content) > _MAX_BYTES:
                    raise _unreadable(url, f"more than {_MAX_BYTES // 1024 // 1024} MiB")
                if monotonic() > end:
                    raise _unreadable(url, f"no end after {_WHOLE_S:.0f} seconds")
    except HTTPError as error:
        raise _unreadable(url, f"server reported {error.code} {error.reason}") from None
    except OSError as error:
        from webhook.cluster.connection_errors import network_error_text

        raise _unreadable(url, network_error_text(error, url)) from None
    except (HTTPException, ValueError) as error:
        raise _unreadable(url, str(error)) from None
    return bytes(content)


def _unreadable(url: str, why: str) -> BadInputError:
    return BadInputError(f'unable to read URL "{url}": {why}')


BAD_INPUT: Final = 2
NO_RULES: Final = Text(
    "no rules found; a rule is a ConfigMap named cf-crl-* or labelled gpugate.dev/type",
    "未找到规则；规则是名为 cf-crl-* 或带有标签 gpugate.dev/type 的 ConfigMap",
)
# kubectl refuses a list of kinds if the cluster lacks one of them.
_VALID_LIST: Final = (
    "`kubectl get nodes -o yaml` prints a valid list; "
    "`kubectl get nodes,nodepools -o yaml` adds the NodePools of Karpenter"
)
# Names the built-in rules where a rule file or folder is expected; a folder of this name is `./builtin`.
BUILT_IN: Final = "builtin"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
# Unit tests of the rules in the same folder: neither rules nor manifests.
_TESTS: Final = (".test.yaml", ".test.yml")
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
# Names in a folder with which that of a missing file is compared.
_COMPARED: Final = 1_000
# Files of nodes that a message names.
_MOST_NAMES: Final = 2


def catalog_path() -> Path:
    """Return the folder of the built-in rules, relative to the working directory if it is below that."""
    path = Path(rules.__path__[0]) / "catalog"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def rule_folder(path: str) -> str:
    """Return the path of rules: of the built-in ones for their name."""
    return str(catalog_path()) if path == BUILT_IN else path


def is_built_in(path: str) -> bool:
    """Return whether a path of rules is that of the built-in ones."""
    return Path(rule_folder(path)).resolve() == catalog_path().resolve()


@dataclass(frozen=True, slots=True)
class RuleSource:
    """Source of a command's rules: paths, a cluster, or the built-in catalog."""

    namespace: str = DEFAULT_NAMESPACE
    cluster: ClusterSource = NO_CLUSTER

    def load(self, paths: Iterable[str]) -> Loaded:
        """Return the rules in files and folders; without paths, those of the cluster or the built-in rules.

        Raises BadInputError if a path cannot be read or the paths contain no rule.
        """
        chosen = list(paths)
        if (built_in := self._built_in(chosen)) is not None:
            return Loaded(built_in)
        from rules import load_rules

        loaded = load_rules(self.sources(chosen), self.namespace)
        if chosen and not loaded.errors and not any(loaded.rules):
            raise BadInputError(f"{', '.join(chosen)}: {NO_RULES.en}")
        return loaded

    def _built_in(self, chosen: Sequence[str]) -> RuleSet | None:
        """Return the built-in rules from their stored form, if they alone are chosen and it is up to date."""
        if not (chosen or not self.cluster.selected) or not all(map(is_built_in, chosen)):
            return None
        from rules.schema.built_in import built_in_rules

        folder = str(catalog_path())
        return built_in_rules(read_path(folder), folder)

    def load_in_force(self, paths: Iterable[str], language: Language) -> Loaded:
        """Return the rules that objects are evaluated with.

        They are those that `load` returns, and if the cluster has no rule that decides, the built-in rules,
        too; a warning says so. Raises BadInputError.
        """
        chosen = list(paths)
        loaded = self.load(chosen)
        found = loaded.rules
        if chosen or not self.cluster.selected:
            return loaded
        if loaded.errors:
            return self._with_last_valid(loaded, language)
        if found.resources or found.injections or found.compatibility:
            return loaded
        print_warning(BUILT_IN_INSTEAD.in_language(language).format(why=self.no_rules(language)), language)
        from rules import load_rules

        return load_rules([*self.sources([]), *self.sources([BUILT_IN])], self.namespace)

    def _with_last_valid(self, loaded: Loaded, language: Language) -> Loaded:
        """Return the rules with the last valid version of those with an error, which the webhook keeps."""
        sources = dict(self.sources([]))
        invalid = {error.location.file for error in loaded.errors} & sources.keys()
        try:
            saved = self.cluster.query(lambda cluster: cluster.rules_in_force())
        except BadInputError:  # the rules were read, so this is no reason to fail
            saved = {}
        kept = {name: saved[rule] for name in invalid if (rule := name.rpartition("/")[2]) in saved}
        for words, names in ((LAST_VALID_USED, kept.keys()), (LAST_VALID_KEPT, invalid - kept.keys())):
            if names:
                rules = ", ".join(sorted(name.rpartition("/")[2] for name in names))
                print_warning(words.in_language(language).format(rules=rules), language)
        from rules import load_rules

        rules_in_force = load_rules((sources | kept).items(), self.namespace).rules
        return replace(loaded, rules=rules_in_force)

    def no_rules(self, language: Language) -> str:
        """Return that the cluster has no rules in the namespace, and which namespaces have some."""
        try:
            elsewhere = self.cluster.query(lambda cluster: cluster.rule_namespaces())
        except BadInputError:  # the rules were read, so this is no reason to fail
            elsewhere = []
        text = NO_CLUSTER_RULES.in_language(language).format(namespace=self.namespace)
        if others := [each for each in elsewhere if each != self.namespace]:
            text += RULES_ELSEWHERE.in_language(language).format(namespaces=", ".join(others))
        return text

    def sources(self, paths: Iterable[str]) -> Iterable[Source]:
        """Return the files or objects that `load` reads. Iteration raises BadInputError."""
        chosen = list(paths)
        if not chosen and self.cluster.selected:
            return self.cluster.query(lambda cluster: cluster.rules(self.namespace))
        folders, built_in = dict.fromkeys(map(rule_folder, chosen or [BUILT_IN])), str(catalog_path())
        return (
            (name, self._placed(text) if path == built_in else text)
            for path in folders
            for name, text in read_path(path, lenient=True)
        )

    def _placed(self, text: str) -> str:
        """Return built-in rules in the namespace of these rules, as a kustomization sets it."""
        return text.replace(f"  namespace: {DEFAULT_NAMESPACE}\n", f"  namespace: {self.namespace}\n")


def load_inventory(paths: Iterable[str], cluster: ClusterSource = NO_CLUSTER) -> Inventory:
    """Return the nodes and declared pools in files; without paths, those of the cluster, or none.

    Raises BadInputError if a file cannot be read or an object does not belong to an inventory.
    """
    return read_inventory(paths, cluster)[0]


def read_inventory(paths: Iterable[str], cluster: ClusterSource = NO_CLUSTER) -> tuple[Inventory, list[Any]]:
    """Return what `load_inventory` does, and the objects that it is made of. Raises like it."""
    chosen = list(paths)
    if not (chosen or cluster.selected):
        return Inventory(), []
    with progress(READING_NODES):
        return _inventory(chosen, cluster)


def _inventory(chosen: Sequence[str], cluster: ClusterSource) -> tuple[Inventory, list[Any]]:
    """Return the nodes in files, or those of the cluster without files; raises like `load_inventory`."""
    if not chosen:
        objects: list[Any] = list(cluster.query(lambda found: found.inventory()))
        return inventory_of(objects), objects
    documents = [document for path in chosen for document in _documents(path)]
    objects = [document.value for document in documents]
    try:
        names = [path.rstrip("/").rpartition("/")[2] for path in chosen[:_MOST_NAMES]]
        rest = ["…"] if len(chosen) > _MOST_NAMES else []
        return inventory_of(objects).from_files(", ".join([*names, *rest])), objects
    except InventoryError:
        for document in documents:
            _check_nodes(document)
        raise


def _documents(path: str) -> Iterator[Document]:
    """Yield the documents of files. Raises BadInputError, also for a file without documents."""
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
    """Raise BadInputError, with the position in the file, unless a document is an inventory."""
    try:
        inventory_of(document.value)
    except InventoryError as error:
        raise BadInputError(f"{document.locate()}: {error}; {_VALID_LIST}") from None


def load_workloads(paths: Iterable[str]) -> Workloads:
    """Return the built-in workload kinds and those in files. Raises BadInputError with all errors in them."""
    found, errors = read_workloads(pair for path in paths for pair in read_path(path))
    if errors:
        raise BadInputError(lines("\n".join([printable(str(error)) for error in errors])))
    return built_in_workloads() | found


def read_path(path: str, *, tests: bool = False, lenient: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of a file or URL, of each YAML and JSON file below a folder, or of stdin for `-`.

    tests: read only the rule tests (`*.test.yaml`) of a folder, which are otherwise skipped. lenient: bytes
    that are not UTF-8 become lone surrogates, which the YAML reader reports with their position, so that
    other files are still read. Raises BadInputError if a path cannot be read.
    """
    if not path:
        raise BadInputError("the name of a file or folder is empty; check that its variable is set")
    if path == "-":
        if sys.stdin is None:
            raise BadInputError("stdin is closed")
        yield "stdin", _decode(sys.stdin.buffer.read(), "stdin", lenient=lenient)
        return
    if is_url(path):
        yield path, _decode(read_url(path), path, lenient=lenient)
        return
    root = Path(path)
    if os.path.isdir(path):  # noqa: PTH112 - false for a name that is too long, without an exception
        names = [
            file
            for file in sorted(_files(root))
            if file.suffix in _SUFFIXES
            and file.name not in _KUSTOMIZATIONS
            and file.name.endswith(_TESTS) is tests
            and file.is_file()
        ]
        if not names:
            tests_missing = "no *.test.yaml file in this folder; `gpugate test --help` shows an example"
            raise BadInputError(
                f"{path}: {tests_missing if tests else 'no YAML or JSON file in this folder'}"
            )
    else:
        names = [root]
    for file in names:
        yield str(file), _decode(read_file(file), str(file), lenient=lenient)


def _files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, except names that start with a dot: `..data` of a mounted ConfigMap.

    Raises BadInputError if a folder cannot be listed.
    """

    def fail(error: OSError) -> NoReturn:
        raise BadInputError(os_error_text(error))

    for folder, below, names in os.walk(root, onerror=fail):
        below[:] = (name for name in below if not name.startswith("."))
        yield from (Path(folder, name) for name in names if not name.startswith("."))


def read_file(file: Path) -> bytes:
    """Return the content of a file. Raises BadInputError with its name."""
    try:
        return file.read_bytes()
    except OSError as error:
        fix = _where(file) if isinstance(error, FileNotFoundError) else ""
        raise BadInputError(f"{file}: {error.strerror or error}{fix}") from None


def _where(missing: Path) -> str:
    """Return a similar name in the folder of a missing file, or the folder that its path starts in."""
    try:
        names = [path.name for path in islice(missing.parent.iterdir(), _COMPARED)]
    except OSError:
        names = []
    if similar := get_close_matches(missing.name, names, n=1):
        return did_you_mean(similar[0]).en
    return "" if missing.is_absolute() else f"; the path is relative to {Path.cwd()}"


def _decode(content: bytes, name: str, *, lenient: bool) -> str:
    try:
        return content.decode("utf-8-sig", "surrogateescape" if lenient else "strict")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{name}:{line}: not UTF-8; save the file as UTF-8") from None
