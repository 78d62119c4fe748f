"""Tables on terminals of any width: nothing is lost, and no name is broken."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.support.paths import ROOT
from tests.support.pseudo_terminal import on_terminal
from webhook.cli import main

NODES = ("nodes", "--nodes", str(ROOT / "docs/compatibility/nodes.yaml"))
RULES = ("rules", str(ROOT / "rules/catalog/mps"))


@pytest.mark.parametrize("arguments", [NODES, RULES])
@pytest.mark.parametrize("width", [72, 80, 160, 300])
def test_a_table_keeps_every_word_whole_at_any_width(arguments: tuple[str, ...], width: int) -> None:
    """Narrower than its longest words, it is a paragraph for each row."""
    status, shown = on_terminal(arguments, width)
    whole = CliRunner().invoke(main, arguments).stdout

    assert 0 == status
    assert sorted(whole.split()) == sorted(shown.split())
    assert width >= max(len(line.rstrip()) for line in shown.splitlines())


def test_where_there_is_room_a_row_is_a_line() -> None:
    """Just as in a pipe."""
    whole = CliRunner().invoke(main, NODES).stdout.splitlines()
    shown = on_terminal(NODES, 300)[1].splitlines()

    assert whole == [line.rstrip() for line in shown]
    assert 3 == len(on_terminal(NODES, 80)[1].splitlines())


def test_no_color_keeps_colours_from_a_terminal() -> None:
    """https://no-color.org."""
    arguments = ["preview", "-f", str(ROOT / "docs/examples/denied.yaml")]

    assert "\x1b" in CliRunner().invoke(main, arguments, color=True).stdout
    assert "\x1b" not in CliRunner().invoke(main, arguments, color=True, env={"NO_COLOR": "1"}).stdout
