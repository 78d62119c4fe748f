"""Rule sync: watches the rule ConfigMaps of a cluster and keeps a handler's rules up to date.

Each ConfigMap is independent of the others: a version with an error changes nothing, and the last good
version of that rule stays in force until the ConfigMap is corrected or deleted.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rules import Loaded, RuleError, RuleSet, load_rules
from rules.model.rule import Rule, exclusive_key
from webhook.admission.handler import AdmissionHandler
from webhook.admission.rule_configmap import conflict_error, rule_source
from webhook.cluster.client import RULE_SELECTORS, ClusterApi
from webhook.cluster.events import write_rule_event
from webhook.cluster.reflector import LONGEST_PAUSE_S, Applied, Change, Deleted, Listed, Reflector
from webhook.cluster.resource import Object, Resource, config_maps
from webhook.cluster.rule_snapshot import RuleSnapshot, content_of, must_save

_log = logging.getLogger("gpugate.cluster")

# Seconds from a change to the rule set with it: `kubectl apply` of many files is one change.
_COALESCE_S: Final = 0.05
# Seconds between two attempts to read the rule snapshot, and the attempts for which readiness waits.
_RETRY_S: Final = 2.0
_AWAITED_RETRIES: Final = 10


class ActiveRules(Struct, frozen=True):
    """The rules in force, and the errors in newer versions, by names of ConfigMaps."""

    in_force: Mapping[str, RuleSet]
    errors: Mapping[str, tuple[RuleError, ...]]
    stale: frozenset[str]  # names whose last good version is in force instead of the newest


def resolve(newest: Mapping[str, Loaded], before: Mapping[str, RuleSet]) -> ActiveRules:
    """Return the rules in force for these versions of all ConfigMaps; before: the rules in force until now.

    A version with an error, or with a key that another rule claims, is left out: the rules that were in force
    under that name stay.
    """
    errors = {name: loaded.errors for name, loaded in newest.items() if loaded.errors}
    while True:
        candidates = {
            name: before.get(name, RuleSet()) if name in errors else loaded.rules
            for name, loaded in newest.items()
        }
        conflicting = _conflicting(candidates, newest.keys() - errors.keys())
        if not conflicting:
            break
        errors |= conflicting  # an old version may conflict with a new one, never with another old one
    in_force = {name: rules for name, rules in candidates.items() if any(rules)}
    stale = {name for name in errors.keys() & in_force.keys() if in_force[name] != newest[name].rules}
    return ActiveRules(in_force, errors, frozenset(stale))


def _conflicting(candidates: Mapping[str, RuleSet], new: Collection[str]) -> dict[str, tuple[RuleError, ...]]:
    """Return the errors of new versions that claim what another candidate claims, as a resource."""
    owners: defaultdict[str, list[Rule]] = defaultdict(list)
    for rules in candidates.values():
        for rule in rules:
            owners[exclusive_key(rule)].append(rule)
    return {
        name: (error,)
        for name, rules in candidates.items()
        if name in new
        for rule in rules
        if (error := conflict_error(rule, owners[exclusive_key(rule)]))
    }


def _later(action: Callable[[], None], after_s: float = _COALESCE_S) -> None:
    timer = threading.Timer(after_s, action)
    timer.daemon = True
    timer.start()


class RuleSync:
    """Watches rule ConfigMaps, resolves conflicts and sets a handler's rules.

    on_synced: called after each change.

    Args:
        api: of the cluster.
        handler: uses the rules.
        namespace: of the ConfigMaps.
        snapshot: keeps the versions in force over restarts.
        later: runs a function in a thread of its own, after a number of seconds; a bug there loses only that
            change, and Python reports it.
    """

    def __init__(
        self,
        api: ClusterApi,
        handler: AdmissionHandler,
        namespace: str,
        snapshot: RuleSnapshot | None = None,
        *,
        later: Callable[..., None] = _later,
    ) -> None:
        self._api, self._handler, self._namespace, self._later = api, handler, namespace, later
        self._snapshot = snapshot
        self._must_load = snapshot is not None  # the snapshot has not been read yet
        self._awaited_retries = _AWAITED_RETRIES
        self._is_retrying = False  # a retry is scheduled
        self._stopped = self._synced = False
        self._lock = threading.Lock()  # for what the watches share
        self._updating = threading.Lock()  # one rule set after the other
        self._listed: dict[str, dict[str, Object]] = {}  # ConfigMaps by selector, then by name
        self._is_due = False
        self._loaded: dict[str, tuple[str, Loaded]] = {}  # by name: resourceVersion and its rules
        self._active = ActiveRules({}, {}, frozenset())
        self._texts: Mapping[str, str] = {}  # of the versions in force, by name
        self._reflectors = {
            selector: Reflector(api, Resource(f"configmaps {selector}", config_maps(namespace), selector))
            for selector in RULE_SELECTORS
        }
        self.on_synced: Callable[[], None] = lambda: None

    @property
    def awaited(self) -> Collection[str]:
        """`rules` until they are in force for the first time."""
        return () if self._synced else ("rules",)

    def config_map(self, name: str) -> Object | None:
        """Return the newest version of a rule ConfigMap, if there is one."""
        with self._lock:
            return next(
                (config_maps[name] for config_maps in self._listed.values() if name in config_maps), None
            )

    def start(self) -> None:
        """Start the watches."""
        for selector, reflector in self._reflectors.items():
            reflector.start(partial(self.on_change, selector))

    def stop(self) -> None:
        """Stop the watches; the handler keeps its rules."""
        self._stopped = True
        for reflector in self._reflectors.values():
            reflector.stop()

    def on_change(self, selector: str, change: Change) -> None:
        """Accept a change of the ConfigMaps of a selector; it comes into force a moment later."""
        with self._lock:
            listed = self._listed.setdefault(selector, {})
            match change:
                case Listed(objects):
                    listed.clear()
                    listed.update({config_map["metadata"]["name"]: config_map for config_map in objects})
                case Applied(config_map):
                    listed[config_map["metadata"]["name"]] = config_map
                case Deleted(config_map):
                    listed.pop(config_map["metadata"]["name"], None)
            if self._is_due or len(self._listed) < len(RULE_SELECTORS):
                return
            self._is_due = True
        try:
            self._later(self._update)
        except RuntimeError:  # no thread can be started: run in this one
            self._update()

    def _update(self) -> None:
        try:
            self._put_into_force()
        except BaseException:
            self._retry(LONGEST_PAUSE_S)
            raise

    def _put_into_force(self) -> None:
        with self._updating:
            with self._lock:
                self._is_due = False
                # A ConfigMap with several labels is listed several times; soon all copies are the same again.
                config_maps = {
                    name: config_map
                    for by_name in self._listed.values()
                    for name, config_map in by_name.items()
                }
            newest = {name: self._load(name, config_maps[name]) for name in sorted(config_maps)}
            self._restore()
            before = self._active
            active = resolve(newest, before.in_force)
            if active.errors and self._must_load:
                self._retry(_RETRY_S)
                if self._awaited_retries:
                    self._awaited_retries -= 1
                    return
            self._awaited_retries, self._active = 0, active
            self._loaded = {
                name: (config_maps[name]["metadata"]["resourceVersion"], newest[name]) for name in newest
            }
            self._handler.set_rules(
                Loaded(
                    RuleSet.of(rule for rules in active.in_force.values() for rule in rules),
                    tuple(error for name in newest for error in active.errors.get(name, ())),
                    tuple(warning for loaded in newest.values() for warning in loaded.warnings),
                ),
                active.stale,
            )
            self._save(active, config_maps)
            if not _decides(active) and (_decides(before) or not self._synced):
                _log.warning(
                    "no rule is in force: all pods are admitted unchecked; apply the rules in namespace %r",
                    self._namespace,
                )
        self._synced = True
        self.on_synced()
        for name, errors in active.errors.items():
            if _joined(errors) != _joined(before.errors.get(name, ())):
                self._report(config_maps[name], errors, is_stale=name in active.stale)

    def _restore(self) -> None:
        """Put the snapshot of an earlier process into force, once; versions with errors are left out."""
        texts = self._snapshot.load() if self._snapshot and self._must_load else None
        if texts is not None:
            restored = {
                name: load_rules([(name, text)], self._namespace).rules for name, text in texts.items()
            }
            self._texts = {**texts, **self._texts}
            self._active = replace(self._active, in_force={**restored, **self._active.in_force})
            self._must_load = False

    def _save(self, active: ActiveRules, config_maps: Mapping[str, Object]) -> None:
        """Save the versions in force; never over a snapshot that was not read and may be needed."""
        self._texts = {
            name: self._texts[name] if name in active.errors else content_of(config_maps[name])
            for name in active.in_force
            if must_save(config_maps[name])
        }
        if (
            self._snapshot
            and not (active.errors and self._must_load)
            and not self._snapshot.save(self._texts)
        ):
            self._retry(LONGEST_PAUSE_S)

    def _retry(self, after_s: float) -> None:
        if not (self._is_retrying or self._stopped):
            with suppress(RuntimeError):  # no thread can be started: with the next change
                self._later(self._update_again, after_s)
                self._is_retrying = True

    def _update_again(self) -> None:
        self._is_retrying = False
        self._update()

    def _load(self, name: str, config_map: Object) -> Loaded:
        version, loaded = self._loaded.get(name, ("", Loaded()))
        if version == config_map["metadata"]["resourceVersion"]:
            return loaded
        return load_rules([rule_source(config_map)], self._namespace)

    def _report(self, config_map: Object, errors: tuple[RuleError, ...], *, is_stale: bool) -> None:
        effect = "the previous version stays in force" if is_stale else "not in force"
        message = f"{effect}: {_joined(errors)}"
        _log.error("rule %s refused, %s", config_map["metadata"]["name"], message)
        write_rule_event(self._api, config_map, message)


def _decides(active: ActiveRules) -> bool:
    """Return whether an enabled rule is in force."""
    return any(rule.enabled for rules in active.in_force.values() for rule in rules)


def _joined(errors: tuple[RuleError, ...]) -> str:
    return "; ".join(str(error) for error in errors)
