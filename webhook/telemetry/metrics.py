"""Prometheus metrics. Label values are bounded: no pod, image or namespace names.

Names follow https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

from collections import Counter as Counted
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache, partial
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rules.nodes.driver_lifecycle import end_of_support
from rules.nodes.fleet import GpuNodes, gpu_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rules import Facts, Inventory, Loaded
    from rules.nodes.label_families import LabelNames

# The bound of the series of GPU nodes, whose labels people write.
_MAX_KINDS_OF_NODES: Final = 100

REGISTRY: Final = CollectorRegistry()
_OTHER_NODES: Final = ("other", "other", "other")
_EXPOSING: Final = Lock()  # a scrape reads all GPU nodes of one inventory
_counter = partial(Counter, registry=REGISTRY)
_gauge = partial(Gauge, registry=REGISTRY)

# Up to timeoutSeconds of the webhook configurations, 5; a decision takes some hundred microseconds.
_BUCKETS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
)

REQUESTS: Final = _counter(
    "gpugate_admission_requests_total",
    "Admission requests answered. enforcement_action: of --enforcement-action",
    ("endpoint", "kind", "operation", "allowed", "enforcement_action"),
)
WITHHELD: Final = _counter(
    "gpugate_withheld_effects_total",
    "Admission requests that would be denied or patched (effect: deny, patch) without the cap of "
    "--enforcement-action",
    ("endpoint", "kind", "operation", "effect", "enforcement_action"),
)
ENFORCEMENT: Final = _gauge(
    "gpugate_enforcement_action",
    "1 for the action that caps all rules: deny if they are enforced, otherwise warn or dryrun",
    ("action",),
)
DURATION: Final = Histogram(
    "gpugate_admission_duration_seconds",
    "Seconds from the body of an admission request to its response",
    ("endpoint", "kind", "operation", "allowed"),
    buckets=_BUCKETS,
    registry=REGISTRY,
)
RULE_RESULTS: Final = _counter(
    "gpugate_rule_violations_total",
    "Violations by rule, action (deny, warn, dryrun) and basis (fact, policy, limit); a pod is reviewed at "
    "both endpoints. rule_action: the action without the cap of --enforcement-action",
    ("endpoint", "rule", "action", "basis", "rule_action"),
)
CUDA_VERSIONS: Final = _counter(
    "gpugate_cuda_versions_total",
    "Containers checked, by the CUDA version that they need and its source; `unknown` if there is none, "
    "`other` if it is no known toolkit",
    ("endpoint", "source", "cuda"),
)
ERRORS: Final = _counter(
    "gpugate_errors_total",
    "Requests that failed: bad_request is an invalid request, internal is a bug of gpugate, not_synced came "
    "before the first sync of rules and nodes",
    ("reason",),
)
UNAUTHENTICATED: Final = _counter(
    "gpugate_unauthenticated_reviews_total",
    "Reviews rejected with 401: without a certificate of --client-ca (certificate), or without a valid token "
    "for --token-audience (missing, invalid, expired, key, audience, attestation); not_synced: before the "
    "first read of the cluster's keys",
    ("reason",),
)
TOKEN_KEYS_READ: Final = _gauge(
    "gpugate_token_keys_read_timestamp_seconds",
    "Time of the last read of the cluster's keys for --token-audience; 0 if there was none",
)
RULE_MATCHES: Final = _counter(
    "gpugate_rule_matches_total",
    "Reviews in which a rule matched a container; a pod is reviewed at both endpoints",
    ("endpoint", "rule"),
)
READY: Final = _gauge(
    "gpugate_ready",
    "1 if /readyz reports ready; 0 before rules, nodes and certificate are loaded, and while draining",
)
DENIAL_EVENTS: Final = _counter(
    "gpugate_denial_events_total",
    "Events of --denial-events on workloads: written, failed, or dropped because too many waited",
    ("result",),
)
WEBHOOKS: Final = _gauge(
    "gpugate_webhooks",
    "Webhooks of gpugate for pods and workloads, by configuration; 0 if gpugate is switched off",
    ("configuration",),
)
RULES: Final = _gauge(
    "gpugate_rules",
    "Rules by state: enabled, disabled, refused (invalid), or stale (invalid, last valid version in force)",
    ("state",),
)
RULE_STALE: Final = _gauge(
    "gpugate_rule_stale",
    "1 for each rule whose last valid version is in force because the current one is invalid",
    ("rule",),
)
FACTS_AGE: Final = _gauge(
    "gpugate_facts_age_seconds",
    "Age of the facts about drivers, GPUs and images that are in force: since the day they were looked up",
)
NODES: Final = _gauge("gpugate_inventory_nodes", "Nodes in the inventory that pods are checked against")
GPU_NODES: Final = _gauge(
    "gpugate_gpu_nodes",
    "GPU nodes by driver branch, CUDA version of the driver (`>=13.5`: its branch is newer than known ones) "
    f"and GPU model. At most {_MAX_KINDS_OF_NODES} series: `other` has the nodes of further ones",
    ("driver_branch", "cuda", "gpu"),
)
SUPPORT_ENDS: Final = _gauge(
    "gpugate_driver_support_end_timestamp_seconds",
    "Time when NVIDIA's support of a driver branch of GPU nodes ends or ended; absent if not announced",
    ("driver_branch",),
)
WATCH_HEARD: Final = _gauge(
    "gpugate_watch_heard_timestamp_seconds",
    "Time of the last list or watch response for a resource; `nodes` is the age of the inventory",
    ("resource",),
)
WATCH_RESTARTS: Final = _counter(
    "gpugate_watch_restarts_total",
    "Watch requests that ended, by resource and reason; `ended` is normal, every five minutes",
    ("resource", "reason"),
)
LOG_LINES_DROPPED: Final = _counter(
    "gpugate_log_lines_dropped_total",
    "Log lines dropped because the output was full or not being read",
)
CERTIFICATE_EXPIRY: Final = _gauge(
    "gpugate_certificate_expiry_timestamp_seconds",
    "Expiry time of a certificate: `serving`, the served one; `ca`, the CA that signs the next one, or the "
    "last certificate in the served chain",
    ("certificate",),
)


@cache
def duration_of(endpoint: str, kind: str, operation: str, allowed: str) -> Histogram:
    """Return the histogram of such requests, cached: the lookup costs more than counting."""
    return DURATION.labels(endpoint, kind, operation, allowed)


@lru_cache(maxsize=4096)
def counter_of(metric: Counter, *labels: str) -> Counter:
    """Return a metric's counter for these labels, cached."""
    return metric.labels(*labels)


def rules_loaded(loaded: Loaded, stale: frozenset[str] = frozenset()) -> None:
    """Update the rule gauges for a rule set in force. stale: names of its stale rules."""
    fresh = [rule for rule in loaded.rules if rule.name not in stale]
    in_force = {rule.name for rule in loaded.rules}
    refused = {error.rule or str(error.location) for error in loaded.errors} - in_force
    enabled = sum(rule.enabled for rule in fresh)
    RULES.labels("enabled").set(enabled)
    RULES.labels("disabled").set(len(fresh) - enabled)
    RULES.labels("stale").set(len(stale))
    RULES.labels("refused").set(len(refused))
    RULE_STALE.clear()
    for name in stale:
        RULE_STALE.labels(name).set(1)


def facts_in_force(date: str) -> None:
    """Report the age of facts from now on. date: YYYY-MM-DD, in UTC."""
    looked_up = datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()
    FACTS_AGE.set_function(lambda: max(time() - looked_up, 0.0))


def certificate_seen(which: Literal["serving", "ca"], expires: datetime) -> None:
    """Update the expiry time of a certificate."""
    CERTIFICATE_EXPIRY.labels(which).set(expires.timestamp())


def exposition(inventory: Inventory, families: Sequence[LabelNames]) -> bytes:
    """Return all metrics in the Prometheus text format, with the GPU nodes of an inventory.

    families: the labels that rules read.
    """
    counted = gpu_nodes(inventory, families)
    with _EXPOSING:
        _set_gpu_nodes(counted, inventory.facts)
        return generate_latest(REGISTRY)


def _set_gpu_nodes(counted: Counted[GpuNodes], facts: Facts) -> None:
    GPU_NODES.clear()
    SUPPORT_ENDS.clear()
    series = Counted[tuple[str, str, str]]()
    for at, (kind, number) in enumerate(counted.most_common()):
        series[kind.labels if at < _MAX_KINDS_OF_NODES - 1 else _OTHER_NODES] += number
    for labels, number in series.items():
        GPU_NODES.labels(*labels).set(number)
    for branch in {kind.branch for kind in counted}:
        if branch and (end := end_of_support(facts, branch)):
            SUPPORT_ENDS.labels(branch).set(_after_month(end))


def _after_month(month: str) -> float:
    """Return the seconds since the epoch of the end of a month such as 2026-06."""
    in_next = datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC) + timedelta(days=31)
    return in_next.replace(day=1).timestamp()


def forget_watch(resource: str) -> None:
    """Drop the age of a resource that is no longer watched."""
    with suppress(KeyError):
        WATCH_HEARD.remove(resource)
