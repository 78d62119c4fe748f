"""Files of public repositories on GitHub, at the commit that changed them last."""

from __future__ import annotations

import json
import re
from typing import Final

from webhook.cli.facts.extractors.base import Get

API: Final = "https://api.github.com/repos"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)


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
