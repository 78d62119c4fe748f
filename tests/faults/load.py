"""Load during a fault: reviews as an API server sends them, and pods created through a real one."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from certs.kubernetes_api import KubernetesError
from tests.e2e.daemon import HOST
from tests.e2e.installed import TEAM
from tests.e2e.load import Clients
from tests.faults.probes import CREATIONS, Creation, Probe
from tests.support.tls import unverified
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Reviews a second in all, and by how many connections; creations a second.
RATE: Final = 40.0
CONNECTIONS: Final = 4
CREATIONS_RATE: Final = 4.0
# Seconds to wait for an answer: timeoutSeconds in the manifests.
_TIMEOUT_S: Final = 5.0
# Seconds until a request that was not answered is retried, as controllers do.
_AGAIN_S: Final = 0.25
_PODS: Final = f"/api/v1/namespaces/{TEAM}/pods?dryRun=All"

# The result of a request. REFUSED: gpugate asked for a retry, with 429 or 503.
RIGHT, WRONG, REFUSED, UNANSWERED = "right", "wrong", "refused", "not answered"


@dataclass
class Tally:
    """Counts of results; a request that is retried counts again.

    wrong: by topic. gaps: seconds from a failure until the same request was answered. open: number of
    requests that are still retried.
    """

    results: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, result: str, about: str) -> None:
        """Count a result."""
        with self.lock:
            self.results[result] += 1
            if result == WRONG:
                self.wrong[about] += 1

    def begin(self) -> None:
        """Count a request that is retried."""
        with self.lock:
            self.open += 1

    def end(self, gap_s: float) -> None:
        """Count a retried request as answered, after so many seconds."""
        with self.lock:
            self.open -= 1
            self.gaps.append(gap_s)


class Client:
    """A webhook client like the API server's: a persistent connection that is checked before each use."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        """Take the port. context: verifies the certificate in a new handshake for each request."""
        self._fresh = context is not None
        self._connection = http.client.HTTPSConnection(
            HOST, port, timeout=_TIMEOUT_S, context=context or unverified()
        )

    def ask(self, probe: Probe) -> str:
        """Send a review; return the result."""
        connection = self._connection
        try:
            if self._fresh or _has_ended(connection.sock):
                connection.close()
            connection.request("POST", probe.path, probe.body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return UNANSWERED
        if response.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
            return REFUSED
        return RIGHT if response.status == HTTPStatus.OK and probe.right(answer) else WRONG

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _has_ended(connection: socket.socket | None) -> bool:
    """Return whether the peer has closed a connection; Go's HTTP client also checks this before reuse."""
    if connection is None:
        return False
    with suppress(OSError, ValueError):
        return bool(select.select([connection], [], [], 0)[0])
    return True


class Load(Clients):
    """Sends requests until its block ends; the last ones are answered if possible.

    reviews, creations: their results. kubeconfig: of the API server that creates pods; None for no pods.
    """

    def __init__(
        self,
        port: int,
        kubeconfig: Path | None,
        probes: Sequence[Probe],
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Take the port of gpugate and the reviews to send; for context, see Client."""
        self._port, self._probes, self._context = port, probes, context
        self.reviews, self.creations = Tally(), Tally()
        asking = [partial(self._ask, number) for number in range(CONNECTIONS)]
        if kubeconfig is not None:
            asking.append(partial(self._create, ClusterApi.of_kubeconfig(str(kubeconfig))))
        super().__init__(*asking)

    @property
    def settled(self) -> bool:
        """Whether all retried requests are answered."""
        return not (self.reviews.open or self.creations.open)

    def _ask(self, place: int) -> None:
        client = Client(self._port, self._context)
        for turn in self.turns(RATE, place, CONNECTIONS):
            # Each connection starts at another probe; otherwise it would only send some of them.
            probe = self._probes[(turn // CONNECTIONS + place) % len(self._probes)]
            self._until_answered(self.reviews, probe.about, partial(client.ask, probe))
        client.close()

    def _create(self, api: ClusterApi) -> None:
        for turn in self.turns(CREATIONS_RATE):
            creation, name = CREATIONS[turn % len(CREATIONS)], f"load-{turn}"
            self._until_answered(self.creations, creation.about, partial(_created, api, creation, name))
        api.close()

    def _until_answered(self, tally: Tally, about: str, ask: Callable[[], str]) -> None:
        first = time.monotonic()
        failed = False
        while True:
            result = ask()
            if result:
                tally.count(result, about)
            if result in {RIGHT, WRONG, ""}:
                break
            if not failed:
                failed = True
                tally.begin()
            if self.stopping.wait(_AGAIN_S):
                return
        if failed:
            tally.end(time.monotonic() - first)


def _created(api: ClusterApi, creation: Creation, name: str) -> str:
    """Create a pod; return the result, '' if the API server itself is not reachable."""
    try:
        created = api._request("POST", _PODS, creation.document(name))
    except KubernetesError as error:
        message = str(error)
        if "failed calling webhook" in message:
            return UNANSWERED
        if "denied the request:" in message:
            return RIGHT if creation.denied else WRONG
        return ""
    return RIGHT if creation.right(created) else WRONG
