"""The API server as the trust sees it: raw JSON at a path, and the two answers that are no failures."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

# Seconds for one request; an API server that is there answers one for a single object in milliseconds.
_TIMEOUT: Final = 10.0
# What is tried again where a connection fails: every request here is either a reading one or conditional on a
# resourceVersion, so a second that finds the first done is told so by a conflict.
_RETRIES: Final = 2
# Seconds before the second try; twice that before the third.
_BACKOFF: Final = 0.2


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

    def get(self, path: str) -> dict[str, Any]:
        """Return the object; raises NotFound."""

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Add an object to the collection at this path; Conflict where one of its name is there."""

    def replace(self, path: str, document: dict[str, Any]) -> None:
        """Put an object in the place of the one of its resourceVersion."""

    def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply RFC 6902 operations; where one sets the resourceVersion, to the object of that version."""


class ApiServer:
    """The API server of a cluster, by the credentials and connections of a Kubernetes client."""

    def __init__(self, client: ApiClient) -> None:
        self._configuration = client.configuration
        self._connections = client.rest_client.pool_manager

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """Take the given kubeconfig or context; without them the pod's service account or the usual file.

        Raises KubernetesError where that names no cluster.
        """
        # Imported here: the client takes a fifth of a second, and a directory needs none.
        from kubernetes import client, config  # noqa: PLC0415

        try:
            if kubeconfig or context or "KUBERNETES_SERVICE_HOST" not in os.environ:
                return cls(
                    config.new_client_from_config(  # type: ignore[no-untyped-call]
                        kubeconfig, context, persist_config=False
                    )
                )
            configuration = client.Configuration()
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            return cls(client.ApiClient(configuration))
        except (config.ConfigException, OSError) as error:
            raise KubernetesError(f"no cluster: {error}; look at --kubeconfig and --context") from error

    def get(self, path: str) -> dict[str, Any]:
        """Return the object; raises NotFound, KubernetesError."""
        return self._ask("GET", path)

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Add an object to a collection; raises Conflict, KubernetesError."""
        self._ask("POST", path, document)

    def replace(self, path: str, document: dict[str, Any]) -> None:
        """Put an object in the place of the one of its resourceVersion; raises Conflict, KubernetesError."""
        self._ask("PUT", path, document)

    def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply RFC 6902 operations; raises NotFound, Conflict, KubernetesError."""
        self._ask("PATCH", path, operations, "application/json-patch+json")

    def _ask(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> dict[str, Any]:
        # Not by the client's typed calls, whose models drop the fields that they do not know.
        import urllib3  # noqa: PLC0415 - comes with the client
        from kubernetes.config import ConfigException  # noqa: PLC0415 - here already

        headers = {"Accept": "application/json", "Content-Type": media, "User-Agent": "gpugate"}
        try:
            # Asked for each request: a service account's token is renewed every hour.
            for credential in self._configuration.auth_settings().values():
                headers[credential["key"]] = credential["value"]
            answer = self._connections.request(
                method,
                self._configuration.host + path,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=_TIMEOUT,
                retries=urllib3.Retry(_RETRIES, redirect=0, backoff_factor=_BACKOFF, allowed_methods=None),
            )
        except (urllib3.exceptions.HTTPError, ConfigException, OSError) as error:
            raise KubernetesError(f"the API server does not answer {method} {path}: {error}") from error
        document: Any = None
        with suppress(ValueError):
            document = json.loads(answer.data)
        if not isinstance(document, dict):
            raise KubernetesError(f"{method} {path}: {answer.status} {answer.reason}, and no JSON object")
        if answer.status >= 400:
            kind = {404: NotFound, 409: Conflict}.get(answer.status, KubernetesError)
            raise kind(f"{method} {path}: {answer.status} {document.get('message', answer.reason)}")
        return document
