"""Rule ConfigMaps, one at a time: as text, against those in force, and judged at admission.

`kubectl apply` of a mistake is refused with every mistake and its place. What is no rule of ours is let pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, Final

from rules import AdmissionRequest, Decision, Language, ObjectError, RuleError, RuleSet, load_rules
from rules.decision.messages import denial
from rules.lint.rule_set_checks import rule_set_warnings
from rules.model.decision import ALLOWED
from rules.model.rule import ResourceRule, Rule
from rules.schema.builder import DOCUMENT_KEY
from rules.schema.loader import LABEL_PREFIXES, RESOURCE_RULE_TYPE, TYPE_LABEL
from rules.text.i18n import Text
from rules.text.paths import field_path
from webhook.yaml_output import dump_yaml

_ELSEWHERE: Final = Text(
    "gpugate reads rules from namespace {wanted} alone: in {found} this one has no effect",
    "gpugate 只读取命名空间 {wanted} 中的规则：在 {found} 中该规则不生效",
)
# What a rule is made of; other fields of a ConfigMap may change as they like.
_CONTENT: Final = ("data", "binaryData")
# Spaces before each line of a text below `data`, as `dump_yaml` writes it.
_INDENT: Final = 4


def is_rule(config_map: Mapping[str, Any] | None) -> bool:
    """Tell whether an object carries the label of a rule."""
    labels = _labels(config_map)
    return TYPE_LABEL in labels or any(
        labels.get(f"{prefix}type") == RESOURCE_RULE_TYPE for prefix in LABEL_PREFIXES
    )


def rule_text(config_map: Mapping[str, Any]) -> tuple[str, str]:
    """Return (name, YAML) of a ConfigMap, the YAML as `kubectl get -o yaml` prints it."""
    metadata = {key: value for key, value in config_map["metadata"].items() if key != "managedFields"}
    name = f"configmap {metadata.get('namespace', '')}/{metadata.get('name', '')}"
    document = {"apiVersion": "v1", "kind": "ConfigMap", **config_map, "metadata": metadata}
    return name, dump_yaml(document, sort_keys=True)


def contested(rule: Rule, others: Iterable[Rule]) -> RuleError | None:
    """Return the mistake of claiming a resource that another rule claims, as `load` has it, or None."""
    if not isinstance(rule, ResourceRule) or not rule.enabled:
        return None
    claimants = [
        f"{other.name} ({other.location.file})"
        for other in others
        if isinstance(other, ResourceRule) and other.enabled and other.key == rule.key
        if other.name != rule.name
    ]
    if not claimants:
        return None
    told = (
        f"{rule.key!r} is claimed by {', '.join(claimants)} too; keep one, or switch the others off by label"
    )
    return RuleError(rule.location, ("data", "key"), told, rule.name)


def judge_rule(
    request: AdmissionRequest, in_force: Iterable[Rule], namespace: str, language: Language, now: float
) -> Decision:
    """Return the verdict on a ConfigMap: refused where it is a rule, or was one, and reads wrong now.

    in_force: the rules that it must not conflict with. namespace: where rules live; elsewhere none is judged.
    now: seconds since the epoch.
    Raises ObjectError where the object is not shaped as its kind is.
    """
    new, old = request.object, request.old_object
    if new is None or request.operation not in ("CREATE", "UPDATE") or not (is_rule(new) or is_rule(old)):
        return ALLOWED
    metadata = new.get("metadata")
    if not isinstance(metadata, dict):
        raise ObjectError(("metadata",), "an object", metadata)
    if metadata.get("deletionTimestamp") or (old is not None and _content(new) == _content(old)):
        return ALLOWED
    if request.namespace != namespace:
        told = _ELSEWHERE.in_language(language).format(wanted=namespace, found=request.namespace)
        return Decision(warnings=(told,))
    name, text = rule_text(new)
    loaded = load_rules([(name, text)], namespace)
    known = list(in_force)
    conflicts = (contested(rule, known) for rule in loaded.rules)
    mistakes = [*loaded.errors, *(error for error in conflicts if error is not None)]
    warnings = (*(f"{warning.path}: {warning.message}" for warning in loaded.warnings),)
    warnings += tuple(_doubts(loaded.rules, known, now))
    if not mistakes:
        return Decision(warnings=warnings)
    block = _block(text)
    reasons = [(error.rule, _placed(error, block)) for error in mistakes]
    return Decision(allowed=False, message=denial(language, request.kind, reasons), warnings=warnings)


def _doubts(rules: RuleSet, in_force: Iterable[Rule], now: float) -> Iterator[str]:
    """Yield what is doubtful about rules beside those in force, which they may be newer versions of."""
    names = {rule.name for rule in rules}
    others = (rule for rule in in_force if rule.name not in names)
    for doubt in rule_set_warnings(RuleSet.of([*rules, *others]), now, names):
        yield f"{field_path(doubt.path)}: {doubt.message}"


def _labels(config_map: Mapping[str, Any] | None) -> Mapping[str, Any]:
    metadata = (config_map or {}).get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}


def _content(config_map: Mapping[str, Any]) -> list[Any]:
    return [_labels(config_map), *(config_map.get(key) or {} for key in _CONTENT)]


def _block(text: str) -> range:
    """Return the lines, counted from 1, in which the rule's own document stands in a ConfigMap's YAML."""
    lines = text.splitlines()
    head = f"{' ' * (_INDENT // 2)}{DOCUMENT_KEY}: |"
    start = next((number for number, line in enumerate(lines, 2) if line.startswith(head)), len(lines) + 1)
    inside = takewhile(lambda line: not line or line.startswith(" " * _INDENT), lines[start - 1 :])
    return range(start, start + sum(1 for _ in inside))


def _placed(error: RuleError, block: range) -> str:
    """Return a mistake with its path, and with the line and column of the rule's own document inside it."""
    place = [error.path] if error.path else []
    unread = error.path == field_path(("data", DOCUMENT_KEY))  # perhaps for what is missing at its end
    if error.location.line in block or (unread and error.location.line >= block.start):
        line, column = error.location.line - block.start + 1, error.location.column - _INDENT
        place.insert(0, f"{DOCUMENT_KEY}:{line}:{column}")
    return ": ".join([*place, error.message])
