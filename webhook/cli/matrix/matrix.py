"""Compatibility tables of CUDA runtimes with nodes, drivers and GPUs, by the checks of admission.

The runtimes, drivers and GPUs are those in the tables of `facts/`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from string import ascii_letters
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from rules.compatibility.checks import check_on_any_node, check_on_node
from rules.cuda.image_catalog import ImageCatalog
from rules.cuda.requirements import CUDA_VERSION_ANNOTATION, ContainerFacts, GpuRequirements, requirements_of
from rules.cuda.tables import (
    BUILT_IN,
    Facts,
    Status,
    capability,
    certain_branches,
    cuda_error,
    cuda_of_branch,
    toolkits,
)
from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import NodeClass
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Joined, Language, Message, Text

# The oldest major version for which NVIDIA publishes compatibility (facts/drivers.yaml).
_OLDEST: Final = CudaVersion(11, 0)
_EMPTY: Final = Message()
_VERSION: Final = re.compile(r"\d+\.\d+")

# The check results of one runtime and one node, driver or GPU; empty if they are compatible.
Cell = tuple[CheckResult, ...]


class LevelLabel(Struct, frozen=True):
    """Mark and text of a level."""

    mark: str
    text: Message


LEVEL_LABELS: Final[Mapping[Level, LevelLabel]] = {
    Level.COMPATIBLE: LevelLabel("✓", Message("compatible")),
    Level.UNSTABLE: LevelLabel("!", Message("compatible, with a warning")),
    Level.INCOMPATIBLE: LevelLabel("✗", Message("incompatible")),
    Level.UNKNOWN: LevelLabel("?", Message("unknown")),
}
# Headings of facts.
FACTS: Final[Mapping[str, Message]] = {
    "product": Message("GPU"),
    "driver": Message("driver"),
    "cuda": Message("driver CUDA"),
    "compute": Message("compute"),
    "nodes": Message("nodes"),
}


class Column(Struct, frozen=True):
    """A class of nodes, a driver branch or a compute capability."""

    facts: Mapping[str, str | int | None]  # by keys of FACTS; None is unknown
    cells: tuple[Cell, ...]  # one for each runtime of the table
    about: Message = _EMPTY  # a description for people

    def name(self, language: Language) -> str:
        """Return the known facts, except the number of nodes."""
        known = {key: str(fact) for key, fact in self.facts.items() if fact is not None and key != "nodes"}
        return ", ".join(
            fact if key == "product" else f"{FACTS[key].in_language(language)} {fact}"
            for key, fact in known.items()
        )


class Table(Struct, frozen=True):
    """A row for each runtime, newest first. All columns have the same facts; there is at least one column."""

    title: Message
    runtimes: tuple[CudaVersion, ...]
    columns: tuple[Column, ...]

    def rows(self) -> Iterator[tuple[CudaVersion, tuple[Cell, ...]]]:
        """Yield each runtime with its cells, one for each column."""
        return zip(self.runtimes, zip(*(column.cells for column in self.columns), strict=True), strict=True)


class Footnote(Struct, frozen=True):
    """A reason that several check results have, with the range of their versions."""

    letter: str
    reason: Message
    error: Message  # the CUDA error of an incompatibility with its cause, or empty


Footnotes = Mapping[CheckResult, Footnote]


def class_table(policy: SharingPolicy, classes: Iterable[NodeClass], known: Facts = BUILT_IN) -> Table | None:
    """Return the table of node classes, with the runtimes that are known; None if no node has GPU labels.

    Classes with equal facts and cells share a column; nodes without GPU labels are left out.
    """
    nodes: Counter[tuple[tuple[tuple[str, str | None], ...], tuple[Cell, ...]]] = Counter()
    requirements = _all_requirements(known)
    for node_class in sorted(classes, key=lambda node_class: sort_key(node_class.capabilities)):
        facts = _facts(node_class.capabilities)
        if labelled(node_class.capabilities):
            cells = tuple(
                (*check_on_any_node(policy, needs), *check_on_node(policy, needs, node_class.capabilities))
                for needs in requirements
            )
            nodes[tuple(facts.items()), cells] += node_class.members.bit_count()
    if not nodes:
        return None
    columns = (Column({**dict(facts), "nodes": count}, cells) for (facts, cells), count in nodes.items())
    sharing = _sharing(policy)
    title = Message("CUDA runtimes on the nodes, {sharing}", sharing=sharing)
    return Table(title, _runtimes(known), tuple(columns))


def labelled(capabilities: NodeCapabilities) -> bool:
    """Return whether a fact of the table is known of a node."""
    return any(fact is not None for fact in _facts(capabilities).values())


def driver_table(policy: SharingPolicy, known: Facts = BUILT_IN) -> Table:
    """Return the table of all known driver branches, without checks of the GPU."""
    requirements = [replace(needs, compute=(), built_for=None) for needs in _all_requirements(known)]
    columns = []
    for branch in certain_branches(known):
        cuda = cuda_of_branch(known, branch)
        if cuda and cuda.certain and cuda.value >= _OLDEST:
            capabilities = NodeCapabilities(cuda=cuda.value, facts=known)
            cells = tuple(
                (*check_on_any_node(policy, needs), *check_on_node(policy, needs, capabilities))
                for needs in requirements
            )
            columns.append(Column({"driver": str(branch), "cuda": str(cuda.value)}, cells))
    sharing = _sharing(policy)
    title = Message("CUDA runtimes on driver branches, {sharing}", sharing=sharing)
    return Table(title, _runtimes(known), tuple(columns))


def gpu_table(known: Facts = BUILT_IN) -> Table:
    """Return the table of all known compute capabilities, without checks of the driver."""
    rows: defaultdict[ComputeCapability, list[Mapping[str, Any]]] = defaultdict(list)
    for row in known.table("gpus"):
        if "compute" in row:
            rows[capability(row["compute"])].append(row)
    requirements = [replace(needs, cuda=None) for needs in _all_requirements(known)]
    columns = []
    for compute in sorted(rows):
        capabilities = NodeCapabilities(compute_capability=compute, facts=known)
        cells = tuple(check_on_node(SharingPolicy(), needs, capabilities) for needs in requirements)
        about = Text(**{language: _products(rows[compute], language) for language in Language})
        columns.append(Column({"compute": str(compute)}, cells, about))
    title = Message("CUDA runtimes on compute capabilities")
    return Table(title, _runtimes(known), tuple(columns))


def footnotes(tables: Iterable[Table]) -> Footnotes:
    """Return the footnote of each check result; letters are in reading order."""
    similar: defaultdict[tuple[int, str], list[CheckResult]] = defaultdict(list)
    for table in tables:
        for _, cells in table.rows():
            for finding in (finding for cell in cells for finding in cell):
                similar[finding.code, _VERSION.sub("", finding.reason.en)].append(finding)
    by_result: dict[CheckResult, Footnote] = {}
    # There are more letters than different reasons.
    for letter, findings in zip(ascii_letters, similar.values(), strict=False):
        reason = Text(
            **{language: _merged([f.reason.in_language(language) for f in findings]) for language in Language}
        )
        by_result |= dict.fromkeys(findings, Footnote(letter, reason, _error(findings[0])))
    return by_result


def cell_document(cell: Cell, language: Language) -> dict[str, Any]:
    """Return a cell as JSON: its level and the reasons."""
    reasons = [
        {
            "level": result.level.name.lower(),
            "reason": result.reason.in_language(language),
            "remedy": result.remedy.in_language(language),
            "error": result.error,
        }
        for result in cell
    ]
    return {"level": level_of(cell).name.lower(), "reasons": reasons}


def letters(cell: Cell, notes: Footnotes) -> str:
    """Return the letters of a cell's footnotes."""
    return "".join(sorted(notes[finding].letter for finding in cell))


def sort_key(capabilities: NodeCapabilities) -> tuple[Any, ...]:
    """Return the sort key of node capabilities: product, CUDA, driver, …; unknown values are last."""
    driver = DriverVersion.parse(capabilities.driver) if capabilities.driver else None
    facts = (
        capabilities.product,
        capabilities.cuda,
        driver,
        capabilities.gpu_capability,
        capabilities.gpu_memory_mib,
        capabilities.mig_strategy,
        capabilities.sharing_strategy,
        capabilities.device_mode,
    )
    return tuple((fact is None, fact) for fact in facts)


def dotted(version: tuple[int, int] | None) -> str | None:
    """Return a version as text, such as 12.4."""
    return None if version is None else f"{version[0]}.{version[1]}"


def _runtimes(known: Facts) -> tuple[CudaVersion, ...]:
    return tuple(cuda for cuda in reversed(toolkits(known)) if cuda >= _OLDEST)


def _all_requirements(known: Facts) -> list[GpuRequirements]:
    """Return the GPU requirements of a container that sets only its CUDA version, for each runtime."""
    return [
        requirements_of(
            ContainerFacts("", annotations=((CUDA_VERSION_ANNOTATION, str(cuda)),)),
            ImageCatalog((), facts=known),
        )
        for cuda in _runtimes(known)
    ]


_UNVERIFIED: Final = Message("unverified")


def _sharing(policy: SharingPolicy) -> Message:
    if not policy.virtual:
        return Message("physical GPUs")
    return Message("virtual GPUs up to CUDA {baseline}", baseline=policy.baseline)


def _facts(capabilities: NodeCapabilities) -> dict[str, str | None]:
    """Return the facts of node capabilities that are shown in a table."""
    model = capabilities.model
    return {
        "product": model.product if model else capabilities.product,
        "driver": capabilities.driver,
        "cuda": dotted(capabilities.cuda),
        "compute": dotted(capabilities.gpu_capability),
    }


def _products(rows: Iterable[Mapping[str, Any]], language: Language) -> str:
    """Return the GPUs of rows by architecture, each once."""
    unverified = _UNVERIFIED.in_language(language)
    products: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        certain = Status(row["status"]).certain
        products[row["arch"]].append(row["product"] if certain else f"{row['product']} ({unverified})")
    lines = (
        f"{arch.replace('-', ' ').title()}: {', '.join(dict.fromkeys(names))}"
        for arch, names in products.items()
    )
    return Joined("; ", lines).in_language(language)


def _error(finding: CheckResult) -> Message:
    known = cuda_error(finding.code)
    if known is None:
        return _EMPTY
    return Message("{error}: {cause}", error=finding.error, cause=known.cause)


def _merged(sentences: list[str]) -> str:
    """Return one sentence for sentences that differ only in versions."""
    positions = zip(*(_VERSION.findall(sentence) for sentence in sentences), strict=True)
    ranges = (_range(position) for position in positions)
    return _VERSION.sub(lambda _: next(ranges), sentences[0])


def _range(versions: Iterable[str]) -> str:
    ordered = sorted(set(versions), key=lambda version: [int(number) for number in version.split(".")])
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]}–{ordered[-1]}"
