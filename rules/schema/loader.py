"""Rule files to a rule set. Each ConfigMap stands alone: a bad one is reported and left out, the others stay.

One loader serves files, and ConfigMaps as they come from a cluster (which are JSON, and so YAML).
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
# How alike to it a slip of the pen is, at least; a kubeconfig's Config is by 0.8, other kinds of v1 by less.
_ALIKE: Final = 0.85
_NAME_PREFIX: Final = "cf-crl-"
_LEGACY_LABELS: Final = ("type", "group", "enabled")
_SPECIAL: Final = re.compile(r"[^a-z0-9]+")

# Where a path of a rule's own document stands in the text; the rule by its name.
Locate = Callable[[str, Path], Location]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read: the rules that are sound, and what is wrong or doubtful, in the order of the text."""

    rules: RuleSet = field(default_factory=RuleSet)
    errors: tuple[RuleError, ...] = ()
    warnings: tuple[RuleError, ...] = ()


def load_rules(texts: Iterable[tuple[str, str]], namespace: str = DEFAULT_NAMESPACE) -> Loaded:
    """Return the rules in (file name, text) pairs; objects that are no rules are passed over.

    namespace: where all rules have to be. Rules that claim the same resource are all left out.
    """
    return load_placed(texts, namespace)[0]


def load_placed(
    texts: Iterable[tuple[str, str]], namespace: str = DEFAULT_NAMESPACE
) -> tuple[Loaded, Locate]:
    """Return the rules as `load` does, and the way back from what a sound rule says to its place."""
    loader = _Loader(namespace)
    order: dict[str, int] = {}
    for name, text in texts:
        order.setdefault(name, len(order))
        for document in read(text, name):
            if isinstance(document, SourceError):
                loader.errors.append(RuleError(document.location, (), document.message, code=Code.NOT_YAML))
            else:
                loader.take(document)
    loaded = Loaded(
        RuleSet.of(loader.sound_rules()),
        tuple(sorted(loader.errors, key=lambda error: (order[error.location.file], error.location.line))),
        tuple(loader.warnings),
    )
    return loaded, loader.locate


class _Loader:
    """Takes documents one by one."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._parts: list[tuple[Rule, RuleBuilder]] = []
        self.errors: list[RuleError] = []
        self.warnings: list[RuleError] = []

    def take(self, document: Document) -> None:
        """Take each ConfigMap of a document, which may be a list of objects."""
        for path, value in document.objects():
            if not isinstance(value, dict):
                continue
            if (kind := value.get("kind")) == _KIND:
                self._config_map(document, path, value)
            elif value.get("apiVersion", "v1") == "v1" and _is_misspelt(kind):
                place = (*path, "kind")
                told = f"there is no kind {kind!r} – did you mean {_KIND!r}?"
                self.errors.append(RuleError(document.locate(place), place, told))

    def _config_map(self, document: Document, path: Path, value: dict[str, Any]) -> None:
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        labels = metadata.get("labels")
        labels = labels if isinstance(labels, dict) else {}
        name = metadata.get("name")
        name = name if isinstance(name, str) else ""
        data = value.get("data")
        part = RuleBuilder(document, path, name, enabled=False, group="", errors=[])
        in_labels: Path = (*path, "metadata", "labels")
        rule: Rule | None = None
        legacy = _legacy_labels(labels)
        if legacy.get("type") == RESOURCE_RULE_TYPE:
            self._read_labels(part, labels, legacy, in_labels)
            rule = build_resource_rule(part, data)
            self._check_name(part, rule)
        elif build := RULE_TYPES.get(str(labels.get(TYPE_LABEL))):
            part.enabled = _enabled(part, labels.get(ENABLED_LABEL), (*in_labels, ENABLED_LABEL))
            rule = build(part, data)
        elif TYPE_LABEL in labels:
            found = labels[TYPE_LABEL]
            hint = suggestion(str(found), RULE_TYPES)
            message = f"expected one of {', '.join(RULE_TYPES)}, got {found!r}{hint}"
            part.fail((*in_labels, TYPE_LABEL), message, code=Code.BAD_LABEL)
        elif name.startswith(_NAME_PREFIX) or "type" in legacy or "group" in legacy:
            wanted = f"a resource rule needs the label {LABEL_PREFIXES[1]}type: {RESOURCE_RULE_TYPE}"
            part.fail(in_labels, wanted, key=True, code=Code.BAD_LABEL)
        elif isinstance(data, dict) and DOCUMENT_KEY in data:
            wanted = f"a rule needs the label {TYPE_LABEL}: {' | '.join(RULE_TYPES)}"
            part.fail(in_labels, wanted, key=True, code=Code.BAD_LABEL)
        else:
            return
        if (version := value.get("apiVersion", "v1")) != "v1":
            part.fail((*path, "apiVersion"), f"expected v1, got {version!r}")
        self._check_metadata(part, metadata)
        part.errors += [
            RuleError(error.location, (), error.message, name, Code.DUPLICATE_KEY)
            for error in document.duplicates_below(path)
        ]
        self.errors += part.errors
        if rule is not None and not part.errors:
            self._parts.append((rule, part))

    def _read_labels(
        self, part: RuleBuilder, labels: dict[str, Any], legacy: dict[str, Any], path: Path
    ) -> None:
        for name in _LEGACY_LABELS:
            found = [labels[prefix + name] for prefix in LABEL_PREFIXES if prefix + name in labels]
            if len(found) == 2 and found[0] != found[1]:
                older, newer = (prefix + name for prefix in LABEL_PREFIXES)
                told = f"{found[1]!r}, but {older} says {found[0]!r}, which counts; remove one of them"
                self._warn(part, (*path, newer), told, Code.MIXED_LABELS)
        spelling = next(prefix for prefix in LABEL_PREFIXES if f"{prefix}type" in labels)
        part.enabled = _enabled(part, legacy.get("enabled"), (*path, f"{spelling}enabled"))
        group = legacy.get("group")
        if not isinstance(group, str) or not group:
            told = f"the label {spelling}group is missing: it names the group"
            part.fail((*path, f"{spelling}group"), told, key=True, code=Code.BAD_LABEL)
        elif not is_label_value(group):
            told = f"expected a label's value: at most 63 of A-Z, a-z, 0-9, -, _ and ., got {group!r}"
            part.fail((*path, f"{spelling}group"), told, code=Code.BAD_LABEL)
        else:
            part.group = group

    def _check_metadata(self, part: RuleBuilder, metadata: dict[str, Any]) -> None:
        if not part.name:
            told = "required key 'name' is missing"
            part.fail((*part.path, "metadata"), told, key=True, code=Code.MISSING_KEY)
        elif not is_object_name(part.name):
            told = f"expected a-z, 0-9, - and ., at most 253 of them, got {part.name!r}"
            part.fail((*part.path, "metadata", "name"), told, code=Code.BAD_NAME)
        found = metadata.get("namespace", self._namespace)  # kustomize and kubectl -n may still set it
        if found != self._namespace:
            path: Path = (*part.path, "metadata", "namespace")
            told = f"rules live in namespace {self._namespace!r}, got {found!r}"
            part.fail(path, told, code=Code.WRONG_NAMESPACE)

    def _check_name(self, part: RuleBuilder, rule: ResourceRule | None) -> None:
        if part.name and not part.name.startswith(_NAME_PREFIX):
            told = f"expected {_NAME_PREFIX}WORD-KEY, such as {_NAME_PREFIX}vendor-device, got {part.name!r}"
            part.fail((*part.path, "metadata", "name"), told, code=Code.BAD_NAME)
        elif rule is not None and part.name:
            key_name = _SPECIAL.sub("-", rule.key.partition("/")[2].lower()).strip("-")
            if key_name and not _SPECIAL.sub("-", part.name).endswith(f"-{key_name}"):
                message = f"expected to end in -{key_name}, after the key {rule.key!r}, got {part.name!r}"
                self._warn(part, (*part.path, "metadata", "name"), message, Code.ODD_NAME)

    def _warn(self, part: RuleBuilder, path: Path, message: str, code: Code) -> None:
        self.warnings.append(RuleError(part.document.locate(path), path, message, part.name, code))

    def locate(self, rule: str, path: Path) -> Location:
        """Return where a path of a rule's own document stands."""
        return next(part.locate(path) for known, part in self._parts if known.name == rule)

    def sound_rules(self) -> list[Rule]:
        """Return the rules that share neither name nor, if enabled, key with another.

        Those that do are reported, each of them: nobody can tell which one was meant.
        """
        claims: dict[tuple[str, str], list[tuple[Rule, RuleBuilder]]] = defaultdict(list)
        for rule, part in self._parts:
            claims["name", rule.name].append((rule, part))
            if isinstance(rule, ResourceRule) and rule.enabled:
                claims["key", rule.key].append((rule, part))
        refused: set[int] = set()
        for (what, value), claimants in claims.items():
            if len(claimants) == 1:
                continue
            for rule, part in claimants:
                path: Path = (*part.path, *(("metadata", "name") if what == "name" else ("data", "key")))
                others = ", ".join(
                    f"{other.name} ({other.location})" for other, _ in claimants if other is not rule
                )
                message = f"{value!r} is claimed by {others} too; keep one, or switch the others off by label"
                self.errors.append(
                    RuleError(part.document.locate(path), path, message, rule.name, Code.CONFLICT)
                )
                refused.add(id(rule))
        return [rule for rule, _ in self._parts if id(rule) not in refused]


def _is_misspelt(kind: object) -> bool:
    """Tell whether a kind of the core API is almost the one that rules have."""
    return isinstance(kind, str) and bool(get_close_matches(kind.lower(), [_KIND.lower()], cutoff=_ALIKE))


def _legacy_labels(labels: dict[str, Any]) -> dict[str, Any]:
    """Return type, group and enabled, each in whichever spelling is there; the older one counts first."""
    return {
        name: labels[prefix + name]
        for prefix in reversed(LABEL_PREFIXES)
        for name in _LEGACY_LABELS
        if prefix + name in labels
    }


def _enabled(part: RuleBuilder, value: object, path: Path) -> bool:
    if value not in ("true", "false"):
        what = repr(value) if isinstance(value, str) else describe(value)
        wanted = f'expected the label to be "true" or "false" in quotes, got {what}'
        part.fail(path, wanted, key=value is None, code=Code.BAD_LABEL)
    return value == "true"
