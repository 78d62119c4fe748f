"""The nodes that a command reads: of files, or of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rules import Facts, Inventory, InventoryError, inventory_of
from rules.cuda.tables import BUILT_IN
from rules.text.i18n import Message
from rules.text.yaml_document import Document, SourceError, read
from webhook.cli.inputs.cluster_source import NO_CLUSTER, ClusterSource
from webhook.cli.inputs.files import read_path
from webhook.cli.terminal.console import BadInputError, progress
from webhook.cli.terminal.vocabulary import READING_NODES

# kubectl refuses a list of kinds if the cluster lacks one of them.
_VALID_LIST: Final = Message(
    "{place}: {error}; "
    "`kubectl get nodes -o yaml` prints a valid list; "
    "`kubectl get nodes,nodepools -o yaml` adds the NodePools of Karpenter"
)
# Files of nodes that a message names.
_MOST_NAMES: Final = 2


def read_nodes(
    paths: Sequence[str], cluster: ClusterSource = NO_CLUSTER, facts: Facts = BUILT_IN
) -> tuple[Inventory, list[Any]]:
    """Return the inventory in files, or of the cluster if there are no paths, and the objects it is made of.

    facts: what is known of GPUs and drivers. Raises BadInputError if a file cannot be read or an object does
    not belong to an inventory.
    """
    if not (paths or cluster.selected):
        return Inventory().with_facts(facts), []
    with progress(READING_NODES):
        if not paths:
            objects: list[Any] = list(cluster.query(lambda api: api.inventory()))
            return inventory_of(objects, facts), objects
        nodes = {path: _preset(path, facts) for path in paths}
        documents = [document for path in paths for document in _node_documents(path, nodes[path])]
        objects = [document.value for document in documents]
        try:
            names = [path.rstrip("/").rpartition("/")[2] for path in paths[:_MOST_NAMES]]
            rest = ["…"] if len(paths) > _MOST_NAMES else []
            presets = tuple(path for path, node in nodes.items() if node)
            return inventory_of(objects, facts).from_files(", ".join([*names, *rest]), presets), objects
        except InventoryError:
            for document in documents:
                _check_nodes(document)
            raise


def _preset(path: str, facts: Facts) -> dict[str, Any] | None:
    """Return the node of a preset, or None if it is the path of a file. Raises BadInputError."""
    if not path or "/" in path or path == "-" or Path(path).exists():
        return None
    from webhook.cli.inputs.node_presets import preset_node

    return preset_node(path, facts)


def _node_documents(path: str, preset: dict[str, Any] | None) -> Iterator[Document]:
    """Yield the documents of files, or of a preset.

    Raises BadInputError, also for a file without documents.
    """
    texts = iter([(path, json.dumps(preset))]) if preset else read_path(path)
    for name, text in texts:
        empty = True
        for document in read(text, name):
            if isinstance(document, SourceError):
                raise BadInputError(document.text)
            if document.value is not None:
                empty = False
                yield document
        if empty:
            raise BadInputError(Message("{name}: no nodes in this file", name=name))


def _check_nodes(document: Document) -> None:
    """Raise BadInputError, with the position in the file, unless a document is an inventory."""
    try:
        inventory_of(document.value)
    except InventoryError as error:
        problem = _VALID_LIST.having(place=document.locate(), error=error.text)
        raise BadInputError(problem) from None
