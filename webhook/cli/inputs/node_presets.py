"""Nodes that a name stands for: a GPU (`t4`) or a machine type of a cloud (`gke:g2-standard-8`), by facts.

The driver is unknown, unless `@VERSION` follows. The number of GPUs of a machine is no fact: it has enough.
"""

from __future__ import annotations

import re
from typing import Any, Final

from rules import Facts
from rules.cuda.tables import gpu_model
from rules.nodes.cloud_labels import has_no_gpu, product_of_label
from rules.nodes.label_families import LabelNames
from rules.schema.errors import suggested
from rules.text.i18n import Joined, Message, located
from webhook.cli.inputs.node_changes import ChangeError, labels_with, parse_driver
from webhook.cli.terminal.console import BadInputError, print_note

_CLOUDS: Final = ("gke", "eks", "aks")
_TYPE: Final = "node.kubernetes.io/instance-type"
_PRODUCT: Final = "nvidia.com/gpu.product"
_PREFIXES: Final = ("NVIDIA-", "Tesla-")
# More than any pod requests.
_GPUS: Final = "1000000"
_SEGMENT: Final = "datacenter"  # of the GPUs that an error lists; the others are many
_NO_DRIVER: Final = Message(
    "{name} is a node by facts; its driver is unknown ({name}@570 states one), its number of GPUs is not "
    "checked"
)
_NO_PRESET: Final = Message(
    "{name}: no file or GPU has this name{hint} (known: {known}; machine types such as gke:g2-standard-8, "
    "eks:p4d.24xlarge)"
)
_UNKNOWN_MACHINE: Final = Message("{name}: no GPU of this machine type is known; name its GPU, such as l4")
_WITH_DRIVER: Final = Message("{name} is a node by facts; its number of GPUs is not checked")


def preset_node(text: str, facts: Facts) -> dict[str, Any] | None:
    """Return the node of a preset; None for another text. Prints a note on what is unknown of it.

    Raises BadInputError for a machine type without a known GPU of NVIDIA, for an unknown driver, and for a
    name without a dot that is no GPU.
    """
    name, has_driver, driver = text.partition("@")
    if (labels := _labels(name, facts)) is None:
        if "." in text:  # a file
            return None
        known = _names(facts)
        hint = suggested(name.lower(), known)
        raise BadInputError(_NO_PRESET.having(name=text, hint=hint, known=Joined(", ", known)))
    if has_driver:
        try:
            labels = labels_with(labels, parse_driver(driver, facts), [LabelNames()], add=True)
        except ChangeError as error:
            raise BadInputError(located(text, error.text)) from None
    print_note((_WITH_DRIVER if has_driver else _NO_DRIVER).having(name=text))
    metadata = {"name": re.sub("[:_@]", "-", text).lower(), "labels": labels}
    status = {"allocatable": {"nvidia.com/gpu": _GPUS}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def _names(facts: Facts) -> list[str]:
    """Return the names of the GPUs of data centres, as they are written here."""
    products = {row["product"].lower() for row in facts.table("gpus") if row["segment"] == _SEGMENT}
    return sorted(name for name in products if _labels(name, facts))


def _labels(name: str, facts: Facts) -> dict[str, str] | None:
    cloud, colon, machine = name.partition(":")
    if colon and cloud in _CLOUDS:
        if has_no_gpu(facts, _TYPE, machine):
            raise BadInputError(Message("{name}: this machine type has no GPU of NVIDIA", name=name))
        if product_of_label(facts, _TYPE, machine) is None:
            raise BadInputError(_UNKNOWN_MACHINE.having(name=name))
        return {_TYPE: machine}
    products = (f"{prefix}{name.upper()}" for prefix in _PREFIXES)
    product = next((product for product in products if gpu_model(facts, product)), None)
    return {_PRODUCT: product} if product else None
