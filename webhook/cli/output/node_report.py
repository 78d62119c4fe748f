"""The report of `gpugate node check`: facts, supported CUDA runtimes, problems."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any, Final

import click

from rules import Language
from webhook.agent.diagnosis import Diagnosis
from webhook.agent.labels import (
    NO_METADATA,
    capabilities_of,
    gpu_facts,
    metadata_of,
    mps_capable,
    topology_of,
)
from webhook.agent.nvml_probe import Failure, Gpu, Probe
from webhook.agent.supported_workloads import CompatibilityMode, Runtime, data_types, runtimes
from webhook.cli.output.console import UNKNOWN, padded, show_table
from webhook.cli.output.vocabulary import (
    DATA_TYPES,
    MPS_DAEMON,
    MPS_FIT,
    NODE_VERSIONS,
    RANGE,
    TOPOLOGIES,
    TOPOLOGY,
)

_VERSION: Final = re.compile(r"\d+\.\d+")
# Columns of a name before its facts.
_NAME_WIDTH: Final = 13


def report_of(
    found: Probe | Failure, module: str | None, problems: tuple[Diagnosis, ...], language: Language
) -> dict[str, Any]:
    """Return the report of a node as JSON."""
    known = found if isinstance(found, Probe) else Probe(None, None, ())
    capabilities = capabilities_of(known)
    published = metadata_of(found) if isinstance(found, Probe) else NO_METADATA
    return {
        "kernelDriver": module,
        "driver": capabilities.driver,
        "cuda": str(known.cuda) if known.cuda else None,
        "gpus": [gpu_facts(gpu) for gpu in known.gpus],
        "runtimes": [_runtime(each, language) for each in runtimes(capabilities)]
        if isinstance(found, Probe)
        else [],
        "dataTypes": data_types(capabilities),
        "topology": topology_of(known),
        "mps": {"capable": mps_capable(known), "daemons": list(known.mps)},
        "labels": published.labels,
        "problems": [
            {
                "what": problem.what.in_language(language),
                "remedy": problem.remedy.in_language(language),
                "broken": problem.broken,
                "certainty": problem.certainty,
                "nvml": problem.nvml or None,
                "at": problem.at.en or None,
                "cuda": problem.cuda_name or None,
            }
            for problem in problems
        ],
    }


def _runtime(runtime: Runtime, language: Language) -> dict[str, Any]:
    return {
        "cuda": str(runtime.cuda),
        "by": runtime.mode.value if runtime.mode else None,
        "reasons": [finding.reason.in_language(language) for finding in runtime.reasons],
    }


def show_probe(found: Probe, language: Language) -> None:
    """Print the report of a node as text."""
    capabilities = capabilities_of(found)
    versions = NODE_VERSIONS.in_language(language)
    click.echo(versions.format(driver=capabilities.driver or UNKNOWN, cuda=found.cuda or UNKNOWN))
    show_table([_row(index, gpu) for index, gpu in enumerate(found.gpus)], language)
    click.echo()
    groups = groupby(runtimes(capabilities), _key)
    show_table([_row_of_group(list(group), language) for _, group in groups], language, wide=True)
    types = ", ".join(name for name, able in data_types(capabilities).items() if able)
    fit = MPS_FIT[mps_capable(found)].in_language(language)
    if found.mps:
        fit += MPS_DAEMON.in_language(language).format(directories=" ".join(found.mps))
    click.echo(f"\n{padded(DATA_TYPES.in_language(language), _NAME_WIDTH)}{types or UNKNOWN}")
    topology = TOPOLOGIES[topology_of(found)].in_language(language)
    click.echo(f"{padded(TOPOLOGY.in_language(language), _NAME_WIDTH)}{topology}")
    click.echo(f"{padded('MPS', _NAME_WIDTH)}{fit}")


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
        return "no"
    if runtime.mode is CompatibilityMode.DRIVER:
        return "yes, with a warning" if runtime.reasons else "yes"
    return f"by {runtime.mode.value}"


def _row_of_group(group: list[Runtime], language: Language) -> dict[str, str]:
    """Return the row of consecutive runtimes with the same key."""
    first, last = group[0], group[-1]
    return {
        "CUDA": str(first.cuda)
        if first is last
        else RANGE.in_language(language).format(first=first.cuda, last=last.cuda),
        "runs": _support(first),
        "reason": "; ".join(finding.reason.in_language(language) for finding in first.reasons),
    }
