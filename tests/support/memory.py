"""In-memory API server: raw objects, resourceVersions, conflicts; called directly or over HTTP."""

from __future__ import annotations

import copy
import json
import threading
from base64 import b64decode
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import jsonpatch
import yaml

from certs.bundle import certificates_in
from certs.kubernetes_api import Conflict, KubernetesError, NotFound

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
CONFIGURATIONS = tuple(f"/apis/admissionregistration.k8s.io/v1/{kind}/gpugate" for kind in KINDS)
SECRETS = "/api/v1/namespaces/gpugate/secrets"
SECRET = f"{SECRETS}/gpugate-certs"


class Memory:
    """Objects by path. before: called before each call with its method and path; may raise or write."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.before: Callable[[str, str], None] = lambda *_: None
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._lock = threading.RLock()
        self._version = 0

    def put(self, path: str, document: dict[str, Any]) -> None:
        """Store an object as a new version."""
        with self._lock:
            self._version += 1
            name = {"name": path.rpartition("/")[2]}
            metadata = name | document.get("metadata", {}) | {"resourceVersion": str(self._version)}
            self.objects[path] = copy.deepcopy(document) | {"metadata": metadata}

    def now(self) -> datetime:
        """Return the time of its clock."""
        return self.clock()

    def get(self, path: str) -> dict[str, Any]:
        """Return a copy of the object."""
        self._called("GET", path)
        with self._lock:
            if path not in self.objects:
                raise NotFound(f"GET {path}: 404 not found")
            return copy.deepcopy(self.objects[path])

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Store a new object under its name."""
        self._called("POST", path)
        where = f"{path}/{document['metadata']['name']}"
        with self._lock:
            if where in self.objects:
                raise Conflict(f"POST {path}: 409 already exists")
            self.put(where, document)

    def replace(self, path: str, document: dict[str, Any]) -> None:
        """Replace the object with the same resourceVersion."""
        self._called("PUT", path)
        self._swap("PUT", path, document)

    def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply the operations; an old resourceVersion in the result is a conflict."""
        self._called("PATCH", path)
        with self._lock:
            if path not in self.objects:
                raise NotFound(f"PATCH {path}: 404 not found")
            self._swap("PATCH", path, jsonpatch.apply_patch(self.objects[path], operations))

    def _called(self, method: str, path: str) -> None:
        self.calls.append(f"{method} {path.rpartition('/')[2]}")
        self.before(method, path)

    def _swap(self, method: str, path: str, document: dict[str, Any]) -> None:
        with self._lock:
            stored = self.objects.get(path)
            if stored is None:
                raise NotFound(f"{method} {path}: 404 not found")
            if document["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
                raise Conflict(f"{method} {path}: 409 the object has been modified")
            self.put(path, document)


def webhook(name: str, **client: Any) -> dict[str, Any]:
    """Return a webhook with this name; client: fields of its clientConfig."""
    service = {"name": "gpugate", "namespace": "gpugate", "path": "/"}
    return {"name": name, "clientConfig": {"service": service} | client, "newField": ["unknown to models"]}


def with_configurations() -> Memory:
    """Return an API server with both webhook configurations, without a caBundle."""
    memory = Memory()
    for path, name in zip(CONFIGURATIONS, ("mutate.gpugate.dev", "validate.gpugate.dev"), strict=True):
        memory.put(path, {"metadata": {"name": "gpugate"}, "webhooks": [webhook(name)]})
    return memory


def ca_bundle(memory: Memory, path: str, place: int = 0) -> tuple[bytes, ...]:
    """Return the CAs that a webhook trusts."""
    client = memory.objects[path]["webhooks"][place]["clientConfig"]
    return certificates_in(b64decode(client.get("caBundle", "")))


def ca_bundles(memory: Memory) -> set[tuple[bytes, ...]]:
    """Return the CA bundles of the webhooks: one element if they are equal."""
    return {ca_bundle(memory, path) for path in CONFIGURATIONS}


@contextmanager
def api_server(memory: Memory, folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[Path]:
    """Serve the objects over HTTP or HTTPS while the block runs; yields a kubeconfig with a token."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one segment, or the client acknowledges the first after 40 ms

        def date_time_string(self, timestamp: float | None = None) -> str:
            """Return the value of the header Date."""
            return super().date_time_string(timestamp or memory.now().timestamp())

        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "null")
            status, document = _answered(memory, self.command, self.path, body)
            if self.headers["Authorization"].lower() != "bearer secret":  # the scheme is case-insensitive
                status, document = 401, {"kind": "Status", "message": "Unauthorized"}
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = _answer  # noqa: N815 - the base class's names

        def log_message(self, format: str, *arguments: object) -> None:
            del format, arguments

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "here",
                "cluster": {"server": f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"},
            }
        ],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(document), "utf-8")
    try:
        yield path
    finally:
        server.shutdown()
        server.server_close()


def _answered(memory: Memory, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    try:
        if method == "GET":
            return 200, memory.get(path)
        if method == "POST":
            memory.create(path, body)
        elif method == "PUT":
            memory.replace(path, body)
        else:
            memory.patch(path, body)
    except KubernetesError as error:
        status = {NotFound: 404, Conflict: 409}.get(type(error), 403)
        return status, {"kind": "Status", "message": str(error).partition(f" {status} ")[2] or str(error)}
    return 200, {}
