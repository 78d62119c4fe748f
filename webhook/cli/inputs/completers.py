"""Types of parameters whose values a shell can complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

# A kubeconfig is of some kilobytes; larger files are not read while a user waits.
_LARGEST: Final = 2**20
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"


class _Known(StringParamType):
    """A text with completion. values: returns known values."""

    def __init__(self, values: Callable[[click.Context, click.Parameter], Iterable[str]]) -> None:
        self._values = values

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the known values that begin with a text."""
        return [CompletionItem(value) for value in self._values(ctx, param) if value.startswith(incomplete)]


class _RulePath(click.Path):
    """A file or folder with rules, or `builtin`."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return `builtin` if it is begun and no file begins so, else files."""
        if incomplete and "builtin".startswith(incomplete) and not any(Path().glob(f"{incomplete}*")):
            return [CompletionItem("builtin")]
        return super().shell_complete(ctx, param, incomplete)


def _contexts(ctx: click.Context, _: click.Parameter) -> Iterable[str]:
    """Return the contexts of the kubeconfig that --kubeconfig, $KUBECONFIG or the home folder names."""
    chosen = ctx.params.get("kubeconfig")
    paths = [chosen] if chosen else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    paths = [path for path in paths if path] or [_DEFAULT_KUBECONFIG]
    return [name for path in paths for name in _contexts_in(Path(path).expanduser())]


def _contexts_in(path: Path) -> Iterator[str]:
    """Yield the names of the contexts in a kubeconfig; nothing if it cannot be read."""
    from rules.text.yaml_document import SourceError, read

    try:
        if path.stat().st_size > _LARGEST:
            return
        text = path.read_text("utf-8")
    except (OSError, ValueError):
        return
    for document in read(text, str(path)):
        value: Any = None if isinstance(document, SourceError) else document.value
        contexts = value.get("contexts") if isinstance(value, dict) else None
        for entry in contexts if isinstance(contexts, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                yield entry["name"]


def _rules(ctx: click.Context, _: click.Parameter) -> Iterable[str]:
    """Return the rules in the files of --rules, or the built-in ones; `new` is the command `rules new`."""
    from rules import load_rules
    from webhook.cli.inputs.files import read_path, rule_folder
    from webhook.cli.terminal.console import BadInputError

    paths = ctx.params.get("rule_paths") or ("builtin",)
    try:
        texts = [text for path in paths for text in read_path(rule_folder(path), lenient=True)]
    except BadInputError:
        return []
    return ["new", *(rule.name for rule in load_rules(texts).rules)]


def _nodes(ctx: click.Context, _: click.Parameter) -> Iterable[str]:
    """Return the nodes in the files of --nodes; `snapshot` is the command `nodes snapshot`."""
    from rules import InventoryError
    from webhook.cli.inputs.nodes import read_nodes
    from webhook.cli.terminal.console import BadInputError

    try:
        inventory = read_nodes(ctx.params.get("node_paths", ()))[0]
    except (BadInputError, InventoryError):
        return ["snapshot"]
    return ["snapshot", *inventory.names(inventory.everything)]


FILE: Final = click.Path()
FOLDER: Final = click.Path(file_okay=False)
RULE_PATH: Final = _RulePath()
CONTEXT: Final = _Known(_contexts)
RULE: Final = _Known(_rules)
NODE: Final = _Known(_nodes)
