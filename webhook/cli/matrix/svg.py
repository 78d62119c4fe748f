"""The compatibility matrix as a self-contained SVG image."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from rules import Language
from rules.cuda.versions import CudaVersion
from rules.model.check_result import Level, level_of
from rules.text.i18n import Message
from webhook.cli.matrix.matrix import FACTS, LEVEL_LABELS, Cell, Column, Footnotes, Table, letters

_TITLE: Final = Message("CUDA compatibility")

# Sizes in px.
_MARGIN: Final = 32
_LABELS: Final = 104  # the column of row headings
_ROW: Final = 24
_SIZE: Final = 13  # of text, unless its style sets another
_LINE: Final = 18  # of small text
_GAP: Final = 3  # between cells
_MAJOR_GAP: Final = 9  # between major versions
_INDENT: Final = 18  # of footnotes, after their letter
_BASELINE: Final = 14  # from the top of a line to the baseline of its text
_MIN_WIDTH: Final = 36  # of a cell: a mark and two letters

# Blue, yellow and orange are distinct with any common kind of colour blindness; the marks differ, too.
# The pages of reports and of `gpugate ui` have the same colours, in both schemes.
FILLS: Final[Mapping[Level, str]] = {
    Level.COMPATIBLE: "#b0d4f1",
    Level.UNSTABLE: "#f9dd74",
    Level.INCOMPATIBLE: "#ed9a76",
}
_PAGE: Final = {"fill": "#ffffff", "class": "page"}
_UNKNOWN: Final = {**_PAGE, "stroke": "#7b8794", "stroke-dasharray": "3 2"}
_STYLE: Final = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", sans-serif; }
text { fill: #1f2933; }
.title { font-size: 22px; font-weight: 600; }
.heading { font-size: 16px; font-weight: 600; }
.small { font-size: 12px; fill: #52606d; }
.strong { font-weight: 600; }
.mark { font-weight: 700; text-anchor: middle; }
.head { font-size: 12px; text-anchor: middle; }
.letter { font-size: 10px; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; }
  text { fill: #e6edf3; }
  .small { fill: #b1bac4; }
  .on { fill: #1f2933; }
}
"""


def draw(tables: Sequence[Table], notes: Footnotes, language: Language) -> str:
    """Return an SVG document without scripts, fonts or links."""
    page = _Page(language)
    page.line(_TITLE, "title", 22)
    page.down(10)
    _draw_legend(page)
    for table in tables:
        page.down(16)
        page.line(table.title, "heading", 16)
        page.down(8)
        _draw_table(page, table, notes)
        page.down(12)
        for column in table.columns:
            if about := column.about.in_language(language):
                page.text(_MARGIN, column.name(language), "small strong")
                page.text(_MARGIN + _LABELS, about, "small")
                page.down(_LINE)
    page.down(12)
    for note in dict.fromkeys(notes.values()):
        page.text(_MARGIN, note.letter, "small strong")
        page.text(_MARGIN + _INDENT, note.reason.in_language(language), "")
        page.down(_LINE)
        if error := note.error.in_language(language):
            page.text(_MARGIN + _INDENT, error, "small")
            page.down(_LINE)
        page.down(4)
    return page.document()


class _Page:
    """A page that is filled from the top, as wide as its content."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.y = float(_MARGIN)
        self._right = 0.0
        self._root = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", lang=language.value)
        ET.SubElement(self._root, "title").text = _TITLE.in_language(language)
        ET.SubElement(self._root, "style").text = _STYLE
        ET.SubElement(self._root, "rect", {"width": "100%", "height": "100%"} | _PAGE)

    def down(self, height: float) -> None:
        """Move the current line down."""
        self.y += height

    def text(self, x: float, text: str, css: str, size: float = _SIZE) -> None:
        """Write text at x on the current line, and widen the page; size: the font size."""
        self.write(x, text, css)
        self.reach(x + _measure(text) * size / _SIZE)

    def line(self, text: Message, css: str, size: float) -> None:
        """Write a whole line."""
        words = text.in_language(self.language)
        self.text(_MARGIN, words, css, size)
        self.down(1.25 * size)

    def write(self, x: float, text: str, css: str) -> None:
        """Write text at x on the current line; the page is not widened."""
        _write(self._root, x, self.y + _BASELINE, text, css)

    def box(self, x: float, width: float, level: Level, raised: str, tip: str) -> None:
        """Draw a cell. raised: the letters of its footnotes. tip: its tooltip."""
        group = ET.SubElement(self._root, "g")
        if tip:
            ET.SubElement(group, "title").text = tip
        place = {"x": x, "y": self.y, "width": width, "height": _ROW - _GAP, "rx": 3}
        fill = {"fill": FILLS[level]} if level in FILLS else _UNKNOWN
        on = " on" if level in FILLS else ""
        ET.SubElement(group, "rect", {key: _number(size) for key, size in place.items()} | fill)
        centre = x + width / 2 - 3 * len(raised)
        _write(group, centre, self.y + _BASELINE + 1, LEVEL_LABELS[level].mark, f"mark{on}")
        if raised:
            _write(group, centre + 6, self.y + _BASELINE - 3, raised, f"letter{on}")
        self.reach(x + width)

    def reach(self, x: float) -> None:
        """Widen the page to contain x."""
        self._right = max(self._right, x)

    def document(self) -> str:
        """Return the page as text."""
        width, height = _number(self._right + _MARGIN), _number(self.y + _MARGIN)
        self._root.attrib |= {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
        ET.indent(self._root, space="")
        return ET.tostring(self._root, encoding="unicode")


def _draw_legend(page: _Page) -> None:
    x = float(_MARGIN)
    for level, label in LEVEL_LABELS.items():
        words = label.text.in_language(page.language)
        page.box(x, _MIN_WIDTH, level, "", "")
        page.text(x + _MIN_WIDTH + 8, words, "")
        x += _MIN_WIDTH + 8 + _measure(words) + 20
    page.down(_ROW)


def _draw_table(page: _Page, table: Table, notes: Footnotes) -> None:
    columns = _placed(table)
    for key in table.columns[0].facts:
        page.text(_MARGIN, FACTS[key].in_language(page.language), "small")
        for column, x, width in columns:
            fact = column.facts[key]
            page.write(x + width / 2, "–" if fact is None else str(fact), "head")
        page.down(_LINE)
    page.down(6)
    major = table.runtimes[0].major
    for at, cuda in enumerate(table.runtimes):
        page.down(_MAJOR_GAP if cuda.major != major else 0)
        major = cuda.major
        page.text(_MARGIN, f"CUDA {cuda}", "strong")
        for column, x, width in columns:
            cell = column.cells[at]
            tip = _tip(cuda, column.name(page.language), cell, page.language)
            page.box(x, width, level_of(cell), letters(cell, notes), tip)
        page.down(_ROW)


def _placed(table: Table) -> list[tuple[Column, float, float]]:
    """Return each column with its left edge and its width."""
    placed = []
    x = float(_MARGIN + _LABELS)
    for column in table.columns:
        width = max(_MIN_WIDTH, *(_measure(str(fact)) + 8 for fact in column.facts.values()))
        placed.append((column, x, width))
        x += width + _GAP
    return placed


def _tip(cuda: CudaVersion, name: str, cell: Cell, language: Language) -> str:
    label = LEVEL_LABELS[level_of(cell)].text.in_language(language)
    lines = [f"CUDA {cuda} – {name}: {label}"]
    for finding in cell:
        lines.append(" – ".join(filter(None, (finding.reason.in_language(language), finding.error))))
        if remedy := finding.remedy.in_language(language):
            lines.append(f"→ {remedy}")
    return "\n".join(lines)


def _write(parent: ET.Element, x: float, y: float, text: str, css: str) -> None:
    element = ET.SubElement(
        parent, "text", {"x": _number(x), "y": _number(y)} | ({"class": css} if css else {})
    )
    element.text = text


def _number(size: float) -> str:
    return f"{size:g}"


def _measure(text: str) -> float:
    """Return the approximate width in px of text in the default size; Chinese characters are square."""
    return sum(
        _SIZE if unicodedata.east_asian_width(character) in "WF" else 0.56 * _SIZE for character in text
    )
