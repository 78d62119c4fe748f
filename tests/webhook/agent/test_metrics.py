"""Metrics of the agent: access to them, and the manifests and pages that use them."""

from __future__ import annotations

import http.client
import re
import select
import socket
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client import Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families

from tests.support.command import gpugate
from tests.support.nvml import library
from tests.support.paths import ROOT
from tests.support.serving import HOST, PATIENCE, answers, silent_tcp
from webhook.agent import metrics
from webhook.agent.labels import FACTS
from webhook.agent.metrics import serve
from webhook.cli.commands.node import command
from webhook.server import plain_http

MANIFESTS = ROOT / "manifests"
AGENT_PAGE = ROOT / "docs/agent.md"
CONNECTIONS = 64


@pytest.fixture(scope="module")
def port() -> int:
    """Serve the metrics while the tests run."""
    return serve(0)


def scrape(port: int, method: str = "GET", path: str = "/metrics") -> tuple[int, str]:
    """Scrape as Prometheus does; return status and text."""
    with closing(http.client.HTTPConnection(HOST, port, timeout=PATIENCE)) as client:
        client.request(method, path)
        response = client.getresponse()
        return response.status, response.read().decode()


def documents(path: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all((MANIFESTS / path).read_text("utf-8")))


def series() -> dict[str, set[str]]:
    """Return the labels of each time series."""
    labels_by_series = {}
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge):
            (family,) = metric.describe()
            labels_by_series[family.name + "_total" * isinstance(metric, Counter)] = set(metric._labelnames)
    return labels_by_series


def test_a_scrape_has_the_prometheus_text_format(port: int) -> None:
    """Each metric has a help text."""
    status, text = scrape(port)
    families = list(text_string_to_metric_families(text))

    assert 200 == status
    assert {"gpugate_agent_gpus", "gpugate_agent_failures"} <= {family.name for family in families}
    assert all(family.name.startswith("gpugate_agent_") and family.documentation for family in families)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_get_and_head_are_allowed(port: int, method: str) -> None:
    """Other methods get 405."""
    assert 405 == scrape(port, method)[0]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: \xff;version=\xfe;q=x\r\nConnection: close\r\n\r\n",
        b"GET /?name[]=%ff&name[]=gpugate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n" + b"x" * 9999,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 1000 + b"\r\n\r\n",
    ],
    ids=["accept", "names", "path", "long", "body", "tls", "zeros"],
)
def test_malformed_requests_are_answered_or_cut_without_a_log_line(
    port: int, sent: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The operator cannot fix what other clients send."""
    try:
        answer = answers(silent_tcp(port), sent)
    except ConnectionError:
        answer = b""

    assert re.match(rb"HTTP/1.1 (200|4\d\d) |$", answer)
    assert (0, ("", "")) == (len(caplog.records), tuple(capfd.readouterr()))
    assert 200 == scrape(port)[0]


def test_stalled_clients_do_not_block_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """With twice as many clients as connections, idle or within a head, the longest idle ones are cut."""
    limits = replace(plain_http._LIMITS, client_timeout=3600)
    monkeypatch.setattr(plain_http, "_LIMITS", limits)
    port = serve(0)
    with ExitStack() as stack:
        clients = [stack.enter_context(silent_tcp(port)) for _ in range(2 * CONNECTIONS)]
        for client in clients[::2]:
            with suppress(ConnectionError):  # it is cut already
                client.sendall(b"GET /metrics HTTP/1.1\r\nX-A: b")
        statuses = [scrape(port)[0] for _ in range(10)]
        readable, _, _ = select.select(clients, [], [], 0)

    assert [200] * 10 == statuses
    assert CONNECTIONS <= len(readable)


def test_a_head_that_never_ends_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it sends bytes."""
    limits = replace(plain_http._LIMITS, client_timeout=0.5)
    monkeypatch.setattr(plain_http, "_LIMITS", limits)
    with silent_tcp(serve(0)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            _drip(client)


def _drip(client: socket.socket) -> None:
    for _ in range(100):
        time.sleep(0.05)
        client.sendall(b"X: y\r\n")


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    """Before the watch starts; exit status 2."""
    config = tmp_path / "config"
    config.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    with socket.create_server(("", 0)) as taken, library("t4"):
        port = str(taken.getsockname()[1])
        arguments = ["node", "label", "--metrics-port", port, "--kubeconfig", str(config), "--node-name", "n"]
        busy = gpugate(*arguments, "--watch")
        once = gpugate(*arguments)

    assert (2, 2) == (busy.exit_code, once.exit_code)
    assert f"cannot listen on port {port}: Address already in use" in busy.stderr
    assert "--metrics-port requires --watch" in once.stderr


def test_the_pod_is_probed_and_scraped_at_its_port(port: int) -> None:
    """The probes do not require a driver: on a node without one the pod runs and waits."""
    daemon_set, policy = documents("agent/daemonset.yaml")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    _, name, *arguments = container["args"]
    (served,) = container["ports"]
    paths = {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("liveness", "readiness")}
    ports = {container[f"{probe}Probe"]["httpGet"]["port"] for probe in ("liveness", "readiness")}
    monitor, _ = documents("monitoring/agent.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]

    assert (
        command.commands[name].make_context(name, arguments).params["metrics_port"] == served["containerPort"]
    )
    assert {served["name"]} == ports == {endpoint["port"]}
    assert [[{"port": served["name"], "protocol": "TCP"}]] == [
        ingress["ports"] for ingress in policy["spec"]["ingress"]
    ]
    assert {200} == {scrape(port, path=path)[0] for path in paths}
    assert [daemon_set["metadata"]["namespace"]] == monitor["spec"]["namespaceSelector"]["matchNames"]
    assert daemon_set["spec"]["selector"]["matchLabels"] == monitor["spec"]["selector"]["matchLabels"]


def test_alerts_use_existing_metrics_and_labels() -> None:
    """Of the job of the monitor, which is not that of the webhook; each has a runbook."""
    monitor, rules = documents("monitoring/agent.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    relabelled = {
        relabeling["targetLabel"]: relabeling.get("replacement") for relabeling in endpoint["relabelings"]
    }
    headings = re.findall(r"^#+ (.*)$", AGENT_PAGE.read_text("utf-8"), re.MULTILINE)
    anchors = {f"docs/agent.md#{heading.lower().replace(' ', '-')}" for heading in headings}
    known = series()

    assert {"job": "gpugate-agent", "node": None} == relabelled
    (group,) = rules["spec"]["groups"]
    for alert in group["rules"]:
        ((name, matchers),) = re.findall(r"\b(gpugate_\w+)\{(.*?)\}", alert["expr"])
        assert 'job="gpugate-agent"' == matchers
        used = re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"])
        assert {*used} <= known[name] | {"node"}
        assert alert["annotations"]["runbook"] in anchors


def test_the_page_names_every_metric_and_fact() -> None:
    """By the name of the time series."""
    page = AGENT_PAGE.read_text("utf-8")

    assert series().keys() == set(re.findall(r"^\| `(gpugate_agent_\w+)", page, re.MULTILINE))
    assert [] == [fact for fact in FACTS if f"`{fact}`" not in page]
