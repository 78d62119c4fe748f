"""The gate: the policy in force, and a review answered by it. What the HTTP endpoints call."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Literal

from rules.decide import decide
from rules.inventory import Inventory
from rules.load import Loaded
from rules.model import Decision, Language
from rules.patch import ObjectError
from rules.policy import Policy, compile_policy
from webhook import metrics
from webhook.review import Review, ReviewError, decode_review, encode_decision, encode_failure

Endpoint = Literal["mutate", "validate"]

_log = logging.getLogger("gpugate.admission")
# From it the kind that stands in a metric's label is bounded: whatever else is asked is `other`.
_KINDS: Final = frozenset(
    [
        "Pod",
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "ReplicaSet",
        "Job",
        "CronJob",
        "ReplicationController",
        "PodTemplate",
        "ConfigMap",
    ]
)
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What requests are decided by; replaced whole, never changed."""

    loaded: Loaded
    policy: Policy
    inventory: Inventory


class Gate:
    """Answers AdmissionReviews.

    on_error_allow: whether an object on which gpugate itself fails is let pass. A request reads `snapshot`
    once.
    """

    def __init__(
        self,
        loaded: Loaded,
        language: Language = Language.EN,
        inventory: Inventory | None = None,
        *,
        on_error_allow: bool = False,
    ) -> None:
        self._on_error_allow = on_error_allow
        self.ready = True
        policy = compile_policy(loaded.rules, language)
        self.snapshot = Snapshot(loaded, policy, inventory or Inventory.of([]))
        metrics.rules_loaded(loaded)

    def answer(self, endpoint: Endpoint, body: bytes) -> bytes:
        """Return the body that answers a review. Raises ReviewError for a body that is none."""
        start = perf_counter()
        try:
            review = decode_review(body, mutating=endpoint == "mutate")
        except ReviewError:
            metrics.ERRORS.labels("bad_request").inc()
            raise
        try:
            snapshot = self.snapshot
            decision = decide(snapshot.policy, snapshot.inventory, review.request)
            answer = encode_decision(review.uid, decision)
        except ObjectError as error:
            metrics.ERRORS.labels("bad_request").inc()
            raise ReviewError(f"`$.request.object`: {error}") from None
        except Exception:  # noqa: BLE001 - a bug of ours must cost this one object, not the cluster
            metrics.ERRORS.labels("internal").inc()
            _log.exception("failed on an object", extra={"uid": review.uid, "kind": review.request.kind})
            return encode_failure(review.uid, allowed=self._on_error_allow)
        self._observe(endpoint, review, decision, perf_counter() - start)
        return answer

    @staticmethod
    def _observe(endpoint: Endpoint, review: Review, decision: Decision, seconds: float) -> None:
        request = review.request
        kind = request.kind if request.kind in _KINDS else "other"
        operation = request.operation if request.operation in _OPERATIONS else "other"
        allowed = "true" if decision.allowed else "false"
        metrics.REQUESTS.labels(endpoint, kind, operation, allowed).inc()
        metrics.DURATION.labels(endpoint, kind, operation, allowed).observe(seconds)
        for source in decision.cuda_sources:
            metrics.CUDA_SOURCES.labels(source).inc()
        for violation in decision.violations:
            metrics.RULE_RESULTS.labels(violation.rule, violation.action.value).inc()
        if not _log.isEnabledFor(logging.INFO):
            return
        facts: dict[str, Any] = {
            "uid": review.uid,
            "endpoint": endpoint,
            "kind": request.kind,
            "namespace": request.namespace,
            "object": review.name,
            "operation": request.operation,
            "dryRun": review.dry_run,
            "rules": list(decision.rules),
            "verdict": "allow" if decision.allowed else "deny",
            "edits": len(decision.patch),
            "microseconds": round(seconds * 1e6),
        }
        _log.info("%s %s %s/%s", facts["verdict"], request.kind, request.namespace, review.name, extra=facts)
