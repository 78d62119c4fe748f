"""What a container needs of driver and GPU, and which GPUs have it, by facts alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby, islice
from typing import Final, NamedTuple

from rules.compatibility.checks import check_on_node
from rules.compatibility.result import RuleRequirement
from rules.cuda.gpu_memory import MIB, shown
from rules.cuda.mig_profiles import gpus_with, profile_of
from rules.cuda.served_model import ModelRequirement, gib
from rules.cuda.tables import (
    Facts,
    capability,
    cuda_of_branch,
    derived,
    first_branch_of,
    first_branch_with,
    first_branches,
    last_branch_of,
    newest_branch,
    newest_release,
)
from rules.cuda.versions import ComputeCapability
from rules.kube.pod import Container
from rules.model.check_result import OFF, Level, level_of
from rules.nodes.gpu_resources import gpu_resources
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Joined, Message

_NEEDS: Final = Message("container {container!r} needs {needs}")
_NEEDS_GPUS: Final = Message("container {container!r} needs {needs}; {gpus}")
_UNKNOWN: Final = Message(
    "what container {container!r} needs of driver and GPU is unknown; "
    "set annotation gpugate.dev/cuda-version, or use an ImageCatalog"
)
_NO_CUDA: Final = Message("container {container!r} needs no CUDA")
_CUDA: Final = Message("CUDA {version} (drivers from {branch} on have it)")
_CUDA_ALONE: Final = Message("CUDA {version}")
_COMPUTE: Final = Message("compute capability {minimum}")
_MEMORY: Final = Message("{amount} of GPU memory")
_WEIGHTS: Final = Message("{weights} GiB of GPU memory for {model}, and more to serve it")
_WEIGHTS_BY_NAME: Final = Message("by its name {weights} GiB of GPU memory for {model}, and more to serve it")
_PROFILE: Final = Message("MIG profile {profile} ({gpus})")
_DRIVER: Final = Message("a driver that {variable} admits")
_GPUS: Final = Message("suitable GPUs: {names}")
_PERHAPS: Final = Message("perhaps suitable GPUs: {names}")
_BOTH: Final = Message("suitable GPUs: {names}, perhaps {uncertain}")
_NO_DRIVER: Final = Message("no known driver has it")
_NO_GPU: Final = Message("no known GPU has it")
_RANGE: Final = Message("{first} to {last}")
_FROM_DRIVER: Final = Message("{names} (drivers from {branch} on)")
_FROM_DRIVERS: Final = Message("{names} (drivers from {branch} or {newest} on)")
# GPUs that are named of each architecture of which not all GPUs are meant.
_MOST_PRODUCTS: Final = 5


class _Gpu(NamedTuple):
    """A GPU of the facts."""

    product: str
    architecture: str
    is_named: bool  # of data centres; the others are many
    compute: ComputeCapability
    memory_mib: tuple[int | None, ...]  # by the data sheets: of the smallest and the largest model


def needs_of(container: Container, required: RuleRequirement, facts: Facts) -> Message:
    """Return what a container needs of driver and GPU, and which GPUs have it.

    No GPUs for a container that requests MIG devices, of which each GPU has others, or none.
    """
    requirements, name = required.requirements, container.name
    needs: list[Message] = []
    if cuda := requirements.cuda:
        branch = first_branch_with(facts, cuda.version)
        words = _CUDA_ALONE if branch is None else _CUDA.having(branch=branch)
        needs.append(words.having(version=cuda.version))
    elif requirements.constraints:
        needs.append(_DRIVER.having(variable=requirements.constraints[0].variable))
    minimums = [least.minimum for least in requirements.compute]
    minimums += [since for model in requirements.models if (since := model.since)]
    if minimums:
        needs.append(_COMPUTE.having(minimum=max(minimums)))
    if requirements.memory:
        needs.append(_MEMORY.having(amount=shown(requirements.memory.mib)))
    needs += [
        (_WEIGHTS_BY_NAME if weights.by_name else _WEIGHTS).having(
            weights=gib(weights.on_rank(None)), model=weights.model
        )
        for model in requirements.models
        if (weights := model.weights)
    ]
    if not needs:
        return (_NO_CUDA if requirements.no_cuda else _UNKNOWN).having(container=name)
    if gpu_resources(container.names).slices:
        profiles = dict.fromkeys(filter(None, map(profile_of, container.names)))
        for profile in islice(profiles, _MOST_PRODUCTS):
            gpus = ", ".join(gpus_with(profile)) or _NO_GPU
            needs.append(_PROFILE.having(profile=profile, gpus=gpus))
        return _NEEDS.having(container=name, needs=Joined(", ", needs))
    return _NEEDS_GPUS.having(container=name, needs=Joined(", ", needs), gpus=gpus_for(required, facts))


@lru_cache(maxsize=256)
def gpus_for(required: RuleRequirement, facts: Facts) -> Message:
    """Return the known GPUs that have what a container needs, and those that may have it.

    Each with the driver that the CUDA version needs, or the last one that supports the GPU; if that is older
    than the GPU, with the first one that supports it, which is named. A GPU whose first driver is not known
    may have it.
    """
    policy, requirements = required.rule.sharing, required.requirements
    cuda = requirements.cuda
    branch = first_branch_with(facts, cuda.version) if cuda else newest_branch(facts)
    if branch is None:
        return _NO_DRIVER
    models = requirements.models if policy.checks.model is not OFF else ()
    levels = {
        gpu: max(
            _of_sizes(
                [level_of(check_on_node(policy, requirements, node)) for node in _nodes(gpu, branch, facts)]
            ),
            *(_of_sizes([_level_of(model, gpu, memory) for memory in gpu.memory_mib]) for model in models),
            Level.COMPATIBLE if _is_driver_known(gpu, facts) else Level.UNKNOWN,
        )
        for gpu in _gpus(facts)
    }
    names = _names(facts, branch, lambda gpu: levels[gpu] is Level.COMPATIBLE)
    maybe = _names(facts, branch, lambda gpu: Level.COMPATIBLE < levels[gpu] < Level.INCOMPATIBLE)
    if names and maybe:
        return _BOTH.having(names=names, uncertain=maybe)
    if names or maybe:
        return _GPUS.having(names=names) if names else _PERHAPS.having(names=maybe)
    return _NO_GPU


def _of_sizes(levels: list[Level]) -> Level:
    """Return the level of a GPU by those of its sizes; unknown if they differ."""
    return levels[0] if len({*levels}) == 1 else Level.UNKNOWN


def _level_of(model: ModelRequirement, gpu: _Gpu, memory_mib: int | None) -> Level:
    """Return whether the weights of a model fit a GPU of this memory."""
    if model.weights is None:
        return Level.COMPATIBLE
    if memory_mib is None:
        return Level.UNKNOWN
    fits = model.weights.on_rank(gpu.compute) < memory_mib * MIB * model.weights.fraction
    return Level.COMPATIBLE if fits else Level.INCOMPATIBLE


def _names(facts: Facts, branch: int, meant: Callable[[_Gpu], bool]) -> Message:
    """Return the GPUs that are meant: `Turing to Hopper`, and products of incomplete architectures.

    branch: of the driver that is needed anyway; a newer one that all GPUs of an architecture need is named.
    """

    def kind(architecture: tuple[str, list[_Gpu]]) -> tuple[bool, tuple[int, ...]]:
        branches = {_first(gpu, facts) for gpu in architecture[1]}
        newer = tuple(sorted(branches)) if min(branches) > branch else ()
        return all(map(meant, architecture[1])), newer

    parts: list[Message | str] = []
    architectures = [(name, [*gpus]) for name, gpus in groupby(_gpus(facts), lambda gpu: gpu.architecture)]
    for (is_complete, branches), run in groupby(architectures, kind):
        members = list(run)
        if is_complete:
            (first, _), (last, _) = members[0], members[-1]
            names = _RANGE.having(first=first, last=last) if len(members) > 1 else first
            if branches:
                words = _FROM_DRIVER if len(branches) == 1 else _FROM_DRIVERS
                names = words.having(names=names, branch=branches[0], newest=branches[-1])
            parts.append(names)
            continue
        for _, gpus in members:
            products = [*dict.fromkeys(gpu.product for gpu in gpus if gpu.is_named and meant(gpu))]
            parts += products if len(products) <= _MOST_PRODUCTS else [*products[:_MOST_PRODUCTS], "…"]
    return Joined(", ", parts)


@derived
def _gpus(facts: Facts) -> tuple[_Gpu, ...]:
    """Return the known GPUs, the oldest architecture first; those of Jetson have drivers of their own.

    Of which CPU architecture their machines are is not their property.
    """
    gpus: dict[str, list[_Gpu]] = {}
    for row in sorted(facts.table("gpus"), key=lambda row: capability(row.get("compute", "0.0"))):
        if "compute" in row and row["segment"] != "jetson":
            name = row["arch"].replace("-", " ").title()
            is_named, compute = row["segment"] == "datacenter", capability(row["compute"])
            sizes = tuple(map(int, row["sizes"].split())) if "sizes" in row else (row.get("memory"),)
            gpus.setdefault(name, []).append(_Gpu(row["product"], name, is_named, compute, sizes))
    return tuple(gpu for of_architecture in gpus.values() for gpu in of_architecture)


def _first(gpu: _Gpu, facts: Facts) -> int:
    """Return the first driver branch that supports a GPU; 0: all known ones do, or it is not known."""
    first = first_branch_of(facts, gpu.compute)
    return first.value.branch if first else 0


def _is_driver_known(gpu: _Gpu, facts: Facts) -> bool:
    """Return whether the first driver of a GPU is known, or older than all known ones."""
    return bool(_first(gpu, facts)) or gpu.compute < min(first_branches(facts))


def _nodes(gpu: _Gpu, branch: int, facts: Facts) -> Iterator[NodeCapabilities]:
    """Yield a node with each size of a GPU; a first driver that is not known is as new as of older GPUs."""
    last = last_branch_of(facts, gpu.compute)
    first = _first(gpu, facts)
    if not _is_driver_known(gpu, facts):
        known = first_branches(facts)
        first = max(fact.value.branch for compute, fact in known.items() if compute < gpu.compute)
    branch = min(branch, last.value.branch) if last else max(branch, first)
    cuda, driver = cuda_of_branch(facts, branch), newest_release(facts, branch)
    for memory_mib in gpu.memory_mib:
        yield NodeCapabilities(
            cuda=cuda.value if cuda else None,
            driver=str(driver) if driver else None,
            compute_capability=gpu.compute,
            memory_mib=memory_mib,
            facts=facts,
        )
