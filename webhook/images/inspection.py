"""Image facts: the CUDA facts in the config of an image, and their ImageCatalog rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from rules.cuda.nvidia_require import REQUIRE_PREFIX, constraints
from rules.cuda.versions import CudaVersion
from rules.kube.image_reference import parse_image

_CUDA_VERSION: Final = "CUDA_VERSION"
_LIBRARY_PATH: Final = "LD_LIBRARY_PATH"
# Forward compatibility libraries of NVIDIA's images, such as /usr/local/cuda/compat/lib.
_COMPAT = re.compile(r"/usr/local/cuda[^/]*/compat(?:/.*)?", re.ASCII)

Row = dict[str, Any]


class PlatformConfig(Struct, frozen=True):
    """The config of an image for one platform."""

    os: str
    architecture: str
    digest: str  # of its manifest; empty if there is no manifest
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
        """The requirements of the image by variable; empty if it has none, or disables them.

        Invalid requirements are left out, because they require nothing.
        """
        return {
            constraint.variable: constraint.text
            for constraint in constraints(self.env)
            if constraint.problem is None and constraint.variable != REQUIRE_PREFIX
        }

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


class InspectedImage(Struct, frozen=True):
    """An image that was read.

    Attributes:
        digest: of its index or manifest; empty if the source has none.
        platforms: at least one.
        omitted: number of platforms in the index that were not read because of the limit.
        unread: names of platforms that were not read, because of the limit, because the caller did not select
            them, or because they are not in the file; None if there may be platforms without a known name.
    """

    reference: str
    digest: str
    platforms: tuple[PlatformConfig, ...]
    omitted: int = 0
    unread: tuple[str, ...] | None = ()

    def rows(self) -> list[Row]:
        """Return ImageCatalog rows by `image`, `digest` or both; one for each set of facts.

        Empty without both: an archive need not name its image. A pinned reference has the digest alone.
        """
        parsed = parse_image(self.reference)
        named = {"image": self.reference} if parsed and not parsed.digest else {}
        named |= {"digest": self.digest} if self.digest else {}
        return [{**named, **facts} for facts in (self.facts() if named else ())]

    def facts(self) -> list[Row]:
        """Return the facts of each row; together they name all platforms of the image, or none."""
        if self.unread is None:
            return [facts for facts, _ in self.by_facts()]
        rows = [
            facts | {"platforms": [config.platform for config in platforms]}
            for facts, platforms in self.by_facts()
        ]
        return [*rows, *([{"platforms": [*self.unread]}] if self.unread else [])]

    def by_facts(self) -> list[tuple[Row, list[PlatformConfig]]]:
        """Return the distinct facts, each with its platforms."""
        groups: list[tuple[Row, list[PlatformConfig]]] = []
        for config in self.platforms:
            facts = config.facts
            same = next((platforms for other, platforms in groups if other == facts), None)
            if same is None:
                groups.append((facts, [config]))
            else:
                same.append(config)
        return groups
