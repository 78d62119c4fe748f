"""Fake API server over HTTP: versions, pages, selectors, watches and their failures.

Changes of objects and failures of watches are in one history: a test calls `put`, then `watches("cut")`, then
`put`, and an open watch gets them in this order.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from kubernetes.client import Configuration

from webhook.cluster.client import ClusterApi

Object = dict[str, Any]

# Seconds until a test that waits for something fails.
PATIENCE = 60.0


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    token: str


@dataclass(frozen=True)
class _Entry:
    """A change of an object, or an action of open watches: bookmark, expire, garble, end, cut, stall."""

    version: int
    action: str
    path: str = ""
    before: Object | None = None
    after: Object | None = None


# Where an API server lists the versions of a group, and the kinds of a version.
_DISCOVERY: Final = re.compile(r"/api/v1|/apis|/apis/[^/]+(?:/v[^/]+)?")
# Media types of texts that have only one.
_MEDIA: Final = {"/openid/v1/jwks": "application/jwk-set+json"}


@dataclass
class FakeApi:
    """Collections of objects by path. refusals: status of the next requests, in order. opened: watches.

    statuses: of requests for a path, as long as it is there. texts: answers that are no JSON, by their path.
    """

    page: int = 500
    requests: list[Request] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    opened: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self.version = 0
        self.changed = threading.Condition()
        self.closed = False
        self._compacted = 0
        self._objects: dict[tuple[str, str], Object] = {}
        self._history: list[_Entry] = []
        self.discovery: dict[str, Object] = {}
        self.serve("", "v1", Pod="pods")

    def serve(self, group: str, version: str, **kinds: str) -> None:
        """Say in discovery that these kinds exist, each with its plural; group: empty for the core API."""
        root = f"/apis/{group}" if group else "/api"
        self.discovery[root] = {"preferredVersion": {"version": version}, "versions": [{"version": version}]}
        resources = [{"name": plural, "kind": kind, "verbs": ["list"]} for kind, plural in kinds.items()]
        self.discovery[f"{root}/{version}"] = {"resources": resources}

    def put(self, path: str, document: Object) -> None:
        """Create an object, or replace the one with its name."""
        with self.changed:
            key = (path, document["metadata"]["name"])
            self.version += 1
            after = deepcopy(document)
            after["metadata"] |= {"resourceVersion": str(self.version)}
            self._record(_Entry(self.version, "change", path, self._objects.get(key), after))
            self._objects[key] = after

    def delete(self, path: str, name: str) -> None:
        """Delete an object."""
        with self.changed:
            self.version += 1
            self._record(_Entry(self.version, "change", path, self._objects.pop((path, name)), None))

    def objects(self, path: str) -> list[Object]:
        """Return the objects of a collection, by name."""
        return [stored_object for (where, _), stored_object in sorted(self._objects.items()) if where == path]

    def watches(self, action: str) -> None:
        """Let all open watches do this: bookmark, expire, garble, end, cut, stall."""
        with self.changed:
            self._record(_Entry(self.version, action))

    def compact(self) -> None:
        """Forget the history up to now: requests for it get 410 Gone."""
        with self.changed:
            self._compacted = self.version

    def restore(self, version: int) -> None:
        """Go back to a version, as a restore of etcd; watches of later versions get no events afterwards."""
        with self.changed:
            self.version = version

    def until(self, happened: Callable[[], bool]) -> None:
        """Wait for a condition that requests or changes cause."""
        with self.changed:
            assert self.changed.wait_for(happened, PATIENCE)

    def close(self) -> None:
        """End all watches."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig for it into a folder; return its path."""
        document = {
            "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "fake", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "current-context": "fake",
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(document), "utf-8")
        return path

    def _record(self, entry: _Entry) -> None:
        self._history.append(entry)
        self.changed.notify_all()

    def one(self, path: str) -> tuple[int, Object]:
        """Return status and document of an object."""
        collection, _, name = path.rpartition("/")
        with self.changed:
            stored = self._objects.get((collection, name))
        return (200, stored) if stored else (404, {"kind": "Status", "code": 404, "message": "not found"})

    def listed(self, request: Request) -> tuple[int, Object]:
        """Return status and document of a list."""
        with self.changed:
            documents = [
                document
                for document in self.objects(request.path)
                if _selected(document, request.query) and _has_fields(document, request.query)
            ]
            start = int(request.query.get("continue", "0"))
            stop = start + min(self.page, int(request.query["limit"]))
            metadata = {"resourceVersion": str(self.version)}
            if stop < len(documents):
                metadata["continue"] = str(stop)
            return 200, {"metadata": metadata, "items": documents[start:stop]}

    def created(self, path: str, document: Object) -> tuple[int, Object]:
        """Return status and document of a creation."""
        with self.changed:
            if (path, document["metadata"]["name"]) in self._objects:
                return 409, {"kind": "Status", "code": 409, "message": "already exists"}
            self.put(path, document)
            return 201, document

    def lines(self, request: Request) -> Iterator[bytes | None]:
        """Yield the lines of a watch; None to break the connection."""
        at, version = 0, int(request.query["resourceVersion"])
        with self.changed:
            born = len(self._history)
            self.opened += 1
            self.changed.notify_all()
        while True:
            with self.changed:
                self.changed.wait_for(partial(self._changed_since, at))
                if self.closed:
                    return
                entry = self._history[at]
            at += 1
            if entry.action == "change":
                if entry.version > version and entry.path == request.path:
                    yield from _event(entry, request.query)
            elif at > born:
                match entry.action:
                    case "end":
                        return
                    case "stall":
                        self.until_closed()
                        return
                    case "bookmark":
                        yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(entry.version)}})
                    case "expire":
                        yield _line("ERROR", {"kind": "Status", "code": 410, "message": "too old"})
                        return
                    case "garble":
                        yield b"<html>\n"
                    case _:
                        yield None

    def _changed_since(self, at: int) -> bool:
        return self.closed or len(self._history) > at

    def until_closed(self) -> None:
        """Wait for the end of the test."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed)

    def gone(self, request: Request) -> bool:
        """Return whether a watch requests an expired version."""
        return int(request.query["resourceVersion"]) < self._compacted


def _selected(document: Object | None, query: dict[str, str]) -> bool:
    """Return whether a selector of one label, `key` or `key=value`, selects an object."""
    if document is None or "labelSelector" not in query:
        return document is not None
    key, _, value = query["labelSelector"].partition("=")
    labels = document["metadata"].get("labels", {})
    return key in labels and value in ("", labels[key])


def _has_fields(document: Object, query: dict[str, str]) -> bool:
    """Return whether the fieldSelector of a list selects an object; each term is an equality."""
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, expected = term.partition("=")
        value: Any = document
        for key in path.split("."):
            value = value.get(key, {})
        if value != expected:
            return False
    return True


def _event(entry: _Entry, query: dict[str, str]) -> Iterator[bytes]:
    before, after = _selected(entry.before, query), _selected(entry.after, query)
    if after and entry.after is not None:
        yield _line("MODIFIED" if before else "ADDED", entry.after)
    elif before and entry.before is not None:
        metadata = entry.before["metadata"] | {"resourceVersion": str(entry.version)}
        yield _line("DELETED", entry.before | {"metadata": metadata})


def _line(kind: str, document: Object) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, fake: FakeApi) -> None:
        super().__init__(("127.0.0.1", fake.port), _Handler)
        self.fake = fake

    def handle_error(self, *_: object) -> None:
        """Print nothing: disconnecting clients are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        if (request := self._request()) is None:
            return
        if _DISCOVERY.fullmatch(request.path):
            document = self.server.fake.discovery.get(request.path)
            self._answer(200 if document else 404, document or {"kind": "Status", "code": 404})
            return
        if (text := self.server.fake.texts.get(request.path)) is not None:
            media = _MEDIA.get(request.path, "")
            self._send(200 if media in self.headers.get("Accept", "") else 406, text.encode())
            return
        if not {"watch", "limit"} & request.query.keys():
            self._answer(*self.server.fake.one(request.path))
            return
        if "watch" not in request.query:
            self._answer(*self.server.fake.listed(request))
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in self.server.fake.lines(request):
            if line is None:
                self.close_connection = True
                return
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if (request := self._request()) is not None:
            self._answer(*self.server.fake.created(request.path, json.loads(body)))

    def do_PATCH(self) -> None:
        """Apply an object: the whole document replaces what is there."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if (request := self._request()) is not None:
            document = json.loads(body)
            self.server.fake.put(request.path.rpartition("/")[0], document)
            self._answer(200, document)

    def do_DELETE(self) -> None:
        if (request := self._request()) is not None:
            folder, _, name = request.path.rpartition("/")
            known = any(document["metadata"]["name"] == name for document in self.server.fake.objects(folder))
            if known:
                self.server.fake.delete(folder, name)
            self._answer(200 if known else 404, {"kind": "Status", "code": 200 if known else 404})

    def _request(self) -> Request | None:
        """Record the request; answer it here if it is refused."""
        fake, url = self.server.fake, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        request = Request(self.command, url.path, query, self.headers.get("authorization", ""))
        with fake.changed:
            fake.requests.append(request)
            status = fake.refusals.pop(0) if fake.refusals else fake.statuses.get(request.path, 0)
            fake.changed.notify_all()
        if "watch" in query and fake.gone(request):
            status = 410
        if not status:
            return request
        self._answer(status, {"kind": "Status", "code": status, "message": "refused by the test"})
        return None

    def _answer(self, status: int, document: Object) -> None:
        self._send(status, json.dumps(document).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        del format, arguments


@contextmanager
def running(fake: FakeApi) -> Iterator[ClusterApi]:
    """Serve it while the block runs; yields a client of it."""
    server = _Server(fake)
    fake.port, fake.closed = server.server_port, False
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    api = ClusterApi(Configuration(host=f"http://127.0.0.1:{fake.port}"))
    try:
        yield api
    finally:
        fake.close()
        server.shutdown()
        server.server_close()
        api.close()
