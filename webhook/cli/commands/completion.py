"""`gpugate completion`: the script that completes commands, options, files, contexts and rules in a shell."""

from __future__ import annotations

import click

from webhook.cli import COMPLETE_VARIABLE
from webhook.cli.completion import SHELLS


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
