"""`gpugate node`: labels and diagnosis of a GPU node, from NVML. Runs on the node."""

from __future__ import annotations

import logging
import random
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from msgspec.structs import replace

from rules import Language
from rules.text.i18n import Joined, Message, os_error_reason
from webhook.agent.container_toolkit import HOST_ROOT, ContainerToolkit, read_toolkit
from webhook.agent.cuda_view import LIBRARY, CudaView, see_cuda_in_time
from webhook.agent.diagnosis import HANGS, Diagnosis, diagnose, explain
from webhook.agent.fabric_manager import fabric_manager_version
from webhook.agent.labels import (
    NO_METADATA,
    capabilities_of,
    gpu_facts,
    metadata_of,
    mps_capable,
    topology_of,
)
from webhook.agent.nvml_probe import MPS_DIRECTORIES, NOUVEAU, Failure, Gpu, Probe, kernel_module, probe
from webhook.agent.supported_workloads import CompatibilityMode, Runtime, data_types, runtimes
from webhook.cli.inputs.cluster_source import ClusterSource
from webhook.cli.inputs.completers import FILE
from webhook.cli.inputs.facts import read_facts, release_of
from webhook.cli.inputs.options import (
    context_option,
    kubeconfig_option,
    language_option,
    option_group,
    options,
    output_option,
)
from webhook.cli.terminal.console import (
    UNKNOWN,
    BadInputError,
    padded,
    print_error,
    print_json,
    print_warning,
    show_table,
)
from webhook.cli.terminal.usage_errors import UsageError, message_of
from webhook.cli.terminal.vocabulary import (
    DATA_TYPES,
    LIBCUDA,
    LIBCUDA_FAILS,
    LIBCUDA_MISSING,
    MPS_DAEMON,
    MPS_FIT,
    NODE_VERSIONS,
    NOT_COMPARED,
    NOT_LISTENING,
    RANGE,
    TOOLKIT,
    TOOLKIT_UNKNOWN,
    TOPOLOGIES,
    TOPOLOGY,
)
from webhook.cluster.in_cluster import in_pod
from webhook.cluster.resource import NODES
from webhook.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from webhook.agent.node_writer import NodeWriter


_VERSION: Final = re.compile(r"\d+\.\d+")
# Columns of a name before its facts.
_NAME_WIDTH: Final = 13


def report_of(
    result: Probe | Failure,
    module: str | None,
    toolkit: ContainerToolkit | None,
    view: CudaView | None,
    problems: tuple[Diagnosis, ...],
    language: Language,
) -> dict[str, Any]:
    """Return the report of a node as JSON. module: of the kernel; view: what a program sees."""
    known = result if isinstance(result, Probe) else Probe(None, None, ())
    capabilities = capabilities_of(known)
    published = metadata_of(result) if isinstance(result, Probe) else NO_METADATA
    return {
        "kernelDriver": module,
        "driver": capabilities.driver,
        "cuda": str(known.cuda) if known.cuda else None,
        "gpus": [gpu_facts(gpu) for gpu in known.gpus],
        "runtimes": [_runtime(runtime, language) for runtime in runtimes(capabilities)]
        if isinstance(result, Probe)
        else [],
        "dataTypes": data_types(capabilities),
        "topology": topology_of(known),
        "mps": {"capable": mps_capable(known), "daemons": list(known.mps)},
        "libcuda": None
        if view is None
        else {
            "error": None if view.hung else view.error,
            "cuda": view.cuda and str(view.cuda),
            "devices": view.devices,
        },
        "containerToolkit": {"mode": toolkit.mode.value, "version": toolkit.version or None}
        if toolkit
        else None,
        "labels": published.labels,
        "problems": [
            {
                "what": diagnosis.problem.in_language(language),
                "remedy": diagnosis.remedy.in_language(language),
                "broken": diagnosis.broken,
                "certainty": diagnosis.certainty,
                "nvml": diagnosis.nvml or None,
                "at": diagnosis.at.en or None,
                "cuda": diagnosis.cuda_name or None,
            }
            for diagnosis in problems
        ],
    }


def _runtime(runtime: Runtime, language: Language) -> dict[str, Any]:
    return {
        "cuda": str(runtime.cuda),
        "by": runtime.mode.value if runtime.mode else None,
        "unknown": runtime.is_unknown,
        "reasons": [finding.reason.in_language(language) for finding in runtime.reasons],
    }


def show_probe(result: Probe, language: Language) -> None:
    """Print what NVML reports of a node as text."""
    capabilities = capabilities_of(result)
    versions = NODE_VERSIONS.in_language(language)
    click.echo(versions.format(driver=capabilities.driver or UNKNOWN, cuda=result.cuda or UNKNOWN))
    show_table([_row(index, gpu) for index, gpu in enumerate(result.gpus)], language)
    click.echo()
    groups = groupby(runtimes(capabilities), _key)
    show_table([_row_of_group(list(group), language) for _, group in groups], language, wide=True)
    types = ", ".join(name for name, able in data_types(capabilities).items() if able)
    fit = MPS_FIT[mps_capable(result)].in_language(language)
    if result.mps:
        fit += MPS_DAEMON.having(directories=" ".join(result.mps)).in_language(language)
    click.echo(f"\n{padded(DATA_TYPES.in_language(language), _NAME_WIDTH)}{types or UNKNOWN}")
    topology = TOPOLOGIES[topology_of(result)].in_language(language)
    click.echo(f"{padded(TOPOLOGY.in_language(language), _NAME_WIDTH)}{topology}")
    click.echo(f"{padded('MPS', _NAME_WIDTH)}{fit}")


def show_programs(toolkit: ContainerToolkit | None, view: CudaView | None, language: Language) -> None:
    """Print what programs get of a node, which is known without NVML. view: what a program sees."""
    shown = TOOLKIT_UNKNOWN
    if toolkit:
        shown = TOOLKIT.having(mode=toolkit.mode.value, version=toolkit.version or UNKNOWN)
    click.echo(f"{padded('toolkit', _NAME_WIDTH)}{shown.in_language(language)}")
    click.echo(f"{padded('libcuda', _NAME_WIDTH)}{_seen(view).in_language(language)}")


def _seen(view: CudaView | None) -> Message:
    if view is None:
        return LIBCUDA_MISSING.having(library=LIBRARY)
    if view.hung:
        return HANGS
    if view.error:
        return LIBCUDA_FAILS.having(call=view.call, error=view.error)
    return LIBCUDA.having(cuda=view.cuda, devices=view.devices)


def _row(index: int, gpu: Gpu) -> dict[str, str]:
    facts = gpu_facts(gpu)
    memory = f"{facts['memoryMiB']}Mi" if "memoryMiB" in facts else UNKNOWN
    instances = "on" if gpu.mig_profiles is None else " ".join(gpu.mig_profiles) or "no instances"
    return {
        "gpu": str(index),
        "product": facts.get("product", UNKNOWN),
        "compute": facts.get("compute", UNKNOWN),
        "memory": memory,
        "mig": instances if gpu.mig else UNKNOWN,
        "mode": facts.get("computeMode", UNKNOWN),
    }


def _key(runtime: Runtime) -> tuple[str, str]:
    """Return the key of runtimes that share a row: whether they run, and the reasons without versions."""
    return _support(runtime), "; ".join(_VERSION.sub("", finding.reason.en) for finding in runtime.reasons)


def _support(runtime: Runtime) -> str:
    if runtime.mode is None:
        return "unknown" if runtime.is_unknown else "no"
    if runtime.mode is CompatibilityMode.DRIVER:
        return "yes, with a warning" if runtime.reasons else "yes"
    return f"by {runtime.mode.value}"


def _row_of_group(group: list[Runtime], language: Language) -> dict[str, str]:
    """Return the row of consecutive runtimes with the same key."""
    first, last = group[0], group[-1]
    return {
        "CUDA": str(first.cuda)
        if first is last
        else RANGE.having(first=first.cuda, last=last.cuda).in_language(language),
        "runs": _support(first),
        "reason": Joined("; ", [finding.reason for finding in first.reasons]).in_language(language),
    }


_log = logging.getLogger("gpugate.agent")

_BROKEN: Final = 1
_NO_NVML: Final = 2
# Random fraction of the interval, which prevents that all agents of a cluster send requests at the same time.
_JITTER: Final = 0.1


class _Node(NamedTuple):
    """The options of this node."""

    host_root: Path
    mps_directories: tuple[Path, ...]
    node_name: str | None
    cluster: ClusterSource
    lang: str

    @property
    def language(self) -> Language:
        """Language of messages."""
        return Language(self.lang)

    @property
    def name(self) -> str:
        """Name of the node. Raises click.UsageError if it is not given."""
        if not self.node_name:
            raise UsageError(Message("no node name given (use --node-name or $NODE_NAME)"))
        return self.node_name

    def probe(self) -> Probe | Failure:
        """Return what NVML reports of this machine, or its failure."""
        return probe(self.mps_directories, self.host_root)


_node_options: Final = options(
    output_option("text", "json"),
    option_group(
        "node",
        _Node,
        click.option(
            "--host-root",
            type=click.Path(path_type=Path),
            envvar="GPUGATE_HOST_ROOT",
            default=HOST_ROOT,
            show_default=True,
            help="Root of the node's file system, with the configuration of NVIDIA Container Toolkit.",
        ),
        click.option(
            "--mps-directory",
            "mps_directories",
            type=click.Path(path_type=Path),
            multiple=True,
            default=MPS_DIRECTORIES,
            show_default=True,
            help="Pipe directory of an MPS control daemon; may be repeated.",
        ),
        click.option("--node-name", envvar="NODE_NAME", help="Name of this node.  [default: $NODE_NAME]"),
        option_group("cluster", ClusterSource, kubeconfig_option(), context_option()),
        language_option,
    ),
)


@click.group()
def command() -> None:
    """Label this node with its GPU capabilities, or diagnose its driver.

    Both commands query the driver of this machine through NVML.

    \b
    Examples:
      gpugate node check
      gpugate node label --dry-run
      gpugate node label --watch --node-name gpu-1
    """


@command.command()
@click.option("--once/--watch", default=True, help="Update the labels once (default) or continuously.")
@click.option(
    "--interval",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="Seconds between updates with --watch; a driver change is detected within five seconds.",
)
@click.option("--dry-run", is_flag=True, help="Print the labels without using a cluster.")
@click.option(
    "--take-over", is_flag=True, help="Overwrite CUDA labels that another publisher set to other values."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port for metrics over plain HTTP, with --watch; 0 selects a free port.",
)
@_node_options
def label(
    once: bool,
    interval: float,
    dry_run: bool,
    take_over: bool,
    metrics_port: int | None,
    output: str,
    node: _Node,
) -> None:
    """Set the labels of this node from its driver.

    Removes outdated labels that the agent set; never changes labels of others. With --watch, waits for a
    missing driver. Without --watch, the exit status is 2 if there is no driver.

    \b
    Examples:
      gpugate node label --dry-run -o json | jq .labels
      gpugate node label --node-name gpu-1 --context production
      gpugate node label --watch --metrics-port 8080
    """
    if once and metrics_port is not None:
        raise UsageError(Message("--metrics-port requires --watch"))
    if dry_run:
        if not once:
            raise UsageError(Message("--dry-run cannot be used with --watch"))
        _show_labels(node.probe(), output, node.language)
        return
    # Imported here: the import takes 0.2 s, and a dry run does not use a cluster.
    from certs.kubernetes_api import KubernetesError
    from webhook.agent.node_writer import NodeWriter

    try:
        api = node.cluster.connect()
    except BadInputError:
        if once and isinstance(result := node.probe(), Failure):  # fix this problem first
            _show_labels(result, output, node.language)
        raise
    publisher = NodeWriter(api, node.name, take_over=take_over)
    if not once:
        sys.exit(_watch(publisher, node.probe, interval, metrics_port))
    result = node.probe()
    try:
        if isinstance(result, Probe):
            publisher.publish(result)
        elif kernel_module() is None:
            publisher.publish(None)
    except KubernetesError as error:
        raise BadInputError(message_of(error)) from None
    _show_labels(result, output, node.language)


@command.command()
@click.option(
    "--facts",
    "facts_path",
    type=FILE,
    metavar="FACTS",
    help="Facts about drivers and GPUs: a bundle, as `gpugate facts bundle` writes it, a folder of tables, "
    "or builtin.  [default: builtin]",
)
@_node_options
def check(facts_path: str | None, output: str, node: _Node) -> None:
    """Show which pods this node can run, and its problems.

    With a cluster, or in a pod, also compares the labels of the node. Exit status 1 if pods will fail.
    If NVML or libcuda does not answer within a minute, that is a problem, and does not stop the command.

    \b
    Examples:
      gpugate node check
      gpugate node check -o json | jq .problems
      kubectl -n gpugate-agent exec POD -- gpugate node check
    """
    with ThreadPoolExecutor(1) as pool:  # both wait at the same time
        seen = pool.submit(see_cuda_in_time)
        result, view = node.probe(), seen.result()
    module, toolkit, language = kernel_module(), read_toolkit(node.host_root), node.language
    if isinstance(result, Probe):
        result = replace(result, fabric_manager=fabric_manager_version())
        if facts_path is not None:
            result = replace(result, facts=release_of(read_facts(facts_path), facts_path).facts)
    problems = diagnose(result, module, _labels(node), view, nouveau=NOUVEAU.is_dir())
    if output == "json":
        print_json(report_of(result, module, toolkit, view, problems, language))
    else:
        if isinstance(result, Probe):
            show_probe(result, language)
        show_programs(toolkit, view, language)
    for problem in problems if output == "text" else ():
        (print_error if problem.broken else print_warning)(problem.line(language), language)
    sys.exit(_BROKEN if any(problem.broken for problem in problems) else 0)


def _labels(node: _Node) -> Mapping[str, str] | None:
    """Return the labels of this node; None without a cluster, or if the pod's own cluster does not answer.

    Raises BadInputError if a cluster is given and does not answer.
    """
    if not node.cluster.named and not (in_pod() and node.node_name):
        return None
    from certs.kubernetes_api import KubernetesError
    from webhook.cluster.client import connect

    try:
        manifest = connect(node.cluster.kubeconfig, node.cluster.context).get(f"{NODES}/{node.name}")
    except KubernetesError as error:
        if node.cluster.named:
            raise BadInputError(message_of(error)) from None
        print_warning(NOT_COMPARED.having(why=error))
        return None
    labels: Mapping[str, str] = manifest["metadata"].get("labels") or {}
    return labels


def _watch(
    publisher: NodeWriter,
    probe_node: Callable[[], Probe | Failure],
    interval: float,
    metrics_port: int | None,
) -> int:
    """Update labels until a signal arrives; return the exit status.

    The work is in a daemon thread: a signal ends the process while it waits for NVML.
    """
    from webhook.agent.label_loop import LabelLoop
    from webhook.agent.metrics import serve

    configure_logs()
    if metrics_port is not None:
        try:
            _log.info("serving metrics on port %d", serve(metrics_port))
        except OSError as error:
            raise BadInputError(NOT_LISTENING.having(port=metrics_port, why=os_error_reason(error))) from None
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # the agent logs failed requests itself
    ended = threading.Event()
    status = [1]  # after an internal error, whose traceback is in the log

    def work() -> None:
        try:
            LabelLoop(publisher, probe_node, kernel_module, ended.wait, interval * _jitter()).run()
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


def _jitter() -> float:
    return random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - not used for secrets


def _show_labels(result: Probe | Failure, output: str, language: Language) -> None:
    """Print the labels of the node; exit with an error if NVML has failed."""
    if isinstance(result, Failure):
        print_error(explain(result, kernel_module()).line(language), language)
        sys.exit(_NO_NVML)
    published = metadata_of(result)
    if output == "json":
        document = {"labels": published.labels, "annotations": published.annotations}
        print_json(document)
        return
    for key, value in {**published.labels, **published.annotations}.items():
        click.echo(f"{key}={value}")
