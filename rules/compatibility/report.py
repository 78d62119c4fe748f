"""What is said of a pod that no node fits, or that few do: needs, nodes, reasons, ways out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rules.cuda.requirements import GpuRequirements
from rules.model.finding import CheckResult, Level
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.display_width import width
from rules.text.i18n import Language, Text

# Rows of a table in a message, and kinds of nodes in a line; the rest is counted.
_ROWS: Final = 8
_UNKNOWN: Final = "?"

_ANYWHERE: Final = Text(
    "container {container!r}: {reason} ({origin}); {remedy}",
    "容器 {container!r}：{reason}（{origin}）；{remedy}",
)
_HEAD: Final = Text(
    "no node that could take the pod fits container {containers} ({count} looked at)",
    "可调度该 Pod 的节点都不适合容器 {containers}（共检查 {count} 个）",
)
_HEAD_TOGETHER: Final = Text(
    "no node that could take the pod fits containers {containers} together ({count} looked at)",
    "可调度该 Pod 的节点都不能同时适合容器 {containers}（共检查 {count} 个）",
)
_COLUMNS: Final = Text("nodes|GPU|driver|CUDA|compute|why not", "节点数|GPU|驱动|CUDA|计算能力|原因")
_MORE: Final = Text("… and {count} more", "……以及另外 {count} 个")
_WAYS_OUT: Final = Text("what would fit: {ways}", "可行的办法：{ways}")
_ELSEWHERE: Final = Text(
    "{nodes}, left out by the pod's own nodeSelector, affinity or resources",
    "{nodes}（被该 Pod 自身的 nodeSelector、亲和性或资源请求排除）",
)
_NO_CANDIDATES: Final = Text(
    "container {container!r}: {why}; compatibility was not judged",
    "容器 {container!r}：{why}，未做兼容性判断",
)
_UNSTABLE: Final = Text(
    "container {container!r}: {reason} ({nodes})", "容器 {container!r}：{reason}（{nodes}）"
)
_UNJUDGED: Final = Text(
    "container {container!r}: nobody knows whether it runs: {reason} ({nodes})",
    "容器 {container!r}：无法判断能否运行：{reason}（{nodes}）",
)
_COLON: Final = Text("{about}: {what}", "{about}：{what}")
_AND: Final = Text("; ", "；")
_COMMA: Final = Text(", ", "、")
# Why no node could be judged.
NOT_OFFERED: Final = Text("no node offers {resources}", "没有节点提供 {resources}")
NEAR_OFFERED: Final = Text(
    "no node offers {resources}; some offer {near}", "没有节点提供 {resources}，但有节点提供 {near}"
)
NOT_TOGETHER: Final = Text("no node offers {resources} together", "没有节点同时提供 {resources}")
LEFT_OUT: Final = Text(
    "the pod's own nodeSelector, affinity or nodeName leaves out each of the {nodes} that offer {resources}",
    "提供 {resources} 的节点（{nodes} 个）均被该 Pod 自身的 nodeSelector、亲和性或 nodeName 排除",
)


class RuleRequirement(NamedTuple):
    """The rule that a container comes under, and what the container needs."""

    rule: CompatibilityRule
    needs: GpuRequirements


class ContainerResult(NamedTuple):
    """What there is to say of a container on a node, and the worst level of it."""

    level: Level
    findings: tuple[CheckResult, ...]


class NodeClassResult(NamedTuple):
    """Nodes that offer the same, and what there is to say of each demand on them.

    members: their bit set. level: the worst of all containers, which go to one node.
    """

    offer: NodeCapabilities
    members: int
    level: Level
    opinions: tuple[tuple[RuleRequirement, ContainerResult], ...]

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.members.bit_count()

    def level_under(self, action: Action) -> Level:
        """Return the worst level of the containers under rules of an action."""
        return max([opinion.level for demand, opinion in self.opinions if demand.rule.action is action])


# What is found of containers, each with its demand.
Pairs = tuple[tuple[RuleRequirement, CheckResult], ...]


def unmet_requirements(judged: Sequence[NodeClassResult]) -> list[RuleRequirement]:
    """Return the demands that none of these nodes meets; if there is none, those that some do not meet."""
    demands = [demand for demand, _ in judged[0].opinions]
    opinions = zip(*([opinion for _, opinion in each.opinions] for each in judged), strict=True)
    refused = ([opinion.level is Level.INCOMPATIBLE for opinion in found] for found in opinions)
    verdicts = list(zip(demands, refused, strict=True))
    never = [demand for demand, found in verdicts if all(found)]
    return never or [demand for demand, found in verdicts if any(found)]


class MessageWriter:
    """Says it in one language."""

    def __init__(self, language: Language) -> None:
        self._language = language

    def of(self, text: Text) -> str:
        """Return a text in the language."""
        return text.in_language(self._language)

    def anywhere(self, demand: RuleRequirement, finding: CheckResult) -> str:
        """Return what holds of a container on any node."""
        return self._fill(
            _ANYWHERE,
            container=demand.needs.container,
            reason=self._reason(finding),
            origin=self.of(finding.origin),
            remedy=self.of(finding.remedy),
        )

    def no_candidates(self, container: str, why: Text, resources: Sequence[str], **facts: object) -> str:
        """Return the warning that no node could be judged. why: one of those above; facts: others of it."""
        rest = [self._fill(_MORE, count=len(resources) - _ROWS)] if len(resources) > _ROWS else []
        told = self.of(_COMMA).join([*resources[:_ROWS], *rest])
        return self._fill(_NO_CANDIDATES, container=container, why=self._fill(why, resources=told, **facts))

    def rule_set_warnings(self, level: Level, judged: Iterable[NodeClassResult]) -> list[str]:
        """Return a warning for each thing in doubt on nodes of a level, which is UNSTABLE or UNKNOWN."""
        told = _told([each for each in judged if each.level is level], level)
        rule_set_warnings: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for pairs in _distinct(told):
            for demand, finding in pairs:
                rule_set_warnings[demand.needs.container, self._reason(finding)].add(id(pairs))
        nodes = {
            alike: self._joined(self._kinds(each for each, pairs in told if id(pairs) in alike))
            for alike in set(map(frozenset, rule_set_warnings.values()))
        }
        words = _UNSTABLE if level is Level.UNSTABLE else _UNJUDGED
        return [
            self._fill(words, container=container, reason=reason, nodes=nodes[frozenset(alike)])
            for (container, reason), alike in rule_set_warnings.items()
        ]

    def incompatible(
        self, judged: Sequence[NodeClassResult], elsewhere: Iterable[NodeClassResult], *, table: bool
    ) -> str:
        """Return why all these nodes are refused: needs and who says so, nodes and reasons, ways out.

        elsewhere: nodes that would fit and that the pod's own selectors leave out. table: in lines; otherwise
        in one, without the nodes, as API servers drop a warning with line breaks.
        """
        demands = unmet_requirements(judged)
        names = dict.fromkeys(demand.needs.container for demand in demands)
        told = _told(judged, Level.INCOMPATIBLE, demands)
        head = self._fill(
            _HEAD if len(names) == 1 else _HEAD_TOGETHER,
            containers=self.of(_COMMA).join(map(repr, names)),
            count=sum(each.nodes for each in judged),
        )
        found = [finding for pairs in _distinct(told) for _, finding in pairs]
        origins = (self.of(finding.origin) for finding in found)
        parts = [self._joined(dict.fromkeys([head, *origins]))]
        if table:
            parts += self._table(told, several=len(demands) > 1)
        else:
            parts += dict.fromkeys(map(self._reason, found))
        if ways := [*self._remedies(told), *self._left_out(elsewhere)]:
            parts.append(self._fill(_WAYS_OUT, ways=self._joined(ways)))
        return "\n    ".join(parts) if table else self._joined(parts)

    def _table(self, told: Sequence[tuple[NodeClassResult, Pairs]], *, several: bool) -> list[str]:
        """Return a line for each kind of node, that of which there are most first. several: containers."""
        why = {id(pairs): self._why(pairs, several=several) for pairs in _distinct(told)}
        counts: Counter[tuple[str, ...]] = Counter()
        for each, pairs in told:
            offer = each.offer
            cells = (offer.product or _UNKNOWN, offer.driver or _UNKNOWN, _dotted(offer.cuda))
            counts[*cells, _dotted(offer.compute_capability), why[id(pairs)]] += each.nodes
        rows = sorted(counts.items(), key=lambda row: (-row[1], row[0][:-1]))
        shown = [[str(count), *cells] for cells, count in rows[:_ROWS]]
        rest = sum(count for _, count in rows[_ROWS:])
        return [
            *_aligned([self.of(_COLUMNS).split("|"), *shown]),
            *([self._fill(_MORE, count=rest)] if rest else []),
        ]

    def _why(self, pairs: Pairs, *, several: bool) -> str:
        reasons = (
            self._fill(_COLON, about=demand.needs.container, what=self._reason(finding))
            if several
            else self._reason(finding)
            for demand, finding in pairs
        )
        return self._joined(dict.fromkeys(reasons))

    def _remedies(self, told: Iterable[tuple[NodeClassResult, Pairs]]) -> list[str]:
        """Return what would help; of several remedies for one need, that for the newest driver."""
        by_cuda = sorted(told, key=lambda each: each[0].offer.cuda or (0, 0))
        remedies: dict[tuple[str, Text, int], str] = {}
        # Needs in the order of the first who tell of them, remedies as the last do.
        for pairs in [*_distinct(by_cuda), *_distinct(by_cuda[::-1])[::-1]]:
            for demand, finding in pairs:
                if finding.remedy.en:
                    need = demand.needs.container, finding.origin, finding.code
                    remedies[need] = self.of(finding.remedy)
        return list(dict.fromkeys(remedies.values()))

    def _left_out(self, elsewhere: Iterable[NodeClassResult]) -> list[str]:
        told = [each for each in elsewhere if each.offer.cuda or each.offer.compute_capability]
        return [self._fill(_ELSEWHERE, nodes=kind) for kind in self._kinds(told)]

    def _kinds(self, judged: Iterable[NodeClassResult]) -> list[str]:
        """Return nodes in a few words: `3 × Tesla-T4, CUDA 12.2`."""
        counts: Counter[str] = Counter()
        for each in judged:
            counts[f"{each.offer.product or 'GPU'}, CUDA {_dotted(each.offer.cuda)}"] += each.nodes
        kinds = [f"{count} × {what}" for what, count in counts.most_common(_ROWS)]
        rest = counts.total() - sum(count for _, count in counts.most_common(_ROWS))
        return [*kinds, self._fill(_MORE, count=rest)] if rest else kinds

    def _reason(self, finding: CheckResult) -> str:
        reason = self.of(finding.reason)
        return self._fill(_COLON, about=reason, what=finding.error) if finding.error else reason

    def _joined(self, texts: Iterable[str]) -> str:
        return self.of(_AND).join(texts)

    def _fill(self, text: Text, **facts: object) -> str:
        return self.of(text).format(**facts)


def _told(
    judged: Iterable[NodeClassResult], level: Level, demands: Iterable[RuleRequirement] | None = None
) -> list[tuple[NodeClassResult, Pairs]]:
    """Return classes with what is found of a level; where that is the same, it is the same object.

    demands: of which it is to be told, if not of all. A pod may have hundreds, on as many classes: they are
    compared by identity.
    """
    among = None if demands is None else set(map(id, demands))
    known: dict[tuple[int, ...], Pairs] = {}
    told = []
    for each in judged:
        opinions = [pair for pair in each.opinions if among is None or id(pair[0]) in among]
        key = tuple([id(opinion) for _, opinion in opinions])
        if key not in known:
            known[key] = tuple(
                [
                    (demand, found)
                    for demand, opinion in opinions
                    for found in opinion.findings
                    if found.level is level
                ]
            )
        told.append((each, known[key]))
    return told


def _distinct(told: Iterable[tuple[NodeClassResult, Pairs]]) -> list[Pairs]:
    """Return what is found, once where it is the same."""
    return list({id(pairs): pairs for _, pairs in told}.values())


def _dotted(version: tuple[int, int] | None) -> str:
    return f"{version[0]}.{version[1]}" if version else _UNKNOWN


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns under each other; the last column is not padded."""
    *padded, last = zip(*rows, strict=True)
    columns = [*map(_padded, padded), last]
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _padded(cells: Sequence[str]) -> list[str]:
    widths = {cell: width(cell) for cell in cells}
    most = max(widths.values())
    return [cell + " " * (most - widths[cell]) for cell in cells]
