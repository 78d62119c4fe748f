"""Writes a page of figures in English and in Chinese: the same figures, the words by zh.yaml."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import click
import yaml

# What is the same in both languages, as `{}` in the catalogue: code, and figures with their units.
_VALUE: Final = re.compile(r"`[^`]+`|(?<![\w.])[-+]?\d(?:[\d,.]*\d)?(?!\w)(?: (?:[µm]?s|[KM]i?B)\b)?")
# A line is cut at the marks of Markdown: heading, item, column, and what is bold from end to end.
_MARK: Final = re.compile(r"(^#+ |^- | ?\| ?|(?<=[-|] )\*\*|\*\*(?=:| \|))")
# A line continues the one above if it is no heading, item or row.
_CONTINUED: Final = re.compile(r"(?<=[^\n|])\n *(?=[^\n|# -])")
_SEPARATORS: Final = (". ", "; ", ": ", ", ")
_WORD: Final = re.compile(r"\b[a-z]{2,}")


def write_pages(path: Path, page: str) -> None:
    """Write an English page, and the Chinese one to the folder `zh` next to it."""
    path.write_text(page, "utf-8")
    translated, missing = chinese(page)
    (path.parent / "zh").mkdir(exist_ok=True)
    (path.parent / "zh" / path.name).write_text(translated, "utf-8")
    if missing:
        click.echo(f"no Chinese in tests/bench/zh.yaml, so in English: {missing}", err=True)


def chinese(page: str) -> tuple[str, list[str]]:
    """Return a page in Chinese, and the texts that the catalogue does not have."""
    missing: list[str] = []
    lines = [
        "".join(
            part if at % 2 else _translated(part.strip(), missing)
            for at, part in enumerate(_MARK.split(line))
        )
        for line in _CONTINUED.sub(" ", page).splitlines()
    ]
    return "\n".join(lines) + "\n", list(dict.fromkeys(missing))


def _translated(text: str, missing: list[str]) -> str:
    """Return a text by the catalogue, or its sentences and parts by it."""
    if text.endswith("."):
        return _translated(text[:-1], missing) + _catalogue()[". "]
    template = _VALUE.sub("{}", text)
    if template in _catalogue():
        return _catalogue()[template].format(*_VALUE.findall(text))
    for separator in _SEPARATORS:
        if separator in template:
            return _catalogue()[separator].join(_translated(part, missing) for part in text.split(separator))
    if _WORD.search(template):
        missing.append(template)
    return text


@cache
def _catalogue() -> dict[str, str]:
    catalogue: dict[str, str] = yaml.safe_load(Path(__file__).with_name("zh.yaml").read_text("utf-8"))
    return catalogue
