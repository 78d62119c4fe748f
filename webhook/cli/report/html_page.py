"""A self-contained HTML page: no scripts, no requests; for screens, paper, keyboards and screen readers.

Every text is escaped, unless an element made it: there is no markup in strings.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from typing import Final, NamedTuple

from rules import Language
from rules.text.i18n import Message
from rules.text.printable import printable

_SKIP: Final = Message("Skip to the report")
_CONTENTS: Final = Message("Contents")
# The contrast of each pair of text and background is at least 4.5:1, in both schemes.
_STYLE: Final = """
:root { color-scheme: light dark; --text: #1f2933; --dim: #4a5763; --page: #fff; --box: #f3f5f7;
  --line: #c3cad1; --link: #0b5394; --deny: #a61b1b; --warn: #7a4f00; --dryrun: #0b5394;
  --ok: #b0d4f1; --unstable: #f9dd74; --no: #ed9a76; --mark: #1f2933; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --dim: #b1bac4; --page: #0d1117; --box: #161b22; --line: #484f58; --link: #79c0ff;
    --deny: #ff9d96; --warn: #f2cc60; --dryrun: #79c0ff; --ok: #b0d4f1; --unstable: #f9dd74; --no: #ed9a76; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.3rem; margin-top: 2rem; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 0.5rem; }
h1, h2, h3, p, li, dd { overflow-wrap: anywhere; } td, th { overflow-wrap: break-word; }
a { color: var(--link); }
a:focus-visible, .scroll:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -100rem; } .skip:focus { position: static; }
.dim { color: var(--dim); }
.counts { display: flex; flex-wrap: wrap; gap: 0.75rem; padding: 0; margin: 1rem 0; list-style: none; }
.counts li { flex: 1 1 8rem; padding: 0.5rem 1rem; background: var(--box); border: 1px solid var(--line);
  border-radius: 0.4rem; }
.counts strong { display: block; font-size: 1.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem; }
caption { text-align: left; color: var(--dim); padding-bottom: 0.3rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.6rem; border: 1px solid var(--line); }
thead th { background: var(--box); }
tbody th { font-weight: 500; } td.text, tbody th.text { min-width: 16rem; } td.number { text-align: right; }
.lines { display: block; white-space: pre; margin-top: 0.3rem;
  font: 0.85em/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.deny { color: var(--deny); font-weight: 600; } .warn { color: var(--warn); font-weight: 600; }
.dryrun { color: var(--dryrun); font-weight: 600; }
.matrix td { text-align: center; white-space: nowrap; color: var(--mark); }
.matrix thead th { min-width: 5.5rem; }
.matrix th { white-space: nowrap; overflow-wrap: normal; }
.matrix thead th { white-space: normal; }
.compatible { background: var(--ok); } .unstable { background: var(--unstable); }
.incompatible { background: var(--no); } .matrix td.unknown { color: var(--text); }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
.matrix td { position: relative; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 1rem; }
dt { color: var(--dim); } dd { margin: 0; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.5rem; } }
@media print {
  :root { color-scheme: light; --text: #000; --dim: #333; --page: #fff; --box: #fff; --line: #777;
    --link: #000; --deny: #8b0000; --warn: #5c3b00; --dryrun: #00408b; --mark: #000; }
  body { max-width: none; padding: 0; font-size: 9pt; } table { font-size: 8.5pt; }
  nav, .skip { display: none; }
  .scroll { overflow: visible; } td.text, tbody th.text { min-width: 0; overflow-wrap: anywhere; }
  .lines { white-space: pre-wrap; } .matrix thead th { min-width: 0; }
  th, td { padding: 2pt 3pt; } tr, .counts li { break-inside: avoid; } h2, h3, caption { break-after: avoid; }
  thead { display: table-header-group; }
  .matrix td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


class Html(str):
    """Markup that an element made; any other text is escaped."""

    __slots__ = ()


class Section(NamedTuple):
    """A part of a page with its heading. anchor: its name in links."""

    anchor: str
    heading: str
    content: Sequence[Html]


def element(name: str, *children: str, **attributes: str) -> Html:
    """Return an element. Children that are not Html are escaped; an attribute may end with `_`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Return children one after another; those that are not Html are escaped."""
    return Html("".join(each if isinstance(each, Html) else _escaped(each) for each in children))


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[Html]], css: str = "") -> Html:
    """Return a table in a region that scrolls sideways; the first cell of a row is its heading."""
    head = element("tr", *(element("th", each, scope="col") for each in headings))
    body = [element("tr", *cells) for cells in rows]
    content = (element("caption", caption), element("thead", head), element("tbody", *body))
    return element(
        "section",
        element("table", *content, **({"class_": css} if css else {})),
        class_="scroll",
        aria_label=caption,
        tabindex="0",
    )


def cell(text: str, css: str = "") -> Html:
    """Return a cell of a table."""
    return element("td", text, **({"class_": css} if css else {}))


def message_cell(text: str) -> Html:
    """Return a cell with a message, whose lines after the first are a table of characters."""
    first, _, rest = text.partition("\n")
    return element("td", first, element("span", rest, class_="lines") if rest else "", class_="text")


def row_heading(text: str, css: str = "") -> Html:
    """Return the cell that names its row."""
    return element("th", text, scope="row", **({"class_": css} if css else {}))


def page(title: str, language: Language, introduction: Sequence[Html], sections: Sequence[Section]) -> str:
    """Return an HTML document. introduction: what is between the title and the list of contents."""
    # The style is allowed by its hash; nothing else is loaded or run, wherever the file is opened.
    digest = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    lang = {Language.EN: "en", Language.ZH: "zh-Hans"}[language]
    contents = element(
        "ul", *(element("li", element("a", each.heading, href=f"#{each.anchor}")) for each in sections)
    )
    body = [
        element("a", _SKIP.in_language(language), class_="skip", href="#report"),
        element("header", element("h1", title), *introduction),
        element("nav", contents, aria_label=_CONTENTS.in_language(language)),
        element(
            "main",
            *(
                element(
                    "section",
                    element("h2", each.heading, id=f"{each.anchor}-heading"),
                    *each.content,
                    id=each.anchor,
                    aria_labelledby=f"{each.anchor}-heading",
                )
                for each in sections
            ),
            id="report",
            tabindex="-1",
        ),
    ]
    head = (
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_escaped(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(title)}</title>\n<style>{_STYLE}</style>\n"
    )
    content = "\n".join(body)
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}">\n<head>\n{head}</head>\n<body>\n{content}\n</body>\n</html>\n'
    )


def _escaped(text: str) -> str:
    """Return text without markup and without control characters."""
    return escape(printable(text, "\n\t")).replace("\n", "&#10;")  # no line begins with it
