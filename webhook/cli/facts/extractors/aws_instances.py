"""GPUs of AWS' instance families, from the list of instance types in Karpenter's documentation.

The list is made from the answers of AWS: for each type a heading of level 3 and a table of labels, with
`instance-family`, and of GPUs `instance-gpu-name`, `-count` and `-memory` in MiB. A share of a GPU has the
count 0. The product of a GPU's name is by hand, in cloud_gpus.yaml; of several, the memory decides.
"""

from __future__ import annotations

import re
from typing import Final

from rules.cuda.tables import BUILT_IN, gpu_model
from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.github import address, last_commit

_REPOSITORY: Final = "aws/karpenter-provider-aws"
_PATH: Final = "website/content/en/preview/reference/instance-types.md"
_LABEL: Final = re.compile(
    r"^ *\|karpenter\.k8s\.aws/instance-(family|gpu-name|gpu-count|gpu-memory)\|([^|\n]+)\|", re.MULTILINE
)


def find(get: Get) -> list[Document]:
    """Return the list at the last commit that changed it. It is read each time: the names by hand change."""
    commit = last_commit(get, _REPOSITORY, _PATH)
    return [Document("instance-types.md", address(_REPOSITORY, commit, _PATH))]


def rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each family with known GPUs; several products if its types differ."""
    del name
    families: dict[str, Row] = {}
    for labels in _types_with_gpus(data):
        if (products := _products(labels)) is None:
            continue
        value = re.escape(labels["family"]).replace(r"\-", "-")
        row = families.setdefault(value, {"value": value, "product": ""})
        row["product"] = " ".join(dict.fromkeys((*row["product"].split(), *products)))
        if labels["gpu-count"] == "0":
            row["vgpu"] = True
    return list(families.values())


def unknown(data: bytes) -> list[str]:
    """Return the names of GPUs without a product."""
    names = (labels["gpu-name"] for labels in _types_with_gpus(data) if _products(labels) is None)
    return [*dict.fromkeys(names)]


def _types_with_gpus(data: bytes) -> list[dict[str, str]]:
    """Return the labels of each instance type with GPUs, without their prefix. Raises ValueError for none."""
    tables = [dict(_LABEL.findall(part)) for part in data.decode("utf-8").split("\n### ")]
    with_gpus = [labels for labels in tables if "gpu-name" in labels]
    if not with_gpus:
        raise ValueError("no instance types with GPUs")
    return with_gpus


def _products(labels: dict[str, str]) -> list[str] | None:
    """Return the products of an instance type: none if its GPU is not of NVIDIA; None if it is unknown."""
    names = {row["value"]: row["product"].split() for row in BUILT_IN.table("cloud_gpus")["values"]["aws"]}
    products: list[str] | None = names.get(labels["gpu-name"])
    memory = int(labels["gpu-memory"])
    models = [(product, gpu_model(BUILT_IN, product)) for product in products or ()]
    exact = [product for product, model in models if model and model.memory_mib == memory]
    return exact or products
