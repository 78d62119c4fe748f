"""Builders of releases of facts: bundles, and ConfigMaps that have one."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from rules.cuda.fact_bundle import FactBundle, write_bundle
from rules.cuda.tables import built_in_tables

DATE = "2026-12-01"


def bundle(change: Callable[[dict[str, Any]], object] = lambda _: None, date: str = DATE) -> str:
    """Return a bundle of the built-in tables, after a change of them."""
    tables = deepcopy(built_in_tables())
    change(tables)
    return write_bundle(FactBundle(date, tables))


def with_gpu(tables: dict[str, Any]) -> None:
    """Add a GPU that no built-in row knows: NVIDIA-X1, compute capability 11.0."""
    row = {"product": "X1", "label": "X1", "compute": "11.0", "arch": "rubin", "segment": "datacenter"}
    tables["gpus"].append({**row, "brand": "nvidia", "source": "none", "status": "verified"})


def facts_config_map(text: str, name: str = "gpugate-facts", *, packed: bool = False) -> dict[str, Any]:
    """Return a ConfigMap that has a bundle, compressed or as it is."""
    labels = {"gpugate.dev/type": "Facts", "gpugate.dev/enabled": "true"}
    metadata = {"name": name, "namespace": "kube-public", "labels": labels}
    if packed:
        values: dict[str, Any] = {
            "binaryData": {"facts.json.gz": b64encode(gzip.compress(text.encode())).decode()}
        }
    else:
        values = {"data": {"facts.json": text}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **values}
