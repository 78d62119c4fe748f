"""Known rules: compatibility rules, image catalogues and facts of a cluster, and own ConfigMaps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rules import Loaded, RuleSet, load_rules
from rules.cuda.image_catalog import NOTHING_KNOWN, ImageCatalog, ImageFacts, ImageRow, catalog_of
from rules.cuda.tables import BUILT_IN
from rules.schema.config_map import DOCUMENT_KEY, TYPE_LABEL
from rules.schema.fact_release import FACTS_TYPE
from webhook.admission.rule_configmap import rule_source
from webhook.cluster.match_conditions import resources_of
from webhook.cluster.reflector import Applied, Change, Listed
from webhook.cluster.resource import Object, Resource, config_maps
from webhook.cluster.rule_sync import resolve
from webhook.images.resolver.fact_store import CATALOG_TYPE, NAMES, TIMES_ANNOTATION, Content

_log = logging.getLogger("gpugate.images")


def rules_resource(namespace: str) -> Resource:
    """Return the watched resource: compatibility rules, image catalogues and facts."""
    types = f"CompatibilityRule,{FACTS_TYPE},{CATALOG_TYPE}"
    return Resource("rules", config_maps(namespace), f"{TYPE_LABEL} in ({types})")


class KnownRules:
    """The rules about images: which containers count, and which images need not be read.

    The thread of the watch calls `change`; one other thread calls the rest, beginning with `update`.
    on_change: called after each change.
    """

    def __init__(self, namespace: str, on_change: Callable[[], None] = lambda: None) -> None:
        self._namespace, self._on_change = namespace, on_change
        self._lock = threading.Lock()
        self._listed: dict[str, Object] | None = None
        self._loaded: dict[str, tuple[str, Loaded]] = {}  # resourceVersion and rules by name
        self._in_force: Mapping[str, RuleSet] = {}
        self._own_rows = ImageCatalog(())
        self._facts = BUILT_IN
        self.resources: frozenset[str] = frozenset()

    @property
    def awaited(self) -> list[str]:
        """`rules` until they were listed once."""
        return ["rules"] if self._listed is None else []

    def change(self, change: Change) -> None:
        """Apply a change of ConfigMaps."""
        with self._lock:
            listed = self._listed or {}
            if isinstance(change, Listed):
                self._listed = {config_map["metadata"]["name"]: config_map for config_map in change.objects}
            else:
                name = change.object["metadata"]["name"]
                others = {other: config_map for other, config_map in listed.items() if other != name}
                self._listed = others | ({name: change.object} if isinstance(change, Applied) else {})
        self._on_change()

    def update(self) -> bool:
        """Apply the changes since the last call; return whether rules of others changed.

        As in the gate, a version with an error changes nothing but the log; after a restart it has no effect.
        """
        with self._lock:
            by_name = {
                name: config_map for name, config_map in (self._listed or {}).items() if name not in NAMES
            }
        before = {name: version for name, (version, _) in self._loaded.items()}
        versions = {name: config_map["metadata"]["resourceVersion"] for name, config_map in by_name.items()}
        if versions == before:
            return False
        self._loaded = {
            name: self._loaded[name]
            if before.get(name) == versions[name]
            else (versions[name], load_rules([rule_source(config_map)], self._namespace))
            for name, config_map in sorted(by_name.items())
        }
        newest = {name: loaded for name, (_, loaded) in self._loaded.items()}
        active = resolve(newest, self._in_force)
        self._in_force = active.in_force
        for name, errors in active.errors.items():
            if before.get(name) != versions[name]:
                effect = "the previous version stays in force" if name in active.stale else "not in force"
                _log.warning("ConfigMap %s: %s: %s", name, effect, "; ".join(map(str, errors)))
        rules = RuleSet.of(rule for rule_set in self._in_force.values() for rule in rule_set if rule.enabled)
        self.resources = resources_of(RuleSet(compatibility=rules.compatibility))
        self._own_rows = ImageCatalog(_rows(rules))
        self._facts = rules.facts or BUILT_IN
        return True

    def own(self) -> Mapping[str, Content]:
        """Return the current content of the ConfigMaps that the resolver writes, by name."""
        with self._lock:
            listed = self._listed or {}
            return {name: content_of(listed.get(name, {})) for name in NAMES}

    def is_stated(self, key: str) -> bool:
        """Return whether an image catalogue of the cluster states facts about an image."""
        return self._own_rows.find(key) is not NOTHING_KNOWN

    def is_known(self, key: str) -> bool:
        """Return whether an image need not be read: its facts are stated, or the facts in force have all."""
        if self.is_stated(key):
            return True
        facts = catalog_of(self._facts).find(key)
        return facts.no_cuda or (_has_cuda(facts) and bool(facts.constraints))

    def knows_cuda(self, key: str) -> bool:
        """Return whether the catalogue of the facts in force knows the CUDA version of an image.

        The catalogue has the version of the programs; CUDA_VERSION in the config may be an older version of
        the base image.
        """
        return _has_cuda(catalog_of(self._facts).find(key))


def content_of(config_map: Mapping[str, Any]) -> Content:
    """Return the content of a ConfigMap that the resolver writes."""
    annotations = config_map.get("metadata", {}).get("annotations") or {}
    data = config_map.get("data") or {}
    return Content(data.get(DOCUMENT_KEY, ""), annotations.get(TIMES_ANNOTATION, ""))


def _has_cuda(facts: ImageFacts) -> bool:
    return facts.cuda is not None and facts.exact and facts.certain


def _rows(rules: RuleSet) -> list[ImageRow]:
    return [row for rule in rules.images for row in rule.rows]
