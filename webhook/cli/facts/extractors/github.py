"""Files of public repositories on GitHub, at the commit that changed them last."""

from __future__ import annotations

import json
import re
from typing import Final

from packaging.version import Version

from webhook.cli.facts.extractors.base import Document, Finder, Get

API: Final = "https://api.github.com/repos"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)
_RELEASE: Final = re.compile(r"v\d+\.\d+\.\d+(?:\.post\d+)?", re.ASCII)
# Minor versions that are read, the newest ones.
_MINORS: Final = 3


def last_commit(get: Get, repository: str, path: str) -> str:
    """Return the last commit that changed a file or folder. Raises ValueError."""
    return commit_of(json.loads(get(f"{API}/{repository}/commits?path={path}&per_page=1"))[0]["sha"])


def commit_of(commit: str) -> str:
    """Return the hash of a commit. Raises ValueError if it is none."""
    if not _COMMIT.fullmatch(commit):
        raise ValueError(f"{commit!r} is not a commit")
    return commit


def address(repository: str, commit: str, path: str) -> str:
    """Return the address of a file at a commit; it never has other content."""
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def newest_releases(repository: str, *paths: str) -> Finder:
    """Return the finder of files in the newest release of each of the newest minor versions, in order.

    A document is named by tag and file name. Form of the list of tags:
    https://docs.github.com/en/rest/repos/repos#list-repository-tags.
    """

    def find(get: Get) -> list[Document]:
        newest: dict[tuple[int, ...], tuple[Version, str, str]] = {}
        for tag in json.loads(get(f"{API}/{repository}/tags?per_page=100")):
            if _RELEASE.fullmatch(tag["name"]):
                release = Version(tag["name"]), tag["name"], commit_of(tag["commit"]["sha"])
                minor = release[0].release[:2]
                newest[minor] = max(newest.get(minor, release), release)
        return [
            Document(f"{tag} {path.rpartition('/')[2]}", address(repository, commit, path), fixed=True)
            for _, tag, commit in sorted(newest.values())[-_MINORS:]
            for path in paths
        ]

    return find
