"""Messages about compatibility: unmet requirements, suggested fixes, nodes, reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

from rules.compatibility.prospects import ProspectResult
from rules.compatibility.result import (
    NodeClassResult,
    NodeSetResult,
    RuleRequirement,
    UntoleratedTaints,
    unmet_requirements,
)
from rules.kube.pod import Container, Pod
from rules.model.check_result import CheckResult, Level
from rules.model.finding import Basis, Finding, notice
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.gpu_resources import Amounts
from rules.text.glob import Comparisons
from rules.text.i18n import Joined, Language, Line, Lines, Message, width
from rules.text.paths import field_path
from rules.text.printable import printable

# Rows of a table, and kinds of nodes or resources in a line; the rest is counted.
_ROWS: Final = 3
_UNKNOWN: Final = "?"

_IT: Final = Line("{text}")
_WITH_ORIGIN: Final = Line("{reason} ({origin})")
_IN_CONTAINER: Final = Line("container {container!r}: {cause}")
_HEAD: Final = Line("no schedulable node is compatible with {containers} ({count} nodes checked)")
_HEAD_OF_ONE: Final = Line("no schedulable node is compatible with {containers} (1 node checked)")
_HEAD_OF_NODE: Final = Line("node {node} is not compatible with {containers}")
_ONE: Final = Line("container {names}")
_SEVERAL: Final = Line("containers {names}")
_TOGETHER: Final = Line("containers {names} together")
_COLUMNS: Final = Message("nodes|GPU|driver|CUDA|compute|reason")
_MORE: Final = Line("… and {count} more")
_FIXES: Final = Line("suggested fixes: {fixes}")
_ELSEWHERE: Final = Line("{nodes}: compatible but excluded by the pod's {parts}")
_ELSEWHERE_WITHOUT: Final = Line("{nodes}: compatible but without the requested resources")
_FOR_A_NEW_POD: Final = Line("{nodes}: compatible, for a new pod that is not bound to this node")
_NO_CANDIDATES: Final = Line("compatibility not checked: {why}")
_ON_NODES: Final = Line("{containers}: {cause} ({nodes})")
_UNDETERMINED: Final = Line("compatibility unknown: {reason}")
_RETURNING: Final = Line("no ready node is compatible; nodes that are not ready may be")
_COMING: Final = Line("no node is compatible now; an autoscaler can add one: {pools}")
_WAYS_IN: Final = Line("an autoscaler may add nodes: {ways}")
_NO_WAY_IN: Final = Line(
    "an autoscaler adds no node for this pod: no instance type or pool is known of which all nodes fit"
)
_CONTRADICTED: Final = Line(
    "an autoscaler adds no node for this pod: {pools} has incompatible nodes now, the next one is unknown"
)
_MAY_COME: Final = Line("no node is compatible; {pools} may bring one: {missing}")
_STATE_FACTS: Final = Line(
    "state the missing facts in a NodeProfile, or as labels in the template of its nodes"
)
_POOL: Final = Line("{kind} {name}")
_POOL_OF: Final = Line("{kind} {name} ({product})")
_UNTOLERATED: Final = Line("the pod does not tolerate taint {taints} of the compatible nodes")
_CLAIM_UNCHECKED: Final = Line("compatibility with the devices of claim {claim!r} not checked: {why}")
_SELECTOR_FAILS: Final = Line(
    "claim {claim!r}: a selector fails on devices of {driver}: {why}; the scheduler may keep the pod Pending"
)
_GUARD: Final = Line("guard it: `'NAME' in device.attributes['DOMAIN'] && …` or `has(…) && …`")
_CLAIM_TOO_WIDE: Final = Line("claim {claim!r} may be given a device that is not compatible: {reasons}")
_NO_DEVICE: Final = Line("no device that claim {claim!r} may be given is compatible with {containers}")
_SELECT: Final = Line("add to its selectors: {selector}")
_TOLERATE: Final = Line("tolerate {tolerations}, unless your cluster adds it")
_TOLERATE_OR_ENABLE: Final = Line("tolerate {tolerations}, or enable rule {rule}")
_WAIT: Final = Line("the pod stays Pending until one of them is ready")
_LABEL_NODES: Final = Line("label these nodes, for example with GPU Feature Discovery")
_ADD_DRIVER: Final = Line("add the driver to --nodes, such as --nodes {preset}@570")
_SETTINGS: Final = Line("policy: the owner of the rule can change {settings}")
_DECLARED: Final = Line("{names} replaces what is known of the image")
_REMOVE_DECLARATION: Final = Line("remove {names}")
_REQUEST_FEWER: Final = Line("request fewer, or add nodes that offer as many")
_CHANGE_SELECTORS: Final = Line("change or remove {parts}")
_CHECK_RESOURCES: Final = Line("check the resource names")
_CHECK_PLUGIN: Final = Line("check that a device plugin offers them, and the resource names")
_CHECK_FILE: Final = Line("check that {source} has all nodes, and the resource names")
_COLON: Final = Line("{about}: {what}")
# Why no node is a candidate.
NOT_OFFERED: Final = Line("no node offers {resources}")
NOT_IN_FILE: Final = Line("none of the {nodes} nodes in {source} offers {resources}")
NOT_OF_PRESET: Final = Line("{source} stands for nodes with whole GPUs, which do not offer {resources}")
ONLY_SHARES: Final = Line("no node offers {resources} without {whole}, which they are shares of")
SIMILAR_OFFERED: Final = Line("no node offers {resources}; some offer {similar}")
NOT_TOGETHER: Final = Line("no node offers {resources} together")
NOT_READY: Final = Line("no ready node offers {resources} ({nodes} not ready)")
TOO_FEW: Final = Line("no ready node offers {resources}")
TOO_FEW_NOW: Final = Line("no ready node offers {resources} now ({nodes} may offer them again)")
EXCLUDED: Final = Line("each of the {nodes} nodes that offer {resources} is excluded by the pod's {parts}")

_FIX_OF: Final[dict[Message, Message]] = {
    NOT_OFFERED: _CHECK_PLUGIN,
    NOT_IN_FILE: _CHECK_FILE,
    NOT_OF_PRESET: Line("give a file with your nodes (--nodes FILE)"),
    ONLY_SHARES: Line("add {whole}: 1"),
    NOT_TOGETHER: Line("request resources that one node offers"),
    EXCLUDED: _CHANGE_SELECTORS,
    NOT_READY: _WAIT,
    TOO_FEW_NOW: _WAIT,
    TOO_FEW: _REQUEST_FEWER,
}

# Results of containers, each with the requirement that it belongs to.
Pairs = tuple[tuple[RuleRequirement, CheckResult], ...]


# A value that is a message, or the same in each language.
_Words: TypeAlias = Message | str


class NodeTable(Message):
    """A table of nodes with its headings, aligned when it is rendered."""

    def __new__(cls, rows: Sequence[Sequence[_Words]]) -> Self:
        """Return the table."""
        return tuple.__new__(cls, ("", {"rows": tuple(map(tuple, rows))}))

    def __bool__(self) -> bool:
        return True

    def cells(self, language: Language) -> list[list[str]]:
        """Return the rows, the headings first."""
        rows = [
            [cell.in_language(language) if isinstance(cell, Message) else printable(cell) for cell in row]
            for row in self[1]["rows"]
        ]
        return [_COLUMNS.in_language(language).split("|"), *rows]

    def _formatted(self, language: Language) -> str:
        return "\n    ".join(_aligned(self.cells(language)))


class MessageWriter:
    """Writes messages.

    presets: as of an Inventory. containers: those that share a requirement. node: the one that the pod is
    bound to, or empty.
    """

    def __init__(self, presets: Collection[str] = ()) -> None:
        self.node = ""
        self._presets = presets
        self.containers: Mapping[RuleRequirement, Sequence[Container]] = {}

    def anywhere(self, rule: CompatibilityRule, container: Container, result: CheckResult) -> Finding:
        """Return the finding of a result that holds on every node."""
        cause, origin = _IT.having(text=result.summary), result.origin
        if origin:
            cause = _WITH_ORIGIN.having(reason=cause, origin=origin)
        denied = result.level is Level.INCOMPATIBLE
        fixes = [result.remedy, *self._policy([result.setting] if denied and result.setting else [])]
        fix, reason = self._joined(filter(None, fixes)), self._in(container.name, cause)
        path = field_path(result.path or (*container.path, "image"))
        if not denied:
            return notice(rule.name, reason, fix, cause)._replace(path=path, edits=result.edits)
        basis = Basis.POLICY if result.setting else Basis.FACT
        finding = Finding(rule.name, rule.action, path, reason, fix, cause, basis, container.path)
        return finding._replace(edits=result.edits)

    def declared(
        self, rule: CompatibilityRule, action: Action, container: Container, names: Sequence[str]
    ) -> Finding:
        """Return the violation that a container declares what is known of its image. names: where."""
        (first, *_) = names
        of_pod = "/" in first
        path = field_path(("metadata", "annotations", first) if of_pod else (*container.path, "env"))
        listed = Joined(", ", names)
        cause, fix = _DECLARED.having(names=listed), _REMOVE_DECLARATION.having(names=listed)
        fixes = self._joined([fix, *self._policy(["declarations"])])
        reason = self._in(container.name, cause)
        at = () if of_pod else container.path
        return Finding(rule.name, action, path, reason, fixes, cause, Basis.POLICY, at)

    def no_candidates(
        self, rule: CompatibilityRule, container: str, why: Message, resources: Sequence[str], **facts: object
    ) -> Finding:
        """Return the notice that no node is a candidate. why: one of those above; facts: others of it."""
        rest = [_MORE.having(count=len(resources) - _ROWS)] if len(resources) > _ROWS else []
        names = Joined(", ", [*resources[:_ROWS], *rest])
        cause = _NO_CANDIDATES.having(why=why.having(resources=names, **facts))
        fix = _FIX_OF.get(why, _CHECK_RESOURCES).having(**facts)
        return _of_unknown(rule, self._in(container, cause), fix, cause)

    def _in(self, container: str, cause: Message) -> Message:
        return _IN_CONTAINER.having(container=container, cause=cause)

    def parts(self, fields: Sequence[tuple[str, str]]) -> Message:
        """Return the parts of a pod's spec that exclude nodes; fields: as of `excluding`."""
        return Joined(", ", self._first(f"{field} {value}".rstrip() for field, value in fields))

    def doubts(self, classes: Sequence[NodeClassResult]) -> list[Finding]:
        """Return a notice for each thing in doubt on the best of the nodes: UNSTABLE or UNKNOWN."""
        level = min(node_class.level for node_class in classes)
        results = _results_of([node_class for node_class in classes if node_class.level is level], level)
        nodes: dict[tuple[RuleRequirement, Message, Message], list[NodeClassResult]] = {}
        for node_class, pairs in results:
            for required, result in pairs:
                if not result.warns:
                    continue
                key = required, result.summary, result.remedy
                members = nodes.setdefault(key, [])
                if not members or members[-1] is not node_class:
                    members.append(node_class)
        notices = []
        preset = next((name for name in self._presets if "@" not in name), "")
        unknown = _ADD_DRIVER.having(preset=preset) if preset else _LABEL_NODES
        for (required, summary, remedy), members in nodes.items():
            known = level is Level.UNSTABLE
            cause = _IT.having(text=summary) if known else _UNDETERMINED.having(reason=summary)
            fix = _IT.having(text=remedy) if remedy else Message() if known else unknown
            named, kinds = self._named([required]), self._joined(self._kinds(members))
            reason = _ON_NODES.having(containers=named, cause=cause, nodes=kinds)
            notices.append(notice(required.rule.name, reason, fix, cause)._replace(lacks_fact=not known))
        return notices

    def returning(self, rule: CompatibilityRule, classes: Sequence[NodeClassResult]) -> Finding:
        """Return the notice that only nodes that are not ready may be compatible."""
        may = [node_class for node_class in classes if node_class.level is not Level.INCOMPATIBLE]
        containers = self._named([required for required, _ in may[0].results])
        cause, nodes = _RETURNING, self._joined(self._kinds(may))
        reason = _ON_NODES.having(containers=containers, cause=cause, nodes=nodes)
        return _of_unknown(rule, reason, _WAIT, cause)

    def coming(self, prospects: Sequence[ProspectResult]) -> Message:
        """Return the note that an autoscaler may add a compatible node."""
        names = Joined(", ", self._first(dict.fromkeys(map(self._pool, prospects))))
        return _COMING.having(pools=names)

    def ways_in(self, types: Sequence[str], prospects: Sequence[ProspectResult]) -> Message:
        """Return the note which nodes an autoscaler may add for the pod, by labels that it knows."""
        ways = self._first(dict.fromkeys([*types, *map(self._pool, prospects)]))
        if not ways:
            return _NO_WAY_IN
        return _WAYS_IN.having(ways=Joined(", ", ways))

    def no_way_in(self, rule: CompatibilityRule, pools: Sequence[ProspectResult]) -> Finding:
        """Return the notice that node affinity keeps out pools whose nodes may be compatible."""
        names = Joined(", ", self._first(dict.fromkeys(map(self._pool, pools))))
        cause = _CONTRADICTED.having(pools=names)
        reason = _COLON.having(about=self._all(), what=cause)
        return _of_unknown(rule, reason, _STATE_FACTS, cause)

    def untolerated(
        self,
        rule: CompatibilityRule,
        required: Sequence[RuleRequirement],
        nodes: Iterable[NodeClassResult],
        taints: UntoleratedTaints,
    ) -> Finding:
        """Return the notice that a pod does not tolerate the taints of the compatible nodes."""
        return self._untolerated(rule, required, self._joined(self._kinds(nodes)), taints)

    def untolerated_pools(
        self, rule: CompatibilityRule, prospects: Sequence[ProspectResult], taints: UntoleratedTaints
    ) -> Finding:
        """Return the notice that a pod does not tolerate new nodes that may be compatible."""
        pools = Joined(", ", self._first(dict.fromkeys(map(self._pool, prospects))))
        required = [required for required, _ in prospects[0].nodes.results]
        return self._untolerated(rule, required, pools, taints)

    def _untolerated(
        self,
        rule: CompatibilityRule,
        required: Sequence[RuleRequirement],
        nodes: Message,
        taints: UntoleratedTaints,
    ) -> Finding:
        shown = Joined(", ", self._first(dict.fromkeys(map(str, taints.all))))
        cause = _UNTOLERATED.having(taints=shown)
        reason = _ON_NODES.having(containers=self._named(required), cause=cause, nodes=nodes)
        words = _TOLERATE_OR_ENABLE if taints.covered else _TOLERATE
        fix = words.having(tolerations=Joined(", ", self._first(taints.tolerations)), rule=taints.rule)
        return notice(rule.name, reason, fix, cause)

    def may_come(self, rule: CompatibilityRule, prospects: Sequence[ProspectResult]) -> Finding:
        """Return the notice that no node is compatible, but one that an autoscaler adds may be."""
        unknown = [prospect for prospect in prospects if prospect.level is Level.UNKNOWN]
        missing = dict.fromkeys(
            result.reason
            for prospect in unknown
            for result in prospect.nodes.checks
            if result.level is Level.UNKNOWN
        )
        pools = Joined(", ", self._first(dict.fromkeys(map(self._pool, unknown))))
        cause = _MAY_COME.having(pools=pools, missing=self._joined(self._first(missing)))
        containers = self._named([required for required, _ in unknown[0].nodes.results])
        reason = _COLON.having(about=containers, what=cause)
        return _of_unknown(rule, reason, _STATE_FACTS, cause)

    def claim_unchecked(self, rule: CompatibilityRule, claim: str, why: Message) -> Finding:
        """Return the notice that the devices of a claim were not checked."""
        cause = _CLAIM_UNCHECKED.having(claim=claim, why=why)
        reason = _COLON.having(about=self._all(), what=cause)
        return _of_unknown(rule, reason, Message(), cause)

    def selector_fails(self, rule: CompatibilityRule, claim: str, driver: str, why: str) -> Finding:
        """Return the notice that a selector of a claim fails on devices of a driver. why: the error."""
        cause = _SELECTOR_FAILS.having(claim=claim, driver=driver, why=why)
        reason = _COLON.having(about=self._all(), what=cause)
        return notice(rule.name, reason, _GUARD, cause)

    def claim_too_wide(
        self, rule: CompatibilityRule, claim: str, classes: Sequence[NodeClassResult], selector: str
    ) -> Finding:
        """Return the notice that a claim may be given devices that are not compatible. selector: CEL."""
        pairs = _distinct(_results_of(classes, Level.INCOMPATIBLE))
        reasons = dict.fromkeys(result.summary for of_class in pairs for _, result in of_class)
        cause = _CLAIM_TOO_WIDE.having(claim=claim, reasons=self._joined(self._first(reasons)))
        nodes = self._joined(self._kinds(classes))
        reason = _ON_NODES.having(containers=self._all(), cause=cause, nodes=nodes)
        return notice(rule.name, reason, self._selected(selector), cause)

    def no_device(self, rule: CompatibilityRule, result: NodeSetResult, claim: str, selector: str) -> Finding:
        """Return the violation that no device which a claim may be given is compatible. selector: CEL."""
        head = _NO_DEVICE.having(containers=self._all(), claim=claim)
        fixes = [self._selected(selector)] if selector else []
        return self._violation(rule, result, head, (), (fixes, []))

    def _all(self) -> Message:
        return self._named(list(self.containers))

    def _selected(self, selector: str) -> Message:
        return _SELECT.having(selector=selector) if selector else Message()

    def none_fits(
        self,
        rule: CompatibilityRule,
        result: NodeSetResult,
        prospects: Sequence[ProspectResult] = (),
        excluded: Sequence[Message] = (),
    ) -> Finding:
        """Return the violation that no node is compatible: reasons, fixes, and for a denial a table of nodes.

        prospects: the nodes that may be added, of which none is compatible either. excluded: of `excluded`.
        A warning is one line, because API servers drop one with line breaks.
        """
        count = sum(node_class.nodes for node_class in result.classes)
        head = (_HEAD_OF_NODE if self.node else _HEAD_OF_ONE if count == 1 else _HEAD).having(
            containers=self._named(unmet_requirements(result.classes)),
            node=self.node,
            count=count,
        )
        return self._violation(rule, result, head, prospects, ([], excluded))

    def _violation(
        self,
        rule: CompatibilityRule,
        result: NodeSetResult,
        head: Message,
        prospects: Sequence[ProspectResult],
        fixes: tuple[Sequence[Message], Sequence[Message]],
    ) -> Finding:
        """Return a violation with its causes, a table, and fixes; fixes: the first and the last ones."""
        unmet = unmet_requirements(result.classes)
        results = _results_of(result.classes, Level.INCOMPATIBLE, unmet)
        distinct = [result for pairs in _distinct(results) for _, result in pairs]
        causes = [*(check.origin for check in distinct), *(check.summary for check in distinct)]
        shown = self._first({cause.en: cause for cause in causes}.values())
        cause = self._joined(filter(None, shown))
        reason = _COLON.having(about=head, what=cause)
        table = Message()
        if result.action is not Action.WARN:
            present = any(node_class.members for node_class in result.classes)
            rows = self._table(results, several=len(unmet) > 1) if present else []
            rows += self._first([self._row_of(prospect) for prospect in prospects])
            table = Lines("\n    ", rows) if rows else table
        settings = _settings(results)
        first, last = fixes
        every = [*first, *self._remedies(results), *last]
        if result.action is not Action.WARN:
            every += self._policy(settings)
        fix = _FIXES.having(fixes=self._joined(every)) if every else Message()
        basis = Basis.POLICY if settings else Basis.FACT
        return Finding(rule.name, result.action, "", reason, fix, cause, basis, table=table)

    def with_policy(self, fix: Message, setting: str) -> Message:
        """Return a fix with that of a violation that a setting of the rule causes."""
        return self._joined([fix, *self._policy([setting])])

    def _policy(self, settings: Sequence[str]) -> list[Message]:
        """Return the fix of a violation that settings of a rule cause."""
        return [_SETTINGS.having(settings=Joined(", ", settings))] if settings else []

    def _row_of(self, prospect: ProspectResult) -> Message:
        reasons = dict.fromkeys(
            check.summary for check in prospect.nodes.checks if check.level is Level.INCOMPATIBLE
        )
        return _COLON.having(about=self._pool(prospect), what=self._joined(self._first(reasons)))

    def _pool(self, prospect: ProspectResult) -> Message:
        pool = prospect.pool
        product = pool.capabilities.product
        words = _POOL_OF if product else _POOL
        return words.having(kind=pool.kind, name=pool.name, product=product)

    def _first(self, texts: Iterable[_Words]) -> list[_Words]:
        """Return the first of some texts, and how many more there are."""
        shown = [*texts]
        rest = [_MORE.having(count=len(shown) - _ROWS)] if len(shown) > _ROWS else []
        return [*shown[:_ROWS], *rest]

    def _named(self, required: Sequence[RuleRequirement]) -> Message:
        """Return the names of the containers that have these requirements."""
        names = [
            repr(name)
            for name in dict.fromkeys(
                container.name for requirement in required for container in self.containers[requirement]
            )
        ]
        shown = Joined(", ", self._first(names))
        words = _ONE if len(names) == 1 else _SEVERAL if len(required) == 1 else _TOGETHER
        return words.having(names=shown)

    def _table(self, results: Sequence[tuple[NodeClassResult, Pairs]], *, several: bool) -> list[_Words]:
        """Return a line for each kind of node, the most frequent first. several: there are requirements."""
        counts: Counter[tuple[tuple[str, ...], int]] = Counter()
        by_id = {id(pairs): pairs for _, pairs in results}
        for node_class, pairs in results:
            node = node_class.capabilities
            cells = (node.product or _UNKNOWN, node.driver or _UNKNOWN, _dotted(node.cuda))
            counts[(*cells, _dotted(node.gpu_capability)), id(pairs)] += node_class.nodes
        rows = sorted(counts.items(), key=lambda row: (-row[1], row[0][0]))
        shown: list[list[_Words]] = [
            [str(count), *cells, self._why(by_id[key], several=several)]
            for (cells, key), count in rows[:_ROWS]
        ]
        rest = sum(count for _, count in rows[_ROWS:])
        return [NodeTable(shown), *([_MORE.having(count=rest)] if rest else [])]

    def _why(self, pairs: Pairs, *, several: bool) -> Message:
        reasons = (
            _COLON.having(about=self._named([required]), what=result.summary) if several else result.summary
            for required, result in pairs
        )
        return self._joined(self._first({reason.en: reason for reason in reasons}.values()))

    def _remedies(self, results: Sequence[tuple[NodeClassResult, Pairs]]) -> list[_Words]:
        """Return suggested fixes; of several for one requirement, the one for the newest driver."""
        by_cuda = sorted(results, key=lambda of_class: of_class[0].capabilities.cuda or (0, 0))
        remedies: dict[tuple[RuleRequirement, str, int], Message] = {}
        # Requirements in the order of the first nodes, fixes as the last have them.
        for pairs in [*_distinct(by_cuda), *_distinct(by_cuda[::-1])[::-1]]:
            for required, result in pairs:
                if result.remedy:
                    remedies[required, result.origin.en, result.code] = result.remedy
        return self._first({remedy.en: remedy for remedy in remedies.values()}.values())

    def excluded(
        self, elsewhere: Iterable[NodeClassResult], offering: int, excluded_by: Sequence[tuple[str, str]]
    ) -> list[Message]:
        """Return the compatible nodes that are no candidates: those of one reason together.

        offering: the nodes that offer what the pod requests, as a bit set. excluded_by: what of its spec
        excludes those of them that are compatible, as of `excluding`.
        """
        known = [
            node_class
            for node_class in elsewhere
            if node_class.capabilities.cuda or node_class.capabilities.gpu_capability
        ]
        with_resources = [node_class._replace(members=node_class.members & offering) for node_class in known]
        without = [node_class._replace(members=node_class.members & ~offering) for node_class in known]
        words, parts = _FOR_A_NEW_POD if self.node else _ELSEWHERE, self.parts(excluded_by)
        groups = (words, self._kinds(with_resources)), (_ELSEWHERE_WITHOUT, self._kinds(without))
        return [text.having(nodes=Joined(" and ", kinds), parts=parts) for text, kinds in groups if kinds]

    def _kinds(self, classes: Iterable[NodeClassResult]) -> list[_Words]:
        """Return nodes in a few words: `3 × Tesla-T4, CUDA 12.2`."""
        counts: Counter[str] = Counter()
        for node_class in classes:
            if node_class.members:
                gpu = node_class.capabilities
                kind = f"{gpu.product or 'GPU'}, CUDA {_dotted(gpu.cuda)}"
                counts[kind] += node_class.nodes
        kinds: list[_Words] = [f"{count} × {what}" for what, count in counts.most_common(_ROWS)]
        rest = counts.total() - sum(count for _, count in counts.most_common(_ROWS))
        return [*kinds, _MORE.having(count=rest)] if rest else kinds

    def _joined(self, texts: Iterable[_Words]) -> Message:
        items = [*texts]
        return Joined("; ", items) if items else Message()


def _of_unknown(rule: CompatibilityRule, reason: Message, fix: Message, cause: Message) -> Finding:
    """Return a notice that follows from a missing fact."""
    return notice(rule.name, reason, fix, cause)._replace(lacks_fact=True)


def _results_of(
    classes: Iterable[NodeClassResult], level: Level, among: Iterable[RuleRequirement] | None = None
) -> list[tuple[NodeClassResult, Pairs]]:
    """Return classes with their results of a level; equal results are the same object.

    among: the requirements to look at, if not all. A pod may have hundreds, on as many classes: they are
    compared by identity.
    """
    chosen = None if among is None else set(map(id, among))
    known: dict[tuple[int, ...], Pairs] = {}
    by_class = []
    for node_class in classes:
        results = [pair for pair in node_class.results if chosen is None or id(pair[0]) in chosen]
        key = tuple([id(result) for _, result in results])
        if key not in known:
            known[key] = tuple(_at_level(results, level))
        by_class.append((node_class, known[key]))
    return by_class


def _settings(results: Iterable[tuple[NodeClassResult, Pairs]]) -> list[str]:
    """Return the settings of rules without which some of these nodes would not be incompatible."""
    by_class = ([result.setting for _, result in pairs] for _, pairs in results)
    return list(dict.fromkeys(next((settings for settings in by_class if all(settings)), [])))


def _at_level(
    results: Iterable[tuple[RuleRequirement, tuple[CheckResult, ...]]], level: Level
) -> Iterable[tuple[RuleRequirement, CheckResult]]:
    return ((required, check) for required, checks in results for check in checks if check.level is level)


def _distinct(results: Iterable[tuple[NodeClassResult, Pairs]]) -> list[Pairs]:
    """Return results, each once."""
    return list({id(pairs): pairs for _, pairs in results}.values())


def _dotted(version: tuple[int, int] | None) -> str:
    return f"{version[0]}.{version[1]}" if version else _UNKNOWN


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns; the last column is not padded."""
    *padded, last = zip(*rows, strict=True)
    columns = [*map(_padded, padded), last]
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _padded(cells: Sequence[str]) -> list[str]:
    widths = {cell: width(cell) for cell in cells}
    most = max(widths.values())
    return [cell + " " * (most - widths[cell]) for cell in cells]


class PodDemand(NamedTuple):
    """What a pod requires of one node. requests: names of containers, and the resources they request.

    spec: of the pod. comparisons: of its object's names with similar ones. amounts: how many of the resources
    a node must have; empty if no rule counts them.
    """

    containers: Mapping[RuleRequirement, Sequence[Container]]
    requests: Sequence[tuple[str, tuple[str, ...]]]
    pod: Pod
    spec: Mapping[str, Any]
    writer: MessageWriter
    comparisons: Comparisons
    amounts: Amounts = ()

    @property
    def resources(self) -> list[str]:
        """The requested resources."""
        return [name for _, names in self.requests for name in names]
