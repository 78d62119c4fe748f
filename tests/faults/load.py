"""Honest load while things break: what an API server sends, and pods created through a real one."""

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
from tests.bench.client import unverified
from tests.e2e.daemon import HOST
from tests.e2e.installed import TEAM
from tests.e2e.load import Clients
from tests.faults.probes import CREATIONS, Creation, Probe
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Reviews a second in all, and by how many connections; creations a second.
RATE: Final = 40.0
CONNECTIONS: Final = 4
CREATIONS_RATE: Final = 4.0
# Seconds for an answer: timeoutSeconds of our webhook configurations.
_TIMEOUT_S: Final = 5.0
# Seconds until what was not answered is sent again, as controllers do.
_AGAIN_S: Final = 0.25
_PODS: Final = f"/api/v1/namespaces/{TEAM}/pods?dryRun=All"

# What became of a request. REFUSED: the gate said to come again, by 429 or 503.
RIGHT, WRONG, REFUSED, UNANSWERED = "right", "wrong", "refused", "not answered"


@dataclass
class Tally:
    """What became of the requests; one that was not answered counts again when it is sent again.

    wrong: by what they were about. gaps: seconds from a failure until the same question was answered.
    open: questions that are still to be answered.
    """

    became: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, became: str, about: str) -> None:
        """Count one."""
        with self.lock:
            self.became[became] += 1
            if became == WRONG:
                self.wrong[about] += 1

    def begin(self) -> None:
        """Count a question that is still to be answered."""
        with self.lock:
            self.open += 1

    def end(self, gap_s: float) -> None:
        """Count it as answered, after so many seconds."""
        with self.lock:
            self.open -= 1
            self.gaps.append(gap_s)


class Client:
    """An API server's way to a webhook: a connection that is kept, and looked at before it is used."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        """Take where; context: of a client that verifies, at each request by a new handshake."""
        self._fresh = context is not None
        self._connection = http.client.HTTPSConnection(
            HOST, port, timeout=_TIMEOUT_S, context=context or unverified()
        )

    def ask(self, probe: Probe) -> str:
        """Send a review; return what became of it."""
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
        """Close its connection."""
        self._connection.close()


def _has_ended(connection: socket.socket | None) -> bool:
    """Tell whether the other side closed a kept connection: Go's client sees that too before it uses one."""
    if connection is None:
        return False
    with suppress(OSError, ValueError):
        return bool(select.select([connection], [], [], 0)[0])
    return True


class Load(Clients):
    """Asks until its block ends, of which the last question is answered, if one can be.

    reviews, creations: what became of them. kubeconfig: of the API server to create pods by; None for none.
    """

    def __init__(
        self,
        port: int,
        kubeconfig: Path | None,
        probes: Sequence[Probe],
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Take where the gate is, and what it is asked; for context, see Client."""
        self._port, self._probes, self._context = port, probes, context
        self.reviews, self.creations = Tally(), Tally()
        asking = [partial(self._ask, each) for each in range(CONNECTIONS)]
        if kubeconfig is not None:
            asking.append(partial(self._create, ClusterApi.of_kubeconfig(str(kubeconfig))))
        super().__init__(*asking)

    @property
    def settled(self) -> bool:
        """Whether all that was sent again is answered."""
        return not (self.reviews.open or self.creations.open)

    def _ask(self, place: int) -> None:
        client = Client(self._port, self._context)
        for turn in self.turns(RATE, place, CONNECTIONS):
            # Each connection begins elsewhere, or it would only ever ask some of them.
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
            became = ask()
            if became:
                tally.note(became, about)
            if became in {RIGHT, WRONG, ""}:
                break
            if not failed:
                failed = True
                tally.begin()
            if self.stopping.wait(_AGAIN_S):
                return
        if failed:
            tally.end(time.monotonic() - first)


def _created(api: ClusterApi, creation: Creation, name: str) -> str:
    """Create a pod; return what became of it, nothing where the API server itself is away."""
    try:
        created = api._ask("POST", _PODS, creation.document(name))
    except KubernetesError as error:
        said = str(error)
        if "failed calling webhook" in said:
            return UNANSWERED
        if "denied the request: gpugate" in said:
            return RIGHT if creation.refused else WRONG
        return ""
    return RIGHT if creation.right(created) else WRONG
