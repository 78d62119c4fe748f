"""The image resolver of the tests: what its component installs, and the pages and log of its process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from tests.e2e.daemon import HOST
from tests.e2e.manifests import MANIFESTS, Object, render

_COMPONENT: Final = MANIFESTS / "components/image-resolver"


@dataclass(frozen=True)
class Resolver:
    """A running resolver."""

    port: int
    log: Path

    def page(self, path: str) -> str:
        """Return a page; empty if there is no answer, or an error."""
        try:
            with urlopen(f"http://{HOST}:{self.port}{path}") as answer:
                return str(answer.read().decode())
        except (URLError, OSError):
            return ""

    def sample(self, name: str) -> float:
        """Return a metric's value, by its name with labels; 0 if there is none yet."""
        match = re.search(rf"^{re.escape(name)} (\S+)$", self.page("/metrics"), re.MULTILINE)
        return float(match[1]) if match else 0.0

    def said(self, words: str) -> bool:
        """Return whether the log has these words."""
        return words in self.log.read_text("utf-8")


def component(folder: Path) -> list[Object]:
    """Return the objects that the component adds to an overlay."""
    up = "/".join([".."] * (len(folder.resolve().parts) - 1))
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{up}{MANIFESTS}/base"],
        "components": [f"{up}{_COMPONENT}"],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    return [
        document for document in render(folder) if document["metadata"]["name"].startswith("gpugate-images")
    ]
