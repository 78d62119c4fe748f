"""`gpugate nodes`: the capabilities of nodes and pools, and problems in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import click
from msgspec.structs import replace

from rules import Inventory, Language
from rules.compatibility.checks.driver_support import is_unsupported, unsupported_gpu
from rules.kube.tolerations import Taint
from rules.lint.profile_differences import ProfileDifference, differences_of_rules, members
from rules.model.rule import NodeProfile
from rules.nodes.driver_lifecycle import support_of
from rules.nodes.fleet import classes_of
from rules.nodes.inventory import NodeClass
from rules.nodes.label_families import LabelNames, autoscaler_labels
from rules.nodes.label_index import positions
from rules.nodes.node_capabilities import NodeCapabilities, cuda_of, least_cuda_of
from rules.nodes.pools import NodePool
from rules.nodes.runtime_modes import UNKNOWN_RUNTIME, ContainerRuntime
from rules.text.i18n import Message
from webhook.cli.inputs.completers import NODE
from webhook.cli.inputs.month import this_month
from webhook.cli.inputs.options import label_options, output_option
from webhook.cli.inputs.row_filter import filter_option, filtered, named
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.matrix.matrix import dotted, sort_key
from webhook.cli.terminal.console import UNKNOWN, print_document, print_line, print_warning, show_table
from webhook.cli.terminal.vocabulary import (
    MORE_DIFFERENCES,
    MORE_POOL_PROBLEMS,
    MORE_UNREADABLE,
    MORE_UNREADABLE_DEVICES,
    MORE_UNSUPPORTED,
    NODE_NOUN,
    PROFILE_DIFFERS,
    UNDECLARED,
    UNREADABLE_DEVICE,
    UNREADABLE_LABEL,
    UNSUPPORTED_GPU,
)

# Maximum number of problems of a kind on stderr. A faulty label publisher affects every node in the same way.
_MAX_PROBLEMS: Final = 10
_WIDE: Final = ("support", "runtime source", "resources", "labels at creation")


@click.command()
@click.argument("names", nargs=-1, type=NODE, metavar="[NAME]...")
@filter_option
@output_option(
    "text",
    "wide",
    "name",
    "json",
    "yaml",
    help="wide: also drivers whose support ends, what tells the container runtime, the resources, and the "
    "labels that nodes of pools have when they are created.",
)
@label_options
@with_session
def command(names: tuple[str, ...], filters: tuple[str, ...], output: str, session: Session) -> None:
    """List the GPU capabilities of nodes in files or a cluster, grouped by equal capabilities.

    With NAME, the name of a node or a glob, each of these nodes is a line.

    Nodes that an autoscaler may add are listed with what declares them: a NodePool of Karpenter, a
    ResourceFlavor of Kueue, a node group of Cluster API, or a NodeProfile in the rules. Unknown facts are
    `-`. On stderr are drivers that do not support the GPU, labels with unsupported values, what cannot be
    read in a pool, profiles that their present nodes contradict, and autoscalers whose nodes are not
    declared.

    \b
    Examples:
      gpugate nodes --context production
      gpugate nodes --context production 'gpu-a*' --filter 'cuda!=12.*'
      kubectl get nodes -o yaml | gpugate nodes --nodes -
      kubectl get nodes,nodepools -o yaml | gpugate nodes --nodes - -o wide
      gpugate nodes --nodes nodes.yaml -o json | jq -r '.classes[] | select(.cuda == null) | .nodes[]'
    """
    language, inventory, rules = session.language, session.present_nodes(), session.label_rules
    families = rules.label_names
    declared = [profile for profile in rules.profiles if profile.enabled]
    profiles = [] if names else filtered(filters, declared, lambda profile: _pool_row(profile.pool, language))
    pools = (
        [] if names else filtered(filters, inventory.node_pools.pools, lambda pool: _pool_row(pool, language))
    )
    classes = filtered(
        filters,
        _classes(names, inventory, families),
        lambda node_class: _class_row(node_class, inventory, language),
    )
    differences = tuple(differences_of_rules(replace(rules, profiles=tuple(profiles)), inventory))
    shown = {name for node_class in classes for name in inventory.names(node_class.members)}
    problems = dict.fromkeys(problem for labels in families for problem in inventory.problems(labels))
    unreadable = [problem for problem in problems if problem.node in shown]
    unsupported = list(_unsupported(classes, inventory, language))
    if output == "name":
        for name in sorted(shown):
            print_line(f"node/{name}")
        return
    if output in ("json", "yaml"):
        document = {
            "classes": [_class(node_class, inventory, language) for node_class in classes],
            "profiles": [_profile(profile, inventory, differences, language) for profile in profiles],
            "pools": [{"kind": pool.kind, "name": pool.name} | _pool(pool, language) for pool in pools],
            "undeclared": _autoscaler_signs(inventory),
            "unsupported": unsupported,
            "problems": [
                {"node": problem.node, "label": problem.key, "value": problem.value} for problem in unreadable
            ],
            "poolProblems": [problem.in_language(language) for problem in inventory.node_pools.problems],
            "deviceProblems": [problem._asdict() for problem in inventory.dra.problems],
        }
        print_document(document, output)
        return
    wide, all_pools = output == "wide", [*(profile.pool for profile in profiles), *pools]
    rows = _rows(classes, all_pools, inventory, language, wide=wide, by_name=bool(names))
    show_table(rows, language, wide=wide)
    _warn(
        [
            UNSUPPORTED_GPU.having(
                node=f"{entry['nodes'][0]!r:.80}",
                count=len(entry["nodes"]),
                reason=entry["reason"],
                remedy=entry["remedy"],
            )
            for entry in unsupported
        ],
        MORE_UNSUPPORTED,
    )
    _warn(
        [
            UNREADABLE_LABEL.having(node=f"{node!r:.80}", label=f"{label!r:.80}", value=f"{value!r:.80}")
            for node, label, value in unreadable
        ],
        MORE_UNREADABLE,
    )
    _warn(
        [
            PROFILE_DIFFERS.having(
                **difference._asdict(),
                count=difference.nodes.bit_count(),
                node=min(inventory.names(difference.nodes)),
            )
            for difference in differences
        ],
        MORE_DIFFERENCES,
    )
    if names or filters:
        return
    _warn(inventory.node_pools.problems, MORE_POOL_PROBLEMS)
    _warn(
        [
            UNREADABLE_DEVICE.having(source=source, key=key, value=f"{value:.200}")
            for source, key, value in inventory.dra.problems
        ],
        MORE_UNREADABLE_DEVICES,
    )
    if not declared and (signs := _autoscaler_signs(inventory)):
        print_warning(UNDECLARED.having(signs=", ".join(signs)))


def _warn(problems: Sequence[Message], rest: Message) -> None:
    """Print the first problems of a kind on stderr, and the number of further ones."""
    for problem in problems[:_MAX_PROBLEMS]:
        print_warning(problem)
    if len(problems) > _MAX_PROBLEMS:
        print_warning(rest.having(count=len(problems) - _MAX_PROBLEMS))


def _classes(names: Collection[str], inventory: Inventory, families: Sequence[LabelNames]) -> list[NodeClass]:
    """Return the classes of nodes, older drivers first; with names, a class for each of these nodes."""
    chosen = inventory.everything
    if names:
        known = inventory.names(inventory.everything)
        chosen = reduce(or_, map(inventory.named, named(names, known, NODE_NOUN)))
    classes = sorted(
        classes_of(inventory, chosen, families), key=lambda node_class: sort_key(node_class.capabilities)
    )
    if not names:
        return classes
    return [
        replace(node_class, members=1 << place)
        for node_class in classes
        for place in positions(node_class.members)
    ]


def _facts(capabilities: NodeCapabilities, language: Language) -> dict[str, Any]:
    return {
        "product": capabilities.product,
        "driver": capabilities.driver,
        "cuda": dotted(capabilities.cuda),
        "leastCuda": str(least.cuda) if (least := least_cuda_of(capabilities)) else None,
        "driverSupport": support.document() if (support := support_of(capabilities, this_month())) else None,
        "compute": dotted(capabilities.gpu_capability),
        "memoryMiB": capabilities.gpu_memory_mib,
        "mig": capabilities.mig_strategy,
        "slices": capabilities.mig_devices or None,
        "sharing": capabilities.sharing_strategy,
        "mode": capabilities.device_mode,
        "runtime": _runtime(capabilities.runtime, language),
    }


def _runtime(runtime: ContainerRuntime, language: Language) -> dict[str, Any] | None:
    """Return the known facts of a container runtime; None if there are none."""
    if runtime == UNKNOWN_RUNTIME:
        return None
    return {
        "mode": runtime.mode.value,
        "loadsCompat": runtime.loads_compat,
        "toolkit": ".".join(map(str, runtime.toolkit)) or None,
        "source": runtime.source.in_language(language),
    }


def _class(node_class: NodeClass, inventory: Inventory, language: Language) -> dict[str, Any]:
    return _facts(node_class.capabilities, language) | {
        "nodes": sorted(inventory.names(node_class.members)),
        "notReady": sorted(inventory.names(node_class.members & inventory.recovering)),
        "tainted": sorted(inventory.names(node_class.members & inventory.tainted)),
        "taints": [str(taint) for taint in inventory.taints(node_class.members)],
    }


def _unsupported(
    classes: Iterable[NodeClass], inventory: Inventory, language: Language
) -> Iterator[dict[str, Any]]:
    """Yield the classes whose driver does not support their GPU, or may not."""
    for node_class in classes:
        if result := unsupported_gpu(node_class.capabilities):
            yield {
                "nodes": sorted(inventory.names(node_class.members)),
                "reason": result.reason.in_language(language),
                "remedy": result.remedy.in_language(language),
            }


def _profile(
    profile: NodeProfile,
    inventory: Inventory,
    differences: tuple[ProfileDifference, ...],
    language: Language,
) -> dict[str, Any]:
    """Return a profile, its present nodes, and the facts that these nodes report differently."""
    return {
        "profile": profile.name,
        **_pool(profile.pool, language),
        "nodes": sorted(inventory.names(members(profile, inventory))),
        "differences": [
            {
                "fact": difference.fact,
                "stated": difference.stated,
                "reported": difference.reported,
                "nodes": sorted(inventory.names(difference.nodes)),
            }
            for difference in differences
            if difference.profile == profile.name
        ],
    }


def _pool(pool: NodePool, language: Language) -> dict[str, Any]:
    return _facts(pool.capabilities, language) | {
        "state": _state(pool),
        "resources": None if pool.resources is None else dict(pool.resources),
        "labelsAtCreation": dict(pool.labels),
        "taints": [str(taint) for taint in pool.taints],
    }


def _state(pool: NodePool) -> str:
    return "may come" if pool.can_scale else "cannot come"


def _autoscaler_signs(inventory: Inventory) -> list[str]:
    """Return the signs of autoscalers that may add nodes with unknown capabilities."""
    if not inventory.undeclared:
        return []
    labels = (f"label {key}" for key in sorted(autoscaler_labels()) if inventory.labels.with_key(key))
    return sorted(inventory.node_pools.signs) or list(labels)


def _rows(
    classes: Collection[NodeClass],
    pools: Collection[NodePool],
    inventory: Inventory,
    language: Language,
    *,
    wide: bool,
    by_name: bool,
) -> list[dict[str, str]]:
    """Return the rows of the table, without columns that are empty. by_name: each class is one node."""
    capabilities = [
        *(node_class.capabilities for node_class in classes),
        *(pool.capabilities for pool in pools),
    ]
    known = any(entry.runtime != UNKNOWN_RUNTIME for entry in capabilities)
    hidden = {
        *(() if known else ("runtime", "runtime source")),
        *(() if any(map(_ends, capabilities)) else ("support",)),
        *(() if inventory.recovering else ("not ready",)),
        *(() if inventory.tainted or any(pool.taints for pool in pools) else ("taints",)),
        *(() if pools else ("state", "pool")),
        *(() if wide else _WIDE),
        *(("nodes",) if by_name else ()),
    }

    def shown(row: dict[str, str]) -> dict[str, str]:
        return {name: cell for name, cell in row.items() if name not in hidden}

    # A pool may bring several kinds of nodes that differ in no column.
    pool_rows = dict.fromkeys(tuple(shown(_pool_row(pool, language)).items()) for pool in pools)
    class_rows = [shown(_class_row(node_class, inventory, language)) for node_class in classes]
    if by_name:
        pairs = zip(classes, class_rows, strict=True)
        return [{"name": inventory.names(node_class.members)[0]} | row for node_class, row in pairs]
    return [*class_rows, *map(dict, pool_rows)]


def _class_row(node_class: NodeClass, inventory: Inventory, language: Language) -> dict[str, str]:
    count, tainted = node_class.members.bit_count(), (node_class.members & inventory.tainted).bit_count()
    taints = _taint_text(inventory.taints(node_class.members))
    offered = (
        name
        for name in inventory.resources
        if "/" in name and inventory.nodes_offering(name) & node_class.members
    )
    return _row(node_class.capabilities, str(count), language) | {
        "not ready": str((node_class.members & inventory.recovering).bit_count()),
        "state": "present",
        "pool": UNKNOWN,
        "taints": taints if tainted in (0, count) else f"{tainted}/{count} {taints}",
        "resources": ", ".join(sorted(offered)) or UNKNOWN,
        "labels at creation": UNKNOWN,
    }


def _pool_row(pool: NodePool, language: Language) -> dict[str, str]:
    resources = (f"{name}: {amount}" for name, amount in pool.resources or ())
    return _row(pool.capabilities, UNKNOWN, language) | {
        "not ready": UNKNOWN,
        "state": _state(pool),
        "pool": f"{pool.kind}/{pool.name}",
        "taints": _taint_text(pool.taints),
        "resources": UNKNOWN if pool.resources is None else ", ".join(resources) or "none",
        "labels at creation": ", ".join(f"{key}={value}" for key, value in pool.labels) or "none",
    }


def _ends(capabilities: NodeCapabilities) -> bool:
    """Return whether the support of the driver ends soon, or has ended."""
    support = support_of(capabilities, this_month())
    return support is not None and support.text is not None


def _cuda_by_driver(capabilities: NodeCapabilities) -> str | None:
    """Return the CUDA version that follows from the driver, if no label reports one."""
    cuda = cuda_of(capabilities)
    return f"{cuda} (by driver)" if cuda else None


def _taint_text(taints: Sequence[Taint]) -> str:
    return ", ".join(map(str, taints)) or "none"


def _row(capabilities: NodeCapabilities, nodes: str, language: Language) -> dict[str, str]:
    facts, runtime = _facts(capabilities, language), capabilities.runtime
    memory, slices = facts.pop("memoryMiB"), facts.pop("slices")
    facts["cuda"] = facts["cuda"] or _cuda_by_driver(capabilities)
    support = support_of(capabilities, this_month())
    facts["support"] = support.text.in_language(language) if support and support.text else None
    facts["runtime"] = runtime.mode.value
    facts["runtime source"] = runtime.source.in_language(language)
    facts["memory"] = None if memory is None else f"{memory}Mi"
    facts["mig"] = ", ".join(filter(None, [facts["mig"], "slices" if slices else None]))
    if is_unsupported(capabilities):
        facts["driver" if facts["driver"] else "cuda"] += " (unsupported)"
    hardware = ("product", "driver", "cuda", "compute", "memory", "mig", "sharing", "mode")
    columns = (*hardware, "runtime", "runtime source", "support")
    return {"nodes": nodes} | {name: str(facts[name] or UNKNOWN) for name in columns}
