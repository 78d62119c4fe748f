"""The GPUs that parallelism flags need in a container against those that it requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from rules.compatibility.checks.base import Check
from rules.cuda.framework_flags import Parallelism, multi_node_signs, visible_devices
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.model.check_result import OFF, CheckResult, Edit, Level, capped, edit_of_flag
from rules.model.sharing import SharingPolicy
from rules.nodes.gpu_resources import RequestedGpus, gpu_resources, requested_gpus
from rules.nodes.node_capabilities import NodeCapabilities, is_slice
from rules.text.i18n import Message


class ParallelismCheck(Check):
    """Fewer GPUs than a program needs are an error if it is the only node, more are idle."""

    is_optional = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterable[CheckResult]:
        """Return a result for each program whose flags do not suit the requested GPUs."""
        if not requirements.parallelism or policy.checks.parallelism is OFF:
            return ()
        requested = requested_gpus(container)
        if requested is None or container.has_claims:
            return ()
        shared = _is_multi_node(container, pod)
        field = "limits" if requested.name in container.limits else "requests"
        path = container.resource_path(field, requested.name)
        level = policy.checks.parallelism
        results = (
            _result(level, program, requested, container, shared=shared)
            for program in requirements.parallelism
        )
        return [replace(result, path=path) for result in results if result is not None]

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for a program that needs several GPUs, if those of the node are MIG devices.

        By strategy `single` these have the resource of whole GPUs: several of it are enough by their number.
        """
        level = min(Level.UNKNOWN, policy.checks.parallelism)
        if not requirements.parallelism or not requirements.several or level is OFF:
            return
        if not is_slice(node.product or ""):
            return
        for program in requirements.parallelism:
            if program.gpus > 1:
                result = _over_slices(level, program, program.gpus, 1)
                own = Message("its GPUs are MIG devices, of which a process sees only one")
                yield replace(result, reason=own, origin=result.reason)


def _is_multi_node(container: Container, pod: Pod) -> bool:
    """Return whether the program runs in several pods. Linear in the container's variables."""
    signs = multi_node_signs()
    return (
        pod.kind_of_object in signs.kinds
        or any(name.startswith(signs.variables) for name in container.variables)
        or not signs.domains.isdisjoint(pod.label_domains)
    )


def _result(
    level: Level, program: Parallelism, requested: RequestedGpus, container: Container, *, shared: bool
) -> CheckResult | None:
    """Return the result for one program. shared: further pods may take part in it."""
    nodes = program.nodes
    if shared and not program.per_node and nodes == 1:
        nodes = None
    if nodes is None or not nodes:
        return None
    if program.gpus % nodes:
        return _uneven(level, program, nodes)
    needed = program.gpus // nodes
    if needed > 1 and gpu_resources((requested.name,)).slices:
        certain = program.certain and needed > requested.devices and nodes == 1 and not shared
        certain = certain and not (
            container.env_from or _may_see_others(container) or container.is_privileged
        )
        return _over_slices(capped(level, certain=certain), program, needed, nodes)
    if needed > requested.devices:
        alone = nodes == 1 and not shared and not container.env_from and not _may_see_others(container)
        certain = program.certain and alone and not container.is_privileged
        result = _too_few(capped(level, certain=certain), program, requested, needed, nodes)
        return replace(result, edits=_lower_flag(program, requested, container)) if certain else result
    # CUDA_VISIBLE_DEVICES divides them by hand, for several programs.
    is_alone = (
        program.exact
        and nodes == 1
        and not shared
        and "CUDA_VISIBLE_DEVICES" not in container.variables
        and not _may_see_others(container)
    )
    if needed < requested.devices and is_alone and requested.units == 1:
        return _idle(capped(level, certain=False), program, requested, needed)
    return None


def _may_see_others(container: Container) -> bool:
    """Return whether a variable may give the container other GPUs than it requests."""
    variables = container.variables
    return any(
        name in variables
        and ("valueFrom" in variables[name] or str(variables[name].get("value", "")) not in none)
        for name, none in visible_devices().items()
    )


def _written(program: Parallelism) -> str:
    return ", ".join(f"`{flag}`" for flag in program.written)


def _too_few(
    level: Level, program: Parallelism, requested: RequestedGpus, needed: int, nodes: int
) -> CheckResult:
    written, count = _written(program), requested.devices
    on_each = Message(" on each node") if nodes > 1 else Message()
    reason = Message(
        "{program} needs {needed} GPUs{on_each} for {written}, the container requests {count}",
        program=program.program,
        needed=needed,
        on_each=on_each,
        written=written,
        count=count,
    )
    amount = f"{requested.name}: {needed * requested.units}"
    if program.splits_model and count:  # into equal parts, for which models are made
        count = 1 << count.bit_length() - 1
    if len(program.written) == 1 and nodes == 1:
        lower = Message("set {flags}", flags=_lowered(program, count))
    else:
        total = count * nodes
        lower = Message("lower the product of the flags to {total}", total=total)
    if count < requested.devices:
        rest = f"{requested.name}: {count * requested.units}"
        lower = Message("{lower} and request {rest}", lower=lower, rest=rest)
    remedy = Message("request {amount}, or {lower}", amount=amount, lower=lower)
    return CheckResult(level, reason, remedy)


def _lower_flag(program: Parallelism, requested: RequestedGpus, container: Container) -> tuple[Edit, ...]:
    """Return the edit of the only flag that sets a number, to that of the requested GPUs.

    Nothing if a model is not made for that number, or if the flag is not written exactly once.
    """
    count = requested.devices
    if len(program.written) != 1 or not count or (program.splits_model and count & (count - 1)):
        return ()
    edit = edit_of_flag(container, program.written[0], str(count))
    return (edit,) if edit else ()


def _over_slices(level: Level, program: Parallelism, needed: int, nodes: int) -> CheckResult:
    """Return the result for MIG devices, which a program does not use together, however many there are.

    A CUDA process sees one of them: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html
    Since 2.32, NCCL joins processes with one each, as an experiment: https://github.com/NVIDIA/nccl/issues/1716
    So it is certain only where there are too few of them.
    """
    reason = Message(
        "{program} needs {needed} GPUs{on_each} for {written}, and a process sees only one MIG device",
        program=program.program,
        needed=needed,
        on_each=Message(" on each node") if nodes > 1 else Message(),
        written=_written(program),
    )
    if len(program.written) == 1 and nodes == 1:
        lower = Message("set {flags}", flags=_lowered(program, 1))
    else:
        lower = Message("lower the product of the flags to {total}", total=nodes)
    remedy = Message(
        "request whole GPUs, or {lower} and request one MIG device that is large enough", lower=lower
    )
    return CheckResult(level, reason, remedy)


def _lowered(program: Parallelism, count: int) -> str:
    """Return the only flag of a program as written, with another value."""
    (written,) = program.written
    return f"`{written.rstrip('0123456789')}{count}`"


def _idle(level: Level, program: Parallelism, requested: RequestedGpus, needed: int) -> CheckResult:
    written, rest = _written(program), requested.devices - needed
    reason = Message(
        "{program} uses {needed} of {devices} GPUs because of {written}, {rest} idle",
        program=program.program,
        needed=needed,
        devices=requested.devices,
        written=written,
        rest=rest,
    )
    remedy = Message("request {name}: {needed}, or raise the flag", name=requested.name, needed=needed)
    return CheckResult(level, reason, remedy)


def _uneven(level: Level, program: Parallelism, nodes: int) -> CheckResult:
    written = _written(program)
    reason = Message(
        "the {gpus} GPUs of {program} for {written} cannot be divided among {nodes} nodes",
        gpus=program.gpus,
        program=program.program,
        written=written,
        nodes=nodes,
    )
    remedy = Message("use a multiple of the number of nodes")
    return CheckResult(capped(level, certain=False), reason, remedy)
