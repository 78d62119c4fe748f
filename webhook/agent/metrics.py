"""Metrics of the agent, and the server that Prometheus scrapes.

Their labels are bounded: reasons and facts are constants of this program, errors are constants of NVML. The
scrape configuration adds the node.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, make_wsgi_app

from webhook.server.plain_http import serve_plain

REGISTRY: Final = CollectorRegistry()

CONTRADICTIONS: Final = Gauge(
    "gpugate_agent_contradictions",
    "1 while labels of other owners contradict NVML, by reason of the Event and by fact",
    ("reason", "fact"),
    registry=REGISTRY,
)
GPUS: Final = Gauge("gpugate_agent_gpus", "GPUs in the last successful NVML probe", registry=REGISTRY)
PROBED: Final = Gauge(
    "gpugate_agent_probe_timestamp_seconds",
    "Time of the last successful NVML probe; 0 before the first",
    registry=REGISTRY,
)
PUBLISHED: Final = Gauge(
    "gpugate_agent_publish_timestamp_seconds",
    "Time when the node's labels were last verified or updated; 0 before the first",
    registry=REGISTRY,
)
FAILURES: Final = Counter(
    "gpugate_agent_failures_total",
    "Failed updates, by NVML error; `hang` or `crash` of NVML; `kubernetes` if the API server rejected a "
    "request or did not answer",
    ("reason",),
    registry=REGISTRY,
)


def serve(port: int) -> int:
    """Serve the metrics over plain HTTP in a daemon thread, and return the port; 0 selects any free one.

    Raises OSError if the port is not available.
    """
    return serve_plain(make_wsgi_app(REGISTRY), port)
