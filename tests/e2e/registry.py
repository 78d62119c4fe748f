"""A registry of a test's own: Debian's docker-registry with TLS and a password, and images pushed by HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import ssl
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import trustme

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
auth: {{htpasswd: {{realm: test, path: "{folder}/htpasswd"}}}}
http: {{addr: "{host}", tls: {{certificate: "{folder}/registry.pem", key: "{folder}/registry.key"}}}}
"""
_BASIC: Final = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def missing() -> bool:
    """Return whether this machine has no registry."""
    return shutil.which(PROGRAM) is None


class Registry:
    """A registry that asks for a password; a context manager.

    host: with its port. ca_file: the CA of its certificate. config_file: credentials in Docker's format.
    """

    def __init__(self, folder: Path) -> None:
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
        (folder / "registry.yaml").write_text(_SERVED.format(folder=folder, host=self.host), "utf-8")
        auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self.config_file.write_text(json.dumps({"auths": {self.host: {"auth": auth}}}), "utf-8")
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
        try:
            connection.request(method, path, body, headers | {"Authorization": _BASIC})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status in {201, 202}, (method, path, answer.status, text)
            return answer.headers["Location"] or ""
        finally:
            connection.close()
