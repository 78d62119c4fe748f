"""A session: what it reads, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.builders import resource_rule
from webhook.cli.inputs.options import namespace_option, option_group, rules_in_force_option
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import BadInputError


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Return a file with one rule."""
    path = tmp_path / "rules.yaml"
    path.write_text(resource_rule(), "utf-8")
    return path


def test_nothing_is_read_before_it_is_used(tmp_path: Path) -> None:
    """A command that needs no nodes does not fail for a missing file of nodes."""
    session = Session(node_paths=(str(tmp_path / "none.yaml"),))

    assert len([*session.rules]) > 1
    with pytest.raises(BadInputError, match=r"none\.yaml: No such file"):
        _ = session.inventory


def test_rules_are_read_once_and_are_those_of_the_policy(rules: Path) -> None:
    """So that a file that changes meanwhile does not give two answers."""
    session = Session(rule_paths=(str(rules),))
    read = session.rules
    rules.unlink()

    assert read is session.policy.rules


def test_a_copy_with_other_options_reads_for_itself(rules: Path) -> None:
    """As whatif does with the rules before and after a change."""
    session = Session(rule_paths=(str(rules),))
    built_in = replace(session, rule_paths=())

    assert 1 == len([*session.rules]) < len([*built_in.rules])


def test_a_command_gets_the_options_of_the_session_and_those_of_a_group_together(rules: Path) -> None:
    """It declares them, and does not pass them on."""

    @click.command()
    @rules_in_force_option
    @namespace_option
    @option_group("area", lambda width, height: width * height, click.option("--width", type=int))
    @click.option("--height", type=int)
    @with_session
    def command(area: int, session: Session) -> None:
        click.echo(f"{area} {session.rules_namespace} {[rule.name for rule in session.rules]}")

    options = ["--rules", str(rules), "--rules-namespace", "kube-public", "--width", "3", "--height", "4"]
    result = CliRunner().invoke(command, options)

    assert result.output.startswith("12 kube-public ['")


def test_a_command_whose_rules_have_an_error_ends_with_2(tmp_path: Path) -> None:
    """Unless it sets another exit status."""
    (tmp_path / "rules.yaml").write_text(resource_rule().replace("limits:", "limts:"), "utf-8")

    @click.command()
    @with_session
    def command(session: Session) -> None:
        session.rule_paths = (str(tmp_path),)
        _ = session.rules

    assert 2 == CliRunner().invoke(command).exit_code
