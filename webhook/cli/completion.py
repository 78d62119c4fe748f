"""`gpugate completion`, and what completion in shells and in kubectl needs besides click's own."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

# Set by the completion scripts of shells.
COMPLETE_VARIABLE: Final = "_GPUGATE_COMPLETE"
# Directives of cobra. DEFAULT: the shell completes files.
_DEFAULT, _NO_FILES, _ONLY_FOLDERS = 0, 4, 16
_LINE: Final = "COMP_LINE"


class _Completion(ShellComplete):
    """Completion in any shell: nothing after an unknown command."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the values of a word that is begun."""
        try:
            return super().get_completions(args, incomplete)
        except click.ClickException:
            return []


class Bash(_Completion, BashComplete):
    """Completion in bash, which splits words at `=` and `:`, for example in an ARN.

    Whole words are read from the line. bash inserts what follows the last `=` or `:`.
    """

    source_template = BashComplete.source_template.replace(
        "COMP_CWORD=", f'{_LINE}="${{{_LINE}:0:COMP_POINT}}" COMP_CWORD='
    )
    _typed = ""  # the begun value up to what bash replaces

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the complete words, and the word to complete."""
        _, current = super().get_completion_args()
        words = split_arg_string(os.environ[_LINE])[1:]
        begun = words.pop() if words and not os.environ[_LINE][-1].isspace() else ""
        value = begun.partition("=")[2] if begun.startswith("--") and "=" in begun else begun
        self._typed = value if current in ("=", ":") else value.removesuffix(current)
        return words, begun

    def format_completion(self, item: CompletionItem) -> str:
        """Return the line of the script for a value."""
        return f"{item.type},{shlex.quote(item.value.removeprefix(self._typed))}"


class Zsh(_Completion, ZshComplete):
    """Completion in zsh, also of a value after `--option=`."""

    source_template = ZshComplete.source_template.replace(
        "    local", "    [[ $words[CURRENT] == --*=* ]] && compset -P '*='\n    local", 1
    )


class Fish(_Completion, FishComplete):
    """Completion in fish, which replaces the whole word: with the option in `--output=y`."""

    source_template = re.sub(
        r"(__fish_complete_\w+ \$metadata\[2\])",
        r"printf '%%s\\n' (string match -r -- '^--[^=]*=' (commandline -ct); or echo)(\1)",
        FishComplete.source_template,
    )

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the values of a word that is begun."""
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        for item in items if option.startswith("--") and equals else ():
            if item.type == "plain":
                item.value = f"{option}={item.value}"
        return items


SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}
for name, of_shell in SHELLS.items():
    add_completion_class(of_shell, name)


def completions_for_kubectl(cli: click.Command, arguments: Sequence[str]) -> Iterator[str]:
    """Yield the values of the last argument, each with its description after a tab, then `:` and a directive.

    Source: https://github.com/spf13/cobra/blob/v1.8.1/completions.go; kubectl since 1.26.
    """
    *complete, begun = arguments or [""]
    items = _Completion(cli, {}, "gpugate", "").get_completions(complete, begun)
    kinds = {item.type for item in items}
    for item in items:
        if item.type == "plain":
            yield f"{item.value}\t{item.help}" if item.help else item.value
    yield f":{_DEFAULT if 'file' in kinds else _ONLY_FOLDERS if 'dir' in kinds else _NO_FILES}"


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options and their values: files, contexts of the kubeconfig, rules, nodes in
    files. For `kubectl gpugate`, the completion of kubectl calls kubectl_complete-gpugate in $PATH.

    \b
    Examples:
      gpugate completion bash > ~/.local/share/bash-completion/completions/gpugate
      gpugate completion zsh > "${fpath[1]}/_gpugate"
      gpugate completion fish > ~/.config/fish/completions/gpugate.fish
    """
    of_shell = SHELLS[shell](context.find_root().command, {}, "gpugate", COMPLETE_VARIABLE)
    click.echo(of_shell.source(), nl=False)
