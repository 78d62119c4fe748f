"""Options that several commands share, each declared once, and groups of options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from rules import DEFAULT_NAMESPACE, Language
from rules.text.i18n import Message
from webhook.cli.inputs.cluster_source import ClusterSource, is_plugin
from webhook.cli.inputs.completers import CONTEXT, FILE, RULE_PATH
from webhook.cli.terminal.console import QUIET
from webhook.cli.terminal.usage_errors import UsageError

if TYPE_CHECKING:
    from rules.cuda.versions import CudaVersion

F = TypeVar("F", bound=Callable[..., Any])


def options(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command, in this order."""
    return lambda command: reduce(lambda decorated, add: add(decorated), reversed(decorators), command)


def option_group(name: str, make: Callable[..., Any], *decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command and passes their values as one argument, `name`.

    make: returns that argument. It gets the option values that its parameters name, including values of
    options that are declared above this group.
    """
    parameters = signature(make).parameters

    def add(command: F) -> F:
        @wraps(command)
        def wrapper(**values: Any) -> Any:
            group = make(**{key: values.pop(key) for key in parameters if key in values})
            return command(**{name: group}, **values)

        return options(*decorators)(wrapper)  # type: ignore[return-value]  # the command, with other arguments

    return add


def files_option(*names: str, help: str, type: click.Path = FILE) -> Callable[[F], F]:  # noqa: A002 - as click
    """Return an option that names files, and may be repeated."""
    metavar = "PATH" if type is RULE_PATH else "FILE"
    return click.option(*names, multiple=True, type=type, metavar=metavar, help=help)


def output_option(*kinds: str, help: str = "") -> Callable[[F], F]:  # noqa: A002 - as click names it
    """Return the option -o of a command; the first kind is the default."""
    choice = click.Choice(kinds)
    return click.option("-o", "--output", type=choice, default=kinds[0], show_default=True, help=help)


def port_option(default: int, help: str) -> Callable[[F], F]:  # noqa: A002 - as click names it
    """Return the option --port."""
    return click.option(
        "--port", type=click.IntRange(0, 65535), default=default, show_default=True, help=help
    )


def cuda_option(name: str, example: str, help: str) -> Callable[[F], F]:  # noqa: A002 - as click names it
    """Return an option whose value is a CUDA version or None. example: a version for error messages."""

    def parse(_context: click.Context, _parameter: click.Parameter, value: str | None) -> CudaVersion | None:
        from rules.cuda.versions import CudaVersion

        version = CudaVersion.parse(value) if value else None
        if value is not None and version is None:
            raise click.BadParameter(f"expected a CUDA version such as {example}, got {value!r}")
        return version

    return click.option(name, callback=parse, metavar="CUDA", help=help)


_fail_on: Final = partial(click.option, "--fail-on", show_default=True)
_ONLY_WARNINGS: Final = "warn: exit status 3 if there are only warnings"
fail_on_warning_option: Final = _fail_on(
    type=click.Choice(["error", "warn"]), default="error", help=f"{_ONLY_WARNINGS}."
)
fail_on_decision_option: Final = _fail_on(
    type=click.Choice(["deny", "warn", "unchecked"]),
    default="deny",
    help=f"{_ONLY_WARNINGS}; unchecked: also if something is not checked.",
)


def _objects(filenames: tuple[str, ...], paths: tuple[str, ...]) -> tuple[str, ...]:
    if not (filenames or paths):
        raise UsageError(Message("no objects given (use FILE or -f FILE; - is stdin)"))
    return (*filenames, *paths)


# The objects.
objects_option: Final = option_group(
    "filenames",
    _objects,
    files_option(
        "-f",
        "--filename",
        "filenames",
        help="File, folder or URL that contains the objects, or - for stdin; may be repeated, and -f "
        "omitted.",
    ),
    click.argument("paths", nargs=-1, type=FILE, metavar="[FILE]..."),
)
object_namespace_option: Final = click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="Namespace of objects that do not set one.",
)
existing_objects_option: Final = files_option(
    "-f",
    "--filename",
    "filenames",
    help="File or URL that contains pods and workloads, as `kubectl get pods,jobs -A -o yaml` prints them; "
    "- for stdin.  [default: those of the cluster]",
)


# What objects are evaluated with: rules, nodes and workload kinds.
def rules_option(help_text: str) -> Callable[[F], F]:
    """Return the option --rules. help_text: what a command uses the rules for."""
    return files_option("--rules", "rule_paths", type=RULE_PATH, help=help_text)


rules_in_force_option: Final = rules_option(
    "Rule file, folder or URL, or builtin; may be repeated.  [default: the rules of the cluster, or "
    "builtin: the built-in rules]"
)
namespace_option: Final = click.option(
    "--rules-namespace",
    default=DEFAULT_NAMESPACE,
    show_default=True,
    help="Namespace that contains the rule ConfigMaps.",
)
nodes_option: Final = files_option(
    "--nodes",
    "node_paths",
    help="File that contains nodes, as `kubectl get nodes -o yaml` prints them, NodePools and the like; or a "
    "GPU such as t4, or a machine type such as gke:g2-standard-8, eks:p4d.24xlarge; @570 adds a driver.",
)
facts_option: Final = click.option(
    "--facts",
    "facts_path",
    type=FILE,
    metavar="FACTS",
    help="Facts about drivers, GPUs and images: a bundle, as `gpugate facts bundle` writes it, a folder of "
    "tables, or builtin.  [default: the facts of the cluster, or the built-in ones]",
)
workloads_option: Final = files_option(
    "--workloads",
    "workload_paths",
    help="File of additional kinds that contain pods, such as `{example.com: {Kind: [spec.template]}}`.",
)


def _set_quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    del parameter
    context.meta[QUIET] = value


# The output.
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


# The cluster.
def kubeconfig_option(help_text: str = "Use the cluster of this kubeconfig.") -> Callable[[F], F]:
    """Return the option --kubeconfig."""
    return click.option("--kubeconfig", type=FILE, metavar="FILE", help=help_text)


def context_option(help_text: str = "Use the cluster of this context.") -> Callable[[F], F]:
    """Return the option --context."""
    return click.option("--context", type=CONTEXT, metavar="NAME", help=help_text)


def _cluster(kubeconfig: str | None, context: str | None) -> ClusterSource:
    return ClusterSource(kubeconfig, context, current=is_plugin())


cluster_options: Final = option_group(
    "cluster",
    _cluster,
    kubeconfig_option("Read from the cluster of this kubeconfig."),
    context_option(
        "Read from the cluster of this context.  [default as kubectl plugin: the current context]"
    ),
)
# The options of decisions except the rules.
node_and_cluster_options: Final = options(
    nodes_option, facts_option, cluster_options, namespace_option, language_option, quiet_option
)
decision_options: Final = options(rules_in_force_option, node_and_cluster_options)
# The options of commands that read labels of nodes.
label_options: Final = options(
    nodes_option,
    facts_option,
    rules_option(
        "Read labels as these rules define them.  [default: the rules of the cluster, or the built-in rules]"
    ),
    namespace_option,
    cluster_options,
    language_option,
    quiet_option,
)
