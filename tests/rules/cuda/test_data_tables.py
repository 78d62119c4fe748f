"""Tables on terminals of any width: one line a row, and long texts are cut."""

from __future__ import annotations

import pytest

from rules.text.i18n import width as display_width
from tests.support.command import gpugate
from tests.support.paths import ROOT
from tests.support.pseudo_terminal import on_terminal

NODES = ("nodes", "--nodes", str(ROOT / "docs/compatibility/nodes.yaml"))
RULES = ("rules",)
CHINESE = ("rules", "--lang", "zh")


@pytest.mark.parametrize("arguments", [NODES, RULES, CHINESE])
@pytest.mark.parametrize("columns", [80, 160])
def test_a_row_is_a_line_of_the_terminal(arguments: tuple[str, ...], columns: int) -> None:
    """The last columns are cut first; headings and words such as `enabled` never."""
    status, shown = on_terminal(arguments, columns)
    whole = gpugate(*arguments).stdout.splitlines()
    lines = shown.splitlines()

    assert (0, len(whole)) == (status, len(lines))
    assert columns >= max(map(display_width, lines))
    assert whole[0].split() == lines[0].split()
    assert [line.split()[2:4] for line in whole] == [line.split()[2:4] for line in lines]


def test_a_wide_table_is_not_cut() -> None:
    """It is for other programs, and for wide terminals."""
    arguments = (*RULES, "-o", "wide")

    assert gpugate(*arguments).stdout.split() == on_terminal(arguments, 80)[1].split()


def test_columns_are_aligned_by_what_a_terminal_shows() -> None:
    """A Chinese character takes two columns."""
    lines = gpugate(*CHINESE).stdout.splitlines()
    names = {
        display_width(line[: line.index(word)]) for line in lines for word in ("已启用",) if word in line
    }

    assert {display_width(lines[0][: lines[0].index("状态")])} == names


def test_a_table_with_enough_space_is_as_in_a_pipe() -> None:
    """Nothing is cut."""
    whole = gpugate(*NODES).stdout.splitlines()

    assert whole == on_terminal(NODES, 300)[1].splitlines()


def test_no_color_keeps_colours_from_a_terminal() -> None:
    """https://no-color.org."""
    arguments = ["preview", "-f", str(ROOT / "docs/examples/denied.yaml")]

    assert "\x1b" in gpugate(*arguments, color=True).stdout
    assert "\x1b" not in gpugate(*arguments, color=True, env={"NO_COLOR": "1"}).stdout
