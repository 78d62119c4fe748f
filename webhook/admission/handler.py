"""The gate: the policy in force, and a review answered by it. What the HTTP endpoints call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter, time
from traceback import format_tb
from typing import Literal

from rules import (
    DEFAULT_NAMESPACE,
    AdmissionRequest,
    Decision,
    Inventory,
    Language,
    Loaded,
    ObjectError,
    Policy,
    Workloads,
    compile_policy,
    decide,
)
from webhook.admission.decision_log import DecisionLog, shown
from webhook.admission.review import ReviewError, decode_review, encode_decision, encode_failure
from webhook.admission.rule_configmap import judge_rule
from webhook.telemetry import metrics

Endpoint = Literal["mutate", "validate"]

_log = logging.getLogger("gpugate.admission")


class NotSyncedError(ReviewError):
    """The rules and nodes are not known yet. Nobody's fault: the webhook's failurePolicy decides."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What requests are decided by; replaced whole, never changed.

    stale: the rules that are in force as they were before a mistake, which is among `loaded.errors`.
    """

    loaded: Loaded
    policy: Policy
    inventory: Inventory
    stale: frozenset[str] = frozenset()


class AdmissionHandler:
    """Answers AdmissionReviews.

    on_error_allow: whether an object on which gpugate itself fails is let pass. rules_namespace: where the
    ConfigMaps live that are judged as rules. workloads: the kinds that hold pods, where they are others than
    those that ship. A request reads `snapshot` once. on_rules: called when other rules are in force. ledger:
    what is told of decisions.
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
    ) -> None:
        self._on_error_allow = on_error_allow
        self._rules_namespace = rules_namespace
        self._language = language
        self._workloads = workloads
        self.on_rules: Callable[[], None] = lambda: None
        self.ledger = DecisionLog()
        self._swapping = threading.Lock()  # rules and nodes come from different threads
        self._synced = self.ready = True
        self.snapshot = Snapshot(
            loaded, compile_policy(loaded.rules, language, workloads), inventory or Inventory.of([])
        )
        metrics.rules_loaded(loaded)
        _tell_expired(loaded)
        metrics.NODES.set(len(self.snapshot.inventory))

    def shut(self) -> None:
        """Answer no review, and be not ready, until `open`: rules and nodes are still to come."""
        self._synced = self.ready = False

    def open(self) -> None:
        """Be ready, and answer: rules and nodes are known."""
        self._synced = self.ready = True
        self.on_rules()

    @property
    def synced(self) -> bool:
        """Whether it answers."""
        return self._synced

    def put_rules(self, loaded: Loaded, stale: frozenset[str] = frozenset()) -> None:
        """Decide by these rules from the next request on; stale: see Snapshot."""
        policy = compile_policy(loaded.rules, self._language, self._workloads)
        with self._swapping:
            self.snapshot = replace(self.snapshot, loaded=loaded, policy=policy, stale=stale)
        metrics.rules_loaded(loaded, stale)
        _tell_expired(loaded)
        self.on_rules()

    def put_nodes(self, inventory: Inventory) -> None:
        """Decide by these nodes from the next request on."""
        with self._swapping:
            self.snapshot = replace(self.snapshot, inventory=inventory)
        metrics.NODES.set(len(inventory))

    def answer(self, endpoint: Endpoint, body: bytes) -> bytes:
        """Return the body that answers a review.

        Raises ReviewError for a body that is none, NotSyncedError before there is anything to decide by.
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
            answer = encode_decision(review.uid, decision)
        except ObjectError as error:
            metrics.ERRORS.labels("bad_request").inc()
            raise ReviewError(f"`$.request.object`: {error}") from None
        except Exception as error:  # noqa: BLE001 - a bug of ours must cost this one object, not the cluster
            metrics.ERRORS.labels("internal").inc()
            # Where and what, without the error's own words: they may quote the object.
            where = "".join(format_tb(error.__traceback__))
            facts = {"uid": shown(review.uid), "kind": shown(review.request.kind)}
            _log.error("failed on an object: %s\n%s", type(error).__name__, where, extra=facts)
            return encode_failure(review.uid, allowed=self._on_error_allow)
        self.ledger.note(endpoint, review, decision, perf_counter() - start)
        return answer

    def _decide(self, endpoint: Endpoint, request: AdmissionRequest) -> Decision:
        snapshot = self.snapshot
        if request.kind == "ConfigMap" and not request.group and endpoint == "validate":
            rules = snapshot.loaded.rules
            return judge_rule(request, rules, self._rules_namespace, self._language, time())
        return decide(snapshot.policy, snapshot.inventory, request, time())


def _tell_expired(loaded: Loaded) -> None:
    """Log the exemptions of a rule set that have no effect any more."""
    for exemption in loaded.rules.exemptions:
        if exemption.enabled and exemption.expires <= time():
            _log.warning("exemption %s expired at %s and has no effect", exemption.name, exemption.until)
