"""Options that several commands have, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from rules import DEFAULT_NAMESPACE, Language

F = TypeVar("F", bound=Callable[..., Any])

# Which objects a command is about, and where those are that do not say it.
filenames_option: Final = click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File, folder, or - for stdin; may be repeated.",
)
object_namespace_option: Final = click.option(
    "-n", "--namespace", default="default", show_default=True, help="For objects that name none."
)
# By what it judges them.
rules_option: Final = click.option(
    "--rules",
    "rule_paths",
    multiple=True,
    metavar="PATH",
    help="Rule file or folder; may be repeated.  [default: those of the cluster, or the shipped rules]",
)
namespace_option: Final = click.option(
    "--rules-namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where all rules have to be."
)
nodes_option: Final = click.option(
    "--nodes",
    "node_paths",
    multiple=True,
    metavar="FILE",
    help="Nodes, as `kubectl get nodes -o yaml` has them.",
)
workloads_option: Final = click.option(
    "--workloads",
    "workload_paths",
    multiple=True,
    metavar="FILE",
    help="Kinds that hold pods, as `{example.com: {Kind: [spec.template]}}`, beside those that ship.",
)
# How it answers.
language_option: Final = click.option(
    "--lang",
    type=click.Choice([language.value for language in Language]),
    default=Language.EN.value,
    show_default=True,
    help="Language of messages.",
)
fail_on_option: Final = click.option(
    "--fail-on",
    type=click.Choice(["deny", "warn"]),
    default="deny",
    show_default=True,
    help="warn: exit 3 where there are only warnings.",
)


def cluster_options(command: F) -> F:
    """Give a command the options that say which cluster it asks."""
    context = click.option("--context", metavar="NAME", help="Ask the cluster of this context.")
    return click.option("--kubeconfig", metavar="FILE", help="Ask the cluster of this kubeconfig.")(
        context(command)
    )
