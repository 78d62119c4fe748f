"""docs/security.md on a real API server, which authenticates to gpugate by tokens of its cluster (KEP-6060).

kube-apiserver 1.37 issues them, and presents those that the page's script writes.
"""

from __future__ import annotations

import http
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from tests.e2e.cluster import ControlPlane, assets, missing
from tests.e2e.daemon import HOST, Daemon, reserve_port
from tests.e2e.installed import VCUDA_MEMORY, Installation, Installed, install, running
from tests.e2e.manifests import MANIFESTS, render
from tests.e2e.serve_process import ask, eventually
from tests.e2e.test_control_plane import pod
from tests.support.pages import fences, text_of
from tests.support.webhooks import body
from tests.support.webhooks import pod as asked_pod

pytestmark = pytest.mark.needs_kubernetes("1.37")

PAGE = "docs/security.md"
FOLDER, SERVICE = "/etc/kubernetes/admission", "gpugate.gpugate.svc"
ACCOUNT = ("kube-system", "webhook-auth")


class Presenting(ControlPlane):
    """A control plane whose API server presents tokens to a webhook, by its host and port.

    page: its folder with the files of the page.
    """

    def __init__(self, binaries: Path, folder: Path, webhook: str) -> None:
        self.page = folder / "admission"
        self.page.mkdir(parents=True)
        self._webhook = webhook
        for fence in fences(text_of(PAGE), PAGE):
            if fence.file:
                (self.page / fence.file).write_text(self._here(fence.text))
        self._signing, self._public = self.page / "signing.pem", self.page / "public.pem"
        self._public.touch()
        self.add_key()
        super().__init__(binaries, folder)

    def add_key(self) -> None:
        """Let the cluster sign with a new key after its next start, and verify with the old ones, too."""
        key = rsa.generate_private_key(65537, 2048)
        self._signing.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self._public.write_bytes(self._public.read_bytes() + public)

    def key(self) -> rsa.RSAPrivateKey:
        """Return the key that the cluster signs with."""
        key = load_pem_private_key(self._signing.read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return key

    def renew_tokens(self) -> None:
        """Run the script of the page."""
        (script,) = [fence.text for fence in fences(text_of(PAGE), PAGE) if "--raw" in fence.text]
        environment = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self._binaries}:{os.environ['PATH']}",
        }
        subprocess.run(["sh", "-ec", self._here(script)], env=environment, check=True)

    def _here(self, text: str) -> str:
        """Return a text of the page with this folder and address."""
        for shown in (f"{SERVICE}:443", SERVICE):
            text = text.replace(shown, self._webhook)
        return text.replace(FOLDER, str(self.page))

    def _daemon(self, name: str, port: int, health: str, flags: dict[str, Any]) -> Daemon:
        if name == "kube-apiserver":
            flags = flags | {
                "feature-gates": "APIServerWebhookAuthenticationToken=true",
                "admission-control-config-file": self.page / "tokens.yaml",
                "service-account-signing-key-file": self._signing,
                "service-account-key-file": self._public,
            }
        return super()._daemon(name, port, health, flags)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Yield gpugate in a cluster whose API server presents tokens, without a running server."""
    binaries = assets()
    if absent := missing(binaries):
        pytest.skip(f"no {', '.join(absent)} in {binaries}: run `make e2e-assets`")
    with reserve_port() as held:
        port = held.getsockname()[1]
        folder = tmp_path_factory.mktemp("tokens")
        with Presenting(binaries, folder, f"{HOST}:{port}") as cluster:
            installed = install(cluster, port)
            cluster.kubectl("apply", "-f", str(cluster.page / "webhook-auth.yaml"))
            cluster.renew_tokens()
            yield installed


@pytest.fixture(scope="module")
def installed(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield the same with a server that requires tokens."""
    log = tmp_path_factory.mktemp("serve") / "log"
    with running(installation, log, f"--token-audience=https://{HOST}:{installation.port}") as server:
        yield server


def cluster_of(installation: Installation) -> Presenting:
    """Return the cluster."""
    assert isinstance(installation.cluster, Presenting)
    return installation.cluster


def status(installation: Installation, path: str, *tokens: str) -> int:
    """Return the status of a review with these tokens."""
    headers = {"Authorization": f"Bearer {tokens[0]}"} if tokens else {}
    return ask(installation.port, path, body(asked_pod({VCUDA_MEMORY: "8"})), headers)[0]


def test_the_api_server_with_its_token_gets_an_answer_and_other_clients_do_not(installed: Installed) -> None:
    """Both webhooks: one sets a default, the other denies. Probes and metrics need no token."""
    own = {
        name: (cluster_of(installed).page / f"{name}.token").read_text().strip()
        for name in ("mutate", "validate")
    }
    limits = installed.limits()
    denied = installed.refusal(pod("asks", {"tencent.com/vcuda-core": "150"}))
    statuses = [status(installed, f"/{path}", *tokens) for path in own for tokens in ((), (own[path],))]
    crossed = [status(installed, "/mutate", own["validate"]), status(installed, "/validate", own["mutate"])]

    assert {VCUDA_MEMORY: "8", "tencent.com/vcuda-core": "20"} == limits
    assert "multiple of 100" in denied
    assert [http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.OK] * 2 == statuses
    assert [http.HTTPStatus.UNAUTHORIZED] * 2 == crossed


def test_a_token_of_the_cluster_that_is_not_the_api_servers_is_rejected(installed: Installed) -> None:
    """A pod gets one for any audience, without an attestation; its usual one is for the API server."""
    cluster = cluster_of(installed)
    audience = f"--audience=https://{HOST}:{installed.port}/mutate"
    tokens = [
        cluster.kubectl("create", "token", ACCOUNT[1], "-n", ACCOUNT[0], *options).stdout.strip()
        for options in ((audience,), ())
    ]

    assert [http.HTTPStatus.UNAUTHORIZED] * 2 == [status(installed, "/mutate", token) for token in tokens]
    for reason in ("attestation", "audience"):
        assert installed.server.sample(f'gpugate_unauthenticated_reviews_total{{reason="{reason}"}}') > 0


def test_the_api_servers_own_token_is_rejected_once_it_has_expired_or_was_changed(
    installed: Installed,
) -> None:
    """Signed with the key of the cluster, as no server would."""
    cluster = cluster_of(installed)
    token = (cluster.page / "mutate.token").read_text().strip()
    claims = jwt.decode(token, options={"verify_signature": False})
    header = {"kid": jwt.get_unverified_header(token)["kid"]}
    ended = claims | {"exp": int(time.time()) - 120}
    elsewhere = claims | {"aud": ["https://other.example/mutate"]}
    stolen = rsa.generate_private_key(65537, 2048)
    tokens = [
        jwt.encode(claims, cluster.key(), "RS256", header),
        jwt.encode(ended, cluster.key(), "RS256", header),
        jwt.encode(elsewhere, cluster.key(), "RS256", header),
        jwt.encode(claims, stolen, "RS256", header),
        f"{token[:-4]}AAAA",
    ]

    assert [http.HTTPStatus.OK] + [http.HTTPStatus.UNAUTHORIZED] * 4 == [
        status(installed, "/mutate", token) for token in tokens
    ]


def test_a_new_key_of_the_cluster_is_accepted_without_a_restart_of_gpugate(installed: Installed) -> None:
    """A token that was signed with the old key, too, while the cluster has it."""
    cluster = cluster_of(installed)
    old = (cluster.page / "mutate.token").read_text().strip()
    cluster.add_key()
    cluster.restart_apiserver()
    cluster.renew_tokens()
    new = (cluster.page / "mutate.token").read_text().strip()
    eventually(lambda: status(installed, "/mutate", new) == http.HTTPStatus.OK)
    eventually(installed.in_force)

    assert jwt.get_unverified_header(old)["kid"] != jwt.get_unverified_header(new)["kid"]
    assert http.HTTPStatus.OK == status(installed, "/mutate", old)


def test_the_last_keys_stay_in_force_while_the_api_server_is_away(installed: Installed) -> None:
    """It tries to read them when a token has an unknown key; its log says why it cannot, without tokens."""
    cluster = cluster_of(installed)
    token = (cluster.page / "mutate.token").read_text().strip()
    unknown = jwt.encode({"a": 1}, cluster.key(), "RS256", {"kid": "unknown"})
    cluster.kill_apiserver()
    try:
        log = installed.server._log
        eventually(
            lambda: (
                status(installed, "/mutate", unknown) == http.HTTPStatus.UNAUTHORIZED
                and "cannot verify tokens" in log.read_text()
            )
        )
        status_code = status(installed, "/mutate", token)
    finally:
        cluster.restart_apiserver()
        eventually(installed.in_force)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    rejected = [line["message"] for line in lines if line["logger"] == "gpugate.authentication"]

    assert http.HTTPStatus.OK == status_code
    assert rejected[0].startswith("review rejected: a review requires a token of the API server")
    assert not any(part in log.read_text() for part in (token, unknown))


def test_gpugate_is_not_ready_before_it_could_read_the_keys(
    installation: Installation, tmp_path: Path
) -> None:
    """The right to read them is taken away, as hardened clusters do."""
    cluster, role = cluster_of(installation), "system:service-account-issuer-discovery"
    command = ("patch", "clusterrolebinding", role, "--type=merge", "-p")
    everyone = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:serviceaccounts"}
    cluster.kubectl(*command, '{"subjects": []}')
    log, audience = tmp_path / "log", f"--token-audience=https://{HOST}:{installation.port}"
    try:
        with reserve_port() as held, installation.serve(log, audience, port=held.getsockname()[1]) as server:
            eventually(
                lambda: "cannot verify tokens: GET /.well-known/openid-configuration: 403" in log.read_text()
            )
            before = server.ready()
            cluster.kubectl(*command, json.dumps({"subjects": [everyone]}))
            eventually(server.ready)
    finally:
        cluster.kubectl(*command, json.dumps({"subjects": [everyone]}))

    assert not before


def test_the_component_sets_the_option(tmp_path: Path) -> None:
    """The URL is that of the Service of the webhook configurations."""
    parts = {"resources": "base", "components": "components/token"}
    document = {kind: [os.path.relpath(MANIFESTS / path, tmp_path)] for kind, path in parts.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(document))
    objects = render(tmp_path)
    (deployment,) = [document for document in objects if document["kind"] == "Deployment"]
    services = {
        "https://{name}.{namespace}.svc:443".format(**webhook["clientConfig"]["service"])
        for document in objects
        for webhook in document.get("webhooks", ())
    }

    assert [f"--token-audience={url}" for url in services] == deployment["spec"]["template"]["spec"][
        "containers"
    ][0]["args"][-1:]
