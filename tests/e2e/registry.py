"""A registry of a test's own: Debian's docker-registry with TLS, and images pushed by HTTP.

It asks for a password, or for a token of a server that a test runs.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from certs.authority import KeyPair
from tests.e2e.daemon import HOST, Daemon, reserve_port
from tests.support.image_builders import Blob

PROGRAM: Final = "docker-registry"
USER: Final = "robot"
PASSWORD: Final = "secret"  # noqa: S105 - of the test's own registry
# The password, hashed with bcrypt, the only algorithm that the registry accepts.
_HTPASSWD: Final = f"{USER}:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
_SERVED: Final = """
version: 0.1
storage: {{filesystem: {{rootdirectory: "{folder}/data"}}}}
auth: {auth}
http: {{addr: "{host}", tls: {{certificate: "{folder}/registry.pem", key: "{folder}/registry.key"}}}}
"""
BASIC: Final = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def missing() -> bool:
    """Return whether this machine has no registry."""
    return shutil.which(PROGRAM) is None


@dataclass(frozen=True)
class TokenServer:
    """A server of tokens. realm: its URL. ca_pem: of its certificate. token: for a scope, as a signed JWT."""

    realm: str
    ca_pem: bytes
    signer: KeyPair

    def token(self, scope: str) -> str:
        """Return a token: https://distribution.github.io/distribution/spec/auth/jwt/."""
        kind, name, actions = scope.split(":")
        certificate = x509.load_pem_x509_certificate(self.signer.certificate_pem)
        chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        now = int(time.time())
        claims = {"iss": "test", "sub": USER, "aud": "test", "exp": now + 300, "nbf": now - 60, "iat": now}
        parts = [{"alg": "ES256", "typ": "JWT", "x5c": chain}, claims | {"jti": "1", "access": access}]
        signed = b".".join(_base64(json.dumps(part).encode()) for part in parts)
        key = load_pem_private_key(self.signer.key_pem, None)
        assert isinstance(key, EllipticCurvePrivateKey)
        r, s = decode_dss_signature(key.sign(signed, ECDSA(SHA256())))
        return (signed + b"." + _base64(r.to_bytes(32, "big") + s.to_bytes(32, "big"))).decode()


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


class Registry:
    """A registry that asks for a password, or for tokens; a context manager.

    host: with its port. ca_file: the CAs of its certificate and of the server of tokens. config_file:
    credentials in Docker's format.
    """

    def __init__(self, folder: Path, tokens: TokenServer | None = None) -> None:
        self._held = reserve_port()
        port = self._held.getsockname()[1]
        self.host = f"{HOST}:{port}"
        self.ca_file, self.config_file = folder / "ca.pem", folder / "config.json"
        authority = trustme.CA()
        identity = authority.issue_cert(HOST)
        identity.private_key_pem.write_to_path(folder / "registry.key")
        identity.cert_chain_pems[0].write_to_path(folder / "registry.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self._trust = ssl.create_default_context(cafile=str(self.ca_file))
        (folder / "htpasswd").write_text(_HTPASSWD, "utf-8")
        self._tokens = tokens
        auth: dict[str, Any] = {"htpasswd": {"realm": "test", "path": f"{folder}/htpasswd"}}
        if tokens:
            (folder / "signer.pem").write_bytes(tokens.signer.certificate_pem)
            self.ca_file.write_bytes(self.ca_file.read_bytes() + tokens.ca_pem)
            names = {"realm": tokens.realm, "service": "test", "issuer": "test"}
            auth = {"token": names | {"rootcertbundle": f"{folder}/signer.pem"}}
        served = _SERVED.format(folder=folder, host=self.host, auth=json.dumps(auth))
        (folder / "registry.yaml").write_text(served, "utf-8")
        auths = {self.host: {"auth": BASIC.removeprefix("Basic ")}}
        self.config_file.write_text(json.dumps({"auths": auths}), "utf-8")
        argv = [PROGRAM, "serve", str(folder / "registry.yaml")]
        self._server = Daemon(argv, port, "/", self._trust, folder / "registry.log")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._held.close()

    def stop(self) -> None:
        """End the server; its port stays reserved."""
        self._server.stop()

    def push(self, name: str, top: Blob, *others: Blob) -> str:
        """Push an image, name is `repository:tag`; others: configs, then manifests. Return its reference."""
        repository, _, tag = name.partition(":")
        for blob in others:
            if "manifest" in blob.media_type:
                self._put_manifest(repository, blob.digest, blob)
            else:
                self._put_blob(repository, blob)
        self._put_manifest(repository, tag, top)
        return f"{self.host}/{name}"

    def _put_manifest(self, repository: str, reference: str, blob: Blob) -> None:
        path = f"/v2/{repository}/manifests/{reference}"
        self._ask("PUT", path, blob.body, {"Content-Type": blob.media_type})

    def _put_blob(self, repository: str, blob: Blob) -> None:
        """Upload in one part: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#push."""
        target = urlsplit(self._ask("POST", f"/v2/{repository}/blobs/uploads/", b"", {}))
        path = f"{target.path}?{target.query}&digest={blob.digest}"
        self._ask("PUT", path, blob.body, {"Content-Type": "application/octet-stream"})

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> str:
        """Return the Location of a successful answer."""
        connection = http.client.HTTPSConnection(self.host, timeout=10, context=self._trust)
        repository = re.split("/(?:manifests|blobs)/", path.removeprefix("/v2/"))[0]
        scope = f"repository:{repository}:pull,push"
        authorization = f"Bearer {self._tokens.token(scope)}" if self._tokens else BASIC
        try:
            connection.request(method, path, body, headers | {"Authorization": authorization})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status in {201, 202}, (method, path, answer.status, text)
            return answer.headers["Location"] or ""
        finally:
            connection.close()
