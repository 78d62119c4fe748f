"""Pictures of the pages in docs/pictures: what commands print, and where gpugate stands in a cluster.

Each is a self-contained SVG image, in English and in Chinese, without fonts, scripts or links.
tests/project/test_pictures.py keeps the files equal to what is made here.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from rules import Language
from rules.text.i18n import Text, width
from tests.support.paths import ROOT

FOLDER: Final = "docs/pictures"
# What `make demo` prints; its end-to-end test compares it.
DEMO: Final = "docs/demo/printed.txt"
# What the pages show of the terminal, and the commands whose output is an image itself.
PREVIEW: Final = "gpugate preview -f docs/compatibility/pods.yaml --nodes docs/compatibility/nodes.yaml"
MATRIX: Final = "gpugate matrix -o svg"
NODE_MATRIX: Final = "gpugate matrix --nodes docs/compatibility/nodes.yaml -o svg"

# Of the terminal.
_COLUMNS: Final = 104
_CHARACTER: Final = 7.8  # px, the width of one column
_LINE: Final = 18  # px
_PADDING: Final = 16  # px
# A line that its program erases: progress.
_ERASED: Final = re.compile(r"[^\n]*\r\x1b\[2K")
_SGR: Final = re.compile(r"\x1b\[([\d;]*)m")
# CSS classes of the codes that select colours and weights.
_CLASSES: Final = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "c", "36": "c"}
_TERMINAL_STYLE: Final = """
rect { fill: #0d1117; stroke: #30363d; }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
text { fill: #e6edf3; white-space: pre; }
.b { font-weight: 700; }
.d { fill: #9aa4af; }
.r { fill: #ff7b72; }
.g { fill: #7ee787; }
.y { fill: #f2cc60; }
.c { fill: #79c0ff; }
"""

_DIAGRAM_STYLE: Final = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", sans-serif; }
text { fill: #1f2933; text-anchor: middle; }
.small { font-size: 11.5px; fill: #52606d; }
.strong { font-weight: 600; }
.page { fill: #ffffff; }
.box { fill: #f3f5f7; stroke: #7b8794; }
.own { fill: #d6eaf8; stroke: #2471a3; stroke-width: 2; }
path { fill: none; stroke: #52606d; stroke-width: 1.5; }
.dashed { stroke-dasharray: 5 4; }
.head { fill: #52606d; stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.small { fill: #adb7c2; }
.page { fill: #0d1117; }
.box { fill: #1c232b; stroke: #7b8794; }
.own { fill: #12395b; stroke: #79c0ff; }
path { stroke: #adb7c2; }
.head { fill: #adb7c2; }
}
"""


# The languages of the documentation, and the suffixes of its pages.
_SUFFIXES: Final = {Language.EN: "", Language("zh"): ".zh"}


def pictures() -> dict[str, str]:
    """Return the files of docs/pictures by their names."""
    made = {"demo.svg": _terminal("make demo", _demo(), Language.EN)}
    for language, suffix in _SUFFIXES.items():
        made[f"where{suffix}.svg"] = _diagram(language)
        made[f"preview{suffix}.svg"] = _recording(PREVIEW, language)
        made[f"matrix{suffix}.svg"] = _run(MATRIX, language)
        made[f"node-matrix{suffix}.svg"] = _run(NODE_MATRIX, language)
    return made


def _words(command: str, language: Language) -> list[str]:
    """Return a command as a reader in a language types it."""
    return [*shlex.split(command), *(["--lang", language.value] if _SUFFIXES[language] else [])]


def _run(command: str, language: Language) -> str:
    """Return what a command prints in a pipe."""
    done = subprocess.run(_arguments(command, language), cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def _arguments(command: str, language: Language) -> list[str]:
    return [sys.executable, "-m", "webhook", *_words(command, language)[1:]]


def _on_terminal(command: str, language: Language) -> str:
    """Return what a command prints on a terminal, with its codes for colours."""
    ours, theirs = pty.openpty()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"NO_COLOR", "FORCE_COLOR", "COLORTERM"}
    }
    environment |= {"TERM": "xterm", "COLUMNS": str(_COLUMNS), "LINES": "50"}
    with subprocess.Popen(
        _arguments(command, language), cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        printed = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return _ERASED.sub("", printed.decode().replace("\r\n", "\n"))


def _read(terminal: int) -> bytes:
    """Return what a terminal printed; nothing after the end of its program, an error in Linux."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@dataclass(frozen=True, slots=True)
class _Run:
    """Characters of one style in a line. at: their first column."""

    at: int
    text: str
    css: str


def _recording(command: str, language: Language) -> str:
    """Return a terminal after a command."""
    typed = shlex.join(_words(command, language))
    return _terminal(typed, f"\x1b[2m$\x1b[0m {typed}\n{_on_terminal(command, language)}", language)


def _demo() -> str:
    """Return what `make demo` printed when its test wrote it, with colours, in the width of a terminal."""
    colours = {"#": "\x1b[36m", "$": "\x1b[1m", "certain:": "\x1b[31m", "Error": "\x1b[31m", "→": "\x1b[32m"}
    printed = []
    for line in (ROOT / DEMO).read_text("utf-8").splitlines():
        start = next((colour for sign, colour in colours.items() if line.lstrip().startswith(sign)), "")
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        wrapped = textwrap.wrap(
            line, _COLUMNS, subsequent_indent=indent, drop_whitespace=False, break_on_hyphens=False
        ) or [""]
        printed += [f"{start}{part}\x1b[0m" for part in wrapped]
    return "\n".join(printed)


def _terminal(title: str, printed: str, language: Language) -> str:
    """Return a terminal on which something was printed."""
    lines = [*_lines(printed)]
    columns = max(run.at + width(run.text) for runs in lines for run in runs)
    across, down = columns * _CHARACTER + 2 * _PADDING, len(lines) * _LINE + 2 * _PADDING
    root = _svg({"width": f"{across:g}", "height": f"{down:g}"}, title, _TERMINAL_STYLE, language)
    frame = {"x": 0.5, "y": 0.5, "width": across - 1, "height": down - 1, "rx": 6}
    ET.SubElement(root, "rect", {name: f"{size:g}" for name, size in frame.items()})
    for number, runs in enumerate(lines):
        for run in runs:
            text = run.text.strip()
            at = run.at + width(run.text) - width(run.text.lstrip())
            place = {
                "x": f"{_PADDING + at * _CHARACTER:g}",
                "y": f"{_PADDING + number * _LINE + 13:g}",
                "textLength": f"{width(text) * _CHARACTER:g}",
            }
            ET.SubElement(root, "text", place | ({"class": run.css} if run.css else {})).text = text
    return _document(root)


def _lines(printed: str) -> Iterator[list[_Run]]:
    """Yield the lines of a terminal."""
    css: tuple[str, ...] = ()
    for line in printed.splitlines():
        runs: list[_Run] = []
        column = 0
        for at, part in enumerate(_SGR.split(line)):
            if at % 2:
                for code in part.split(";"):
                    css = (*css, _CLASSES[code]) if code in _CLASSES else ()
                continue
            # Narrow and wide characters are apart, so that fonts of other widths keep the columns.
            for text in re.findall(r"[\x00-\u2e7f]+|[^\x00-\u2e7f]+", part):
                runs.append(_Run(column, text, " ".join(sorted({*css}))))
                column += width(text)
        yield [run for run in runs if run.text.strip()]


# Of the diagram: centre, top, width and height in px, and the lines of a box.
@dataclass(frozen=True, slots=True)
class _Box:
    x: int
    y: int
    width: int
    height: int
    lines: tuple[Text, ...]
    css: str = "box"


_TITLE: Final = Text("Where gpugate stands in a cluster", zh="gpugate 在集群中的位置")
_BOXES: Final = (
    _Box(90, 24, 140, 64, (Text("kubectl, GitOps"), Text("controllers", zh="控制器"))),
    _Box(330, 24, 140, 64, (Text("API server", zh="API Server"), Text("stores the pod", zh="保存 Pod"))),
    _Box(560, 24, 140, 64, (Text("scheduler", zh="调度器"), Text("selects a node", zh="选择节点"))),
    _Box(
        790,
        24,
        180,
        64,
        (
            Text("node", zh="节点"),
            Text("kubelet, device plugin,", zh="kubelet、设备插件、"),
            Text("container runtime", zh="容器运行时"),
        ),
    ),
    _Box(
        330,
        194,
        200,
        72,
        (
            Text("gpugate"),
            Text("completes, allows, warns", zh="补全、放行、警告"),
            Text("or denies, with the fix", zh="或拒绝，并给出修复方法"),
        ),
        "own",
    ),
    _Box(
        90,
        194,
        140,
        72,
        (Text("rules", zh="规则"), Text("ConfigMaps"), Text("in kube-public", zh="位于 kube-public")),
    ),
    _Box(
        690,
        194,
        380,
        72,
        (
            Text("nodes", zh="节点"),
            Text(
                "driver, CUDA and GPU, in labels of GPU Feature",
                zh="驱动、CUDA 和 GPU，来自 GPU Feature Discovery",
            ),
            Text(
                "Discovery or of the node agent, or in ResourceSlices",
                zh="或节点代理写入的标签，或 ResourceSlice",
            ),
        ),
    ),
    _Box(
        450,
        314,
        860,
        50,
        (
            Text("gpugate preview, lint, test, audit", zh="gpugate preview、lint、test、audit"),
            Text(
                "the same code, from files, in CI or against a cluster",
                zh="相同的代码：读取文件，用于 CI，或面向集群",
            ),
        ),
        "own",
    ),
)
# Path, label, and the middle of the label; paths end where their heads are.
_ARROWS: Final = (
    ("M160 56 H252", Text("a pod", zh="Pod"), (206, 48)),
    ("M400 56 H482", Text(""), (0, 0)),
    ("M630 56 H692", Text(""), (0, 0)),
    ("M318 88 V186", Text("review", zh="审查请求"), (280, 134)),
    ("M342 194 V96", Text("patch or denial", zh="补丁或拒绝"), (396, 150)),
    ("M160 230 H222", Text("watch", zh="监听"), (192, 222)),
    ("M500 230 H438", Text("watch", zh="监听"), (469, 222)),
    ("M790 88 V186", Text("reported", zh="上报"), (826, 142)),
)


def _diagram(language: Language) -> str:
    """Return where gpugate stands between the API server, the scheduler and the nodes."""
    root = _svg({"width": "900", "height": "384"}, _TITLE.in_language(language), _DIAGRAM_STYLE, language)
    ET.SubElement(root, "rect", {"class": "page", "width": "900", "height": "384", "rx": "6"})
    for box in _BOXES:
        place = {"x": box.x - box.width / 2, "y": box.y, "width": box.width, "height": box.height, "rx": 6}
        ET.SubElement(root, "rect", {name: f"{size:g}" for name, size in place.items()} | {"class": box.css})
        first = box.y + box.height / 2 - 9 * (len(box.lines) - 1) + 4.5
        for at, line in enumerate(box.lines):
            _label(root, box.x, first + 18 * at, line.in_language(language), "small" if at else "strong")
    for path, label, (x, y) in _ARROWS:
        ET.SubElement(root, "path", {"d": path})
        ET.SubElement(root, "path", {"d": _head(path), "class": "head"})
        if words := label.in_language(language):
            _label(root, x, y, words, "small")
    return _document(root)


def _label(root: ET.Element, x: float, y: float, text: str, css: str) -> None:
    ET.SubElement(root, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": css}).text = text


def _head(path: str) -> str:
    """Return the head of an arrow that ends in a horizontal or vertical line."""
    x, y, direction, end = re.fullmatch(r"M(\d+) (\d+) ([HV])(\d+)", path).groups()  # type: ignore[union-attr]
    if direction == "H":
        sign = 1 if int(end) > int(x) else -1
        return f"M{int(end) + 8 * sign} {y} l{-8 * sign} -4 v8 z"
    sign = 1 if int(end) > int(y) else -1
    return f"M{x} {int(end) + 8 * sign} l-4 {-8 * sign} h8 z"


def _svg(size: dict[str, str], title: str, style: str, language: Language) -> ET.Element:
    view = {"viewBox": f"0 0 {size['width']} {size['height']}"}
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "lang": language.value} | size | view)
    ET.SubElement(root, "title").text = title
    ET.SubElement(root, "style").text = style
    return root


def _document(root: ET.Element) -> str:
    ET.indent(root, space="")
    return f"{ET.tostring(root, encoding='unicode')}\n"
