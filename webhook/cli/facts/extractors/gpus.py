"""GPUs by the names of products and instance types: one section a source, with the form of its documents."""

from __future__ import annotations

import json
import re
from typing import Final

from rules.cuda.tables import BUILT_IN, gpu_model
from rules.text.yaml_document import SourceError, read
from webhook.cli.facts.extractors.base import Document, Extractor, Get, Row
from webhook.cli.facts.extractors.github import API, address, last_commit

# GPUs of AWS' instance families, from the list of instance types in Karpenter's documentation. The list is
# made from the answers of AWS: for each type a heading of level 3 and a table of labels, with
# `instance-family`, and of GPUs `instance-gpu-name`, `-count` and `-memory` in MiB. A share of a GPU has
# the count 0. The product of a GPU's name is by hand, in cloud_gpus.yaml; of several, the memory decides.
_KARPENTER: Final = "aws/karpenter-provider-aws"
_INSTANCE_TYPES: Final = "website/content/en/preview/reference/instance-types.md"
_LABEL: Final = re.compile(
    r"^ *\|karpenter\.k8s\.aws/instance-(family|gpu-name|gpu-count|gpu-memory)\|([^|\n]+)\|", re.MULTILINE
)


def _find_instances(get: Get) -> list[Document]:
    """Return the list at the last commit that changed it. It is read each time: the names by hand change."""
    commit = last_commit(get, _KARPENTER, _INSTANCE_TYPES)
    return [Document("instance-types.md", address(_KARPENTER, commit, _INSTANCE_TYPES))]


def _instance_rows(name: str, data: bytes) -> list[Row]:
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


def _unknown_gpus(data: bytes) -> list[str]:
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


# GPUs of NVIDIA's mock of NVML: one YAML file a model, with the values that NVML returns for it.
# `device_defaults` of a file has `name`, `architecture` and `compute_capability`. See
# https://github.com/NVIDIA/k8s-test-infra/tree/main/deployments/nvml-mock. Rows are unverified, since not
# all values are those of a real GPU: the GB300 of the mock has compute capability 10.0, a real one 10.3.
_MOCK: Final = "NVIDIA/k8s-test-infra"
_PROFILES: Final = "deployments/nvml-mock/helm/nvml-mock/profiles"
# The word of gpus.yaml for an architecture, if it is another one.
_ARCHITECTURES: Final = {"ada_lovelace": "ada"}
_FILE: Final = re.compile(r"[A-Za-z0-9_-]+\.yaml", re.ASCII)


def _find_profiles(get: Get) -> list[Document]:
    """Return the profiles of the last commit that changed one of them."""
    commit = last_commit(get, _MOCK, _PROFILES)
    entries = json.loads(get(f"{API}/{_MOCK}/contents/{_PROFILES}?ref={commit}"))
    names = sorted(entry["name"] for entry in entries if _FILE.fullmatch(entry["name"]))
    return [Document(name, address(_MOCK, commit, f"{_PROFILES}/{name}"), fixed=True) for name in names]


def _profile_rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a profile. All are of data-centre GPUs."""
    (document,) = read(data.decode("utf-8"), name)
    if isinstance(document, SourceError):
        raise document
    device = document.value["device_defaults"]
    product = device["name"].removeprefix("NVIDIA ")
    capability = device["compute_capability"]
    return [
        {
            "product": product,
            "label": re.escape(product.replace(" ", "-")).replace(r"\-", "-"),
            "compute": f"{capability['major']}.{capability['minor']}",
            "arch": _ARCHITECTURES.get(device["architecture"], device["architecture"]),
            "segment": "datacenter",
        }
    ]


GPU_EXTRACTORS: Final = (
    Extractor(
        "aws_instances",
        "karpenter-aws",
        "secondary",
        "GPUs of AWS' instance families. A row of cloud_gpus.yaml, awsFamilies, takes precedence.",
        _find_instances,
        _instance_rows,
        _unknown_gpus,
    ),
    Extractor(
        "gpu_profiles",
        "nvml-mock",
        "unverified",
        "GPUs by product label. A row of gpus.yaml takes precedence.",
        _find_profiles,
        _profile_rows,
    ),
)
