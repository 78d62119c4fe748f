"""Documentation pages: their fenced blocks, and a terminal that runs their commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

# Pages whose commands e2e/test_pages.py runs in one cluster, in this order: install.md removes the webhook.
IN_CLUSTER: Final = (
    "docs/app-developers.md",
    "docs/platform-teams.md",
    "docs/tutorial-new-vendor.md",
    "docs/rules.md",
    "docs/agent.md",
    "README.md",
    "README.zh-CN.md",
    "docs/emergency.md",
    "docs/install.md",
    "docs/export.md",
)
# The requirement of commands that build and push an image, and the pages whose commands e2e/test_image.py
# runs.
ENGINE: Final = "engine"
WITH_ENGINE: Final = ("docs/install.md",)
# A part of each denial in the output of kubectl.
DENIED: Final = "denied the request: "

_FENCE: Final = re.compile(
    r"(?P<notes>(?:^<!-- [^\n]* -->\n+)*)^```(?P<language>\w*)\n(?P<text>.*?)^```\n"
    r"(?:\n*^```text\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_NOTE: Final = re.compile(r"^<!-- (\w+): (.+) -->$", re.MULTILINE)
_FILE_ABOVE: Final = re.compile(r"`(\S+\.ya?ml)`[:：]\n+\Z")


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block of a page. where: page and line. file: that the reader writes. shown: the output.

    needs: `kubectl`, `cluster`, `engine` or nothing. unrun: why no test runs it; mostly empty.
    """

    where: str
    language: str
    text: str
    file: str
    needs: str
    unrun: str
    exits: int
    shown: str | None

    @property
    def runs(self) -> bool:
        """Whether its commands can be run here."""
        known = self.language == "sh" and not self.unrun
        return known and (not self.needs or (self.needs == "kubectl" and shutil.which("kubectl") is not None))


@cache
def text_of(page: str) -> str:
    """Return a page."""
    return (ROOT / page).read_text("utf-8")


def english(page: str) -> str:
    """Return the English page (or picture) of a Chinese one: `docs/rules.md` of `docs/zh/rules.md`."""
    return page.replace("docs/zh/", "docs/").replace(".zh-CN.md", ".md").replace(".zh.svg", ".svg")


def fences(text: str, page: str) -> list[Fence]:
    """Return the fenced blocks of a page in their order."""
    above = text.partition("# ")[0]
    fences_of_page = []
    for match in _FENCE.finditer(text):
        notes = dict(_NOTE.findall(above + match["notes"]))
        named = _FILE_ABOVE.search(text, 0, match.start()) if match["language"] == "yaml" else None
        fences_of_page.append(
            Fence(
                where=f"{page}:{line_of(text, match.start('text')) - 1}",
                language=match["language"],
                text=match["text"],
                file=named[1] if named else "",
                needs=notes.get("needs", ""),
                unrun=notes.get("unrun", ""),
                exits=int(notes.get("exits", "0")),
                shown=match["shown"],
            )
        )
    return fences_of_page


def prose(text: str) -> str:
    """Return a page with its fences as empty lines."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


def line_of(text: str, offset: int) -> int:
    """Return the line of an offset in a page, from 1."""
    return text.count("\n", 0, offset) + 1


def same(shown: str, printed: str) -> bool:
    """Return whether a page shows the output of a terminal; `…` matches any text, trailing spaces any."""
    expected = "".join(
        r"(?:.*\n)*" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", ".*") + "\n"
        for line in shown.strip("\n").splitlines()
    )
    actual = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(expected, actual) is not None


def terminal(script: str, folder: Path, environment: Mapping[str, str], timeout_s: float) -> tuple[int, str]:
    """Run commands in a folder, until one fails; return the exit status and the output.

    environment: additional variables; its PATH precedes the path of `gpugate`.
    """
    known = {
        "PYTHONUNBUFFERED": "1",  # both streams in the order of a terminal
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
    }
    path = [environment.get("PATH", ""), str(Path(sys.executable).parent), os.environ["PATH"]]
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=known | dict(environment) | {"PATH": os.pathsep.join(filter(None, path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout


def expected_status(fence: Fence) -> int:
    """Return the exit status of the commands of a fence: 1 if kubectl shows a denial."""
    return 1 if DENIED in (fence.shown or "") else fence.exits


def write(fence: Fence, folder: Path) -> None:
    """Write the file of a fence."""
    file = folder / fence.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(fence.text, "utf-8")
