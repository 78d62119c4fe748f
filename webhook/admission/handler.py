"""Admission handler: answers AdmissionReviews with the current policy and inventory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import perf_counter, time
from traceback import format_tb
from typing import Literal

from rules import (
    DEFAULT_NAMESPACE,
    AdmissionRequest,
    Claims,
    Decision,
    Facts,
    Inventory,
    Language,
    Loaded,
    NamespaceLabels,
    ObjectError,
    Policy,
    Snapshot,
    Workloads,
    capped,
    compile_policy,
    decide,
)
from rules.model.rule import Action
from webhook.admission.decision_log import DecisionLog, printable
from webhook.admission.review import Review, ReviewError, decode_review, encode_decision
from webhook.admission.rule_configmap import validate_rule
from webhook.telemetry import metrics

Endpoint = Literal["mutate", "validate"]

_log = logging.getLogger("gpugate.admission")


class NotSyncedError(ReviewError):
    """The rules and nodes are not known yet. The webhook's failurePolicy decides."""


class AdmissionHandler:
    """Answers AdmissionReviews.

    on_error_allow: whether to allow an object on which gpugate itself fails. rules_namespace: the namespace
    whose ConfigMaps are validated as rules. workloads: the kinds that contain pods; None: the built-in ones.
    enforcement: caps the effect of all decisions except those on rules; below `deny`, objects on which
    gpugate fails are allowed.

    Attributes:
        snapshot: the rules, nodes and claims in force; a request reads it once.
        loaded: the rules of the snapshot, and the errors in newer or other versions.
        stale: names of the rules whose last good version is in force instead of the newest.
        on_rules: called when other rules come into force.
        on_denial: called with the review of a denied object and the message; must return at once.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        loaded: Loaded,
        language: Language = Language.EN,
        inventory: Inventory | None = None,
        *,
        on_error_allow: bool = False,
        rules_namespace: str = DEFAULT_NAMESPACE,
        workloads: Workloads | None = None,
        enforcement: Action = Action.DENY,
    ) -> None:
        self._on_error_allow = on_error_allow or enforcement is not Action.DENY
        self._enforcement = enforcement
        self._rules_namespace = rules_namespace
        self._language = language
        self._workloads = workloads
        self.on_rules: Callable[[], None] = lambda: None
        self.on_facts: Callable[[Facts], None] = lambda _: None
        self.on_denial: Callable[[Review, str], None] | None = None
        self.decision_log = DecisionLog(enforcement)
        self._swapping = threading.Lock()  # rules and nodes are set by different threads
        self._synced = self.ready = True
        self.loaded, self.stale = loaded, frozenset[str]()
        policy = self._compile(loaded)
        self.snapshot = Snapshot(policy, (inventory or Inventory()).with_facts(policy.facts))
        metrics.ENFORCEMENT.labels(enforcement.value).set(1)
        metrics.rules_loaded(loaded)
        self._facts_in_force(policy.facts)
        _log_expired(loaded)
        metrics.NODES.set(len(self.snapshot.inventory))

    def mark_not_ready(self) -> None:
        """Be not ready and answer no review until `mark_ready`: rules or nodes are not known yet."""
        self._synced = self.ready = False

    def mark_ready(self) -> None:
        """Be ready and answer reviews: rules and nodes are known."""
        self._synced = self.ready = True
        self.on_rules()

    @property
    def synced(self) -> bool:
        """Whether rules and nodes are known, so that reviews are answered."""
        return self._synced

    def set_rules(self, loaded: Loaded, stale: frozenset[str] = frozenset()) -> None:
        """Use these rules from the next request on."""
        policy = self._compile(loaded)
        with self._swapping:
            self.loaded, self.stale = loaded, stale  # first: a reader of the new snapshot sees these
            before = self.snapshot
            inventory = before.inventory.with_facts(policy.facts)
            self.snapshot = before._replace(policy=policy, inventory=inventory)
        if policy.facts is not before.policy.facts:
            self.on_facts(policy.facts)
        metrics.rules_loaded(loaded, stale)
        self._facts_in_force(policy.facts)
        _log_expired(loaded)
        self.on_rules()

    def set_inventory(self, inventory: Inventory) -> None:
        """Use these nodes from the next request on."""
        with self._swapping:
            inventory = inventory.with_facts(self.snapshot.policy.facts)
            self.snapshot = self.snapshot._replace(inventory=inventory)
        metrics.NODES.set(len(inventory))

    def set_claims(self, claims: Claims) -> None:
        """Use these claims from the next request on."""
        with self._swapping:
            self.snapshot = self.snapshot._replace(claims=claims)

    def set_namespaces(self, namespaces: NamespaceLabels) -> None:
        """Use these labels of namespaces from the next request on."""
        with self._swapping:
            self.snapshot = self.snapshot._replace(namespaces=namespaces)

    def answer(self, endpoint: Endpoint, body: bytes | bytearray) -> bytes:
        """Return the response body to a review.

        Raises ReviewError if the body is not a review, NotSyncedError while rules or nodes are not known.
        """
        start = perf_counter()
        if not self._synced:
            metrics.ERRORS.labels("not_synced").inc()
            raise NotSyncedError("gpugate does not know the rules and nodes of its cluster yet")
        try:
            review = decode_review(body, mutating=endpoint == "mutate")
        except ReviewError:
            metrics.ERRORS.labels("bad_request").inc()
            raise
        try:
            decision = self._decide(endpoint, review.request)
            answer = encode_decision(review.uid, decision, self._language)
        except ObjectError as error:
            metrics.ERRORS.labels("bad_request").inc()
            return self._errored(review, 400, "malformed object", str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours must cost this one object, not the cluster
            metrics.ERRORS.labels("internal").inc()
            # Type and traceback without the error's message, which may quote the object.
            traceback = "".join(format_tb(error.__traceback__))
            fields = {"uid": printable(review.uid), "kind": printable(review.request.kind)}
            _log.error("failed on an object: %s\n%s", type(error).__name__, traceback, extra=fields)
            return self._errored(
                review, 500, "internal error", f"see the log of gpugate for uid {review.uid}"
            )
        self.decision_log.record(endpoint, review, decision, perf_counter() - start)
        if self.on_denial and not decision.allowed:
            self.on_denial(review, decision.denial.in_language(self._language))
        return answer

    def _errored(self, review: Review, code: int, problem: str, detail: str) -> bytes:
        """Return the response body for an object that cannot be checked."""
        decision = Decision.errored(code, problem, detail, allowed=self._on_error_allow)
        mutating = review.request.mutating
        return encode_decision(review.uid, capped(decision, self._enforcement, mutating=mutating))

    def _facts_in_force(self, facts: Facts) -> None:
        self.decision_log.facts = facts
        metrics.facts_in_force(facts.date)

    def _compile(self, loaded: Loaded) -> Policy:
        return compile_policy(loaded.rules, self._language, self._workloads, self._enforcement)

    def _decide(self, endpoint: Endpoint, request: AdmissionRequest) -> Decision:
        snapshot = self.snapshot
        if request.kind == "ConfigMap" and not request.group and endpoint == "validate":
            rules = snapshot.policy.rules
            return validate_rule(request, rules, self._rules_namespace, time())
        return decide(snapshot, request, time())


def _log_expired(loaded: Loaded) -> None:
    """Log the exemptions of a rule set that have expired."""
    for exemption in loaded.rules.exemptions:
        if exemption.enabled and exemption.expires <= time():
            _log.warning("exemption %s expired at %s and has no effect", exemption.name, exemption.until)
