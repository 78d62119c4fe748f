"""The agent's own metrics, and the server that Prometheus reads them from.

Their labels are bounded: reasons and facts are words of this program, errors are NVML's. Of which node they
are, the scrape says.
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
    "1 while labels that others set differ from NVML, by the reason of the Event and what they are about",
    ("reason", "fact"),
    registry=REGISTRY,
)
GPUS: Final = Gauge("gpugate_agent_gpus", "GPUs of which NVML told last", registry=REGISTRY)
PROBED: Final = Gauge(
    "gpugate_agent_probe_timestamp_seconds",
    "When NVML last told of driver and GPUs; 0 before it first does",
    registry=REGISTRY,
)
PUBLISHED: Final = Gauge(
    "gpugate_agent_publish_timestamp_seconds",
    "When the node's labels were last found right or put right; 0 before they first are",
    registry=REGISTRY,
)
FAILURES: Final = Counter(
    "gpugate_agent_failures_total",
    "Looks that failed, by NVML's error; `kubernetes` where the API server refused or did not answer",
    ("reason",),
    registry=REGISTRY,
)

# Seconds for each step of a client, which an honest one takes in milliseconds.
_CLIENT_S: Final = 5.0
# Seconds between two requests of a connection; Prometheus scrapes every minute or more often.
_KEEP_ALIVE_S: Final = 75
# Prometheus and the kubelet have one each; beyond it, those that stall or wait longest are closed.
_CONNECTIONS: Final = 64
# Bytes of a request's head; Prometheus sends a few hundred. Nobody has to send a body.
_HEAD_LIMIT: Final = 8 * 2**10


def serve(port: int) -> int:
    """Serve the metrics in a thread of its own, over plain HTTP, and return the port; 0 takes any free one.

    Raises OSError where the port cannot be had.
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
            log_level=logging.ERROR,  # no line for each stranger who speaks no HTTP
        )
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(config, connections), sock=listener)
        await server.serve_forever()
