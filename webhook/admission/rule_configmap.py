"""Rule ConfigMaps: their names and content, conflicts with rules in force, and validation at admission.

An invalid rule is denied with every error and its place. A ConfigMap that is not a rule is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rules import AdmissionRequest, Decision, ObjectError, RuleError, RuleSet, load_rules
from rules.decision.messages import WarningLine, denial
from rules.decision.size_limit import RULE
from rules.lint.rule_set_checks import rule_set_warnings
from rules.model.decision import ALLOWED
from rules.model.finding import Basis, Finding, audit_list, notice
from rules.model.rule import Action, Rule, exclusive_key
from rules.schema.config_map import LABEL_PREFIXES, RESOURCE_RULE_TYPE, TYPE_LABEL, excess
from rules.schema.fact_release import FACTS_TYPE
from rules.schema.loader import also_used, claimed_path
from rules.text.i18n import Joined, Message
from rules.text.paths import field_path

_WRONG_NAMESPACE: Final = Message(
    "rules are read only from namespace {expected}; this rule in {actual} has no effect"
)
# The content of a rule besides its labels; a change of other fields is not validated.
_CONTENT: Final = ("data", "binaryData")


def is_rule(config_map: Mapping[str, Any] | None) -> bool:
    """Return whether a ConfigMap has the label of a rule."""
    labels = _labels(config_map)
    return TYPE_LABEL in labels or any(
        labels.get(f"{prefix}type") == RESOURCE_RULE_TYPE for prefix in LABEL_PREFIXES
    )


def rule_source(config_map: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the content of a ConfigMap of a cluster, as `load_rules` reads them."""
    metadata = {key: value for key, value in config_map["metadata"].items() if key != "managedFields"}
    name = f"configmap {metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return name, {"apiVersion": "v1", "kind": "ConfigMap", **config_map, "metadata": metadata}


def conflict_error(rule: Rule, others: Iterable[Rule]) -> RuleError | None:
    """Return the error that another rule claims the same resource, as `load_rules` reports it, or None."""
    key = exclusive_key(rule)
    if not (rule.enabled and key):
        return None
    owners = [
        f"{other.name} ({other.location.file})"
        for other in others
        if other.enabled and exclusive_key(other) == key and other.name != rule.name
    ]
    if not owners:
        return None
    return RuleError(rule.location, claimed_path(rule), also_used(key, ", ".join(owners)), rule.name)


def validate_rule(
    request: AdmissionRequest, in_force: Iterable[Rule], namespace: str, now: float
) -> Decision:
    """Return the decision on a ConfigMap: denied if it is or was a rule, and is invalid now.

    in_force: the rules that it must not conflict with. namespace: of rules; others are not validated.
    now: seconds since the epoch. Raises ObjectError if the object is malformed.
    """
    new, old = request.object, request.old_object
    if new is None or request.operation not in ("CREATE", "UPDATE") or not (is_rule(new) or is_rule(old)):
        return ALLOWED
    metadata = new.get("metadata")
    if not isinstance(metadata, dict):
        raise ObjectError(("metadata",), dict, metadata)
    if metadata.get("deletionTimestamp") or (old is not None and _content(new) == _content(old)):
        return ALLOWED
    if request.namespace != namespace:
        reason = _WRONG_NAMESPACE.having(expected=namespace, actual=request.namespace)
        return Decision.allow(warning_lines=(WarningLine(notice("", reason)),))
    if too_much := excess(new, is_bundle=_labels(new).get(TYPE_LABEL) == FACTS_TYPE):
        large = (Finding(RULE, Action.DENY, "", too_much, basis=Basis.LIMIT),)
        return Decision.deny(denial(request.kind, large), large)
    loaded = load_rules([rule_source(new)], namespace)
    known = list(in_force)
    conflicts = (conflict_error(rule, known) for rule in loaded.rules)
    errors = [*loaded.errors, *(error for error in conflicts if error is not None)]
    reasons = [*((warning.rule, warning.path, warning.text) for warning in loaded.warnings)]
    reasons += _lint(loaded.rules, known, now)
    warnings = tuple(
        WarningLine(notice(rule, Joined(": ", (path, reason)))) for rule, path, reason in reasons
    )
    if not errors:
        return Decision.allow(warning_lines=warnings)
    violations = tuple(
        Finding(error.rule, Action.DENY, error.path, _placed(error), basis=Basis.POLICY) for error in errors
    )
    # Not among the decision's violations: metrics have the names of rules in force only.
    audit = {"violations": audit_list(violations)}
    return Decision.deny(denial(request.kind, violations), warning_lines=warnings, audit=audit)


def _lint(rules: RuleSet, in_force: Iterable[Rule], now: float) -> Iterator[tuple[str, str, Message]]:
    """Yield rule, path and message of each lint warning about rules together with those in force."""
    names = {rule.name for rule in rules}
    others = (rule for rule in in_force if rule.name not in names)
    for warning in rule_set_warnings(RuleSet.of([*rules, *others]), now, names):
        yield warning.rule, field_path(warning.path), warning.message


def _labels(config_map: Mapping[str, Any] | None) -> Mapping[str, Any]:
    metadata = (config_map or {}).get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}


def _content(config_map: Mapping[str, Any]) -> list[Any]:
    return [_labels(config_map), *(config_map.get(key) or {} for key in _CONTENT)]


def _placed(error: RuleError) -> Message:
    """Return an error with its path, and with line and column inside the rule's own document."""
    location = error.location
    place = [f"{location.within}:{location.line}:{location.column}"] if location.within else []
    return Joined(": ", [*place, *filter(None, [error.path]), error.text])
