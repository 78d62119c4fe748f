"""A Service for replicas, on a machine without kubelet and kube-proxy."""

from __future__ import annotations

import asyncio
import contextlib
import http
import itertools
import threading
from typing import TYPE_CHECKING, Final, Self

import yaml

from tests.e2e.daemon import HOST
from tests.e2e.serve_process import PATIENCE_S, ask, eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.cluster import ControlPlane

# Seconds between two checks of readiness, and until all nodes know it.
_LOOK_S: Final = 0.2
_HEARD_S: Final = 1.0


class Service:
    """One address for several servers, like kube-proxy: each TCP connection goes to the next ready one.

    That one is no longer ready is heard of a second late. port: where it listens. A context manager.
    """

    def __init__(self, port: int, ports: Sequence[int]) -> None:
        self._port = port
        self._ports = ports
        self._ready: list[int] = []
        self._turns = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(PATIENCE_S)
        eventually(lambda: len(self._ready) == len(self._ports))
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, HOST, self._port)
        self._looking = [asyncio.create_task(self._look(port)) for port in self._ports]

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, port: int) -> None:
        while True:
            status, _ = await asyncio.to_thread(ask, port, "/readyz")
            if status == http.HTTPStatus.OK and port not in self._ready:
                self._ready.append(port)
            elif status != http.HTTPStatus.OK and port in self._ready:
                await asyncio.sleep(_HEARD_S)
                self._ready.remove(port)
            await asyncio.sleep(_LOOK_S)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand bytes to and fro until one side ends."""
        # Also of the end of the test: start_server reports a cancelled handler as a failed one.
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            port = self._ready[next(self._turns) % len(self._ready)]
            there = await asyncio.open_connection(HOST, port)
            with contextlib.closing(there[1]):
                ways = (_pass(reader, there[1]), _pass(there[0], writer))
                tasks = [asyncio.create_task(way) for way in ways]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()


class Endpoints:
    """The endpoints of the Service `gpugate`: the ready ones of several servers at one address.

    An API server with aggregator routing chooses among them itself. A context manager. ports: of the servers.
    """

    def __init__(self, cluster: ControlPlane, address: str, ports: Sequence[int]) -> None:
        self._cluster, self._address, self._ports = cluster, address, ports
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self.ready: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: len(self.ready) == len(self._ports))
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(_LOOK_S):
            ready = [port for port in self._ports if ask(port, "/readyz")[0] == http.HTTPStatus.OK]
            if ready != self.ready:
                objects = [*map(self._slice, self._ports, (port in ready for port in self._ports))]
                self._cluster.kubectl(
                    "apply", "-f", "-", input=yaml.safe_dump_all([self._older(ready), *objects])
                )
                self.ready = ready

    def _metadata(self, name: str) -> dict[str, object]:
        # Without the second label, a controller would copy the older kind into slices of its own.
        labels = {"kubernetes.io/service-name": "gpugate", "endpointslice.kubernetes.io/managed-by": "tests"}
        return {"name": name, "namespace": "gpugate", "labels": labels}

    def _older(self, ready: list[int]) -> dict[str, object]:
        """Return the kind that older API servers choose from."""
        subsets = [
            {"addresses": [{"ip": self._address}], "ports": [{"name": "https", "port": port}]}
            for port in ready
        ]
        return {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": self._metadata("gpugate"),
            "subsets": subsets,
        }

    def _slice(self, port: int, ready: bool) -> dict[str, object]:
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": self._metadata(f"gpugate-{port}"),
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [self._address], "conditions": {"ready": ready}}],
        }
