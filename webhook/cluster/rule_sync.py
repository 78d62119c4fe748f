"""What is in force of a cluster's rules and nodes, and the gate kept at it.

Each rule ConfigMap stands alone: a version that reads wrong changes nothing, and the last good version of
that rule stays in force until the ConfigMap reads right again or is deleted.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, NotRequired, TypedDict

from rules import Inventory, Loaded, RuleError, RuleSet, load_rules
from rules.model.rule import Rule
from webhook.admission.handler import AdmissionHandler
from webhook.admission.rule_configmap import contested, rule_text
from webhook.cluster.client import NODES, RULE_SELECTORS, ClusterApi, config_maps
from webhook.cluster.events import write_refusal
from webhook.cluster.reflector import (
    LONGEST_PAUSE_S,
    Applied,
    Change,
    Deleted,
    Listed,
    Object,
    Reflector,
    Resource,
)
from webhook.cluster.rule_snapshot import RuleSnapshot, content_of

_log = logging.getLogger("gpugate.cluster")

Followed = Literal["rules", "nodes"]

# Seconds from a change to the rule set with it: `kubectl apply` of many files is one change.
_COALESCE_S: Final = 0.05
# Seconds between two tries to read the last good versions, and for how many readiness waits; then no longer.
_AGAIN_S: Final = 2.0
_PATIENCE: Final = 10


class _NodeMetadata(TypedDict):
    name: str
    resourceVersion: str
    labels: NotRequired[dict[str, str]]


class _NodeStatus(TypedDict):
    allocatable: NotRequired[dict[str, str]]


class Node(TypedDict):
    """What is read of a Node: a twentieth of it, which matters where there are ten thousand."""

    metadata: _NodeMetadata
    status: NotRequired[_NodeStatus]


@dataclass(frozen=True, slots=True)
class ActiveRules:
    """What is in force, and why the rest is not; by the names of ConfigMaps.

    stale: which are in force as they were before they read wrong.
    """

    in_force: Mapping[str, RuleSet]
    mistakes: Mapping[str, tuple[RuleError, ...]]
    stale: frozenset[str]


def settle(newest: Mapping[str, Loaded], before: Mapping[str, RuleSet]) -> ActiveRules:
    """Return what comes into force when ConfigMaps read so; before: what was in force.

    A version with a mistake, or with a key that another rule claims, is left out: what was in force of that
    name stays.
    """
    mistakes = {name: loaded.errors for name, loaded in newest.items() if loaded.errors}
    while True:
        claims = {
            name: before.get(name, RuleSet()) if name in mistakes else loaded.rules
            for name, loaded in newest.items()
        }
        found = _conflicts({name: rules for name, rules in claims.items() if name not in mistakes}, claims)
        if not found:
            break
        mistakes |= found  # what stays instead may conflict with others, never with what stays too
    in_force = {name: rules for name, rules in claims.items() if any(rules)}
    stale = {name for name in mistakes.keys() & in_force.keys() if in_force[name] != newest[name].rules}
    return ActiveRules(in_force, mistakes, frozenset(stale))


def _conflicts(
    fresh: Mapping[str, RuleSet], claims: Mapping[str, RuleSet]
) -> dict[str, tuple[RuleError, ...]]:
    """Return the mistakes of those of the rules that claim what others claim too."""
    claimants: defaultdict[str, list[Rule]] = defaultdict(list)
    for rules in claims.values():
        for rule in rules.resources:
            claimants[rule.key].append(rule)
    return {
        name: (error,)
        for name, rules in fresh.items()
        for rule in rules.resources
        if (error := contested(rule, claimants[rule.key]))
    }


def _later(action: Callable[[], None], after_s: float = _COALESCE_S) -> None:
    timer = threading.Timer(after_s, action)
    timer.daemon = True
    timer.start()


class Live:
    """Keeps a gate at what a cluster holds: shuts it, and opens it when all that is followed is known.

    namespace: where the rules live. followed: of the rules and nodes, which are taken from the cluster.
    last_good: where the versions in force outlive a restart, if anywhere. later: runs something in a moment,
    or in so many seconds, in a thread of its own; a bug there costs that one change, and Python reports it.
    """

    def __init__(  # noqa: PLR0913 - what is kept, and at what
        self,
        api: ClusterApi,
        gate: AdmissionHandler,
        namespace: str,
        followed: Collection[Followed] = ("rules", "nodes"),
        *,
        last_good: RuleSnapshot | None = None,
        later: Callable[..., None] = _later,
    ) -> None:
        self._api, self._gate, self._namespace, self._later = api, gate, namespace, later
        self._last_good = last_good
        self._unread = last_good is not None  # what was in force before this process may be told yet
        self._patience = _PATIENCE
        self._trying = False  # whether to read or keep them is to be tried again
        self._stopped = False
        self._lock = threading.Lock()  # for what the watches of rules share
        self._settling = threading.Lock()  # one rule set after the other
        self._seen: dict[str, dict[str, Object]] = {}  # by selector, then by name
        self._due = False
        self._read: dict[str, tuple[str, Loaded]] = {}  # by name: a version, and how it reads
        self._standing = ActiveRules({}, {}, frozenset())
        self._texts: Mapping[str, str] = {}  # of what is in force, by name
        self._inventory = gate.snapshot.inventory
        self._awaited = set(followed)
        self._watches: list[tuple[Reflector, Callable[[Change], None]]] = []
        if "rules" in followed:
            for selector in RULE_SELECTORS:
                resource = Resource(f"configmaps {selector}", config_maps(namespace), selector)
                self._watches.append((Reflector(api, resource), partial(self.rule_changed, selector)))
        if "nodes" in followed:
            self._watches.append((Reflector(api, Resource("nodes", NODES, shape=Node)), self.node_changed))
        gate.shut()

    def start(self) -> None:
        """Begin to follow the cluster, whether it can be reached yet or not."""
        for watch, consume in self._watches:
            watch.start(consume)

    @property
    def awaited(self) -> Collection[str]:
        """What is not known yet."""
        with self._lock:
            return sorted(self._awaited)

    def stop(self) -> None:
        """Follow it no longer; the gate keeps what it has, and stays shut where it is."""
        self._stopped = True
        with self._lock:
            self._awaited.clear()
        for watch, _ in self._watches:
            watch.stop()

    def node_changed(self, change: Change) -> None:
        """Take in a change of nodes. A node that reads as before costs its reading alone."""
        before = self._inventory
        match change:
            case Listed(objects):
                self._inventory = Inventory.of(objects)
            case Applied(node):
                self._inventory = before.with_node(node)
            case Deleted(node):
                self._inventory = before.without_node(node["metadata"]["name"])
        if self._inventory is not before:
            self._gate.put_nodes(self._inventory)
        self._known("nodes")

    def rule_changed(self, selector: str, change: Change) -> None:
        """Take in a change of the ConfigMaps with a selector; a moment later it is in force."""
        with self._lock:
            seen = self._seen.setdefault(selector, {})
            match change:
                case Listed(objects):
                    seen.clear()
                    seen.update({config_map["metadata"]["name"]: config_map for config_map in objects})
                case Applied(config_map):
                    seen[config_map["metadata"]["name"]] = config_map
                case Deleted(config_map):
                    seen.pop(config_map["metadata"]["name"], None)
            if self._due or len(self._seen) < len(RULE_SELECTORS):
                return
            self._due = True
        try:
            self._later(self._settle)
        except RuntimeError:  # no thread to be had: in this one
            self._settle()

    def _settle(self) -> None:
        try:
            self._put_into_force()
        except BaseException:
            self._try_again(LONGEST_PAUSE_S)
            raise

    def _put_into_force(self) -> None:
        with self._settling:
            with self._lock:
                self._due = False
                # One that carries several labels is seen several times; soon they are the same again.
                config_maps = {name: found for seen in self._seen.values() for name, found in seen.items()}
            newest = {name: self._reading(name, config_maps[name]) for name in sorted(config_maps)}
            self._restore()
            before = self._standing
            now = settle(newest, before.in_force)
            if now.mistakes and self._unread:
                self._try_again(_AGAIN_S)
                if self._patience:
                    self._patience -= 1
                    return
            self._patience, self._standing = 0, now
            self._read = {
                name: (config_maps[name]["metadata"]["resourceVersion"], newest[name]) for name in newest
            }
            self._gate.put_rules(
                Loaded(
                    RuleSet.of(rule for rules in now.in_force.values() for rule in rules),
                    tuple(error for name in newest for error in now.mistakes.get(name, ())),
                    tuple(warning for loaded in newest.values() for warning in loaded.warnings),
                ),
                now.stale,
            )
            self._keep(now, config_maps)
        self._known("rules")
        for name, mistakes in now.mistakes.items():
            if _words(mistakes) != _words(before.mistakes.get(name, ())):
                self._tell(config_maps[name], mistakes, stays=name in now.stale)

    def _restore(self) -> None:
        """Take up what was in force before this process, once; nothing of what no longer reads."""
        texts = self._last_good.load() if self._last_good and self._unread else None
        if texts is not None:
            read = {name: load_rules([(name, text)], self._namespace).rules for name, text in texts.items()}
            self._texts = {**texts, **self._texts}
            self._standing = replace(self._standing, in_force={**read, **self._standing.in_force})
            self._unread = False

    def _keep(self, now: ActiveRules, config_maps: Mapping[str, Object]) -> None:
        """Let what is in force outlive this process; not over what may be needed yet."""
        self._texts = {
            name: self._texts[name] if name in now.mistakes else content_of(config_maps[name])
            for name in now.in_force
        }
        if self._last_good and not (now.mistakes and self._unread) and not self._last_good.save(self._texts):
            self._try_again(LONGEST_PAUSE_S)

    def _try_again(self, after_s: float) -> None:
        if not (self._trying or self._stopped):
            with suppress(RuntimeError):  # no thread to be had: with the next change
                self._later(self._settle_again, after_s)
                self._trying = True

    def _settle_again(self) -> None:
        self._trying = False
        self._settle()

    def _reading(self, name: str, config_map: Object) -> Loaded:
        version, loaded = self._read.get(name, ("", Loaded()))
        if version == config_map["metadata"]["resourceVersion"]:
            return loaded
        return load_rules([rule_text(config_map)], self._namespace)

    def _tell(self, config_map: Object, mistakes: tuple[RuleError, ...], *, stays: bool) -> None:
        what = "the version before stays in force" if stays else "not in force"
        words = f"{what}: {_words(mistakes)}"
        _log.error("rule %s refused, %s", config_map["metadata"]["name"], words)
        write_refusal(self._api, config_map, words)

    def _known(self, what: Followed) -> None:
        """Open the gate when the last thing that it waits for is known for the first time."""
        with self._lock:
            last = self._awaited == {what}
            self._awaited.discard(what)
        if last:
            snapshot = self._gate.snapshot
            rules, nodes = sum(1 for _ in snapshot.loaded.rules), len(snapshot.inventory)
            _log.info("ready with %s rules and %s nodes", rules, nodes)
            self._gate.open()


def _words(mistakes: tuple[RuleError, ...]) -> str:
    return "; ".join(str(error) for error in mistakes)
