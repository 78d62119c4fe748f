"""Reading the rules of a cluster: pages, selectors, and errors that say what to check.

The API server is a fake; e2e/test_admission.py tests the same with a real one.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
import yaml
from kubernetes.client import Configuration

from rules.model.workload_kinds import built_in_workloads
from rules.schema.loader import load_rules
from tests.support.fake_api import FakeApi, running
from webhook.cluster.client import Cluster, ClusterApi, ClusterError

RULE = {
    "metadata": {
        "name": "mps",
        "namespace": "kube-public",
        "labels": {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"},
        "managedFields": [{"manager": "kubectl"}],
    },
    "data": {"rule.yaml": "match:\n  resources: [nvidia.com/mps-core]\ninject:\n  hostIPC: true\n"},
}


@contextmanager
def _api_server(
    status: int, items: list[dict[str, Any]], folder: Path, *, insecure: bool = False
) -> Iterator[str]:
    """Serve lists with one item per page, for one of the selectors; yields a kubeconfig.

    insecure: with TLS, and a certificate that the kubeconfig does not verify.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            chosen = items if query["labelSelector"] == "gpugate.dev/type" else []
            page = int(query.get("continue", "0"))
            more = str(page + 1) if page + 1 < len(chosen) else ""
            answer = json.dumps({"metadata": {"continue": more}, "items": chosen[page : page + 1]}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            del format, arguments

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if insecure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield _kubeconfig(folder, server.server_port, insecure=insecure)
    finally:
        server.shutdown()
        server.server_close()


def _kubeconfig(folder: Path, port: int, *, insecure: bool) -> str:
    path = folder / "kubeconfig"
    cluster: dict[str, Any] = {"server": f"{'https' if insecure else 'http'}://127.0.0.1:{port}"}
    cluster |= {"insecure-skip-tls-verify": True} if insecure else {}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(document), "utf-8")
    return str(path)


def test_a_kubeconfig_that_skips_verification_is_used_without_a_warning_for_each_request(
    tmp_path: Path,
) -> None:
    """Warnings are errors in tests; kubectl prints none either."""
    with _api_server(200, [RULE], tmp_path, insecure=True) as kubeconfig:
        assert ["configmap kube-public/mps"] == [name for name, _ in Cluster(kubeconfig).rules("kube-public")]


def test_all_pages_of_all_selectors_are_read(tmp_path: Path) -> None:
    """Without what other clients manage, which rules do not use."""
    other = RULE | {"metadata": RULE["metadata"] | {"name": "other"}}  # type: ignore[operator]
    with _api_server(200, [RULE, other], tmp_path) as kubeconfig:
        listed_rules = Cluster(kubeconfig).rules("kube-public")

    assert ["configmap kube-public/mps", "configmap kube-public/other"] == [name for name, _ in listed_rules]
    assert ("v1", "ConfigMap") == (listed_rules[0][1]["apiVersion"], listed_rules[0][1]["kind"])
    assert listed_rules[0][1]["data"]["rule.yaml"].startswith("match:\n")
    assert "managedFields" not in listed_rules[0][1]["metadata"]
    assert ["mps", "other"] == [rule.name for rule in load_rules(listed_rules).rules]


def test_forty_requests_at_the_same_time_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """At the start, all watches list at the same time; their connections are kept for later requests."""
    together = Barrier(40)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            together.wait(60)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *arguments: object) -> None:
            del format, arguments

    class Server(ThreadingHTTPServer):
        request_queue_size = 64
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        api = ClusterApi(Configuration(host=f"http://127.0.0.1:{server.server_port}"))
        threads = [Thread(target=api.document, args=("/apis",)) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        api.close()
        server.shutdown()

    assert [] == [record.getMessage() for record in caplog.records]


def test_a_forbidden_request_is_reported_with_its_reason(tmp_path: Path) -> None:
    """The cause is RBAC."""
    with _api_server(403, [], tmp_path) as kubeconfig, pytest.raises(ClusterError) as error:
        Cluster(kubeconfig).rules("kube-public")

    assert "cannot list ConfigMaps of namespace 'kube-public': 403 Forbidden" == str(error.value)


def test_an_unreachable_api_server_is_reported(tmp_path: Path) -> None:
    """After a few attempts."""
    with _api_server(200, [], tmp_path) as kubeconfig:
        pass

    with pytest.raises(ClusterError, match=r"The connection to the server .* was refused"):
        Cluster(kubeconfig).rules("kube-public")


@pytest.mark.parametrize(("kubeconfig", "context"), [("/nowhere", None), (None, "nowhere")])
def test_a_missing_kubeconfig_or_context_is_reported(
    kubeconfig: str | None, context: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the options to check."""
    monkeypatch.setenv("KUBECONFIG", "/nowhere")

    with pytest.raises(ClusterError, match="check --kubeconfig and --context"):
        Cluster(kubeconfig, context)


def test_what_decides_nothing_is_not_kept_of_listed_objects(tmp_path: Path) -> None:
    """Managed fields and images of nodes are left out; equal parts of containers are in memory once."""
    fake = FakeApi()
    environment = [{"name": "A", "value": "1"}]
    for name in ("a", "b"):
        metadata = {"name": name, "namespace": "ml", "managedFields": [{"manager": "kubelet"}]}
        container = {"name": "main", "image": name, "env": environment}
        fake.put("/api/v1/pods", {"metadata": metadata, "spec": {"containers": [container]}})
    node = {"metadata": {"name": "n", "managedFields": []}, "status": {"images": [{"names": ["x"]}]}}
    fake.put("/api/v1/nodes", node)
    with running(fake):
        cluster = Cluster(str(fake.kubeconfig(tmp_path)))
        first, second = cluster.workloads(built_in_workloads()).objects
        (listed,) = (item for item in cluster.inventory() if item["metadata"]["name"] == "n")

    (one,), (other,) = (pod["spec"]["containers"] for pod in (first, second))
    assert environment == one["env"]
    assert one["env"] is other["env"]
    assert ("a", "b") == (one["image"], other["image"])
    assert all("managedFields" not in kept["metadata"] for kept in (first, second, listed))
    assert {} == listed["status"]
