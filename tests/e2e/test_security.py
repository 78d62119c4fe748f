"""docs/security.md on a real API server, which presents a client certificate to gpugate."""

from __future__ import annotations

import http
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.e2e.cluster import ControlPlane, assets, missing
from tests.e2e.daemon import HOST, Daemon, reserve_port
from tests.e2e.installed import VCUDA_MEMORY, Installation, install, running
from tests.e2e.serve_process import ask, eventually
from tests.e2e.test_control_plane import pod
from tests.support.pages import fences, text_of
from tests.support.webhooks import body
from tests.support.webhooks import pod as asked_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = "docs/security.md"
# Where the page has the files, and the name of the Service, which this cluster calls by an address.
FOLDER, SERVICE = "/etc/kubernetes/admission", "gpugate.gpugate.svc"


class Showing(ControlPlane):
    """A control plane whose API server presents a certificate of a CA to webhooks."""

    def __init__(self, binaries: Path, folder: Path, webhook: str, authority: trustme.CA) -> None:
        self._page = folder / "admission"
        self._page.mkdir(parents=True)
        shown = authority.issue_cert(common_name="kube-apiserver")
        shown.cert_chain_pems[0].write_to_path(str(self._page / "client.crt"))
        shown.private_key_pem.write_to_path(str(self._page / "client.key"))
        for fence in fences(text_of(PAGE), PAGE):
            if fence.file:
                text = fence.text.replace(FOLDER, str(self._page)).replace(SERVICE, webhook)
                (self._page / fence.file).write_text(text)
        super().__init__(binaries, folder)

    def _daemon(self, name: str, port: int, health: str, flags: dict[str, Any]) -> Daemon:
        if name == "kube-apiserver":
            flags = flags | {"admission-control-config-file": self._page / "config.yaml"}
        return super()._daemon(name, port, health, flags)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Return the CA of the API server's certificate."""
    return trustme.CA()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Installation]:
    """Yield gpugate in a cluster whose API server presents a certificate, without a running server."""
    binaries = assets()
    if absent := missing(binaries):
        pytest.skip(f"no {', '.join(absent)} in {binaries}: run `make e2e-assets`")
    with reserve_port() as held:
        port = held.getsockname()[1]
        folder = tmp_path_factory.mktemp("client-certificate")
        with Showing(binaries, folder, f"{HOST}:{port}", authority) as cluster:
            yield install(cluster, port)


def client_ca(folder: Path, authority: trustme.CA) -> str:
    """Return the option to accept reviews only from clients of a CA."""
    path = folder / "client-ca.crt"
    authority.cert_pem.write_to_path(str(path))
    return f"--client-ca={path}"


def test_the_api_server_gets_an_answer_and_other_clients_do_not(
    installation: Installation, authority: trustme.CA, tmp_path: Path
) -> None:
    """The kubelet and Prometheus get one without a certificate."""
    with running(installation, tmp_path / "log", client_ca(tmp_path, authority)) as installed:
        review = body(asked_pod({VCUDA_MEMORY: "8"}))
        statuses = [ask(installed.port, path, review)[0] for path in ("/mutate", "/validate")]
        statuses += [ask(installed.port, path)[0] for path in ("/healthz", "/readyz", "/metrics")]

    assert [http.HTTPStatus.UNAUTHORIZED] * 2 + [http.HTTPStatus.OK] * 3 == statuses


def test_a_certificate_of_another_ca_is_rejected(installation: Installation, tmp_path: Path) -> None:
    """The server does not trust the CA of the API server's certificate."""
    with installation.serve(tmp_path / "log", client_ca(tmp_path, trustme.CA())) as server:
        eventually(server.ready)
        denied = installation.refusal(pod("asks", {VCUDA_MEMORY: "8"}))
        reviews = server.reviews()

    assert "failed calling webhook" in denied
    assert 0 == reviews


def test_the_token_and_keys_of_gpugate_are_in_no_log(
    installation: Installation, authority: trustme.CA, tmp_path: Path
) -> None:
    """Not even in messages about an unreachable API server."""
    (kubeconfig,) = [Path(option) for option in installation.options if option.endswith(".kubeconfig")]
    (user,) = json.loads(kubeconfig.read_text())["users"]
    log = tmp_path / "log"
    with running(installation, log, client_ca(tmp_path, authority)) as installed:
        installed.cluster.kill_apiserver()
        eventually(lambda: "watch of" in log.read_text())
        installed.cluster.restart_apiserver()
        eventually(installed.in_force)
    text = log.read_text()

    assert len(user["user"]["token"]) > 100
    assert user["user"]["token"] not in text
    assert "PRIVATE KEY" not in text
