"""`gpugate serve` with a certificate in a Secret: ready when it has one, alive while it waits."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import webhook.server.server
from certs.authority import validity_of
from certs.kubernetes_api import KubernetesError
from certs.rotation_plan import Plan
from certs.rotator import CertRotator
from certs.store import SecretStore
from rules.schema.config_map import Loaded
from tests.support.command import gpugate
from tests.support.memory import CONFIGURATIONS, Memory, api_server, ca_bundle, with_configurations
from tests.support.node_builders import node
from tests.support.serving import HOST, QUICK, client_context, connect, wait_for
from tests.support.tls import unverified
from tests.support.webhooks import body, pod
from webhook.admission.handler import AdmissionHandler
from webhook.runtime import SecretCertificate, make_server
from webhook.server.server import Server
from webhook.telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("localhost", HOST)
PROBE = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def probe(port: int) -> bytes:
    """Return the body of a response of /readyz."""
    with connect(port, context=unverified()) as connection:
        connection.sendall(PROBE)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received.partition(b"\r\n\r\n")[2]


def deny_access(method: str, path: str, *, methods: tuple[str, ...]) -> None:
    """Reject some methods, like an API server without the permission."""
    if method in methods:
        raise KubernetesError(f"{method} {path}: 403 forbidden")


def test_a_server_is_ready_when_the_webhook_configurations_trust_its_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then it answers probes; metrics have the expiry of the certificate."""
    monkeypatch.setattr(webhook.server.server, "_RELOAD_INTERVAL", 0.01)
    memory = with_configurations()
    memory.before = partial(deny_access, methods=("GET",))
    kept = SecretCertificate(memory, "gpugate", "gpugate-certs", NAMES)
    server = make_server(AdmissionHandler(Loaded()), kept.tls, [kept], QUICK)
    server.start()
    kept.start()
    before = probe(server.port)
    memory.before = lambda *_: None
    wait_for(lambda: probe(server.port) == b"ok\n")
    trusted = b"".join(ca_bundle(memory, CONFIGURATIONS[0]))
    connect(server.port, context=client_context(trusted)).close()
    server.stop()
    expiry = {
        which: REGISTRY.get_sample_value(
            "gpugate_certificate_expiry_timestamp_seconds", {"certificate": which}
        )
        for which in ("serving", "ca")
    }

    assert b"not ready: waiting for certificate\n" == before
    assert {
        "serving": validity_of(kept.tls.pair.certificate_pem).not_after.timestamp(),
        "ca": validity_of(trusted).not_after.timestamp(),
    } == expiry


def test_a_certificate_that_expired_while_no_server_ran_is_treated_as_missing() -> None:
    """Also if it cannot be renewed."""
    memory = with_configurations()
    long_ago = datetime.now(UTC) - timedelta(days=91)
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    old = CertRotator(store, Plan(NAMES), memory, lambda: long_ago).reconcile()
    memory.before = partial(deny_access, methods=("PUT",))
    kept = SecretCertificate(memory, "gpugate", "gpugate-certs", NAMES)
    kept.start()
    wait_for(kept.tls.reload)
    kept.stop()

    assert old.leaf == kept.tls.pair
    assert ("certificate",) == kept.awaited


def test_the_validity_of_a_certificate_depends_on_the_clock_of_the_api_server() -> None:
    """A node whose clock is months ahead keeps serving: the API server verifies the certificate."""
    memory = with_configurations()
    memory.clock = lambda: datetime.now(UTC) - timedelta(days=100)
    kept = SecretCertificate(memory, "gpugate", "gpugate-certs", NAMES)
    kept.start()
    wait_for(kept.tls.reload)
    kept.stop()
    good = kept.awaited
    memory.clock = lambda: datetime.now(UTC)

    assert ((), ("certificate",)) == (good, kept.awaited)


def test_a_server_survives_an_api_server_that_closes_connections(tmp_path: Path) -> None:
    """It retries, logs each failure once, and exits with 0 after SIGTERM."""
    with api_server(Memory(), tmp_path) as kubeconfig:
        document = yaml.safe_load(kubeconfig.read_text("utf-8"))
    with socket.create_server((HOST, 0)) as listener:
        document["clusters"][0]["cluster"]["server"] = f"http://{HOST}:{listener.getsockname()[1]}"
        kubeconfig.write_text(yaml.safe_dump(document), "utf-8")
        (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(node("one")), "utf-8")
        command = [sys.executable, "-m", "webhook", "serve", "--host", HOST, "--port", "0"]
        command += ["--kubeconfig", str(kubeconfig), "--certs-secret", "gpugate-certs", "--name", HOST]
        command += ["--rules", "rules/catalog/pgpu", "--nodes", str(tmp_path / "nodes.yaml")]
        command += ["--drain-seconds", "0", "--log-format", "json"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            for _ in range(12):  # those of three watches, which retry later each time, and of the certificate
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
            assert process.stderr
            lines = [json.loads(process.stderr.readline())]
            answer = probe(int(lines[0]["message"].split(":")[2].split()[0]))
            process.send_signal(signal.SIGTERM)
            lines += map(json.loads, process.stderr)
            status = process.wait(timeout=60)
    failures = [line["message"] for line in lines if line["level"] != "INFO"]
    (error,) = [failure for failure in failures if not failure.startswith("watch of ")]

    assert (b"not ready: waiting for certificate\n", 0) == (answer, status)
    assert error.startswith("cannot update certificates: the API server does not answer GET /api/v1/")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--certs-secret a --tls-cert b --tls-key c",
            "--tls-cert cannot be used with --certs-secret or --name",
        ),
        ("--name a --tls-cert b --tls-key c", "--tls-cert cannot be used with --certs-secret or --name"),
        ("--name=", "--name must be a DNS name or an IP address"),
        ("--certs-namespace a", "--certs-namespace requires --certs-secret"),
        ("--certs-secret a", "--certs-secret requires --kubeconfig or --context outside a pod"),
        (
            "--token-audience https://a",
            "--token-audience requires --kubeconfig or --context outside a pod",
        ),
        ("--denial-events", "--denial-events requires --kubeconfig or --context outside a pod"),
        ("--token-audience http://a", "'http://a' is not an https URL"),
    ],
)
def test_contradictory_options_are_reported(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the server starts."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    done = gpugate("serve", *arguments.split())

    assert 2 == done.exit_code
    assert message in done.output


@pytest.mark.parametrize(("option", "allowed"), [([], False), (["--enforcement-action=dryrun"], True)])
def test_the_option_caps_the_answers_of_the_server(
    option: list[str], allowed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By default, rules are enforced; the first line of the log has the cap."""
    handlers: list[AdmissionHandler] = []

    def make(handler: AdmissionHandler, *rest: Any, **settings: Any) -> Server:
        handlers.append(handler)
        return make_server(handler, *rest, **settings)

    monkeypatch.setattr("webhook.runtime.make_server", make)
    monkeypatch.setattr(Server, "run", lambda server: server._socket.close() or 0)
    monkeypatch.setattr("webhook.telemetry.logs.configure_logs", lambda **_: None)
    caplog.set_level("INFO", "gpugate")
    arguments = ["serve", "--port=0", "--host=127.0.0.1", "--rules=builtin", *option]
    gpugate(*arguments, catch_exceptions=False)
    review = body(pod({"tencent.com/vcuda-core": "150"}))

    assert allowed is json.loads(handlers[0].answer("validate", review))["response"]["allowed"]
    (line,) = [message for message in caplog.messages if message.startswith("serving on")]
    assert line.endswith("enforcement action dryrun" if option else "enforcement action deny")
