"""The loader of rule files. An invalid ConfigMap is reported and skipped, the others are loaded.

Files and the ConfigMaps of a cluster use the same loader.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from rules.kube.names import is_label_value, is_object_name
from rules.model.rule import ResourceRule, Rule, RuleSet, exclusive_key
from rules.schema.builder import KindDocument, RuleBuilder, read_rule
from rules.schema.compatibility_rule import CompatibilityRuleDocument
from rules.schema.config_map import (
    DEFAULT_NAMESPACE,
    DOCUMENT_KEY,
    ENABLED_LABEL,
    LABEL_PREFIXES,
    RESOURCE_RULE_TYPE,
    TYPE_LABEL,
    Loaded,
    Source,
    excess,
)
from rules.schema.errors import (
    Code,
    RuleError,
    did_you_mean,
    expected,
    kind_of,
    misplaced_key,
    missing_key,
    one_of,
    suggested,
    unknown_key,
)
from rules.schema.exemption import ExemptionDocument
from rules.schema.fact_release import FACTS_TYPE, build_release
from rules.schema.field_types import LABEL_VALUE, OBJECT_NAME
from rules.schema.image_catalog import ImageCatalogDocument
from rules.schema.injection_rule import InjectionRuleDocument
from rules.schema.node_profile import NodeProfileDocument
from rules.schema.resource_rule import ResourceRuleData, build_resource_rule
from rules.text.i18n import Message
from rules.text.paths import Path
from rules.text.yaml_document import Document, Location, SourceError, read

RULE_TYPES: Final[dict[str, type[KindDocument]]] = {
    "InjectionRule": InjectionRuleDocument,
    "CompatibilityRule": CompatibilityRuleDocument,
    "ImageCatalog": ImageCatalogDocument,
    "Exemption": ExemptionDocument,
    "NodeProfile": NodeProfileDocument,
}
KINDS: Final = (*RULE_TYPES, FACTS_TYPE)
_KIND: Final = "ConfigMap"
# Minimum similarity of a misspelt kind; a kubeconfig's Config has 0.8, other kinds of v1 have less.
_MIN_SIMILARITY: Final = 0.85
# Labels of a ConfigMap and keys of its metadata that are compared with a missing one.
_MOST_COMPARED: Final = 100
_NAME_PREFIX: Final = "cf-crl-"
_LEGACY_LABELS: Final = ("type", "group", "enabled")
_UNUSED_KEYS: Final = {
    "ignoreNodeCheck": Message(
        "gpugate does not read it: to compare no nodes, disable the compatibility rule by its label"
    ),
    "groupI18n": Message("gpugate does not read it: messages name the group by the label"),
}
_TRUE_OR_FALSE: Final = Message('the label to be "true" or "false" in quotes')
_SPECIAL: Final = re.compile(r"[^a-z0-9]+")
# Keys of a ConfigMap and of its metadata.
# Source: https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/config-map-v1/
_CONFIG_MAP_KEYS: Final = ("apiVersion", "kind", "metadata", "data", "binaryData", "immutable")
_LABELS: Final = "labels"
_METADATA_KEYS: Final = (
    *("name", "namespace", _LABELS, "annotations", "generateName", "finalizers", "ownerReferences"),
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_OF_DATA: Final = frozenset(
    {DOCUMENT_KEY, *(field.alias or name for name, field in ResourceRuleData.model_fields.items())}
)
_RESOURCE_RULE_LABELS: Final = Message(
    'the labels of a resource rule ({prefix}type: {type}, {prefix}group: GROUP, {prefix}enabled: "true")',
    prefix=LABEL_PREFIXES[1],
    type=RESOURCE_RULE_TYPE,
)

# Returns the location of a path of a rule's own document; the rule is given by name.
Locate = Callable[[str, Path], Location]


def load_rules(sources: Iterable[Source], namespace: str = DEFAULT_NAMESPACE) -> Loaded:
    """Return the rules in (name, text or object) pairs; objects that are not rules are skipped.

    namespace: the required namespace of rules. Rules for the same resource conflict; none of them is loaded.
    """
    return load_placed(sources, namespace)[0]


def load_placed(sources: Iterable[Source], namespace: str = DEFAULT_NAMESPACE) -> tuple[Loaded, Locate]:
    """Return the rules as `load_rules` does, and a function that locates paths of valid rules."""
    loader = _Loader(namespace)
    order: dict[str, int] = {}
    for name, content in sources:
        order.setdefault(name, len(order))
        for document in read(content, name):
            if isinstance(document, SourceError):
                loader.errors.append(RuleError(document.location, (), document.problem, code=Code.NOT_YAML))
            else:
                loader.load(document)
    loaded = Loaded(
        RuleSet.of(loader.valid_rules()),
        tuple(sorted(loader.errors, key=lambda error: (order[error.location.file], error.location.line))),
        tuple(loader.warnings),
    )
    return loaded, loader.locate


class _Loader:
    """Loads documents one by one."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._builders: list[tuple[Rule, RuleBuilder]] = []
        self.errors: list[RuleError] = []
        self.warnings: list[RuleError] = []

    def load(self, document: Document) -> None:
        """Load each ConfigMap of a document, which may be a list of objects."""
        for path, value in document.objects():
            if not isinstance(value, dict):
                continue
            if (kind := value.get("kind")) == _KIND:
                self._config_map(document, path, value)
                continue
            self._add_duplicates(document, path, value, beside=value)
            if value.get("apiVersion", "v1") == "v1" and _is_misspelt(kind):
                at = (*path, "kind")
                near = did_you_mean(_KIND)
                message = Message("unknown kind {kind!r}{near}", kind=kind, near=near)
                self.errors.append(RuleError(document.locate(at), at, message))

    def _add_duplicates(
        self, document: Document, path: Path, value: dict[str, Any], beside: Iterable[str]
    ) -> None:
        """Add an error for each duplicate key of an object that is no rule, which may hide a rule.

        beside: the members whose content is not checked.
        """
        if below := document.duplicates_below(path):
            inside = [
                error for key in beside if key in value for error in document.duplicates_below((*path, key))
            ]
            self.errors += _duplicates([error for error in below if error not in inside], "")

    def _config_map(self, document: Document, path: Path, value: dict[str, Any]) -> None:
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        labels = metadata.get("labels")
        labels = labels if isinstance(labels, dict) else {}
        name = metadata.get("name")
        name = name if isinstance(name, str) else ""
        data = value.get("data")
        builder = RuleBuilder(document, path, name, enabled=False, group="", errors=[])
        in_labels: Path = (*path, "metadata", _LABELS)
        rule: Rule | None = None
        legacy = _legacy_labels(labels)
        is_resource_rule = legacy.get("type") == RESOURCE_RULE_TYPE
        is_rule = is_resource_rule or str(labels.get(TYPE_LABEL)) in KINDS
        if not is_rule and not self._is_unlabelled_rule(builder, metadata, labels, legacy, data):
            self._add_duplicates(document, path, value, beside=("data", "binaryData"))
            return
        if not builder.errors:
            self._check_keys(builder, value, metadata)
        kind = str(labels.get(TYPE_LABEL))
        if too_much := excess(value, is_bundle=kind == FACTS_TYPE):
            builder.add_error(path, too_much, code=Code.TOO_LARGE)
        elif is_resource_rule:
            self._read_labels(builder, labels, legacy, in_labels)
            rule = build_resource_rule(builder, data)
            self._check_name(builder, rule)
            self._check_unused(builder, data)
        elif kind in KINDS:
            builder.enabled = _enabled(builder, labels, (*in_labels, ENABLED_LABEL))
            if kind == FACTS_TYPE:
                rule = build_release(builder, value)
            else:
                rule = read_rule(builder, data, RULE_TYPES[kind])
        if (version := value.get("apiVersion", "v1")) != "v1":
            builder.add_error((*path, "apiVersion"), expected("v1", repr(version)))
        self._check_metadata(builder, metadata)
        builder.errors += _duplicates(document.duplicates_below(path), name)
        self.errors += builder.errors
        if rule is not None and not builder.errors:
            self._builders.append((rule, builder))

    @staticmethod
    def _is_unlabelled_rule(
        builder: RuleBuilder,
        metadata: dict[str, Any],
        labels: dict[str, Any],
        legacy: dict[str, Any],
        data: Any,
    ) -> bool:
        """Return whether a ConfigMap lacks the labels of a rule that it should have; adds the error."""
        path: Path = (*builder.path, "metadata", _LABELS)
        of_resource = builder.name.startswith(_NAME_PREFIX)
        has_document = isinstance(data, dict) and DOCUMENT_KEY in data
        keys = [*islice(metadata, _MOST_COMPARED)]
        misspelt = [] if _LABELS in metadata else get_close_matches(_LABELS, keys, n=1)
        if TYPE_LABEL in labels:
            rule_type = labels[TYPE_LABEL]
            near = suggested(str(rule_type), KINDS)
            if rule_type in ("ResourceRule", RESOURCE_RULE_TYPE) or (of_resource and not near):
                message = expected(_RESOURCE_RULE_LABELS, f"{TYPE_LABEL}: {rule_type}")
            else:
                message = expected(one_of(KINDS), repr(rule_type), near)
            builder.add_error((*path, TYPE_LABEL), message, code=Code.BAD_LABEL)
        elif not (of_resource or legacy.keys() & {"type", "group"} or has_document):
            return False
        elif (rule_type := str(legacy.get("type"))) in RULE_TYPES:
            label = f"{TYPE_LABEL}: {rule_type}"
            message = Message("the rule requires the label {label}", label=label)
            builder.add_error(path, message, key=True, code=Code.BAD_LABEL)
        elif misspelt:
            at = (*builder.path, "metadata", misspelt[0])
            builder.add_error(at, unknown_key(misspelt[0], [_LABELS]), key=True, code=Code.UNKNOWN_KEY)
        elif of_resource or legacy.keys() & {"type", "group"}:
            label = f"{LABEL_PREFIXES[1]}type: {RESOURCE_RULE_TYPE}"
            near = _renamed(f"{LABEL_PREFIXES[1]}type", labels)
            message = Message("a resource rule requires the label {label}{near}", label=label, near=near)
            builder.add_error(path, message, key=True, code=Code.BAD_LABEL)
        else:
            label = f"{TYPE_LABEL}: {' | '.join(KINDS)}"
            near = _renamed(TYPE_LABEL, labels)
            message = Message("a rule requires the label {label}{near}", label=label, near=near)
            builder.add_error(path, message, key=True, code=Code.BAD_LABEL)
        return True

    @staticmethod
    def _check_keys(builder: RuleBuilder, value: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Add an error for each key that is misspelt or belongs below `data`; other keys may have anchors."""
        for path, parent, known in (
            (builder.path, value, _CONFIG_MAP_KEYS),
            ((*builder.path, "metadata"), metadata, _METADATA_KEYS),
        ):
            for key in parent.keys() - set(known):
                message = unknown_key(key, [*known])
                of_data = parent is value and key in _OF_DATA
                if of_data or "data" not in value or get_close_matches(key, known, n=1):
                    message = misplaced_key(key, "data") if of_data else message
                    builder.add_error((*path, key), message, key=True, code=Code.UNKNOWN_KEY)
                    builder.incomplete |= parent is value

    def _read_labels(
        self, builder: RuleBuilder, labels: dict[str, Any], legacy: dict[str, Any], path: Path
    ) -> None:
        for name in _LEGACY_LABELS:
            values = [labels[prefix + name] for prefix in LABEL_PREFIXES if prefix + name in labels]
            if len(values) == 2 and values[0] != values[1]:
                older, newer = (prefix + name for prefix in LABEL_PREFIXES)
                message = Message(
                    "{value!r} is ignored, because {older} is {other!r}; remove one of them",
                    value=values[1],
                    older=older,
                    other=values[0],
                )
                self._warn(builder, (*path, newer), message, Code.MIXED_LABELS)
        spelling = next(prefix for prefix in LABEL_PREFIXES if f"{prefix}type" in labels)
        others = [name for name in _LEGACY_LABELS if name in legacy and spelling + name not in labels]
        if others:
            message = Message(
                "the labels of a rule have one prefix: write {label}, like {spelling}type",
                label=spelling + others[0],
                spelling=spelling,
            )
            self._warn(builder, path, message, Code.MIXED_LABELS)
        own = {f"{spelling}enabled": legacy["enabled"]} if "enabled" in legacy else labels
        builder.enabled = _enabled(builder, own, (*path, f"{spelling}enabled"))
        group = legacy.get("group")
        if not isinstance(group, str) or not group:
            label = f"{spelling}group"
            near = _renamed(label, labels)
            message = Message(
                "the label {label} is missing: it names the group{near}", label=label, near=near
            )
            builder.add_error((*path, f"{spelling}group"), message, key=True, code=Code.BAD_LABEL)
        elif not is_label_value(group):
            message = expected(LABEL_VALUE, repr(group))
            builder.add_error((*path, f"{spelling}group"), message, code=Code.BAD_LABEL)
        else:
            builder.group = group

    def _check_metadata(self, builder: RuleBuilder, metadata: dict[str, Any]) -> None:
        if not builder.name:
            path: Path = (*builder.path, "metadata")
            builder.add_error(path, missing_key("name"), key=True, code=Code.MISSING_KEY)
        elif not is_object_name(builder.name):
            message = expected(OBJECT_NAME, repr(builder.name))
            builder.add_error((*builder.path, "metadata", "name"), message, code=Code.BAD_NAME)
        path = (*builder.path, "metadata", "namespace")
        actual = metadata.get("namespace")
        if actual is None:  # kustomize and kubectl -n may set it later
            namespace = self._namespace
            message = Message(
                "no namespace: the rule has no effect unless it is applied to {namespace!r}; "
                "add namespace: {namespace}",
                namespace=namespace,
            )
            self._warn(builder, path, message, Code.NO_NAMESPACE)
        elif actual != self._namespace:
            message = Message(
                "rules must be in namespace {namespace!r}, got {actual!r}",
                namespace=self._namespace,
                actual=actual,
            )
            builder.add_error(path, message, code=Code.WRONG_NAMESPACE)

    def _check_name(self, builder: RuleBuilder, rule: ResourceRule | None) -> None:
        if not is_object_name(builder.name):
            return
        if not builder.name.startswith(_NAME_PREFIX):
            name = f"{_NAME_PREFIX}WORD-KEY"
            example = f"{_NAME_PREFIX}vendor-device"
            pattern = Message("{name}, such as {example}", name=name, example=example)
            message = expected(pattern, repr(builder.name))
            builder.add_error((*builder.path, "metadata", "name"), message, code=Code.BAD_NAME)
        elif rule is not None:
            key_name = _SPECIAL.sub("-", rule.key.partition("/")[2].lower()).strip("-")
            if key_name and not _SPECIAL.sub("-", builder.name).endswith(f"-{key_name}"):
                message = Message(
                    "expected to end in -{key_name} like the key {key!r}, got {name!r}",
                    key_name=key_name,
                    key=rule.key,
                    name=builder.name,
                )
                self._warn(builder, (*builder.path, "metadata", "name"), message, Code.ODD_NAME)
            elif key_name and builder.name == f"{_NAME_PREFIX}{key_name}":
                message = Message(
                    "expected a word of your own before the key, as in {prefix}WORD-{key_name}",
                    prefix=_NAME_PREFIX,
                    key_name=key_name,
                )
                self._warn(builder, (*builder.path, "metadata", "name"), message, Code.ODD_NAME)

    def _check_unused(self, builder: RuleBuilder, data: Any) -> None:
        """Warn of keys that other systems read and gpugate does not."""
        values = data if isinstance(data, dict) else {}
        for key, message in _UNUSED_KEYS.items():
            if values.get(key):
                self._warn(builder, (*builder.path, "data", key), message, Code.NO_EFFECT)
        group = values.get("group")
        if group and builder.group and group != builder.group:
            message = Message(
                "{group!r} has no effect: the group is {label!r}, by the label",
                group=group,
                label=builder.group,
            )
            self._warn(builder, (*builder.path, "data", "group"), message, Code.NO_EFFECT)

    def _warn(self, builder: RuleBuilder, path: Path, message: Message, code: Code) -> None:
        self.warnings.append(RuleError(builder.document.locate(path), path, message, builder.name, code))

    def locate(self, rule: str, path: Path) -> Location:
        """Return the location of a path of a rule's own document."""
        return next(builder.locate(path) for known, builder in self._builders if known.name == rule)

    def valid_rules(self) -> list[Rule]:
        """Return the rules that do not share their name or, if enabled, their key with another rule.

        Rules with a common key are all reported and not loaded, because it is unknown which one is intended.
        For a common name, the later rules are reported: they are copies.
        """
        names: dict[str, list[tuple[Rule, RuleBuilder]]] = defaultdict(list)
        keys: dict[str, dict[str, tuple[Rule, RuleBuilder]]] = defaultdict(dict)
        for rule, builder in self._builders:
            names[rule.name].append((rule, builder))
            if rule.enabled and (key := exclusive_key(rule)):
                keys[key].setdefault(rule.name, (rule, builder))
        conflicting: set[str] = set()
        for name, (first, *copies) in names.items():
            for rule, builder in copies:
                message = Message(
                    "{name!r} is also the name of the rule at {location}, which it would replace; "
                    "use another name, or remove one of them",
                    name=name,
                    location=first[0].location,
                )
                self._add_conflict(rule, builder, ("metadata", "name"), message)
                conflicting.add(name)
        for key, claimants in keys.items():
            for rule, builder in claimants.values() if len(claimants) > 1 else ():
                others = [other for other, _ in claimants.values() if other is not rule]
                message = also_used(key, ", ".join(f"{other.name} ({other.location})" for other in others))
                self._add_conflict(rule, builder, claimed_path(rule), message)
                conflicting.add(rule.name)
        return [rule for rule, _ in self._builders if rule.name not in conflicting]

    def _add_conflict(self, rule: Rule, builder: RuleBuilder, path: Path, message: Message) -> None:
        path = (*builder.path, *path)
        self.errors.append(RuleError(builder.document.locate(path), path, message, rule.name, Code.CONFLICT))


def _duplicates(errors: Iterable[SourceError], rule: str) -> list[RuleError]:
    """Return errors of duplicate keys as those of a rule, which may have no name."""
    return [RuleError(error.location, (), error.problem, rule, Code.DUPLICATE_KEY) for error in errors]


def claimed_path(rule: Rule) -> Path:
    """Return the path of what no other enabled rule may claim."""
    return ("data", "key") if isinstance(rule, ResourceRule) else ("metadata", _LABELS, TYPE_LABEL)


def also_used(key: str, others: str) -> Message:
    """Return the message for a key that other rules also have."""
    return Message(
        "{key!r} is also used by {others}; keep one rule, or disable the others by label",
        key=key,
        others=others,
    )


def _is_misspelt(kind: object) -> bool:
    """Return whether a kind of the core API is a misspelt ConfigMap."""
    return isinstance(kind, str) and bool(
        get_close_matches(kind.lower(), [_KIND.lower()], cutoff=_MIN_SIMILARITY)
    )


def _legacy_labels(labels: dict[str, Any]) -> dict[str, Any]:
    """Return type, group and enabled in either spelling; the older one takes precedence."""
    return {
        name: labels[prefix + name]
        for prefix in reversed(LABEL_PREFIXES)
        for name in _LEGACY_LABELS
        if prefix + name in labels
    }


def _enabled(builder: RuleBuilder, labels: dict[str, Any], path: Path) -> bool:
    """Return the value of the label at the end of a path. labels: all labels, for a suggestion."""
    label = str(path[-1])
    value = labels.get(label)
    if value not in ("true", "false"):
        shown = repr(value) if isinstance(value, str) else kind_of(value)
        near = _renamed(label, labels) if value is None else Message()
        builder.add_error(path, expected(_TRUE_OR_FALSE, shown, near), key=value is None, code=Code.BAD_LABEL)
    return value == "true"


def _renamed(missing: str, labels: dict[str, Any]) -> Message:
    """Return the end of a message that suggests to rename a label to a missing one, or an empty text."""
    word, gpugate = missing.rpartition("/")[2], TYPE_LABEL.rpartition("/")[0]
    known = {
        *(f"{prefix}{label}" for prefix in LABEL_PREFIXES for label in _LEGACY_LABELS),
        TYPE_LABEL,
        ENABLED_LABEL,
    }
    same = [f"{prefix}{word}" for prefix in (*LABEL_PREFIXES, f"{gpugate}/")]
    candidates = [label for label in same if label in labels and label != missing]
    others = [label for label in islice(labels, _MOST_COMPARED) if label not in known]
    candidates += get_close_matches(missing, others, n=1, cutoff=0.8)
    return Message("; rename {other}", other=candidates[0]) if candidates else Message()
