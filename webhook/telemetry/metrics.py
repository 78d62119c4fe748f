"""What Prometheus reads. Labels are bounded: no pod, image or namespace names.

Names follow https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from certs.authority import validity_of

if TYPE_CHECKING:
    from rules import Loaded

REGISTRY: Final = CollectorRegistry()
_counter = partial(Counter, registry=REGISTRY)
_gauge = partial(Gauge, registry=REGISTRY)

# Up to the webhook configurations' timeoutSeconds of 5; a decision takes some hundred microseconds.
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
    "Admission requests answered",
    ("endpoint", "kind", "operation", "allowed"),
)
DURATION: Final = Histogram(
    "gpugate_admission_duration_seconds",
    "Time from an admission request's body to its answer",
    ("endpoint", "kind", "operation", "allowed"),
    buckets=_BUCKETS,
    registry=REGISTRY,
)
RULE_RESULTS: Final = _counter(
    "gpugate_rule_violations_total",
    "Violations found, by rule and what followed (deny, warn, dryrun); a pod is reviewed at both endpoints",
    ("endpoint", "rule", "action"),
)
CUDA_SOURCES: Final = _counter(
    "gpugate_cuda_versions_total",
    "Containers judged, by what told their CUDA version; `unknown` where nothing did",
    ("endpoint", "source"),
)
ERRORS: Final = _counter(
    "gpugate_errors_total",
    "Requests that could not be decided: bad_request is the sender's fault, internal is a bug, not_synced "
    "came before rules and nodes were known",
    ("reason",),
)
RULE_MATCHES: Final = _counter(
    "gpugate_rule_matches_total",
    "Reviews in which a rule held for some container; a pod is reviewed at both endpoints",
    ("endpoint", "rule"),
)
READY: Final = _gauge(
    "gpugate_ready",
    "1 where /readyz says so; 0 before rules, nodes and certificate are there, and while draining",
)
WEBHOOKS: Final = _gauge(
    "gpugate_webhooks",
    "Our webhooks for pods and workloads, by their configuration; 0 where gpugate is switched off",
    ("configuration",),
)
RULES: Final = _gauge(
    "gpugate_rules",
    "Rules by state: enabled, disabled, refused for a mistake, or stale: in force as before the mistake",
    ("state",),
)
RULE_STALE: Final = _gauge(
    "gpugate_rule_stale",
    "1 for each rule that is in force as it was before a mistake",
    ("rule",),
)
NODES: Final = _gauge("gpugate_inventory_nodes", "Nodes that pods are judged against")
WATCH_HEARD: Final = _gauge(
    "gpugate_watch_heard_timestamp_seconds",
    "When the API server last told anything of a resource; `nodes` is the age of the inventory",
    ("resource",),
)
WATCH_RESTARTS: Final = _counter(
    "gpugate_watch_restarts_total",
    "Requests of a watch that ended, by resource and reason; `ended` is as it should be, every five minutes",
    ("resource", "reason"),
)
LOG_LINES_DROPPED: Final = _counter(
    "gpugate_log_lines_dropped_total",
    "Log lines that nobody took: a full disk, or a reader that stands still",
)
CERTIFICATE_EXPIRY: Final = _gauge(
    "gpugate_certificate_expiry_timestamp_seconds",
    "When a certificate expires: `serving`, the one that is served; `ca`, the one that signs the next, or "
    "the last in the served chain",
    ("certificate",),
)


@cache
def admissions_of(endpoint: str, kind: str, operation: str, allowed: str) -> tuple[Counter, Histogram]:
    """Return the counter and the durations of such requests; looking them up costs more than counting."""
    labels = (endpoint, kind, operation, allowed)
    return REQUESTS.labels(*labels), DURATION.labels(*labels)


@lru_cache(maxsize=4096)
def counter_of(metric: Counter, *labels: str) -> Counter:
    """Return a metric's counter for some labels, likewise."""
    return metric.labels(*labels)


def rules_loaded(loaded: Loaded, stale: frozenset[str] = frozenset()) -> None:
    """Count each rule of a rule set that was put into force once; stale: the names of those that are."""
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


def certificate_seen(which: Literal["serving", "ca"], certificate_pem: bytes) -> None:
    """Tell when the first certificate of a PEM expires."""
    CERTIFICATE_EXPIRY.labels(which).set(validity_of(certificate_pem).not_after.timestamp())


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
