"""Image facts: what the config of an image says about CUDA, and ImageCatalog rows of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rules.cuda.nvidia_require import constraints
from rules.cuda.versions import CudaVersion

_CUDA_VERSION: Final = "CUDA_VERSION"
_LIBRARY_PATH: Final = "LD_LIBRARY_PATH"
# Forward compatibility libraries of NVIDIA's images, such as /usr/local/cuda/compat/lib.
_COMPAT = re.compile(r"/usr/local/cuda[^/]*/compat(?:/.*)?", re.ASCII)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlatformConfig:
    """The config of an image for one platform. digest: of its manifest; empty if there is no manifest."""

    os: str
    architecture: str
    digest: str
    env: Mapping[str, str]
    labels: Mapping[str, str]

    @property
    def platform(self) -> str:
        """The name of the platform, such as linux/amd64."""
        return f"{self.os}/{self.architecture}"

    @property
    def cuda(self) -> CudaVersion | None:
        """The CUDA version of the image; None if the config does not show it."""
        return CudaVersion.parse(self.env.get(_CUDA_VERSION, ""))

    @property
    def require(self) -> dict[str, str]:
        """The requirements of the image by variable; empty if it has none, or disables them."""
        return {each.variable: each.text for each in constraints(self.env)}

    @property
    def compat_on_path(self) -> bool:
        """Whether forward compatibility libraries are on the path of the loader."""
        folders = self.env.get(_LIBRARY_PATH, "").split(":")
        return any(_COMPAT.fullmatch(folder) for folder in folders)

    @property
    def facts(self) -> Row:
        """The keys of an ImageCatalog row that are facts about the image.

        `cudaCompat` is absent if the libraries are not on the path: a config does not show the files.
        """
        facts: Row = {"cuda": str(self.cuda)} if self.cuda else {}
        facts["require"] = self.require
        return facts | ({"cudaCompat": "loader-path"} if self.compat_on_path else {})


@dataclass(frozen=True, slots=True)
class InspectedImage:
    """An image that was read. digest: of its index or manifest; empty if the source has none.

    platforms: at least one. omitted: how many other platforms the index has that were not read.
    """

    reference: str
    digest: str
    platforms: tuple[PlatformConfig, ...]
    omitted: int = 0

    def rows(self, key: str = "") -> list[Row]:
        """Return ImageCatalog rows by `digest`, or by `image` if there is none; one for each set of facts.

        key: `image` for rows by the reference. Platforms with equal facts share a row.
        """
        named = {"digest": self.digest} if self.digest and key != "image" else {"image": self.reference}
        return [
            {**named, **facts, "platforms": [each.platform for each in platforms]}
            for facts, platforms in self.by_facts()
        ]

    def by_facts(self) -> list[tuple[Row, list[PlatformConfig]]]:
        """Return the distinct facts, each with its platforms."""
        found: list[tuple[Row, list[PlatformConfig]]] = []
        for each in self.platforms:
            facts = each.facts
            same = next((platforms for other, platforms in found if other == facts), None)
            if same is None:
                found.append((facts, [each]))
            else:
                same.append(each)
        return found
