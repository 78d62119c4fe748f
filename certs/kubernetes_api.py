"""The API server as the trust sees it: raw JSON at a path, and the two answers that are no failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class KubernetesError(Exception):
    """The API server refused or does not answer: the fault of the cluster or of its RBAC."""


class NotFound(KubernetesError):  # noqa: N818 - the API server's own word
    """There is no such object."""


class Conflict(KubernetesError):  # noqa: N818 - the API server's own word
    """Somebody else wrote first: read again, decide again."""


class Kubernetes(Protocol):
    """Objects at their paths, such as `/api/v1/namespaces/gpugate/secrets/gpugate-certs`, as JSON.

    Each raises KubernetesError; Conflict where an object that is written has changed since it was read.
    """

    def now(self) -> datetime:
        """Return the time, aware; by the API server's clock once it has answered."""

    def get(self, path: str) -> dict[str, Any]:
        """Return the object; raises NotFound."""

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Add an object to the collection at this path; Conflict where one of its name is there."""

    def replace(self, path: str, document: dict[str, Any]) -> None:
        """Put an object in the place of the one of its resourceVersion."""

    def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply RFC 6902 operations; where one sets the resourceVersion, to the object of that version."""
