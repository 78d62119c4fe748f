"""What is said of a pod that no node fits, or that few do: needs, nodes, reasons, ways out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final
from unicodedata import east_asian_width

from rules.fitness import Finding, Level, fitness
from rules.inventory import NodeClass
from rules.model import CompatibilityRule, Language, Text
from rules.needs import Needs
from rules.offer import Offer

if TYPE_CHECKING:
    from rules.pod import Container

# Rows of a table in a message; the rest is counted. The API server cuts what is much longer.
_ROWS: Final = 8
_UNKNOWN: Final = "?"

_ANYWHERE: Final = Text(
    "container {container!r}: {reason} ({origin}){remedy}", "容器 {container!r}：{reason}（{origin}）{remedy}"
)
_REMEDY: Final = Text("; {remedy}", "；{remedy}")
_HEAD: Final = Text(
    "container {container!r} fits none of the {count} nodes that could take the pod{needs}",
    "可调度该 Pod 的 {count} 个节点都不适合容器 {container!r}{needs}",
)
_NEEDS: Final = Text("; {origins}", "；{origins}")
_COLUMNS: Final = Text("nodes|GPU|driver|CUDA|compute|why not", "节点数|GPU|驱动|CUDA|计算能力|原因")
_MORE: Final = Text("… and {count} more nodes", "……以及另外 {count} 个节点")
_WAYS_OUT: Final = Text("what would fit: {ways}", "可行的办法：{ways}")
_ELSEWHERE: Final = Text(
    "{count} nodes with {what}, which the pod's own nodeSelector, affinity or resources leave out",
    "{count} 个 {what} 节点（被该 Pod 自身的 nodeSelector、亲和性或资源请求排除在外）",
)
_NO_CANDIDATES: Final = Text(
    "container {container!r}: no node offers what the pod asks for and is allowed by its selectors; "
    "compatibility was not judged",
    "容器 {container!r}：没有节点既提供所需资源又符合其选择条件，未做兼容性判断",
)
_UNJUDGED: Final = Text(
    "container {container!r}: compatibility could not be judged on {count} nodes: {reason}",
    "容器 {container!r}：{count} 个节点无法判断兼容性：{reason}",
)
_UNSTABLE: Final = Text(
    "container {container!r}: {reason} ({count} nodes, {what})",
    "容器 {container!r}：{reason}（{count} 个节点，{what}）",
)
_AND: Final = Text("; ", "；")


@dataclass(frozen=True, slots=True)
class Demand:
    """A container, the rule that it comes under, and what it needs."""

    container: Container
    rule: CompatibilityRule
    needs: Needs

    def findings(self, node_class: NodeClass) -> tuple[Finding, ...]:
        """Return what there is to say of the container on nodes of a class."""
        return fitness(self.rule.terms, self.needs, node_class.offer)


@dataclass(frozen=True, slots=True)
class Judged:
    """A class of nodes and what there is to say of each container on it."""

    node_class: NodeClass
    findings: tuple[tuple[Demand, Finding], ...]

    @property
    def level(self) -> Level:
        """The worst of all containers: they go to one node."""
        return max((finding.level for _, finding in self.findings), default=Level.FITS)

    @property
    def count(self) -> int:
        """The number of its nodes."""
        return self.node_class.members.bit_count()


class Words:
    """Says it in one language."""

    def __init__(self, language: Language) -> None:
        self._language = language

    def of(self, text: Text) -> str:
        """Return a text in the language."""
        return text.in_language(self._language)

    def anywhere(self, demand: Demand, finding: Finding) -> str:
        """Return what holds of a container on any node."""
        remedy = self._fill(_REMEDY, remedy=self.of(finding.remedy)) if finding.remedy.en else ""
        return self._fill(
            _ANYWHERE,
            container=demand.container.name,
            reason=self._reason(finding),
            origin=self.of(finding.origin),
            remedy=remedy,
        )

    def no_candidates(self, demands: Sequence[Demand]) -> str:
        """Return the warning that no node could be judged."""
        return self._fill(_NO_CANDIDATES, container=demands[0].container.name)

    def unknown(self, judged: Sequence[Judged]) -> str:
        """Return the warning that labels are missing on all nodes that are not refused."""
        chosen = [each for each in judged if each.level is Level.UNKNOWN]
        demand, finding = next(pair for pair in chosen[0].findings if pair[1].level is Level.UNKNOWN)
        count = sum(each.count for each in chosen)
        return self._fill(
            _UNJUDGED, container=demand.container.name, count=count, reason=self.of(finding.reason)
        )

    def unstable(self, judged: Sequence[Judged]) -> list[str]:
        """Return a warning for each thing that is unstable on the nodes that will do."""
        lines: dict[tuple[str, str], list[Judged]] = {}
        for each in judged:
            if each.level is Level.UNSTABLE:
                for demand, finding in each.findings:
                    lines.setdefault((demand.container.name, self._reason(finding)), []).append(each)
        return [
            self._fill(
                _UNSTABLE,
                container=container,
                reason=reason,
                count=sum(each.count for each in classes),
                what=self._what(classes[0].node_class.offer),
            )
            for (container, reason), classes in lines.items()
        ]

    def refusal(self, culprit: Demand, judged: Sequence[Judged], elsewhere: Sequence[Judged]) -> str:
        """Return the whole refusal: what is needed and who says so, the table of nodes, the ways out.

        elsewhere: classes that would fit and that the pod's own selectors leave out.
        """
        lines = [
            self._fill(
                _HEAD,
                container=culprit.container.name,
                count=sum(each.count for each in judged),
                needs=self._needs(judged),
            )
        ]
        rows = [self.of(_COLUMNS).split("|")]
        rows += [self._row(each) for each in islice(judged, _ROWS)]
        lines += [f"    {line}" for line in _aligned(rows)]
        if rest := sum(each.count for each in islice(judged, _ROWS, None)):
            lines.append(f"    {self._fill(_MORE, count=rest)}")
        ways = self._ways(judged)
        ways += [
            self._fill(_ELSEWHERE, count=each.count, what=self._what(each.node_class.offer))
            for each in elsewhere
        ]
        if ways:
            lines.append(f"    {self._fill(_WAYS_OUT, ways=self._joined(ways))}")
        return "\n".join(lines)

    def _needs(self, judged: Sequence[Judged]) -> str:
        """Return where the needs that nodes do not meet were read."""
        refused = (
            finding for each in judged for _, finding in each.findings if finding.level is Level.REFUSED
        )
        joined = self._joined(
            dict.fromkeys(self.of(finding.origin) for finding in refused if finding.origin.en)
        )
        return self._fill(_NEEDS, origins=joined) if joined else ""

    def _ways(self, judged: Sequence[Judged]) -> list[str]:
        """Return what would help; of several for one error, that for the newest driver."""
        ways: dict[int, str] = {}
        for each in sorted(judged, key=lambda each: each.node_class.offer.cuda or (0, 0)):
            for _, finding in each.findings:
                if finding.level is Level.REFUSED and finding.remedy.en:
                    ways[finding.code] = self.of(finding.remedy)
        return list(ways.values())

    def _row(self, judged: Judged) -> list[str]:
        offer = judged.node_class.offer
        reasons = (self._reason(finding) for _, finding in judged.findings if finding.level is Level.REFUSED)
        return [
            str(judged.count),
            offer.product or _UNKNOWN,
            offer.driver or _UNKNOWN,
            _dotted(offer.cuda),
            _dotted(offer.compute_capability),
            self._joined(dict.fromkeys(reasons)),
        ]

    def _what(self, offer: Offer) -> str:
        """Return a class of nodes in a few words."""
        return f"{offer.product or 'GPU'}, CUDA {_dotted(offer.cuda)}"

    def _reason(self, finding: Finding) -> str:
        reason = self.of(finding.reason)
        return f"{reason}: {finding.error}" if finding.error else reason

    def _joined(self, texts: Iterable[str]) -> str:
        return self.of(_AND).join(texts)

    def _fill(self, text: Text, **facts: object) -> str:
        return self.of(text).format(**facts)


def _dotted(version: tuple[int, int] | None) -> str:
    return f"{version[0]}.{version[1]}" if version else _UNKNOWN


def _width(text: str) -> int:
    """Return the columns of a text on a terminal."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns under each other; the last column is not padded."""
    widths = [max(_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
