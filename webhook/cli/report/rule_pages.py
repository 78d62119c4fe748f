"""The page of each built-in rule, with examples: docs/catalog/FOLDER.md of the source tree."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final

from webhook.cli.inputs.files import catalog_path

# The address of the folder docs where somebody publishes it.
VARIABLE: Final = "GPUGATE_DOCS_URL"
_NAME: Final = re.compile(r"^  name: (\S+)$", re.MULTILINE)


@cache
def _folders() -> dict[str, str]:
    """Return the folder of each built-in rule, by its name."""
    files = sorted(catalog_path().glob("*/*.yaml"))
    texts = {path: path.read_text("utf-8") for path in files if not path.name.endswith(".test.yaml")}
    return {name: path.parent.name for path, text in texts.items() for name in _NAME.findall(text)}


def page_of(rule: str) -> str:
    """Return the page of a built-in rule with its anchor: a path, or an address if the variable has one.

    Empty for other rules.
    """
    folder = _folders().get(rule)
    return f"{os.environ.get(VARIABLE, 'docs').rstrip('/')}/catalog/{folder}.md#{rule}" if folder else ""


def address_of(rule: str) -> str:
    """Return the address of the page of a built-in rule; empty if none is published."""
    page = page_of(rule)
    return page if page.startswith(("https://", "http://")) else ""
