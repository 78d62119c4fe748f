"""The command line: `gpugate`, and `kubectl gpugate` as a kubectl plugin. One module a command.

Exit status: 0 success; 1 objects denied or errors found; 2 bad input or usage; 3 only warnings, with
`--fail-on warn`; as with kubectl, 130 after Ctrl-C and 141 if the reader of stdout has ended. Errors go to
stderr; machine-readable output goes to stdout.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from webhook.cli.completion import COMPLETE_VARIABLE

# Name and summary of each command. Its module is imported when it is called: `preview` does not need Flask.
_COMMANDS: Final = {
    "preview": "Show the admission result and the patch for objects, without a cluster",
    "explain": "Show which rules match objects, why others do not, and what each does",
    "lint": "Check rule files and show the position of each error",
    "test": "Run the unit tests of rule files",
    "rules": "List rules and their state",
    "rules new": "Print a commented rule and its test, to edit",
    "schema": "Print the JSON Schema of rule files, for editors",
    "nodes": "List the GPU capabilities of nodes, grouped by equal capabilities",
    "nodes snapshot": "Print nodes without their names, as a small file for CI",
    "matrix": "Show which CUDA runtimes are compatible with which nodes or drivers",
    "image": "Show the CUDA facts of container images, from registries and files",
    "audit": "Evaluate the existing pods and workloads of a cluster",
    "ui": "Open a local page that shows the admission result while you edit a pod",
    "whatif": "Show what a change of drivers, nodes, images or rules does to workloads",
    "why": "Say why a pod does not start or run, with evidence and a fix",
    "facts": "Show the facts about CUDA, drivers and GPUs, or refresh them from public documents",
    "export": "Convert resource rules to admission policies of the API server",
    "serve": "Run the admission webhook",
    "certs": "Create, show and rotate the CA and the serving certificate",
    "node": "Label a GPU node and diagnose its driver",
    "images": "Read facts about the images of a cluster from registries",
    "completion": "Print the script that completes commands in bash, zsh or fish",
    "version": "Show the versions of gpugate and its rules, here and in a cluster",
}
# Commands with a folder of their own; the module of any other one is `commands/NAME.py`.
_MODULES: Final = {
    **{name: f"{name}.command" for name in ("audit", "export", "facts", "test", "ui", "whatif", "why")},
    "completion": "completion",
    "rules new": "test.new",
}
# The extra of pyproject.toml that installs a module.
_EXTRAS: Final = {
    "aiohttp": "cluster",
    "kubernetes": "cluster",
    "urllib3": "cluster",  # comes with kubernetes
    "yarl": "cluster",  # comes with aiohttp
    "cryptography": "server",
    "flask": "server",
    "httptools": "server",
    "werkzeug": "server",  # comes with flask
    "pynvml": "agent",
}
_SETTINGS: Final = {"standalone_mode": False, "complete_var": COMPLETE_VARIABLE}
# Plus the number of a signal: the exit status that a shell reports for a program that the signal ended.
_SIGNALLED: Final = 128


@contextmanager
def _ended_by_closed_pipe() -> Iterator[None]:
    """Exit if the reader of stdout has ended; click would exit with 1."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        sys.exit(_SIGNALLED + signal.SIGPIPE)


class _Commands(click.Group):
    """Command group that imports only the called command, and prints an error as one line."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command line and exit; a closed pipe ends it without an error message."""
        try:
            status = self._run(args, settings)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.message)  # the help
            status = 0
        except click.Abort:
            status = _SIGNALLED + signal.SIGINT
        except (click.ClickException, OSError, ModuleNotFoundError) as error:
            arguments = settings.get("args", args[0] if args else None)
            status = _show(error, sys.argv[1:] if arguments is None else list(arguments))
        sys.exit(status)

    def _run(self, args: tuple[Any, ...], settings: dict[str, Any]) -> Any:
        """Run the command line and return its exit status; all output is written then. Raises OSError."""
        if sys.stdout is None:
            raise OSError("stdout is closed")
        try:
            status = super().main(*args, **settings | _SETTINGS)
        except SystemExit as ended:
            status = ended.code
        with _ended_by_closed_pipe():
            sys.stdout.flush()
        return status

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        """Parse the options before the command; --help and --version print here."""
        with _ended_by_closed_pipe():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an invalid value prints one line, an unknown option or command its usage as well."""
        try:
            with _ended_by_closed_pipe():
                return super().invoke(ctx)
        except click.UsageError as error:
            from webhook.cli.terminal.usage_errors import UsageError

            if isinstance(error, click.BadParameter | UsageError) or type(error) is click.UsageError:
                error.ctx = None  # of one line
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text, without importing the commands."""
        words = [
            CompletionItem(name, help=summary)
            for name, summary in _COMMANDS.items()
            if name.startswith(incomplete) and " " not in name
        ]
        return words + click.Command.shell_complete(self, ctx, incomplete)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (two_words := " ".join(args[:2])) in _COMMANDS:  # a name of two words
            args = [two_words, *args[2:]]
        elif args[0] not in _COMMANDS:
            from rules.schema.errors import suggestion

            if hint := suggestion(args[0], _COMMANDS):
                ctx.fail(f"No such command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = _MODULES.get(cmd_name, f"commands.{cmd_name.replace(' ', '_')}")
        gc.disable()  # modules live as long as the command: a collection would find nothing
        try:
            command: click.Command = importlib.import_module(f"webhook.cli.{module}").command
        finally:
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _show(error: click.ClickException | OSError | ModuleNotFoundError, arguments: Sequence[str]) -> int:
    """Print the error that ends a command, and return its exit status. Raises it if it is a bug."""
    from rules.text.i18n import Message, os_error_text
    from webhook.cli.terminal.console import BadInputError, show_error
    from webhook.cli.terminal.usage_errors import language_of

    if isinstance(error, OSError):
        error = BadInputError(os_error_text(error))
    elif isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRAS:
            raise error
        words = Message("not installed: {module}; run: pip install 'gpugate[{extra}]'")
        error = BadInputError(words.having(module=module, extra=_EXTRAS[module]))
    show_error(error, language_of(arguments, os.environ))
    return error.exit_code


@click.command(
    cls=_Commands,
    context_settings={
        "auto_envvar_prefix": "GPUGATE",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
    epilog="Environment variables set options, too: GPUGATE_SERVE_PORT=9443 gpugate serve. GPUGATE_LANG=zh "
    "sets --lang for all commands.",
)
@click.version_option(package_name="gpugate", message="%(prog)s %(version)s")
def main(**_: Any) -> None:
    """GPU admission webhook for Kubernetes: completes GPU pods, denies those that would fail on the node."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # UTF-8 in any locale, like kubectl
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    # https://no-color.org, https://force-color.org; rich handles both itself.
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
    elif os.environ.get("FORCE_COLOR"):
        click.get_current_context().color = True


def complete_for_kubectl() -> None:
    """Run `kubectl_complete-gpugate`, which kubectl calls with the arguments after `kubectl gpugate`."""
    from webhook.cli.completion import completions_for_kubectl

    for line in completions_for_kubectl(main, sys.argv[1:]):
        click.echo(line)
