"""Exemptions, and the cap on the effect of decisions (`serve --enforcement-action`).

An exempted rule does nothing. A pod pays for exemptions only if one of its rules is exempted for some pod.
A decision is made as if it were enforced, so that what is reported is what enforcement would do; then its
effect is capped here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from rules.decision import messages
from rules.model.decision import CAP_ANNOTATION, Decision, Effect
from rules.model.finding import Finding
from rules.model.rule import Action, Exemption, FactRelease, ImageCatalogRule, NodeProfile, Rule, mildest
from rules.text.glob import glob
from rules.text.i18n import Message

if TYPE_CHECKING:
    from rules.kube.pod import Pod


# The service account of a pod that names none:
# https://kubernetes.io/docs/concepts/security/service-accounts/#default-service-accounts
_DEFAULT_SERVICE_ACCOUNT: Final = "default"


def exempted(exemption: Exemption, rules: Iterable[Rule]) -> list[str]:
    """Return the names of the rules that an exemption is for; image catalogues only provide facts."""
    patterns = [glob(name) for name in exemption.rules]
    return [
        rule.name
        for rule in rules
        if not isinstance(rule, Exemption | FactRelease | ImageCatalogRule | NodeProfile)
        if any(pattern.fullmatch(rule.name) for pattern in patterns)
    ]


def by_rule(exemptions: Iterable[Exemption], rules: Iterable[Rule]) -> dict[str, tuple[Exemption, ...]]:
    """Return for the names of exempted rules what exempts them; exemptions that are switched off do not."""
    known = list(rules)
    by_name: dict[str, tuple[Exemption, ...]] = {}
    for exemption in exemptions:
        for name in exempted(exemption, known) if exemption.enabled else ():
            by_name[name] = (*by_name.get(name, ()), exemption)
    return by_name


class PodExemptions:
    """The exemptions of one pod, looked up when a rule comes up.

    The pod counts as submitted: what rules inject exempts it from nothing. now: seconds since the epoch.
    taken: the exemptions that were used, by rule.
    """

    __slots__ = ("_by_rule", "_covered", "_labels", "_namespace", "_now", "_pod", "taken")

    def __init__(
        self, by_rule: Mapping[str, tuple[Exemption, ...]], pod: Pod, namespace: str, now: float
    ) -> None:
        self._by_rule = by_rule
        self._namespace = namespace
        self._now = now
        self._covered: dict[str, bool] = {}
        self.taken: dict[str, Exemption] = {}
        self._labels = pod.labels
        self._pod = pod

    def of(self, rule: str) -> Exemption | None:
        """Return what exempts the pod from a rule, and take note of it; None where nothing does."""
        for exemption in self._by_rule.get(rule, ()):
            if self._now < exemption.expires and self._covers(exemption):
                self.taken[rule] = exemption
                return exemption
        return None

    def expired(self, rules: Iterable[str]) -> list[Finding]:
        """Return a notice for each expired exemption from one of the rules that covers the pod."""
        return [
            messages.expired(rule, exemption.name, exemption.until)
            for rule in rules
            for exemption in self._by_rule.get(rule, ())
            if self._now >= exemption.expires and self._covers(exemption)
        ]

    def _covers(self, exemption: Exemption) -> bool:
        covered = self._covered.get(exemption.name)
        if covered is None:
            covered = exemption.match.pod(self._namespace, self._labels) and self._uses_account(exemption)
            self._covered[exemption.name] = covered
        return covered

    def _uses_account(self, exemption: Exemption) -> bool:
        """Return whether an exemption is for the pod's service account, which no rule injects."""
        if not exemption.service_accounts:
            return True
        spec = self._pod.spec
        written = spec.get("serviceAccountName") or spec.get("serviceAccount")
        account = written if isinstance(written, str) else _DEFAULT_SERVICE_ACCOUNT
        return any(pattern.fullmatch(account) for pattern in exemption.service_accounts)


_AFFINITY: Final = "node-affinity"
# Audit annotations of what a decision changes, and those of what it would change.
_CHANGES: Final = {"injected": "would-inject", "defaulted": "would-default"}


def warning_lines(findings: Iterable[Finding]) -> tuple[Message, ...]:
    """Return the lines of the findings that only warn, each once."""
    lines = [messages.WarningLine(finding) for finding in findings if finding.action is Action.WARN]
    return tuple(dict.fromkeys(lines) if len(lines) > 1 else lines)


def permitted(decision: Decision) -> Decision:
    """Return a decision that warns of what it denied."""
    violations = tuple(
        violation._replace(action=mildest(violation.action, Action.WARN)) for violation in decision.violations
    )
    warnings = dict.fromkeys((*warning_lines(violations), *decision.warning_lines))
    return decision._replace(
        allowed=True, denial=Message(), violations=violations, warning_lines=tuple(warnings)
    )


def capped(decision: Decision, cap: Action, *, mutating: bool) -> Decision:
    """Return a decision with its effect capped.

    cap: `deny` leaves it as it is; `warn` warns of what it denied, and keeps its patch; `dryrun` answers
    nothing but audit annotations. mutating: whether the answer may have a patch.
    """
    if cap is Action.DENY:
        has_patch = decision.patch or decision.pods_patch
        return decision._replace(patch=(), pods_patch=()) if has_patch and not decision.allowed else decision
    withheld, audit = None, {**decision.audit}
    violations = tuple(
        violation._replace(action=mildest(violation.action, cap), rule_action=violation.action)
        for violation in decision.violations
    )
    if not decision.allowed:
        withheld, decision = Effect.DENY, permitted(decision)
    if cap is Action.DRYRUN:
        if decision.patch and mutating and not withheld:
            withheld = Effect.PATCH
        audit = _of_dry_run(audit)
        decision = decision._replace(notices=(), warning_lines=(), patch=(), pods_patch=())
    audit[CAP_ANNOTATION] = f"{cap.value}, would {withheld.value}" if withheld else cap.value
    return decision._replace(violations=violations, audit=audit, withheld=withheld)


def _of_dry_run(audit: dict[str, str]) -> dict[str, str]:
    """Return the audit annotations of a decision that changes and denies nothing."""
    renamed: dict[str, list[str]] = {}
    for name, text in audit.items():
        new = "dryrun" if name == "violations" else _CHANGES.get(name, name)
        renamed.setdefault(new, []).append("would be injected" if name == _AFFINITY else text)
    return {name: "; ".join(texts) for name, texts in renamed.items()}
