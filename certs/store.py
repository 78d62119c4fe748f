"""Storage of the bundle: a Secret that all replicas share, or a directory.

The stored bundle is the source of truth. A writer passes the version that it has read; if the store has
changed since, it gets a Conflict and reads again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from base64 import b64decode, b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from certs.authority import CertificateError
from certs.bundle import FILES, KEYS, Bundle, decode, encode
from certs.kubernetes_api import Conflict, Kubernetes, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The symlink that all files of a directory go through, as the kubelet does: replacing it updates them
# atomically.
_DATA: Final = "..data"
_NEW: Final = "..new"


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored bundle as it was read."""

    bundle: Bundle | None  # None if there is none yet
    version: Any  # for optimistic locking


class Store(Protocol):
    """Storage for one bundle."""

    def load(self) -> Stored:
        """Return the stored bundle; raises CertificateError if it is invalid, KubernetesError, OSError."""

    def save(self, bundle: Bundle, over: Stored) -> None:
        """Replace the bundle that was read, `over`; raises Conflict if the store has changed since."""


def secret_path(namespace: str, name: str) -> str:
    """Return the path of a Secret."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets/{quote(name, safe='')}"


class SecretStore:
    """A Secret; created with type kubernetes.io/tls. An existing one keeps its type and other data."""

    def __init__(self, api: Kubernetes, namespace: str, name: str) -> None:
        self._api = api
        self._namespace, self._name = namespace, name
        self.path = secret_path(namespace, name)

    def __str__(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    def load(self) -> Stored:
        """Return the bundle in the Secret; a Secret without data is treated as missing.

        Raises CertificateError if it has other content, KubernetesError.
        """
        try:
            secret = self._api.get(self.path)
        except NotFound:
            return Stored(None, None)
        try:
            files = {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}
        except ValueError as error:
            raise _invalid(self, error) from error
        return Stored(_decode(self, files), secret)

    def save(self, bundle: Bundle, over: Stored) -> None:
        """Create the Secret, or replace the one that was read; raises Conflict, KubernetesError."""
        data = {key: b64encode(value).decode() for key, value in encode(bundle).items()}
        if over.version is None:
            metadata = {"name": self._name, "labels": {"app.kubernetes.io/name": "gpugate"}}
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
            secrets = self.path.rpartition("/")[0]
            self._api.create(secrets, secret | {"metadata": metadata, "data": data})
            return
        present = over.version.get("data") or {}
        self._api.replace(self.path, over.version | {"data": present | data})


class DirectoryStore:
    """A directory of PEM files, updated atomically; keys are readable by their owner only.

    path: the directory; created by the first save.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return f"directory {self.path}"

    def load(self) -> Stored:
        """Return the bundle in the directory; raises CertificateError if it has other content, OSError."""
        if not self.path.is_dir():
            return Stored(None, {})
        with self._locked():
            files = self._read()
        return Stored(_decode(self, files), files)

    def save(self, bundle: Bundle, over: Stored) -> None:
        """Write the files, and create the directory if it is missing; raises Conflict, OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if self._read() != over.version:
                raise Conflict(f"{self} has changed since it was read")
            link = self.path / _DATA
            old = link.resolve() if link.is_symlink() else None
            new = Path(mkdtemp(prefix="..", dir=self.path))
            new.chmod(0o755)
            for name, content in encode(bundle).items():
                _write(new / name, content, 0o600 if name in KEYS else 0o644)
            self._link(_DATA, new.name)
            for name in FILES:
                self._link(name, f"{_DATA}/{name}")
            if old is not None:
                shutil.rmtree(old)

    def _read(self) -> dict[str, bytes]:
        paths = (self.path / name for name in FILES)
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    def _link(self, name: str, target: str) -> None:
        """Point a symlink to a new target atomically."""
        link = self.path / _NEW
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        link.replace(self.path / name)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _write(path: Path, content: bytes, mode: int) -> None:
    # Created with its mode: others can never read a key, not even for a moment.
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_EXCL, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _decode(store: Store, files: Mapping[str, bytes]) -> Bundle | None:
    try:
        return decode(files)
    except CertificateError as error:
        raise _invalid(store, error) from error


def _invalid(store: Store, error: ValueError) -> CertificateError:
    return CertificateError(f"{store} holds no certificates of gpugate: {error}; delete it, or use another")
