"""Options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click

from rules import DEFAULT_NAMESPACE, Language
from webhook.cli.inputs.cluster_source import ClusterSource, is_plugin
from webhook.cli.inputs.completers import CONTEXT, FILE, RULE_PATH
from webhook.cli.terminal.console import QUIET

F = TypeVar("F", bound=Callable[..., Any])


def filenames_option(help_text: str) -> Callable[[F], F]:
    """Return a decorator that adds -f and FILE arguments, which are the same, to a command."""

    def add(command: F) -> F:
        @wraps(command)
        def wrapper(filenames: tuple[str, ...], paths: tuple[str, ...], **others: Any) -> Any:
            if not (filenames or paths):
                raise click.UsageError("no objects given (use FILE or -f FILE; - is stdin)")
            return command(filenames=(*filenames, *paths), **others)

        option = click.option(
            "-f", "--filename", "filenames", multiple=True, type=FILE, metavar="FILE", help=help_text
        )
        return option(click.argument("paths", nargs=-1, type=FILE, metavar="[FILE]...")(wrapper))  # type: ignore[return-value]

    return add


# The objects.
objects_option: Final = filenames_option(
    "File, folder or URL that contains the objects, or - for stdin; may be repeated, and -f omitted."
)
object_namespace_option: Final = click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="Namespace of objects that do not set one.",
)
# What they are evaluated against.
rules_option: Final = click.option(
    "--rules",
    "rule_paths",
    multiple=True,
    type=RULE_PATH,
    metavar="PATH",
    help="Rule file, folder or URL, or builtin; may be repeated.  [default: the rules of the cluster, or "
    "builtin: the built-in rules]",
)
namespace_option: Final = click.option(
    "--rules-namespace",
    default=DEFAULT_NAMESPACE,
    show_default=True,
    help="Namespace that contains the rule ConfigMaps.",
)
nodes_option: Final = click.option(
    "--nodes",
    "node_paths",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="File that contains nodes, as `kubectl get nodes -o yaml` prints them, NodePools and the like.",
)
workloads_option: Final = click.option(
    "--workloads",
    "workload_paths",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="File of additional kinds that contain pods, such as `{example.com: {Kind: [spec.template]}}`.",
)


# The output.
def _set_quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    del parameter
    context.meta[QUIET] = value


def output_option(*kinds: str, help: str = "") -> Callable[[F], F]:  # noqa: A002 - as click names it
    """Return the option -o of a command; the first kind is the default."""
    choice = click.Choice(kinds)
    return click.option("-o", "--output", type=choice, default=kinds[0], show_default=True, help=help)


language_option: Final = click.option(
    "--lang",
    type=click.Choice([language.value for language in Language]),
    default=Language.EN.value,
    show_default=True,
    envvar="GPUGATE_LANG",
    help="Language of messages and headings; $GPUGATE_LANG sets it, too.",
)
quiet_option: Final = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_set_quiet,
    help="Print no summaries and notes; errors, warnings and the exit status stay.",
)
fail_on_option: Final = click.option(
    "--fail-on",
    type=click.Choice(["deny", "warn"]),
    default="deny",
    show_default=True,
    help="warn: exit status 3 if there are only warnings.",
)


def cluster_options(command: F) -> F:
    """Add the options that select a cluster to a command, which gets them as `cluster`."""

    @wraps(command)
    def wrapper(kubeconfig: str | None, context: str | None, **others: Any) -> Any:
        return command(cluster=ClusterSource(kubeconfig, context, current=is_plugin()), **others)

    for option in (
        click.option(
            "--context",
            type=CONTEXT,
            metavar="NAME",
            help="Read from the cluster of this context.  [default as kubectl plugin: the current context]",
        ),
        click.option(
            "--kubeconfig", type=FILE, metavar="FILE", help="Read from the cluster of this kubeconfig."
        ),
    ):
        wrapper = option(wrapper)
    return wrapper  # type: ignore[return-value]  # the command, with other arguments


# Access to registries.
insecure_registry_option: Final = click.option(
    "--insecure-registry",
    "insecure",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Use http for this registry; may be repeated.",
)
mirror_option: Final = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="HOST=MIRROR[/PREFIX]",
    help="Read images of a registry from a mirror; may be repeated.",
)
ca_file_option: Final = click.option(
    "--ca-file", type=FILE, metavar="FILE", help="Certificates of CAs to trust in addition, as PEM."
)
