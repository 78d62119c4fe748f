"""The API server of a cluster: one place for configuration, authentication and connections; raw JSON.

Watches, and whatever keeps objects of ours, go through `ClusterApi`; `Cluster` is what commands read once,
with errors that say what to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import unquote, urlencode

import msgspec
import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException

from certs.kubernetes_api import Conflict, KubernetesError, NotFound
from rules.schema.loader import LABEL_PREFIXES, RESOURCE_RULE_TYPE, TYPE_LABEL
from webhook.admission.rule_configmap import rule_text
from webhook.cluster.credentials import by_kubeconfig, by_service_account
from webhook.cluster.in_cluster import SERVICE_ACCOUNT, in_pod

T = TypeVar("T")

# What tells a rule from other ConfigMaps. Selectors have no OR, so each is a request.
RULE_SELECTORS: Final = (*(f"{prefix}type={RESOURCE_RULE_TYPE}" for prefix in LABEL_PREFIXES), TYPE_LABEL)
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
# Seconds. An API server that is there answers a page in well under one.
_CONNECT_S: Final = 5.0
_READ_S: Final = 10.0
_JSON: Final = "application/json"
# Objects of one answer, as kubectl asks for; the rest comes with the next.
_PAGE: Final = 500
# For a command, which nobody calls again: after 0, 0.4 seconds. Also what writes, because each write is
# conditional on a name or a resourceVersion: a second that finds the first done is told so by a conflict.
_COMMAND_RETRIES: Final = urllib3.Retry(2, redirect=0, backoff_factor=0.2, allowed_methods=None)

# What a request raises where there is no answer: no connection, a broken one, no token to show.
UNANSWERED: Final = (urllib3.exceptions.HTTPError, ConfigException, OSError)


class ClusterError(KubernetesError):
    """The cluster cannot be read; says which call failed and what to look at."""


class ApiError(KubernetesError):
    """The API server refuses a call. status: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


_KINDS: Final[dict[int, type[KubernetesError]]] = {404: NotFound, 409: Conflict}


class Status(msgspec.Struct):
    """What the API server answers where it does not answer what was asked for."""

    code: int = 0
    message: str = ""


decode_status = msgspec.json.Decoder(Status).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class _ListMetadata(msgspec.Struct):
    """What a list says of itself. more: the token for its next page; empty in the last."""

    version: str = msgspec.field(default="", name="resourceVersion")
    more: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMetadata
    items: list[T]


class ClusterApi:
    """Requests to an API server, from one pool of connections, each as whom we are at the time.

    `get`, `create`, `replace` and `patch` do what `certs.kubernetes_api.Kubernetes` says. `list` and `stream`
    are for
    watches, which have to know what came between: they raise ApiError, or one of UNANSWERED.
    """

    def __init__(self, configuration: Configuration, retries: urllib3.Retry | bool = False) -> None:
        """Take a cluster. retries: of broken connections; none for who asks again and again by itself."""
        configuration.keep_alive = True  # a peer that vanished ends its streams in under three minutes
        self._retries = retries
        self._told: tuple[datetime, float] | None = None  # a time, and what the monotonic clock said then
        self.client = ApiClient(configuration)

    @classmethod
    def of_kubeconfig(
        cls, kubeconfig: str | None = None, context: str | None = None, retries: urllib3.Retry | bool = False
    ) -> Self:
        """Take the given or the usual kubeconfig, and the given or its current context.

        Raises ClusterError where that names no cluster.
        """
        try:
            return cls(by_kubeconfig(kubeconfig, context), retries)
        except ConfigException as error:
            raise ClusterError(f"no cluster: {error}; look at --kubeconfig and --context") from error

    @classmethod
    def in_cluster(
        cls, folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ
    ) -> Self | None:
        """Take the service account that a pod runs as; None where there is none in the folder.

        Raises ClusterError where it is there and cannot be used.
        """
        try:
            configuration = by_service_account(folder, environ)
        except (ConfigException, OSError) as error:
            raise ClusterError(f"no cluster: {error}; look at the service account of this pod") from error
        return cls(configuration) if configuration else None

    def now(self) -> datetime:
        """Return the time, aware: what the API server said last and what has passed since; at first, ours."""
        if self._told is None:
            return datetime.now(UTC)
        moment, then = self._told
        return moment + timedelta(seconds=monotonic() - then)

    def get(self, path: str) -> dict[str, Any]:
        """Return the object; raises NotFound, KubernetesError, also where it is answered with another."""
        found, name = self._ask("GET", path), unquote(path.rpartition("/")[2])
        match found.get("metadata"):
            case {"name": str(of), "resourceVersion": str()} if of == name:
                return found
        raise KubernetesError(f"GET {path}: answered with another object")

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Add an object to a collection; raises Conflict, KubernetesError."""
        self._ask("POST", path, document)

    def replace(self, path: str, document: dict[str, Any]) -> None:
        """Put an object in the place of the one of its resourceVersion; raises Conflict, KubernetesError."""
        self._ask("PUT", path, document)

    def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply RFC 6902 operations; raises NotFound, Conflict, KubernetesError."""
        self._ask("PATCH", path, operations, "application/json-patch+json")

    def apply(self, path: str, document: dict[str, Any], manager: str) -> None:
        """Own just these fields of an object, whoever had them (server-side apply, forced).

        Of this manager's fields those that are no longer there go. Raises Conflict where the document has a
        resourceVersion and the object another, KubernetesError.
        """
        query = urlencode({"fieldManager": manager, "force": "true"})
        self._ask("PATCH", f"{path}?{query}", document, "application/apply-patch+yaml")

    def stream(self, path: str, query: Mapping[str, str], silence_s: float) -> urllib3.BaseHTTPResponse:
        """Return the answer to a GET as it comes, which the caller closes.

        silence_s: seconds without anything that are a failure. Raises ApiError, or one of UNANSWERED.
        """
        timeout = urllib3.Timeout(connect=_CONNECT_S, read=silence_s)
        return self._send("GET", path, query, timeout=timeout, preload_content=False)

    def list(
        self, path: str, selector: str = "", shape: Any = dict[str, Any]
    ) -> tuple[list[dict[str, Any]], str]:
        """Return all objects at a path, page by page, and the resourceVersion of the list.

        shape: what is read of each object, a type for msgspec. Raises ApiError, msgspec.DecodeError, or one
        of UNANSWERED.
        """
        decoder = msgspec.json.Decoder(_Page[shape])
        query = {"limit": str(_PAGE)} | ({"labelSelector": selector} if selector else {})
        objects: list[dict[str, Any]] = []
        while True:
            page = decoder.decode(self._send("GET", path, query, retries=self._retries).data)
            objects += page.items
            if not page.metadata.more:
                return objects, page.metadata.version
            query["continue"] = page.metadata.more

    def close(self) -> None:
        """Give the connections back that are not in use."""
        self.client.rest_client.pool_manager.clear()

    def _ask(self, method: str, path: str, body: Any = None, media: str = _JSON) -> dict[str, Any]:
        """Return the object that a request for one is answered with."""
        content = None if body is None else msgspec.json.encode(body)
        try:
            answer = self._send(method, path, media=media, body=content, retries=self._retries)
            return _decode_object(answer.data)
        except ApiError as error:
            raise _KINDS.get(error.status, KubernetesError)(f"{method} {path}: {error}") from error
        except msgspec.DecodeError as error:
            raise KubernetesError(f"{method} {path}: answered with no JSON object: {error}") from error
        except UNANSWERED as error:
            raise KubernetesError(f"the API server does not answer {method} {path}: {error}") from error

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        media: str = _JSON,
        **options: Any,
    ) -> urllib3.BaseHTTPResponse:
        configuration = self.client.configuration
        headers = {"Accept": _JSON, "Content-Type": media, "User-Agent": "gpugate"}
        for setting in configuration.auth_settings().values():  # has tokens renewed that rotate
            headers[setting["key"]] = str(setting["value"])
        url = f"{configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        defaults: dict[str, Any] = {
            "timeout": urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
            "retries": False,
        }
        response = self.client.rest_client.pool_manager.request(
            method, url, headers=headers, **defaults | options
        )
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(response)
        with suppress(ValueError):
            self._told = (
                parsedate_to_datetime(response.headers.get("Date", "")).replace(tzinfo=UTC),
                monotonic(),
            )
        return response


def _refusal(response: urllib3.BaseHTTPResponse) -> ApiError:
    """Return what the API server says of a request that it refuses, or what HTTP says."""
    try:
        message = decode_status(response.data).message
    except msgspec.DecodeError:  # of a proxy before it
        message = ""
    return ApiError(response.status, message or response.reason or "")


def config_maps(namespace: str) -> str:
    """Return the path of a namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def connect(kubeconfig: str | None, context: str | None) -> ClusterApi:
    """Return the cluster of a command: the given one, else the pod's own, else that of the usual kubeconfig.

    Raises ClusterError where there is none.
    """
    own = None if kubeconfig or context or not in_pod() else ClusterApi.in_cluster()
    return own or ClusterApi.of_kubeconfig(kubeconfig, context, _COMMAND_RETRIES)


class Cluster:
    """A cluster that a kubeconfig names, read once. Raises ClusterError where the kubeconfig names none."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """Take the given or the usual kubeconfig, and the given or its current context."""
        self._api = ClusterApi.of_kubeconfig(kubeconfig, context, _COMMAND_RETRIES)

    def rules(self, namespace: str) -> list[tuple[str, str]]:
        """Return (name, YAML) of each rule ConfigMap of a namespace, as `kubectl get -o yaml` prints it.

        Raises ClusterError.
        """
        what, path = f"ConfigMaps of namespace {namespace!r}", config_maps(namespace)
        found = [item for selector in RULE_SELECTORS for item in self._list(what, path, selector)]
        return sorted(dict(map(rule_text, found)).items())

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes, as JSON. Raises ClusterError."""
        return self._list("Nodes", NODES)

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of all namespaces, as JSON. Raises ClusterError."""
        return self._list("Pods", PODS)

    def _list(self, what: str, path: str, selector: str = "") -> list[dict[str, Any]]:
        try:
            objects, _ = self._api.list(path, selector)
        except ApiError as error:
            raise ClusterError(f"cannot list {what}: {error}") from error
        except msgspec.DecodeError as error:
            raise ClusterError(f"cannot list {what}: this is no API server: {error}") from error
        except UNANSWERED as error:
            raise ClusterError(f"the API server does not answer: {error}") from error
        return objects
