"""The fleet: the drivers of the nodes, when their support ends, and the CUDA that workloads need."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from rules import Language, Policy
from rules.cuda.versions import CudaVersion
from rules.kube.pod import Pod
from rules.nodes.driver_lifecycle import DriverSupport, SupportState, support_of
from rules.nodes.fleet import gpu_classes
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import cuda_of
from rules.text.i18n import Joined, Message
from webhook.cli.terminal.console import UNKNOWN

_DRIVER: Final = Message("{branch}: {support}")
_UNTIL: Final = Message("supported until {end}")
_NO_END: Final = Message("no announced end")
_EXACTLY: Final = Message("{cuda}")
_MORE: Final = Message("{cuda} or newer")
_UNKNOWN: Final = Message("CUDA unknown")
# Of states of support, the worst first.
_WORST: Final = (SupportState.ENDED, SupportState.ENDING, SupportState.SUPPORTED, None)


class FleetRow(NamedTuple):
    """A CUDA version; None for the nodes and workloads of which it is unknown.

    nodes: those whose driver has it. supports: of their drivers. workloads: those whose newest image has it.
    lower_bound: whether some of the nodes may have a newer one.
    """

    cuda: CudaVersion | None
    nodes: int
    supports: tuple[DriverSupport, ...]
    workloads: int
    lower_bound: bool = False

    @property
    def state(self) -> SupportState | None:
        """The worst support of the drivers."""
        return min((support.state for support in self.supports), key=_WORST.index, default=None)

    @property
    def name(self) -> Message:
        """The version."""
        if self.cuda is None:
            return _UNKNOWN
        return (_MORE if self.lower_bound else _EXACTLY).having(cuda=self.cuda)

    def drivers(self, language: Language) -> str:
        """Return the branches of the drivers, and when the support of each ends or ended."""
        return Joined("; ", map(_support_text, self.supports)).in_language(language)

    def document(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return {
            "cuda": self.cuda and str(self.cuda),
            "lowerBound": self.lower_bound,
            "workloads": self.workloads,
            "nodes": self.nodes,
            "drivers": [support.document() for support in self.supports],
        }


Fleet: TypeAlias = tuple[FleetRow, ...]


def _support_text(support: DriverSupport) -> Message:
    text = support.text or (_UNTIL.having(end=support.end) if support.end else _NO_END)
    return _DRIVER.having(branch=support.branch, support=text)


def fleet_cells(rows: Fleet, language: Language, before: Fleet | None = None) -> list[dict[str, str]]:
    """Return the rows of a table. before: the fleet before a change, whose numbers are shown, too."""
    old = {row.cuda: row for row in (rows if before is None else before)}
    new = {row.cuda: row for row in rows}
    cells = []
    for cuda in _newest_first({*old, *new}):
        row, old_row = (known.get(cuda, FleetRow(cuda, 0, (), 0)) for known in (new, old))
        cells.append(
            {
                "cuda": (row if row.nodes else old_row).name.in_language(language),
                "workloads": _change(old_row.workloads, row.workloads),
                "nodes": _change(old_row.nodes, row.nodes),
                "driver": row.drivers(language) or UNKNOWN,
            }
        )
    return cells


def _change(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def _newest_first(versions: Iterable[CudaVersion | None]) -> list[CudaVersion | None]:
    return sorted(versions, key=lambda version: version or CudaVersion(0, 0), reverse=True)


def known_cuda(
    policy: Policy, objects: Iterable[tuple[str, str, Mapping[str, Any]]]
) -> set[CudaVersion] | None:
    """Return the CUDA toolkits known to be in the images of containers with accelerators; None without any.

    objects: group, kind and document of the objects of a workload.
    """
    known, uses = set[CudaVersion](), False
    for group, kind, document in objects:
        for path, (raw, others) in policy.workloads.pods_of(group, kind, document).items():
            for container in Pod(document, raw, path, others).users:
                uses, image = True, policy.catalog.find(container.image)
                if image.cuda and image.exact:
                    known.add(image.cuda)
    return known if uses else None


def fleet(
    inventory: Inventory,
    families: Sequence[LabelNames],
    needed: Iterable[Collection[CudaVersion]],
    month: str,
) -> tuple[FleetRow, ...]:
    """Return the CUDA versions of GPU nodes and of workloads, the newest first; none without GPU nodes.

    families: the labels that rules read. needed: for each workload with accelerators, the known CUDA versions
    of its images. month: as 2026-11.
    """
    nodes: Counter[CudaVersion | None] = Counter()
    supports: defaultdict[CudaVersion | None, set[DriverSupport]] = defaultdict(set)
    bounds: set[CudaVersion | None] = set()
    for node_class in gpu_classes(inventory, families):
        capabilities = node_class.capabilities
        known = cuda_of(capabilities)
        cuda = known.version if known else None
        if known and not known.exact:
            bounds.add(cuda)
        nodes[cuda] += node_class.members.bit_count()
        if support := support_of(capabilities, month):
            supports[cuda].add(support)
    if not nodes:
        return ()
    workloads: Counter[CudaVersion | None] = Counter(max(versions, default=None) for versions in needed)
    return tuple(
        FleetRow(cuda, nodes[cuda], tuple(sorted(supports[cuda])), workloads[cuda], cuda in bounds)
        for cuda in _newest_first({*nodes, *workloads})
    )
