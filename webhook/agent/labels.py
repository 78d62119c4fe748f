"""Labels and annotations of a node, from an NVML probe.

A label is set only if its value is certain: if GPUs differ, it has the lowest value; if the value of one GPU
is unknown, the label is missing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct

from rules import DEFAULT_NAMESPACE, load_rules
from rules.compatibility.checks import check_on_node
from rules.cuda.requirements import GpuRequirements
from rules.kube.names import is_label_key
from rules.model.check_result import Level, level_of
from rules.model.rule import CompatibilityRule
from rules.model.sharing import SharingPolicy
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader, is_slice
from rules.text.i18n import Message
from webhook.agent.nvml_probe import Gpu, Probe

T = TypeVar("T")

PREFIX: Final = "gpugate.dev/"
# Labels that others may set as well: by hand, or with GPU-Manager.
CUDA_LABELS: Final = ("cuda-major-version", "cuda-minor-version")
GPUS_ANNOTATION: Final = f"{PREFIX}gpus"
# Every label and its description; * is a MIG profile.
LABELS: Final[Mapping[str, str]] = {
    CUDA_LABELS[0]: "major version of the driver's CUDA API: 12 of 12.4",
    CUDA_LABELS[1]: "minor version of the driver's CUDA API: 4 of 12.4",
    f"{PREFIX}cuda.driver-version.full": "version of the driver: 535.104.05",
    f"{PREFIX}cuda.driver-version.major": "its first part, the driver branch: 535",
    f"{PREFIX}cuda.driver-version.minor": "its second part: 104",
    f"{PREFIX}cuda.driver-version.revision": "its third part, if it has one: 05",
    f"{PREFIX}gpu.count": "number of GPUs",
    f"{PREFIX}gpu.mixed": "whether they differ in product, compute capability or memory",
    f"{PREFIX}gpu.product": "product, of the least capable GPU if they differ: NVIDIA-A100-SXM4-40GB",
    f"{PREFIX}gpu.compute.major": "major part of the lowest compute capability",
    f"{PREFIX}gpu.compute.minor": "its minor part",
    f"{PREFIX}gpu.memory": "memory in MiB, of the GPU with the least",
    f"{PREFIX}gpu.compute-mode": "compute mode, if all GPUs have the same: Default, Exclusive_Process, …",
    f"{PREFIX}gpu-topology": "nvlink if each GPU has NVLink to another one of the node, otherwise pcie",
    f"{PREFIX}mig.gpus": "number of GPUs in MIG mode, if any",
    f"{PREFIX}mig-*.count": "number of MIG instances of a profile: mig-1g.5gb.count",
    f"{PREFIX}mps.capable": "whether MPS can share these GPUs",
    f"{PREFIX}mps.daemon": "true if an MPS control daemon was found",
    f"{PREFIX}container-runtime-mode": "mode of NVIDIA's container runtime: legacy or cdi",
    f"{PREFIX}container-toolkit-version": "version of NVIDIA Container Toolkit: 1.17.8",
}
_MIG_PROFILE: Final = re.compile(rf"{re.escape(PREFIX)}mig-.+\.count")
# Kubernetes' limit: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
_VALUE_LENGTH: Final = 63
_NOT_IN_VALUES: Final = re.compile(r"[^A-Za-z0-9_.-]")
_PROHIBITED: Final = "Prohibited"
# Suffixes of a product of GPU Feature Discovery for sharing and MIG.
_ADDED: Final = re.compile(r"(?:-MIG-.+?)?(?:-SHARED)?$")
_OF_DISCOVERY: Final = "nvidia.com/"
# Facts that both its labels and NVML report; the last three are about one GPU.
_FACTS: Final = (
    Message("driver"),
    Message("driver CUDA"),
    Message("product"),
    Message("compute capability"),
    Message("memory in MiB"),
)
FACTS: Final = tuple(fact.en for fact in _FACTS)


class NodeMetadata(Struct, frozen=True):
    """Labels and annotations of a node, each by key."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


NO_METADATA: Final = NodeMetadata({}, {})


class Difference(NamedTuple):
    """A fact whose label of GPU Feature Discovery differs from NVML."""

    fact: str
    label: str
    nvml: str

    @property
    def message(self) -> Message:
        """Both values in a sentence."""
        return Message(
            "{fact}: the labels of GPU Feature Discovery have {label}, NVML reports {nvml}",
            fact=_FACTS[FACTS.index(self.fact)],
            label=self.label,
            nvml=self.nvml,
        )


def is_own(key: str) -> bool:
    """Return whether the agent sets a label."""
    return key in LABELS or _MIG_PROFILE.fullmatch(key) is not None


def capabilities_of(probe: Probe) -> NodeCapabilities:
    """Return the capabilities of a node, equal to those that the rules read from its labels."""
    product = label_value(_product(probe.gpus) or "")
    compute = _lowest(gpu.compute_capability for gpu in probe.gpus)
    return NodeCapabilities(
        cuda=(probe.cuda.major, probe.cuda.minor) if probe.cuda else None,
        driver=probe.driver.text if probe.driver else None,
        compute_capability=(compute.major, compute.minor) if compute else None,
        product=None if not product or product.isdecimal() else product,  # a number names no product
        memory_mib=_lowest(gpu.memory_mib for gpu in probe.gpus),
        mig_devices=any(gpu.mig for gpu in probe.gpus),
        facts=probe.facts,
    )


def metadata_of(probe: Probe) -> NodeMetadata:
    """Return the labels and annotations of a node."""
    node, gpus = capabilities_of(probe), probe.gpus
    labels: dict[str, Any] = dict(zip(CUDA_LABELS, node.cuda or (), strict=False))

    def add(key: str, value: object) -> None:
        if value is not None:
            labels[f"{PREFIX}{key}"] = value

    if probe.driver:
        add("cuda.driver-version.full", probe.driver)
        for name, part in zip(("major", "minor", "revision"), probe.driver.text.split("."), strict=False):
            add(f"cuda.driver-version.{name}", part)
    add("gpu.count", len(gpus))
    add("gpu.mixed", _boolean(_mixed(gpus)))
    add("gpu.product", node.product)
    for name, number in zip(("major", "minor"), node.compute_capability or (), strict=False):
        add(f"gpu.compute.{name}", number)
    add("gpu.memory", node.memory_mib)
    if len(modes := {gpu.compute_mode for gpu in gpus}) == 1:
        add("gpu.compute-mode", modes.pop())
    add("gpu-topology", topology_of(probe))
    add("mig.gpus", sum(bool(gpu.mig) for gpu in gpus) or None)
    profiles = [gpu.mig_profiles for gpu in gpus]
    known = () if None in profiles else chain.from_iterable(filter(None, profiles))
    for profile, count in Counter(known).items():
        add(f"mig-{profile.replace('+', '.')}.count", count)
    add("mps.capable", _boolean(mps_capable(probe)))
    add("mps.daemon", "true" if probe.mps else None)
    if probe.toolkit:
        add("container-runtime-mode", probe.toolkit.mode.value)
        add("container-toolkit-version", probe.toolkit.version or None)
    valid = {key: label_value(str(value)) for key, value in labels.items() if is_label_key(key)}
    annotation = json.dumps([gpu_facts(gpu) for gpu in gpus], ensure_ascii=False)
    return NodeMetadata(valid, {GPUS_ANNOTATION: annotation})


def gpu_facts(gpu: Gpu) -> dict[str, Any]:
    """Return the known facts of a GPU, as JSON."""
    facts = {
        "product": gpu.name,
        "uuid": gpu.uuid,
        "compute": str(gpu.compute_capability) if gpu.compute_capability else None,
        "memoryMiB": gpu.memory_mib,
        "mig": None if not gpu.mig or gpu.mig_profiles is None else list(gpu.mig_profiles),
        "computeMode": gpu.compute_mode,
        "nvlink": gpu.nvlink,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def label_value(text: str) -> str:
    """Return a text as a valid label value: invalid characters become `-`, and the end is cut."""
    return _NOT_IN_VALUES.sub("-", text)[:_VALUE_LENGTH].strip("-_.")


def topology_of(probe: Probe) -> str | None:
    """Return how a node's GPUs are connected: `nvlink` if each has NVLink to another one, otherwise `pcie`.

    None for a single GPU, or if NVML does not report it.
    """
    connected = {gpu.nvlink for gpu in probe.gpus}
    if False in connected:
        return "pcie"
    return "nvlink" if connected == {True} else None


def mps_capable(probe: Probe) -> bool | None:
    """Return whether MPS can share a node's GPUs, by the rule of admission; None if unknown."""
    if any(gpu.compute_mode == _PROHIBITED for gpu in probe.gpus):
        return False
    level = level_of(check_on_node(_mps(), GpuRequirements(), capabilities_of(probe)))
    return None if level is Level.UNKNOWN else level is not Level.INCOMPATIBLE


@cache
def _mps() -> SharingPolicy:
    """Return the sharing policy of the built-in rule for MPS."""
    file = "catalog/mps/compatibility.yaml"
    loaded = load_rules([(file, files("rules").joinpath(file).read_text("utf-8"))], DEFAULT_NAMESPACE)
    (sharing,) = (rule.sharing for rule in loaded.rules if isinstance(rule, CompatibilityRule))
    return sharing


def differences(labels: Mapping[str, str], probe: Probe) -> tuple[Difference, ...]:
    """Return the facts whose labels of GPU Feature Discovery contradict NVML.

    On a node with mixed GPUs the labels are about a single GPU, and the memory may be that of a MIG slice:
    neither is a contradiction.
    """
    discovered = {key: value for key, value in labels.items() if key.startswith(_OF_DISCOVERY)}
    labelled, probed = NodeReader("", discovered).capabilities(LabelNames()), capabilities_of(probe)
    pairs: list[tuple[Any, Any]] = [
        (labelled.driver, probed.driver),
        (_dotted(labelled.cuda), _dotted(probed.cuda)),
    ]
    if _mixed(probe.gpus) is False:
        product = labelled.product or ""
        pairs += [
            (_ADDED.sub("", product) or None, probed.product),
            (_dotted(labelled.compute_capability), _dotted(probed.compute_capability)),
            (None if is_slice(product) else labelled.memory_mib, probed.memory_mib),
        ]
    return tuple(
        Difference(fact, str(label), str(nvml))
        for fact, (label, nvml) in zip(FACTS, pairs, strict=False)
        if label is not None and nvml is not None and label != nvml
    )


def _dotted(version: tuple[int, int] | None) -> str | None:
    return version and f"{version[0]}.{version[1]}"


def _boolean(value: bool | None) -> str | None:
    return None if value is None else str(value).lower()


def _mixed(gpus: Sequence[Gpu]) -> bool | None:
    """Return whether GPUs differ; None if there are none, or the known facts do not show it."""
    facts = [(gpu.name, gpu.compute_capability, gpu.memory_mib) for gpu in gpus]
    if any(len(set(values) - {None}) > 1 for values in zip(*facts, strict=True)):
        return True
    return False if len(facts) == 1 or (facts and None not in chain.from_iterable(facts)) else None


def _product(gpus: Iterable[Gpu]) -> str | None:
    """Return the product of all GPUs; if they differ, of the lowest capability and then the least memory."""
    gpus = list(gpus)
    names = {gpu.name for gpu in gpus}
    if len(names) > 1 and (lowest := _lowest(gpu.compute_capability for gpu in gpus)):
        gpus = [gpu for gpu in gpus if gpu.compute_capability == lowest]
        names = {gpu.name for gpu in gpus}
        if len(names) > 1 and (least := _lowest(gpu.memory_mib for gpu in gpus)):
            names = {gpu.name for gpu in gpus if gpu.memory_mib == least}
    return None if None in names or len(names) != 1 else names.pop()


def _lowest(values: Iterable[T | None]) -> T | None:
    """Return the lowest value, or None if there is none or one is unknown."""
    known = list(values)
    return None if None in known else min(known, default=None)  # type: ignore[type-var]
