"""The loader of rule files. An invalid ConfigMap is reported and skipped, the others are loaded.

Files and the ConfigMaps of a cluster (as JSON, which is YAML) use the same loader.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from rules.kube.names import is_label_value, is_object_name
from rules.model.rule import ResourceRule, Rule, RuleSet
from rules.schema.builder import DOCUMENT_KEY, RuleBuilder
from rules.schema.compatibility_rule import build_compatibility_rule
from rules.schema.errors import Code, RuleError, describe, suggestion
from rules.schema.exemption import build_exemption
from rules.schema.image_catalog import build_image_catalog
from rules.schema.injection_rule import build_injection_rule
from rules.schema.resource_rule import build_resource_rule
from rules.text.location import Location
from rules.text.paths import Path
from rules.text.yaml_document import Document, SourceError, read

DEFAULT_NAMESPACE: Final = "kube-public"
# The same three labels in the older and the newer spelling; both are in use.
LABEL_PREFIXES: Final = ("features.alauda.io/", "features.cpaas.io/")
RESOURCE_RULE_TYPE: Final = "CustomResourceLimitation"
TYPE_LABEL: Final = "gpugate.dev/type"
ENABLED_LABEL: Final = "gpugate.dev/enabled"
RULE_TYPES: Final[dict[str, Callable[[RuleBuilder, Any], Rule | None]]] = {
    "InjectionRule": build_injection_rule,
    "CompatibilityRule": build_compatibility_rule,
    "ImageCatalog": build_image_catalog,
    "Exemption": build_exemption,
}
_KIND: Final = "ConfigMap"
# Minimum similarity of a misspelt kind; a kubeconfig's Config has 0.8, other kinds of v1 have less.
_MIN_SIMILARITY: Final = 0.85
_NAME_PREFIX: Final = "cf-crl-"
_LEGACY_LABELS: Final = ("type", "group", "enabled")
_SPECIAL: Final = re.compile(r"[^a-z0-9]+")

# Returns the location of a path of a rule's own document; the rule is given by name.
Locate = Callable[[str, Path], Location]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of loading: the valid rules, and errors and warnings in the order of the text."""

    rules: RuleSet = field(default_factory=RuleSet)
    errors: tuple[RuleError, ...] = ()
    warnings: tuple[RuleError, ...] = ()


def load_rules(texts: Iterable[tuple[str, str]], namespace: str = DEFAULT_NAMESPACE) -> Loaded:
    """Return the rules in (file name, text) pairs; objects that are not rules are skipped.

    namespace: the required namespace of rules. Rules for the same resource conflict; none of them is loaded.
    """
    return load_placed(texts, namespace)[0]


def load_placed(
    texts: Iterable[tuple[str, str]], namespace: str = DEFAULT_NAMESPACE
) -> tuple[Loaded, Locate]:
    """Return the rules as `load_rules` does, and a function that locates paths of valid rules."""
    loader = _Loader(namespace)
    order: dict[str, int] = {}
    for name, text in texts:
        order.setdefault(name, len(order))
        for document in read(text, name):
            if isinstance(document, SourceError):
                loader.errors.append(RuleError(document.location, (), document.message, code=Code.NOT_YAML))
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
            elif value.get("apiVersion", "v1") == "v1" and _is_misspelt(kind):
                at = (*path, "kind")
                message = f"unknown kind {kind!r} – did you mean {_KIND!r}?"
                self.errors.append(RuleError(document.locate(at), at, message))

    def _config_map(self, document: Document, path: Path, value: dict[str, Any]) -> None:
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        labels = metadata.get("labels")
        labels = labels if isinstance(labels, dict) else {}
        name = metadata.get("name")
        name = name if isinstance(name, str) else ""
        data = value.get("data")
        builder = RuleBuilder(document, path, name, enabled=False, group="", errors=[])
        in_labels: Path = (*path, "metadata", "labels")
        rule: Rule | None = None
        legacy = _legacy_labels(labels)
        if legacy.get("type") == RESOURCE_RULE_TYPE:
            self._read_labels(builder, labels, legacy, in_labels)
            rule = build_resource_rule(builder, data)
            self._check_name(builder, rule)
        elif build := RULE_TYPES.get(str(labels.get(TYPE_LABEL))):
            builder.enabled = _enabled(builder, labels.get(ENABLED_LABEL), (*in_labels, ENABLED_LABEL))
            rule = build(builder, data)
        elif TYPE_LABEL in labels:
            found = labels[TYPE_LABEL]
            hint = suggestion(str(found), RULE_TYPES)
            message = f"expected one of {', '.join(RULE_TYPES)}, got {found!r}{hint}"
            builder.add_error((*in_labels, TYPE_LABEL), message, code=Code.BAD_LABEL)
        elif name.startswith(_NAME_PREFIX) or "type" in legacy or "group" in legacy:
            message = f"a resource rule requires the label {LABEL_PREFIXES[1]}type: {RESOURCE_RULE_TYPE}"
            builder.add_error(in_labels, message, key=True, code=Code.BAD_LABEL)
        elif isinstance(data, dict) and DOCUMENT_KEY in data:
            message = f"a rule requires the label {TYPE_LABEL}: {' | '.join(RULE_TYPES)}"
            builder.add_error(in_labels, message, key=True, code=Code.BAD_LABEL)
        else:
            return
        if (version := value.get("apiVersion", "v1")) != "v1":
            builder.add_error((*path, "apiVersion"), f"expected v1, got {version!r}")
        self._check_metadata(builder, metadata)
        builder.errors += [
            RuleError(error.location, (), error.message, name, Code.DUPLICATE_KEY)
            for error in document.duplicates_below(path)
        ]
        self.errors += builder.errors
        if rule is not None and not builder.errors:
            self._builders.append((rule, builder))

    def _read_labels(
        self, builder: RuleBuilder, labels: dict[str, Any], legacy: dict[str, Any], path: Path
    ) -> None:
        for name in _LEGACY_LABELS:
            found = [labels[prefix + name] for prefix in LABEL_PREFIXES if prefix + name in labels]
            if len(found) == 2 and found[0] != found[1]:
                older, newer = (prefix + name for prefix in LABEL_PREFIXES)
                message = f"{found[1]!r} is ignored, because {older} is {found[0]!r}; remove one of them"
                self._warn(builder, (*path, newer), message, Code.MIXED_LABELS)
        spelling = next(prefix for prefix in LABEL_PREFIXES if f"{prefix}type" in labels)
        builder.enabled = _enabled(builder, legacy.get("enabled"), (*path, f"{spelling}enabled"))
        group = legacy.get("group")
        if not isinstance(group, str) or not group:
            message = f"the label {spelling}group is missing: it names the group"
            builder.add_error((*path, f"{spelling}group"), message, key=True, code=Code.BAD_LABEL)
        elif not is_label_value(group):
            message = f"expected at most 63 characters of A-Z, a-z, 0-9, -, _ and ., got {group!r}"
            builder.add_error((*path, f"{spelling}group"), message, code=Code.BAD_LABEL)
        else:
            builder.group = group

    def _check_metadata(self, builder: RuleBuilder, metadata: dict[str, Any]) -> None:
        if not builder.name:
            message = "required key 'name' is missing"
            builder.add_error((*builder.path, "metadata"), message, key=True, code=Code.MISSING_KEY)
        elif not is_object_name(builder.name):
            message = f"expected at most 253 characters of a-z, 0-9, - and ., got {builder.name!r}"
            builder.add_error((*builder.path, "metadata", "name"), message, code=Code.BAD_NAME)
        found = metadata.get("namespace", self._namespace)  # kustomize and kubectl -n may set it later
        if found != self._namespace:
            path: Path = (*builder.path, "metadata", "namespace")
            message = f"rules must be in namespace {self._namespace!r}, got {found!r}"
            builder.add_error(path, message, code=Code.WRONG_NAMESPACE)

    def _check_name(self, builder: RuleBuilder, rule: ResourceRule | None) -> None:
        if builder.name and not builder.name.startswith(_NAME_PREFIX):
            message = (
                f"expected {_NAME_PREFIX}WORD-KEY, such as {_NAME_PREFIX}vendor-device, got {builder.name!r}"
            )
            builder.add_error((*builder.path, "metadata", "name"), message, code=Code.BAD_NAME)
        elif rule is not None and builder.name:
            key_name = _SPECIAL.sub("-", rule.key.partition("/")[2].lower()).strip("-")
            if key_name and not _SPECIAL.sub("-", builder.name).endswith(f"-{key_name}"):
                message = f"expected to end in -{key_name} like the key {rule.key!r}, got {builder.name!r}"
                self._warn(builder, (*builder.path, "metadata", "name"), message, Code.ODD_NAME)

    def _warn(self, builder: RuleBuilder, path: Path, message: str, code: Code) -> None:
        self.warnings.append(RuleError(builder.document.locate(path), path, message, builder.name, code))

    def locate(self, rule: str, path: Path) -> Location:
        """Return the location of a path of a rule's own document."""
        return next(builder.locate(path) for known, builder in self._builders if known.name == rule)

    def valid_rules(self) -> list[Rule]:
        """Return the rules that do not share their name or, if enabled, their key with another rule.

        All conflicting rules are reported, because it is unknown which one is intended.
        """
        claims: dict[tuple[str, str], list[tuple[Rule, RuleBuilder]]] = defaultdict(list)
        for rule, builder in self._builders:
            claims["name", rule.name].append((rule, builder))
            if isinstance(rule, ResourceRule) and rule.enabled:
                claims["key", rule.key].append((rule, builder))
        conflicting: set[int] = set()
        for (what, value), claimants in claims.items():
            if len(claimants) == 1:
                continue
            for rule, builder in claimants:
                path: Path = (*builder.path, *(("metadata", "name") if what == "name" else ("data", "key")))
                others = ", ".join(
                    f"{other.name} ({other.location})" for other, _ in claimants if other is not rule
                )
                message = f"{value!r} is also used by {others}; keep one rule, or disable the others by label"
                self.errors.append(
                    RuleError(builder.document.locate(path), path, message, rule.name, Code.CONFLICT)
                )
                conflicting.add(id(rule))
        return [rule for rule, _ in self._builders if id(rule) not in conflicting]


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


def _enabled(builder: RuleBuilder, value: object, path: Path) -> bool:
    if value not in ("true", "false"):
        what = repr(value) if isinstance(value, str) else describe(value)
        message = f'expected the label to be "true" or "false" in quotes, got {what}'
        builder.add_error(path, message, key=value is None, code=Code.BAD_LABEL)
    return value == "true"
