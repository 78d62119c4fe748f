"""The Kubernetes API that certificate rotation needs: raw JSON by path, and two expected errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class KubernetesError(Exception):
    """The API server denied the request or does not answer: the fault of the cluster or of its RBAC."""


class NotFound(KubernetesError):  # noqa: N818 - the API server's own word
    """The object does not exist."""


class Conflict(KubernetesError):  # noqa: N818 - the API server's own word
    """The object has changed since it was read: read it again and retry."""


class Kubernetes(Protocol):
    """Objects by path, such as `/api/v1/namespaces/gpugate/secrets/gpugate-certs`, as JSON.

    Each method raises KubernetesError; Conflict if an object that is written has changed since it was read.
    """

    def now(self) -> datetime:
        """Return the current time, aware; by the API server's clock after its first answer."""

    def get(self, path: str) -> dict[str, Any]:
        """Return the object; raises NotFound."""

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Create an object in the collection at this path; Conflict if one with its name exists."""

    def replace(self, path: str, document: dict[str, Any]) -> None:
        """Replace the object of this resourceVersion."""

    def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply RFC 6902 operations; if one sets the resourceVersion, to the object of that version only."""
