"""Pods that are created through the API server, at a rate."""

from __future__ import annotations

import itertools
import json
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from certs.kubernetes_api import KubernetesError
from tests.e2e.installed import TEAM, VCUDA_MEMORY
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import pod
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.cluster import ControlPlane

# Creations a second, and by how many clients: each waits for its answer before it asks again.
RATE: Final = 50.0
CLIENTS: Final = 8
# One creation of so many is no dry run.
REAL: Final = 25
PODS: Final = f"/api/v1/namespaces/{TEAM}/pods"


class Clients:
    """Threads that send requests until the block ends, each in its slots."""

    def __init__(self, *asking: Callable[[], None]) -> None:
        self.stopping = threading.Event()
        self._threads = [threading.Thread(target=ask) for ask in asking]

    def turns(self, rate: float, first: int = 0, step: int = 1) -> Iterator[int]:
        """Yield each so many-th turn of so many a second, when it is due."""
        for turn in itertools.count(first, step):
            if self.stopping.wait(max(0.0, self._start + turn / rate - time.monotonic())):
                return
            yield turn

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()


class Load(Clients):
    """Creates pods, until its block ends: dry runs, and some that stay.

    rate: creations a second. failures: what the API server said instead of yes.
    """

    def __init__(self, control_plane: ControlPlane, rate: float = RATE) -> None:
        super().__init__(*(partial(self._create, number) for number in range(CLIENTS)))
        self._calls, self._rate = [0] * CLIENTS, rate
        self.failures: list[str] = []
        self._name = f"load-{uuid4().hex[:12]}"  # no earlier load of the cluster has it
        self._kubeconfig = str(control_plane.kubeconfig)

    @property
    def calls(self) -> int:
        """How many creations were answered."""
        return sum(self._calls)

    def go_on(self) -> None:
        """Return when as many pods were created as there are clients, all begun from now on."""
        before = self.calls
        eventually(lambda: self.calls >= before + 2 * CLIENTS)

    def create(self, api: ClusterApi, number: int) -> None:
        """Create a pod."""
        document: dict[str, Any] = json.loads(pod(f"{self._name}-{number}", {VCUDA_MEMORY: "8"}))
        try:
            api.create(PODS if number % REAL == 0 else f"{PODS}?dryRun=All", document)
        except KubernetesError as error:
            self.failures.append(str(error))

    def _create(self, client: int) -> None:
        api = ClusterApi.of_kubeconfig(self._kubeconfig)
        for number in self.turns(self._rate, client, CLIENTS):
            self.create(api, number)
            self._calls[client] += 1
        api.close()
