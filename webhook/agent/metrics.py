"""Metrics of the agent, and the server that Prometheus scrapes.

Their labels are bounded: reasons and facts are constants of this program, errors are those of NVML. The
scrape configuration adds the node.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, make_wsgi_app

from webhook.server.connection import Connection, Connections, protocol_config
from webhook.server.wsgi_adapter import WsgiAdapter

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
    "Failed updates, by NVML error; `kubernetes` if the API server rejected a request or did not answer",
    ("reason",),
    registry=REGISTRY,
)

# Seconds for each step of a client; a well-behaved one takes milliseconds.
_CLIENT_S: Final = 5.0
# Seconds between two requests of a connection; Prometheus scrapes every minute or more often.
_KEEP_ALIVE_S: Final = 75
# Prometheus and the kubelet have one each; beyond the limit, stalled and longest idle ones are closed.
_CONNECTIONS: Final = 64
# Bytes of a request's head; Prometheus sends a few hundred. Bodies are not accepted.
_HEAD_LIMIT: Final = 8 * 2**10


def serve(port: int) -> int:
    """Serve the metrics over plain HTTP in a daemon thread, and return the port; 0 selects any free one.

    Raises OSError if the port is not available.
    """
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listener = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    Thread(target=lambda: asyncio.run(_serve(listener)), name="metrics", daemon=True).start()
    bound: int = listener.getsockname()[1]
    return bound


async def _serve(listener: socket.socket) -> None:
    connections = Connections(_CLIENT_S, _CONNECTIONS)
    with ThreadPoolExecutor(1, "metrics") as pool:
        app = WsgiAdapter(make_wsgi_app(REGISTRY), pool, body_limit=0, body_timeout=_CLIENT_S, bodies_limit=0)
        config = protocol_config(
            app,
            keep_alive=_KEEP_ALIVE_S,
            head_limit=_HEAD_LIMIT,
            log_level=logging.ERROR,  # no line for each client that does not send HTTP
        )
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(config, connections), sock=listener)
        await server.serve_forever()
