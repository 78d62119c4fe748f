"""CUDA runtimes against what runs them: for each pair what admission would say, by the same `fitness`.

Tables are for people: they are made when somebody asks, from all that the tables of `data/` know.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import Any, Final

from rules.compatibility.fitness import fitness, without_node
from rules.cuda.image_catalog import ImageCatalog
from rules.cuda.requirements import CUDA_VERSION_ANNOTATION, ContainerFacts, GpuRequirements, requirements_of
from rules.cuda.tables import (
    Status,
    capability,
    cuda_error,
    cuda_of_branch,
    cuda_version,
    gpu_model,
    read_table,
)
from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from rules.kube.container_env import Environment
from rules.model.finding import CheckResult, Level
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import NodeClass
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Language, Text

# The oldest major version for which NVIDIA states what it is compatible with (data/drivers.yaml).
_OLDEST: Final = CudaVersion(11, 0)
_NOTHING: Final = Text()
_VERSION: Final = re.compile(r"\d+\.\d+")

# All that is said of one runtime in one place; nothing where it runs.
Cell = tuple[CheckResult, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a level is shown."""

    mark: str
    words: Text


VERDICTS: Final[Mapping[Level, Verdict]] = {
    Level.COMPATIBLE: Verdict("✓", Text("runs", "可运行")),
    Level.UNSTABLE: Verdict("!", Text("runs, with a warning", "可运行，有警告")),
    Level.INCOMPATIBLE: Verdict("✗", Text("refused", "拒绝")),
    Level.UNKNOWN: Verdict("?", Text("unknown", "未知")),
}
# The facts that head columns.
FACTS: Final[Mapping[str, Text]] = {
    "product": Text("GPU", "GPU"),
    "driver": Text("driver", "驱动"),
    "cuda": Text("driver CUDA", "驱动 CUDA"),
    "compute": Text("compute", "计算能力"),
    "nodes": Text("nodes", "节点"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One place where runtimes may run.

    facts: under names of FACTS; None where nobody knows. cells: one for each runtime of the table. about:
    what else belongs here, for people.
    """

    facts: Mapping[str, str | int | None]
    cells: tuple[Cell, ...]
    about: Text = _NOTHING

    def name(self, language: Language) -> str:
        """Return what tells the place from others."""
        known = {key: str(fact) for key, fact in self.facts.items() if fact is not None and key != "nodes"}
        return ", ".join(
            fact if key == "product" else f"{FACTS[key].in_language(language)} {fact}"
            for key, fact in known.items()
        )


@dataclass(frozen=True, slots=True)
class Table:
    """Runtimes, the newest first, against places. Every column has the same facts; there is one at least."""

    title: Text
    runtimes: tuple[CudaVersion, ...]
    columns: tuple[Column, ...]

    def rows(self) -> Iterator[tuple[CudaVersion, tuple[Cell, ...]]]:
        """Yield each runtime with its cells, one for each column."""
        return zip(self.runtimes, zip(*(column.cells for column in self.columns), strict=True), strict=True)


@dataclass(frozen=True, slots=True)
class Footnote:
    """A reason that findings share; a version in which they differ is a range.

    error: the CUDA error that it would be, and what that means; or empty.
    """

    letter: str
    reason: Text
    error: Text


Footnotes = Mapping[CheckResult, Footnote]


def class_table(terms: SharingPolicy, classes: Iterable[NodeClass]) -> Table | None:
    """Return what runs on nodes; None where no node tells anything that bears on it.

    Classes that differ in nothing that is shown and judged are one column; silent nodes have none.
    """
    nodes: Counter[tuple[tuple[tuple[str, str | None], ...], tuple[Cell, ...]]] = Counter()
    asked = _all_needs()
    for each in sorted(classes, key=lambda each: sort_key(each.offer)):
        facts = _facts(each.offer)
        if any(fact is not None for fact in facts.values()):
            cells = tuple(
                (*without_node(terms, needs), *fitness(terms, needs, each.offer)) for needs in asked
            )
            nodes[tuple(facts.items()), cells] += each.members.bit_count()
    if not nodes:
        return None
    columns = (Column({**dict(facts), "nodes": count}, cells) for (facts, cells), count in nodes.items())
    sharing = _sharing(terms)
    title = Text(f"CUDA runtimes on the nodes, {sharing.en}", f"CUDA 运行时与节点，{sharing.zh}")
    return Table(title, _runtimes(), tuple(columns))


def driver_table(terms: SharingPolicy) -> Table:
    """Return what runs on the driver branches that are known, whatever the GPU."""
    asked = [replace(needs, compute=(), built_for=None) for needs in _all_needs()]
    columns = []
    for branch in sorted(row["branch"] for row in read_table("drivers")["branches"]):
        cuda = cuda_of_branch(branch)
        if cuda and cuda.certain and cuda.value >= _OLDEST:
            offer = NodeCapabilities(cuda=cuda.value)
            cells = tuple((*without_node(terms, needs), *fitness(terms, needs, offer)) for needs in asked)
            columns.append(Column({"driver": str(branch), "cuda": str(cuda.value)}, cells))
    sharing = _sharing(terms)
    title = Text(f"CUDA runtimes on driver branches, {sharing.en}", f"CUDA 运行时与驱动分支，{sharing.zh}")
    return Table(title, _runtimes(), tuple(columns))


def gpu_table() -> Table:
    """Return what runs on the GPUs that are known, whatever the driver."""
    rows: defaultdict[ComputeCapability, list[Mapping[str, Any]]] = defaultdict(list)
    for row in read_table("gpus"):
        rows[capability(row["compute"])].append(row)
    asked = [replace(needs, cuda=None) for needs in _all_needs()]
    columns = []
    for compute in sorted(rows):
        offer = NodeCapabilities(compute_capability=compute)
        cells = tuple(fitness(SharingPolicy(), needs, offer) for needs in asked)
        about = Text(*(_products(rows[compute], doubt) for doubt in ("unverified", "未证实")))
        columns.append(Column({"compute": str(compute)}, cells, about))
    title = Text("CUDA runtimes on compute capabilities", "CUDA 运行时与计算能力")
    return Table(title, _runtimes(), tuple(columns))


def footnotes(tables: Iterable[Table]) -> Footnotes:
    """Return the footnote of each finding, lettered as one reads."""
    alike: defaultdict[tuple[int, str], list[CheckResult]] = defaultdict(list)
    for table in tables:
        for _, cells in table.rows():
            for finding in (finding for cell in cells for finding in cell):
                alike[finding.code, _VERSION.sub("", finding.reason.en)].append(finding)
    found: dict[CheckResult, Footnote] = {}
    # More letters than `fitness` has sentences.
    for letter, findings in zip(ascii_letters, alike.values(), strict=False):
        reason = Text(*(_merged([f.reason.in_language(language) for f in findings]) for language in Language))
        found |= dict.fromkeys(findings, Footnote(letter, reason, _error(findings[0])))
    return found


def letters(cell: Cell, notes: Footnotes) -> str:
    """Return the letters of a cell's footnotes."""
    return "".join(sorted(notes[finding].letter for finding in cell))


def sort_key(offer: NodeCapabilities) -> tuple[Any, ...]:
    """Return what puts offers in order, fact by fact from product and CUDA on; the unknown comes last."""
    driver = DriverVersion.parse(offer.driver) if offer.driver else None
    facts = (
        offer.product,
        offer.cuda,
        driver,
        offer.compute_capability,
        offer.memory_mib,
        offer.mig_strategy,
        offer.sharing_strategy,
        offer.device_mode,
    )
    return tuple((fact is None, fact) for fact in facts)


def dotted(version: tuple[int, int] | None) -> str | None:
    """Return a version of an offer as it is written."""
    return None if version is None else f"{version[0]}.{version[1]}"


def _runtimes() -> tuple[CudaVersion, ...]:
    known = (cuda_version(row["cuda"]) for row in read_table("toolkits"))
    return tuple(sorted((cuda for cuda in known if cuda >= _OLDEST), reverse=True))


def _all_needs() -> list[GpuRequirements]:
    """Return for each runtime what a container needs of which its version is all that is known."""
    container = ContainerFacts("", "", Environment({}))
    return [
        requirements_of(container, {CUDA_VERSION_ANNOTATION: str(cuda)}, ImageCatalog(()))
        for cuda in _runtimes()
    ]


def _sharing(terms: SharingPolicy) -> Text:
    if not terms.virtual:
        return Text("physical GPUs", "物理 GPU")
    return Text(f"virtual GPUs up to CUDA {terms.baseline}", f"虚拟 GPU（最高 CUDA {terms.baseline}）")


def _facts(offer: NodeCapabilities) -> dict[str, str | None]:
    """Return the facts of an offer that bear on runtimes."""
    model = gpu_model(offer.product) if offer.product else None
    return {
        "product": model.product if model else offer.product,
        "driver": offer.driver,
        "cuda": dotted(offer.cuda),
        "compute": dotted(offer.compute_capability),
    }


def _products(rows: Iterable[Mapping[str, Any]], doubt: str) -> str:
    """Return the GPUs of some rows by architecture; doubt: the word for what is not certain."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        certain = Status(row["status"]).certain
        found[row["arch"]].append(row["product"] if certain else f"{row['product']} ({doubt})")
    return "; ".join(f"{arch.replace('-', ' ').title()}: {', '.join(names)}" for arch, names in found.items())


def _error(finding: CheckResult) -> Text:
    known = cuda_error(finding.code)
    if known is None:
        return _NOTHING
    return Text(f"{finding.error}: {known.cause.en}", f"{finding.error}：{known.cause.zh}")


def _merged(sentences: list[str]) -> str:
    """Return one sentence for those that differ in versions only."""
    places = zip(*(_VERSION.findall(sentence) for sentence in sentences), strict=True)
    ranges = (_range(place) for place in places)
    return _VERSION.sub(lambda _: next(ranges), sentences[0])


def _range(versions: Iterable[str]) -> str:
    ordered = sorted(set(versions), key=lambda version: [int(number) for number in version.split(".")])
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]}–{ordered[-1]}"
