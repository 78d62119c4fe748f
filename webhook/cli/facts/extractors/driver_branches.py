"""Kind and newest driver of each data-centre driver branch, from NVIDIA's release information.

The document is one JSON object: by branch its `type`, and in `driver_info` its releases, each with
`release_version` and `release_date`. See
https://docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html.
"""

from __future__ import annotations

import json
from typing import Final

from rules.cuda.versions import DriverVersion
from webhook.cli.facts.extractors.base import Document, Get, Row

URL: Final = "https://docs.nvidia.com/datacenter/tesla/drivers/releases.json"
_KINDS: Final = {
    "lts branch": "lts",
    "production branch": "production",
    "new feature branch": "new-feature",
}


def find(get: Get) -> list[Document]:
    """Return the document with all branches."""
    del get
    return [Document("releases.json", URL)]


def rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each branch. A kind without a word in the tables is an error."""
    del name
    return [
        {
            "branch": int(branch),
            "kind": _KINDS[entry["type"]],
            "newest": _newest(entry["driver_info"])["release_version"],
            "released": _newest(entry["driver_info"])["release_date"],
        }
        for branch, entry in sorted(json.loads(data).items(), key=lambda item: int(item[0]))
    ]


def _newest(releases: list[Row]) -> Row:
    """Return the release with the highest version. Raises ValueError."""
    return max(releases, key=lambda release: _version(release["release_version"]))


def _version(text: str) -> DriverVersion:
    version = DriverVersion.parse(text)
    if version is None:
        raise ValueError(f"{text!r} is not a driver version")
    return version
