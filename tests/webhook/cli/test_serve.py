"""`gpugate serve` with a certificate that it keeps itself: ready when it has one, alive while it waits."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

import webhook.server.server
from certs.authority import validity_of
from certs.kubernetes_api import KubernetesError
from certs.rotation_plan import Plan
from certs.rotator import CertRotator
from certs.store import SecretStore
from rules.schema.loader import Loaded
from tests.support.memory import CONFIGURATIONS, Memory, api_server, ca_bundle, with_configurations
from tests.support.node_builders import node
from tests.support.serving import HOST, QUICK, client_context, connect, wait_for
from webhook.admission.handler import AdmissionHandler
from webhook.cli import main
from webhook.runtime import SecretCertificate, make_server
from webhook.telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("localhost", HOST)
PROBE = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def blind() -> ssl.SSLContext:
    """Return the context of a client that takes any certificate, as the kubelet's probes do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def probe(port: int) -> bytes:
    """Return the body of an answer of /readyz."""
    with connect(port, context=blind()) as connection:
        connection.sendall(PROBE)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received.partition(b"\r\n\r\n")[2]


def refuse(method: str, path: str, *, methods: tuple[str, ...]) -> None:
    """Refuse some methods, as an API server without the right to them."""
    if method in methods:
        raise KubernetesError(f"{method} {path}: 403 forbidden")


def test_a_server_is_ready_when_it_serves_what_the_webhook_configurations_trust(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then it answers probes; metrics tell when what it serves expires."""
    monkeypatch.setattr(webhook.server.server, "_RELOAD_INTERVAL", 0.01)
    memory = with_configurations()
    memory.before = partial(refuse, methods=("GET",))
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


def test_a_certificate_that_expired_while_no_server_ran_is_as_good_as_none() -> None:
    """Where it cannot be renewed, too."""
    memory = with_configurations()
    long_ago = datetime.now(UTC) - timedelta(days=91)
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    old = CertRotator(store, Plan(NAMES), memory, lambda: long_ago).reconcile()
    memory.before = partial(refuse, methods=("PUT",))
    kept = SecretCertificate(memory, "gpugate", "gpugate-certs", NAMES)
    kept.start()
    wait_for(kept.tls.reload)
    kept.stop()

    assert old.leaf == kept.tls.pair
    assert ("certificate",) == kept.awaited


def test_a_certificate_is_good_or_not_by_the_api_servers_clock() -> None:
    """A node whose clock is months ahead serves on: the one who verifies the certificate knows better."""
    memory = with_configurations()
    memory.clock = lambda: datetime.now(UTC) - timedelta(days=100)
    kept = SecretCertificate(memory, "gpugate", "gpugate-certs", NAMES)
    kept.start()
    wait_for(kept.tls.reload)
    kept.stop()
    good = kept.awaited
    memory.clock = lambda: datetime.now(UTC)

    assert ((), ("certificate",)) == (good, kept.awaited)


def test_a_server_outlives_an_api_server_that_hangs_up(tmp_path: Path) -> None:
    """It tries again, says so once, and ends with 0 when it is told to."""
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
            for _ in range(6):  # of which each look makes two
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
            assert process.stderr
            lines = [json.loads(process.stderr.readline())]
            answer = probe(int(lines[0]["message"].split(":")[2].split()[0]))
            process.send_signal(signal.SIGTERM)
            lines += map(json.loads, process.stderr)
            status = process.wait(timeout=20)
    (complaint,) = [line["message"] for line in lines if line["level"] != "INFO"]

    assert (b"not ready: waiting for certificate\n", 0) == (answer, status)
    assert complaint.startswith("cannot update certificates: the API server does not answer GET /api/v1/")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--certs-secret a --tls-cert b --tls-key c", "--tls-cert is a certificate made elsewhere"),
        ("--name a --tls-cert b --tls-key c", "--tls-cert is a certificate made elsewhere"),
        ("--name=", "--name takes a DNS name or an address"),
        ("--certs-namespace a", "--certs-namespace goes with --certs-secret"),
        ("--certs-secret a", "--certs-secret needs a cluster; outside a pod, name --kubeconfig or --context"),
    ],
)
def test_options_that_contradict_each_other_are_told(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is served."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    done = CliRunner().invoke(main, ["serve", *arguments.split()])

    assert 2 == done.exit_code
    assert message in done.output
