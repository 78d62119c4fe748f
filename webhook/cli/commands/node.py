"""`gpugate node`: a node's labels, and a diagnosis, from what its driver says. Runs on the node itself."""

from __future__ import annotations

import json
import logging
import random
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from webhook.agent.diagnosis import diagnose, explain
from webhook.agent.labels import told_by
from webhook.agent.nvml_probe import MPS_DIRECTORIES, Failure, Probe, kernel_module, probe
from webhook.cli.output.console import BadInputError
from webhook.cli.output.node_report import report_of, show_probe
from webhook.cluster.in_cluster import in_pod
from webhook.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from webhook.agent.node_writer import NodeWriter
    from webhook.cluster.client import ClusterApi

_log = logging.getLogger("gpugate.agent")

F = TypeVar("F", bound=Callable[..., Any])

_BROKEN: Final = 1
_NO_NVML: Final = 2
# Of the interval so much is left to chance, so that the agents of a cluster do not ask in step.
_CHANCE: Final = 0.1

_output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)


def _node_options(command: F) -> F:
    """Give a command the options that say which node it runs on, and where it looks."""
    for option in (
        click.option("--context", metavar="NAME", help="The cluster of this context."),
        click.option("--kubeconfig", metavar="FILE", help="The cluster of this file."),
        click.option("--node-name", envvar="NODE_NAME", help="This node's name.  [default: $NODE_NAME]"),
        click.option(
            "--mps-directory",
            "mps_directories",
            type=click.Path(path_type=Path),
            multiple=True,
            default=MPS_DIRECTORIES,
            show_default=True,
            help="Where MPS control daemons have their pipes; may be repeated.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def command() -> None:
    """Label this node with what its GPUs are, and say what is wrong with it.

    Both ask the driver of the machine that they run on, through NVML.

    \b
    Examples:
      gpugate node check
      gpugate node label --dry-run
      gpugate node label --watch --node-name gpu-1
    """


@command.command()
@click.option("--once/--watch", default=True, help="Once, the default, or again and again.")
@click.option(
    "--interval",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="Seconds from one look to the next; a driver that changes is seen within five.",
)
@click.option("--dry-run", is_flag=True, help="Print the labels and ask no cluster.")
@click.option(
    "--take-over", is_flag=True, help="Also where others have the CUDA labels with other values, set them."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="With --watch, serve metrics here, over plain HTTP; 0 takes any free port.",
)
@_output_option
@_node_options
def label(
    once: bool,
    interval: float,
    dry_run: bool,
    take_over: bool,
    metrics_port: int | None,
    output: str,
    node_name: str | None,
    kubeconfig: str | None,
    context: str | None,
    mps_directories: tuple[Path, ...],
) -> None:
    """Set this node's labels to what its driver says.

    Labels that the agent set and that no longer hold go; those of others are never touched. With --watch, a
    node without a driver is waited for. Without it, exit status 2 says that there is none.

    \b
    Examples:
      gpugate node label --dry-run -o json | jq .labels
      gpugate node label --node-name gpu-1 --context production
      gpugate node label --watch --metrics-port 8080
    """
    look = partial(probe, mps_directories)
    if once and metrics_port is not None:
        raise click.UsageError("--metrics-port serves while the agent watches; add --watch")
    if dry_run:
        if not once:
            raise click.UsageError("--dry-run looks once; leave out --watch")
        _show_labels(look(), output)
        return
    # Imported here: the client takes a fifth of a second, and a dry run needs none.
    from certs.kubernetes_api import KubernetesError  # noqa: PLC0415
    from webhook.agent.node_writer import NodeWriter  # noqa: PLC0415

    try:
        api = _cluster(kubeconfig, context)
    except BadInputError:
        if once and isinstance(found := look(), Failure):  # which is to be mended first
            _show_labels(found, output)
        raise
    publisher = NodeWriter(api, _named(node_name), take_over=take_over)
    if not once:
        sys.exit(_watch(publisher, look, interval, metrics_port))
    found = look()
    try:
        if isinstance(found, Probe):
            publisher.publish(found)
        elif kernel_module() is None:
            publisher.publish(None)
    except KubernetesError as error:
        raise BadInputError(str(error)) from None
    _show_labels(found, output)


@command.command()
@_output_option
@_node_options
def check(
    output: str,
    node_name: str | None,
    kubeconfig: str | None,
    context: str | None,
    mps_directories: tuple[Path, ...],
) -> None:
    """Say what pods this node can run, and what is wrong with it.

    With a cluster, and on a node of one, its labels are compared too. Exit status 1 where pods will fail.

    \b
    Examples:
      gpugate node check
      gpugate node check -o json | jq .problems
      kubectl -n gpugate-agent exec POD -- gpugate node check
    """
    found, module = probe(mps_directories), kernel_module()
    problems = diagnose(found, module, _labels(kubeconfig, context, node_name))
    if output == "json":
        click.echo(json.dumps(report_of(found, module, problems), ensure_ascii=False))
    elif isinstance(found, Probe):
        show_probe(found)
    for problem in problems if output == "text" else ():
        head = click.style("error:", fg="red") if problem.broken else click.style("warning:", fg="yellow")
        click.echo(f"{head} {problem}", err=True)
    sys.exit(_BROKEN if any(problem.broken for problem in problems) else 0)


def _cluster(kubeconfig: str | None, context: str | None) -> ClusterApi:
    """Return the cluster. Raises BadInputError."""
    from webhook.cluster.client import ClusterError, connect  # noqa: PLC0415 - as in `label`

    try:
        return connect(kubeconfig, context)
    except ClusterError as error:
        raise BadInputError(str(error)) from None


def _named(node_name: str | None) -> str:
    if not node_name:
        raise click.UsageError("which node is this? Name it with --node-name or $NODE_NAME")
    return node_name


def _labels(kubeconfig: str | None, context: str | None, node_name: str | None) -> Mapping[str, str] | None:
    """Return this node's labels; None without a cluster, or where the pod's own does not tell them.

    Raises BadInputError where a cluster is named and does not.
    """
    named = bool(kubeconfig or context)
    if not named and not (in_pod() and node_name):
        return None
    from certs.kubernetes_api import KubernetesError  # noqa: PLC0415 - as in `label`
    from webhook.cluster.client import NODES, connect  # noqa: PLC0415 - as in `label`

    try:
        node = connect(kubeconfig, context).get(f"{NODES}/{_named(node_name)}")
    except KubernetesError as error:
        if named:
            raise BadInputError(str(error)) from None
        click.echo(f"{click.style('warning:', fg='yellow')} labels are not compared: {error}", err=True)
        return None
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    return labels


def _watch(
    publisher: NodeWriter, look: Callable[[], Probe | Failure], interval: float, metrics_port: int | None
) -> int:
    """Watch until a signal comes or the driver was replaced, and return the exit status.

    A thread of its own does the work and is left behind: NVML may hang on a broken GPU, and a signal has to
    end the process all the same.
    """
    from webhook.agent.label_loop import LabelLoop  # noqa: PLC0415 - as in `label`
    from webhook.agent.metrics import serve  # noqa: PLC0415 - as in `label`

    configure_logs()
    if metrics_port is not None:
        try:
            _log.info("metrics are served at port %d", serve(metrics_port))
        except OSError as error:
            raise BadInputError(f"cannot listen at port {metrics_port}: {error.strerror}") from None
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # of a call that fails, the agent tells itself
    ended = threading.Event()
    status = [1]  # of a bug, whose traceback is in the log

    def work() -> None:
        try:
            LabelLoop(publisher, look, kernel_module, ended.wait, interval * _by_chance()).run()
            status[0] = 0
        finally:
            ended.set()

    def stop(*_: object) -> None:
        status[0] = 0
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    threading.Thread(target=work, name="watch", daemon=True).start()
    ended.wait()
    return status[0]


def _by_chance() -> float:
    return random.uniform(1 - _CHANCE, 1 + _CHANCE)  # noqa: S311 - no secret hangs on it


def _show_labels(found: Probe | Failure, output: str) -> None:
    """Print what the node says; exits where NVML says nothing."""
    if isinstance(found, Failure):
        problem = explain(found, kernel_module())
        click.echo(f"{click.style('error:', fg='red')} {problem}", err=True)
        sys.exit(_NO_NVML)
    told = told_by(found)
    if output == "json":
        click.echo(json.dumps({"labels": told.labels, "annotations": told.annotations}, ensure_ascii=False))
        return
    for key, value in {**told.labels, **told.annotations}.items():
        click.echo(f"{key}={value}")
