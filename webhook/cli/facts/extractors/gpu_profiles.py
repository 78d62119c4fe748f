"""GPUs of NVIDIA's mock of NVML: one YAML file a model, with the values that NVML returns for it.

`device_defaults` of a file has `name`, `architecture` and `compute_capability`. See
https://github.com/NVIDIA/k8s-test-infra/tree/main/deployments/nvml-mock. Rows are unverified, since not all
values are those of a real GPU: the GB300 of the mock has compute capability 10.0, a real one 10.3.
"""

from __future__ import annotations

import json
import re
from typing import Final

from rules.text.yaml_document import SourceError, read
from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.github import API, address, last_commit

_REPOSITORY: Final = "NVIDIA/k8s-test-infra"
_FOLDER: Final = "deployments/nvml-mock/helm/nvml-mock/profiles"
# The word of gpus.yaml for an architecture, if it is another one.
_ARCHITECTURES: Final = {"ada_lovelace": "ada"}
_FILE: Final = re.compile(r"[A-Za-z0-9_-]+\.yaml", re.ASCII)


def find(get: Get) -> list[Document]:
    """Return the profiles of the last commit that changed one of them."""
    commit = last_commit(get, _REPOSITORY, _FOLDER)
    entries = json.loads(get(f"{API}/{_REPOSITORY}/contents/{_FOLDER}?ref={commit}"))
    names = sorted(entry["name"] for entry in entries if _FILE.fullmatch(entry["name"]))
    return [Document(name, address(_REPOSITORY, commit, f"{_FOLDER}/{name}"), fixed=True) for name in names]


def rows(name: str, data: bytes) -> list[Row]:
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
