"""The command line: `gpugate`, and `kubectl gpugate` as a kubectl plugin. One module a command.

Exit status: 0 all allowed or clean; 1 something denied or found; 2 bad input or usage; 3 warnings only, with
`--fail-on warn`. Errors stand on stderr, what a machine reads on stdout alone.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import Any, Final, NoReturn

import click

# Each command by the module that holds it, imported when it is called: `preview` needs no Flask.
_COMMANDS: Final = {
    "preview": "show what admission would do to objects, without a cluster",
    "explain": "tell which rules hold for objects, why the others do not, and what each does",
    "lint": "check rule files, with the place of each mistake",
    "test": "run the unit tests of rule files",
    "rules": "list the rules in force",
    "rules new": "write a rule and its test to start from",
    "schema": "print the JSON Schema of rule files, for editors",
    "nodes": "list what nodes offer, equal ones as one class",
    "matrix": "show which CUDA runtimes run where, and why not",
    "audit": "judge the pods that are in a cluster now",
    "export": "write resource rules as policies of the API server",
    "serve": "run the admission webhook",
    "certs": "make, show and replace the CA and the serving certificate",
    "node": "label a node with what its GPUs are, and say what is wrong with it",
}


class _Commands(click.Group):
    """Finds commands by name without importing the others; tells in one line what the system refuses."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command that the arguments name; a pipe that nobody reads ends it without a word."""
        if sys.stdout is None:
            _end(OSError("stdout is closed"))
        try:
            return super().main(*args, **settings)
        except OSError as error:
            _end(error)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it refuses is told without its usage, but a word that it does not know."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not (isinstance(error, click.BadParameter) or type(error) is click.UsageError):
                raise
            from webhook.cli.output.console import BadInputError  # noqa: PLC0415 - few runs need it

            raise BadInputError(error.format_message()) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (both := " ".join(args[:2])) in _COMMANDS:  # a name of two words
            args = [both, *args[2:]]
        elif args[0] not in _COMMANDS:
            from rules.schema.errors import suggestion  # noqa: PLC0415 - few runs need it

            if hint := suggestion(args[0], _COMMANDS):
                ctx.fail(f"No such command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(
            f"webhook.cli.commands.{cmd_name.replace(' ', '_')}"
        ).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _end(error: OSError) -> NoReturn:
    """Tell what the system refuses, and exit."""
    from webhook.cli.output.console import BadInputError, told  # noqa: PLC0415 - few runs need it

    complaint = BadInputError(told(error))
    complaint.show()
    sys.exit(complaint.exit_code)


@click.command(
    cls=_Commands,
    context_settings={
        "auto_envvar_prefix": "GPUGATE",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
    epilog="Any option may be given as a variable too: GPUGATE_SERVE_PORT=9443 gpugate serve.",
)
@click.version_option(package_name="gpugate", message="%(prog)s %(version)s")
def main(**_: Any) -> None:
    """GPU admission gate for Kubernetes: completes GPU pods, refuses what would fail on the node."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # UTF-8 in any locale, as kubectl has it
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if os.environ.get("NO_COLOR"):  # https://no-color.org; rich heeds it by itself
        click.get_current_context().color = False
