"""Objects over HTTP: they are not changed in transit, and each failure names its request.

The server keeps objects in memory; e2e/test_certs.py tests the same with a real one.
"""

from __future__ import annotations

import json
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import kubernetes.config
import pytest
import trustme
import yaml

from certs.kubernetes_api import Conflict, KubernetesError, NotFound
from tests.support.memory import CONFIGURATIONS, SECRET, SECRETS, Memory, api_server, with_configurations
from webhook.cluster.client import ClusterApi, connect
from webhook.cluster.in_cluster import own_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OBJECT = {"metadata": {"name": "gpugate-certs"}, "newField": {"unknown": ["to", 1, None]}}


@pytest.fixture
def memory() -> Memory:
    """Return the API server's objects."""
    return with_configurations()


@pytest.fixture
def api(memory: Memory, tmp_path: Path) -> Iterator[ClusterApi]:
    """Return a client of it, made from a kubeconfig."""
    with api_server(memory, tmp_path) as kubeconfig:
        api = connect(str(kubeconfig), None)
        yield api
        api.close()


def test_an_object_is_created_read_and_replaced_with_all_its_fields(memory: Memory, api: ClusterApi) -> None:
    """Including fields that no model has."""
    api.create(SECRETS, OBJECT)
    read = api.get(SECRET)
    api.replace(SECRET, read | {"another": True})

    assert OBJECT["newField"] == read["newField"] == memory.objects[SECRET]["newField"]
    assert memory.objects[SECRET]["another"]


def test_a_patch_is_applied_to_the_version_that_it_names(memory: Memory, api: ClusterApi) -> None:
    """And to no other."""
    path = CONFIGURATIONS[0]
    version = api.get(path)["metadata"]["resourceVersion"]
    operations = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg=="},
    ]
    api.patch(path, operations)
    with pytest.raises(Conflict, match=r"PATCH .*/gpugate: 409 "):
        api.patch(path, operations)

    assert "Cg==" == memory.objects[path]["webhooks"][0]["clientConfig"]["caBundle"]


def test_a_missing_and_an_existing_object_have_their_own_errors(api: ClusterApi) -> None:
    """Callers distinguish them from failures."""
    with pytest.raises(NotFound, match=f"GET {SECRET}: 404 not found"):
        api.get(SECRET)
    api.create(SECRETS, OBJECT)
    with pytest.raises(Conflict, match="already exists"):
        api.create(SECRETS, OBJECT)
    with pytest.raises(Conflict, match="has been modified"):
        api.replace(SECRET, {"metadata": {"resourceVersion": "0"}})


def test_a_pod_uses_its_service_account(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Address, CA, token and namespace are where the kubelet puts them."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (tmp_path / "token").write_text("secret")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "namespace").write_text("gates")
    monkeypatch.setattr(ClusterApi, "in_cluster", partial(ClusterApi.in_cluster, tmp_path))
    with api_server(memory, tmp_path, context) as kubeconfig:
        host, port = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"][8:].split(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        api = connect(None, None)
        stored = api.get(CONFIGURATIONS[0])
        api.close()

    assert memory.objects[CONFIGURATIONS[0]] == stored
    assert ("gates", None) == (own_namespace(tmp_path), own_namespace(tmp_path / "none"))


def test_an_unreadable_token_is_reported(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example while the kubelet replaces it; the next request reads it again."""
    with api_server(memory, tmp_path) as kubeconfig:
        api = connect(str(kubeconfig), None)

        def refresh(_: object) -> None:
            raise kubernetes.config.ConfigException("Token file exists but empty.")

        monkeypatch.setattr(api.client.configuration, "refresh_api_key_hook", refresh)
        with pytest.raises(KubernetesError, match=r"does not answer GET .* exists but empty"):
            api.get(CONFIGURATIONS[0])
        monkeypatch.setattr(api.client.configuration, "refresh_api_key_hook", None)

        assert memory.objects[CONFIGURATIONS[0]] == api.get(CONFIGURATIONS[0])


def test_a_wrong_token_is_reported(memory: Memory, tmp_path: Path) -> None:
    """With the status and message of the API server."""
    with api_server(memory, tmp_path) as kubeconfig:
        kubeconfig.write_text(kubeconfig.read_text().replace("token: secret", "token: wrong"))
        with pytest.raises(KubernetesError, match="401 Unauthorized"):
            connect(str(kubeconfig), None).get(SECRET)


@contextmanager
def answering(status: int, content: bytes) -> Iterator[int]:
    """Send this response to every request; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            del format, arguments

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"\xff"])
@pytest.mark.parametrize(
    ("status", "message"), [(502, "502 Bad Gateway"), (200, "the response is not a JSON object")]
)
def test_a_server_that_is_not_an_api_server_is_reported(
    content: bytes, status: int, message: str, memory: Memory, tmp_path: Path
) -> None:
    """For example a proxy in between."""
    with api_server(memory, tmp_path) as kubeconfig, answering(status, content) as port:
        document = yaml.safe_load(kubeconfig.read_text())
        document["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{port}"
        kubeconfig.write_text(yaml.safe_dump(document))
        with pytest.raises(KubernetesError, match=f"GET {SECRET}: {message}"):
            connect(str(kubeconfig), None).get(SECRET)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": None},
        {"metadata": {"name": "another", "resourceVersion": "1"}},
        {"metadata": {"name": "gpugate-certs"}},
    ],
)
def test_a_response_that_is_another_object_is_an_error(
    document: dict[str, Any], memory: Memory, tmp_path: Path
) -> None:
    """A Secret without data would be filled: certificates in use would be replaced."""
    with api_server(memory, tmp_path) as kubeconfig, answering(200, json.dumps(document).encode()) as port:
        config = yaml.safe_load(kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{port}"
        kubeconfig.write_text(yaml.safe_dump(config))
        with pytest.raises(KubernetesError, match=f"GET {SECRET}: the response is another object"):
            connect(str(kubeconfig), None).get(SECRET)


def test_the_time_is_that_of_the_api_server_after_its_first_response(memory: Memory, api: ClusterApi) -> None:
    """It advances between responses; before the first, the local clock is used."""
    memory.clock = lambda: datetime.now(UTC) + timedelta(days=100)
    before = api.now() - datetime.now(UTC)
    api.get(CONFIGURATIONS[0])
    after = api.now() - datetime.now(UTC)
    later = api.now() - datetime.now(UTC)

    assert abs(before) < timedelta(seconds=2)
    assert abs(after - timedelta(days=100)) < timedelta(seconds=2)
    assert abs(later - after) < timedelta(seconds=1)


@pytest.mark.parametrize("date", ["", "no date", "Sat, 99 Nov 2026 00:00:00 GMT", "2026-11-22T00:00:00Z"])
def test_an_invalid_date_header_is_ignored(
    date: str, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is used nevertheless."""
    monkeypatch.setattr(BaseHTTPRequestHandler, "date_time_string", lambda *_: date)
    with api_server(memory, tmp_path) as kubeconfig:
        api = connect(str(kubeconfig), None)
        api.get(CONFIGURATIONS[0])
        api.close()

    assert abs(api.now() - datetime.now(UTC)) < timedelta(seconds=2)


def test_an_unreachable_api_server_is_reported(memory: Memory, tmp_path: Path) -> None:
    """With the same message each time, so that a caller that retries can log it once."""
    with api_server(memory, tmp_path) as kubeconfig:
        pass
    messages = set()
    for _ in range(2):
        with pytest.raises(KubernetesError, match=f"the API server does not answer GET {SECRET}: ") as error:
            ClusterApi.of_kubeconfig(str(kubeconfig)).get(SECRET)
        messages.add(str(error.value))

    assert 1 == len(messages)
