"""Where the bundle is kept: a Secret that all replicas share, or a directory.

What is stored is the truth. Whoever writes says what it had read; if that has changed since, it is a
Conflict, and the loser reads what the winner wrote.
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

# The link that a directory's files go through, as in the kubelet's: moved, it changes them all at once.
_DATA: Final = "..data"
_NEW: Final = "..new"


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read: the bundle, None where there is none yet, and by what the store knows it again."""

    bundle: Bundle | None
    version: Any


class Store(Protocol):
    """A place for one bundle."""

    def load(self) -> Stored:
        """Return what is stored; raises CertificateError where it is no bundle, KubernetesError, OSError."""

    def save(self, bundle: Bundle, over: Stored) -> None:
        """Put the bundle in the place of what was read; raises Conflict where that has changed."""


class SecretStore:
    """A Secret: of type kubernetes.io/tls where it is made here; one that is there keeps what else it has."""

    def __init__(self, api: Kubernetes, namespace: str, name: str) -> None:
        self._api = api
        self._namespace, self._name = namespace, name
        self._secrets = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets"

    def __str__(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    def load(self) -> Stored:
        """Return what the Secret holds; one without data is as good as none.

        Raises CertificateError where it holds something else, KubernetesError.
        """
        try:
            secret = self._api.get(f"{self._secrets}/{quote(self._name, safe='')}")
        except NotFound:
            return Stored(None, None)
        try:
            files = {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}
        except ValueError as error:
            raise _refusal(self, error) from error
        return Stored(_decode(self, files), secret)

    def save(self, bundle: Bundle, over: Stored) -> None:
        """Create the Secret, or replace the one that was read; raises Conflict, KubernetesError."""
        data = {key: b64encode(value).decode() for key, value in encode(bundle).items()}
        if over.version is None:
            metadata = {"name": self._name, "labels": {"app.kubernetes.io/name": "gpugate"}}
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
            self._api.create(self._secrets, secret | {"metadata": metadata, "data": data})
            return
        kept = over.version.get("data") or {}
        self._api.replace(
            f"{self._secrets}/{quote(self._name, safe='')}", over.version | {"data": kept | data}
        )


class DirectoryStore:
    """A directory of PEM files, changed all at once; keys are readable by their owner alone.

    path: the directory; made when something is saved.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return f"directory {self.path}"

    def load(self) -> Stored:
        """Return what the directory holds; raises CertificateError where it is something else, OSError."""
        if not self.path.is_dir():
            return Stored(None, {})
        with self._locked():
            files = self._read()
        return Stored(_decode(self, files), files)

    def save(self, bundle: Bundle, over: Stored) -> None:
        """Write the files, making the directory where there is none; raises Conflict, OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if self._read() != over.version:
                raise Conflict(f"{self} has changed meanwhile")
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
        found = (self.path / name for name in FILES)
        return {path.name: path.read_bytes() for path in found if path.is_file()}

    def _link(self, name: str, target: str) -> None:
        """Let a name lead elsewhere, in one step."""
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
    # Made with its mode, so that there is no moment in which others may read a key.
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_EXCL, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _decode(store: Store, files: Mapping[str, bytes]) -> Bundle | None:
    try:
        return decode(files)
    except CertificateError as error:
        raise _refusal(store, error) from error


def _refusal(store: Store, error: ValueError) -> CertificateError:
    return CertificateError(f"{store} holds no certificates of gpugate: {error}; delete it, or name another")
