"""Client of the Kubernetes API: configuration, authentication and connections; objects are raw JSON.

`ClusterApi` is for watches and for objects that gpugate writes; `Cluster` is for commands that read once,
with errors that say what to do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, Self, TypedDict, TypeVar
from urllib.parse import quote, unquote, urlencode

import msgspec
import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException

from certs.kubernetes_api import Conflict, KubernetesError, NotFound
from rules import Workloads
from rules.nodes.gpu_operator import DAEMON_SET, toolkit_daemon_set
from rules.nodes.pools import AUTOSCALER_STATUS
from rules.schema.config_map import LABEL_PREFIXES, RESOURCE_RULE_TYPE, TYPE_LABEL
from rules.text.gc_pause import gc_paused
from rules.text.i18n import Message, Text
from webhook.admission.rule_configmap import rule_source
from webhook.cluster.connection_errors import UNAUTHORIZED, connection_error_text, not_found_text
from webhook.cluster.credentials import by_kubeconfig, by_service_account
from webhook.cluster.in_cluster import SERVICE_ACCOUNT, in_pod
from webhook.cluster.resource import (
    ALL_CONFIG_MAPS,
    IGNORED,
    NAMESPACES,
    NODES,
    Object,
    Resource,
    config_maps,
    declaring_resources,
    dra_resources,
    limit_paths,
)
from webhook.cluster.rule_snapshot import saved_texts, snapshot_path

T = TypeVar("T")

# Label selectors of rule ConfigMaps. Selectors have no OR, so each is a request.
RULE_SELECTORS: Final = (*(f"{prefix}type={RESOURCE_RULE_TYPE}" for prefix in LABEL_PREFIXES), TYPE_LABEL)
# Seconds. A reachable API server answers a page in well under one.
_CONNECT_S: Final = 5.0
_READ_S: Final = 10.0
# Seconds for which the API groups of a server are cached; a new kind is noticed after them at the latest.
_GROUPS_S: Final = 30.0
_JSON: Final = "application/json"
# Connections that are kept when they are not in use; urllib3 warns of each one more. At the start, all
# watches list at the same time.
_MAX_IDLE: Final = 64
# Objects of one page, the limit of kubectl.
_PAGE: Final = 500
# For a command, which does not repeat by itself: after 0, 0.4 seconds. Writes are retried as well: each
# depends on a name or a resourceVersion, so that after a successful first attempt, the second is a conflict.
_COMMAND_RETRIES: Final = urllib3.Retry(2, redirect=0, backoff_factor=0.2, allowed_methods=None)

_REPORTS: Final = "/apis/openreports.io/v1alpha1"
# The owner of the fields of Reports.
_REPORT_MANAGER: Final = "gpugate-reports"

# The namespace of the manifests.
_NAMESPACE: Final = "gpugate"

# Statuses of an optional kind that is not installed, or may not be read.
_NOT_DECLARED: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN})

# Statuses of a kind that may not be read, or whose own API server does not answer.
_UNREADABLE: Final = frozenset(
    {
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.METHOD_NOT_ALLOWED,
    }
)
# Parts of a container that pods of a workload have in common; volume mounts differ by the name of a token.
_SHARED: Final = frozenset({"args", "command", "env", "ports", "resources"})
# Bytes of a log that a command reads: a thousand lines of a kilobyte.
_LOG_BYTES: Final = 2**20
# Versions of a group that are searched for kinds; groups have two or three.
_MAX_VERSIONS: Final = 8

_NO_CLUSTER: Final = Message("no cluster: {why}; check --kubeconfig and --context")
_NO_SERVICE_ACCOUNT: Final = Message("no cluster: {why}; check the service account of this pod")
_NO_POD_GROUPS: Final = Message("cannot get podgroups.{group}: the cluster does not serve them")
_NO_REPORTS: Final = Message("cannot write reports: {why}")
_NO_LOG: Final = Message("cannot read the log of container {name!r}: {why}")
_NOT_READ: Final = Message("cannot get {path}: {why}")
_NOT_LISTED: Final = Message("cannot list {name}: {why}")
_NO_API_SERVER: Final = Message("not an API server: {why}")

# Exceptions of a request without an answer: no connection, a broken connection, no readable token.
UNANSWERED: Final = (urllib3.exceptions.HTTPError, ConfigException, OSError)


class ClusterError(KubernetesError):
    """The cluster cannot be read; the text says which call failed and what to check."""

    def __init__(self, text: Message) -> None:
        super().__init__(text.en)
        self.text = text


class ApiError(KubernetesError):
    """The API server rejects a request. status: the status code of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


_KINDS: Final[dict[int, type[KubernetesError]]] = {404: NotFound, 409: Conflict}


class Status(msgspec.Struct):
    """The Status object of a failed request."""

    code: int = 0
    message: str = ""


decode_status = msgspec.json.Decoder(Status).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class _ListMetadata(msgspec.Struct):
    """Metadata of a list."""

    version: str = msgspec.field(default="", name="resourceVersion")
    more: str = msgspec.field(default="", name="continue")  # token of the next page; empty in the last


class _Group(msgspec.Struct):
    name: str


class _Groups(msgspec.Struct):
    """The answer of discovery; only the names of API groups are decoded."""

    groups: list[_Group]


_decode_groups = msgspec.json.Decoder(_Groups).decode


class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMetadata
    items: list[T]


class _Place(TypedDict):
    namespace: str


class _Placed(TypedDict):
    """The decoded part of an object: its namespace."""

    metadata: _Place


class _Name(TypedDict):
    name: str
    namespace: str


class _Named(TypedDict):
    """The decoded part of an object: its name and namespace."""

    metadata: _Name


def _without_managed_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object as it is kept: what wrote which field is half of a pod, and decides nothing."""
    if isinstance(metadata := document.get("metadata"), dict):
        metadata.pop("managedFields", None)
    return document


def _read_node(document: dict[str, Any]) -> dict[str, Any]:
    """Return a Node as it is kept: without the list of images, which is most of it."""
    if isinstance(status := document.get("status"), dict):
        status.pop("images", None)
    return _without_managed_fields(document)


class _Sharing:
    """Reads pods, of which those of one workload share the equal parts of their containers."""

    def __init__(self) -> None:
        self._parts: dict[bytes, Any] = {}

    def read(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a pod as it is kept."""
        spec = document.get("spec")
        containers = spec.get("containers") if isinstance(spec, dict) else None
        for container in containers if isinstance(containers, list) else ():
            for name in _SHARED.intersection(container) if isinstance(container, dict) else ():
                part = container[name]
                container[name] = self._parts.setdefault(msgspec.json.encode(part), part)
        return _without_managed_fields(document)


class WorkloadList(NamedTuple):
    """Objects that are or contain pods."""

    objects: list[dict[str, Any]]  # as JSON
    unread: list[Message]  # why objects of other kinds could not be read


class ClusterApi:
    """Requests to an API server over one connection pool, with credentials that are refreshed.

    `get`, `create`, `replace` and `patch` implement `certs.kubernetes_api.Kubernetes`. `list` and `stream`
    are for watches, which distinguish failures: they raise ApiError, or one of UNANSWERED.
    """

    def __init__(self, configuration: Configuration, retries: urllib3.Retry | bool = False) -> None:
        """Use a configuration. retries: of broken connections; False for callers that retry themselves."""
        configuration.connection_pool_maxsize = _MAX_IDLE
        configuration.keep_alive = True  # a stream from a lost peer ends in under three minutes
        self._retries = retries
        self._server_time: tuple[datetime, float] | None = None  # and the monotonic clock at that time
        self._groups: tuple[frozenset[str], float] | None = (
            None  # and the monotonic clock when they were read
        )
        self._reading_groups = threading.Lock()
        self.client = ApiClient(configuration)

    @classmethod
    def of_kubeconfig(
        cls, kubeconfig: str | None = None, context: str | None = None, retries: urllib3.Retry | bool = False
    ) -> Self:
        """Use the given or the default kubeconfig, and the given or its current context.

        Raises ClusterError if there is no such cluster.
        """
        try:
            return cls(by_kubeconfig(kubeconfig, context), retries)
        except ConfigException as error:
            raise ClusterError(_NO_CLUSTER.having(why=error)) from error

    @classmethod
    def in_cluster(
        cls, folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ
    ) -> Self | None:
        """Use the service account of a pod; None if the folder has none.

        Raises ClusterError if it exists and cannot be used.
        """
        try:
            configuration = by_service_account(folder, environ)
        except (ConfigException, OSError) as error:
            raise ClusterError(_NO_SERVICE_ACCOUNT.having(why=error)) from error
        return cls(configuration) if configuration else None

    @property
    def url(self) -> str:
        """Address of the API server."""
        return str(self.client.configuration.host)

    def now(self) -> datetime:
        """Return the time of the API server's clock, aware; before its first response, of the local clock."""
        if self._server_time is None:
            return datetime.now(UTC)
        moment, read_at = self._server_time
        return moment + timedelta(seconds=monotonic() - read_at)

    def get(self, path: str) -> dict[str, Any]:
        """Return the object; raises NotFound, KubernetesError, also if the response is another object."""
        document, name = self._request("GET", path), unquote(path.rpartition("/")[2])
        match document.get("metadata"):
            case {"name": str(of), "resourceVersion": str()} if of == name:
                return document
        raise KubernetesError(f"GET {path}: the response is another object")

    def document(self, path: str, accept: str = _JSON) -> dict[str, Any]:
        """Return JSON that is no Kubernetes object, such as the kinds of a group; raises as `list` does.

        accept: its media type.
        """
        return _decode_object(self._send("GET", path, accept=accept, retries=self._retries).data)

    def text(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return a response that is not JSON, such as a log; raises as `list` does."""
        return self._send("GET", path, query, retries=self._retries).data

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Create an object in a collection; raises Conflict, KubernetesError."""
        self._request("POST", path, document)

    def replace(self, path: str, document: dict[str, Any]) -> None:
        """Replace the object of the same resourceVersion; raises Conflict, KubernetesError."""
        self._request("PUT", path, document)

    def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply RFC 6902 operations; raises NotFound, Conflict, KubernetesError."""
        self._request("PATCH", path, operations, "application/json-patch+json")

    def apply(self, path: str, document: dict[str, Any], manager: str) -> None:
        """Apply these fields with server-side apply, forced: the manager owns them and no others.

        Fields of this manager that are not in the document are removed. Raises Conflict if the document has
        a resourceVersion and the object has another, KubernetesError.
        """
        query = urlencode({"fieldManager": manager, "force": "true"})
        self._request("PATCH", f"{path}?{query}", document, "application/apply-patch+yaml")

    def delete(self, path: str) -> None:
        """Delete an object; raises NotFound, KubernetesError."""
        self._request("DELETE", path)

    def stream(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> urllib3.BaseHTTPResponse:
        """Return the response to a GET as a stream, which the caller closes.

        read_timeout_s: seconds without data after which it fails. Raises ApiError, or an error of UNANSWERED.
        """
        timeout = urllib3.Timeout(connect=_CONNECT_S, read=read_timeout_s)
        return self._send("GET", path, query, timeout=timeout, preload_content=False)

    def list(
        self,
        path: str,
        selectors: Mapping[str, str] | None = None,
        shape: Any = dict[str, Any],
        read: Callable[[Object], Object] | None = None,
    ) -> tuple[list[Object], str]:
        """Return all objects at a path, page by page, and the resourceVersion of the list.

        selectors: parameters that select objects. shape: the decoded part of each object, a type for msgspec.
        read: returns the part of an object to keep; called before the next page is read. Raises ApiError,
        msgspec.DecodeError, or an error of UNANSWERED.
        """
        decoder = msgspec.json.Decoder(_Page[shape])
        query = {"limit": str(_PAGE), **(selectors or {})}
        objects: list[dict[str, Any]] = []
        while True:
            data = self._send("GET", path, query, retries=self._retries).data
            with gc_paused(len(data)):
                page = decoder.decode(data)
            objects += map(read, page.items) if read else page.items
            if not page.metadata.more:
                return objects, page.metadata.version
            query["continue"] = page.metadata.more

    def list_newest(self, resource: Resource) -> tuple[Sequence[Object], str, str]:
        """Return all objects of a resource, the resourceVersion, and the path: the first one that exists.

        Raises as `list` does.
        """
        *newer, oldest = resource.path, *resource.others
        for path in newer:
            try:
                return *self.list(path, resource.selectors, resource.shape, resource.read), path
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        return *self.list(oldest, resource.selectors, resource.shape, resource.read), oldest

    def serves_group(self, path: str) -> bool:
        """Return whether the API group of a path is served; True if the groups cannot be read.

        The groups are read at most every _GROUPS_S, for all callers. Raises an error of UNANSWERED.
        """
        _, root, group, *_ = f"{path}//".split("/")
        if root != "apis":
            return True
        with self._reading_groups:
            if self._groups is None or monotonic() - self._groups[1] > _GROUPS_S:
                try:
                    groups = _decode_groups(self._send("GET", "/apis", retries=self._retries).data)
                except (ApiError, msgspec.DecodeError):
                    return True
                self._groups = frozenset(entry.name for entry in groups.groups), monotonic()
            return group in self._groups[0]

    def close(self) -> None:
        """Close the connections that are not in use."""
        self.client.rest_client.pool_manager.clear()

    def _request(self, method: str, path: str, body: Any = None, media: str = _JSON) -> dict[str, Any]:
        """Return the object in the response to a request."""
        content = None if body is None else msgspec.json.encode(body)
        try:
            answer = self._send(method, path, media=media, body=content, retries=self._retries)
            return _decode_object(answer.data)
        except ApiError as error:
            raise _KINDS.get(error.status, KubernetesError)(f"{method} {path}: {error}") from error
        except msgspec.DecodeError as error:
            raise KubernetesError(f"{method} {path}: the response is not a JSON object: {error}") from error
        except UNANSWERED as error:
            text = connection_error_text(error, self.url)
            raise KubernetesError(f"the API server does not answer {method} {path}: {text}") from error

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        media: str = _JSON,
        accept: str = _JSON,
        **options: Any,
    ) -> urllib3.BaseHTTPResponse:
        configuration = self.client.configuration
        headers = {"Accept": accept, "Content-Type": media, "User-Agent": "gpugate"}
        for setting in configuration.auth_settings().values():  # refreshes rotating tokens
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
            raise _api_error(response)
        with suppress(ValueError):
            self._server_time = (
                parsedate_to_datetime(response.headers.get("Date", "")).replace(tzinfo=UTC),
                monotonic(),
            )
        return response


def _api_error(response: urllib3.BaseHTTPResponse) -> ApiError:
    """Return the error of a rejected request, with the message of its Status or the reason of HTTP."""
    try:
        message = decode_status(response.data).message
    except msgspec.DecodeError:  # of a proxy in front of it
        message = ""
    return ApiError(response.status, message or response.reason or "")


def _group_path(group: str) -> str:
    """Return the path of an API group, to which a version is appended."""
    return f"/apis/{group}/" if group else "/api/"


def _component(deployment: Mapping[str, Any]) -> str | None:
    """Return the component of gpugate that a Deployment runs, by the label of its pods."""
    labels: Mapping[str, str] = deployment["spec"]["template"].get("metadata", {}).get("labels") or {}
    return labels.get("app.kubernetes.io/component")


def _time_of(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _report_path(document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    return f"{_REPORTS}/namespaces/{quote(metadata['namespace'], safe='')}/reports/{quote(metadata['name'])}"


def is_forbidden(error: ClusterError) -> bool:
    """Return whether the API server refused a request because of missing rights."""
    return isinstance(cause := error.__cause__, ApiError) and cause.status == HTTPStatus.FORBIDDEN


def connect(kubeconfig: str | None, context: str | None) -> ClusterApi:
    """Return the cluster of a command: the given one, else the pod's own, else the default kubeconfig's.

    Raises ClusterError if there is none.
    """
    in_cluster = None if kubeconfig or context or not in_pod() else ClusterApi.in_cluster()
    return in_cluster or ClusterApi.of_kubeconfig(kubeconfig, context, _COMMAND_RETRIES)


class Cluster:
    """A cluster that a command reads once. Raises ClusterError if there is none."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """Use the cluster that `connect` selects."""
        self._api = connect(kubeconfig, context)

    def rules(self, namespace: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the name and the content of each rule ConfigMap of a namespace. Raises ClusterError."""
        name, path = f"ConfigMaps of namespace {namespace!r}", config_maps(namespace)
        items = [item for selector in RULE_SELECTORS for item in self._list(Resource(name, path, selector))]
        return sorted(dict(map(rule_source, items)).items(), key=itemgetter(0))

    def rules_in_force(self) -> dict[str, str]:
        """Return the versions of rules that the webhook has saved, as JSON by name.

        They are read from the namespaces of its Deployments, or from `gpugate` if no Deployment is listed.
        Empty without the right to read them. Raises ClusterError.
        """
        texts = dict[str, str]()
        try:
            namespaces = {deployment["metadata"]["namespace"] for deployment in self.webhooks()} or {
                _NAMESPACE
            }
        except ClusterError as error:
            if not is_forbidden(error):
                raise
            namespaces = {_NAMESPACE}
        for namespace in sorted(namespaces):
            try:
                texts |= saved_texts(self._get(snapshot_path(namespace)))
            except ClusterError as error:
                cause = error.__cause__
                if not (isinstance(cause, ApiError) and cause.status in _NOT_DECLARED):
                    raise
        return texts

    def rule_namespaces(self) -> list[str]:
        """Return the namespaces that have rule ConfigMaps.

        Empty without the right to list ConfigMaps of all namespaces. Raises ClusterError.
        """
        name = "ConfigMaps of all namespaces"
        try:
            items = [
                item
                for selector in RULE_SELECTORS
                for item in self._list(Resource(name, ALL_CONFIG_MAPS, selector, _Placed))
            ]
        except ClusterError as error:
            if is_forbidden(error):
                return []
            raise
        return sorted({item["metadata"]["namespace"] for item in items})

    def inventory(self) -> list[dict[str, Any]]:
        """Return all nodes, and the objects that declare pools, devices or container runtimes, as JSON.

        Kinds that do not exist in the cluster or may not be read are left out. Raises ClusterError.
        """
        named = {AUTOSCALER_STATUS.name: AUTOSCALER_STATUS.kind, toolkit_daemon_set(): DAEMON_SET}
        objects = self._list(Resource("Nodes", NODES, read=_read_node))
        for kind, resource in {**declaring_resources(), **dra_resources()}.items():
            try:
                written = named.get(kind, kind)
                objects += ({"kind": written, **item} for item in self._list(resource))
            except ClusterError as error:
                cause = error.__cause__
                if not (isinstance(cause, ApiError) and cause.status in _NOT_DECLARED):
                    raise
        return objects

    def workloads(self, kinds: Workloads, namespace: str | None = None) -> WorkloadList:
        """Return the objects of all kinds that are or contain pods, in one namespace or all.

        Kinds that the cluster does not serve have no objects. Raises ClusterError, if pods cannot be listed.
        """
        all_objects, unread = [], list[Message]()
        for group in sorted({group for group, _ in kinds.paths}):
            kinds_of_group = {kind for of, kind in kinds.paths if of == group}
            try:
                served = self._served_kinds(group, kinds_of_group)
            except ClusterError as error:
                if not isinstance(error.__cause__, ApiError) or not group:
                    raise
                unread.append(error.text)
                continue
            for kind, (version, plural) in sorted(served.items()):
                where = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
                try:
                    path = f"{_group_path(group)}{version}{where}/{plural}"
                    read = _Sharing().read if kind == "Pod" else _without_managed_fields
                    objects = self._list(Resource(plural, path, read=read))
                except ClusterError as error:
                    cause = error.__cause__
                    if kind == "Pod" or not (isinstance(cause, ApiError) and cause.status in _UNREADABLE):
                        raise
                    unread.append(error.text)
                else:
                    identity = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind}
                    all_objects += [identity | item for item in objects]
        return WorkloadList(all_objects, unread)

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """Return a pod, as JSON. Raises ClusterError, in kubectl's words if there is none."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        try:
            return self._get(path)
        except ClusterError as error:
            if isinstance(cause := error.__cause__, ApiError) and cause.status == HTTPStatus.NOT_FOUND:
                raise ClusterError(Text(not_found_text("pods", name))) from cause
            raise

    def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Return the events about a pod, as JSON, the oldest first. Raises ClusterError."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
        fields = f"involvedObject.kind=Pod,involvedObject.name={name}"
        events = self._list(Resource("events", path, fields=fields))
        return sorted(events, key=_time_of)

    def failed_creations(self, namespace: str) -> list[dict[str, Any]]:
        """Return the events of a namespace about pods that could not be created, the oldest first.

        As JSON. Raises ClusterError.
        """
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
        events = self._list(Resource("events", path, fields="reason=FailedCreate"))
        return sorted(events, key=_time_of)

    def pod_group(self, group: str, namespace: str, name: str) -> dict[str, Any]:
        """Return the PodGroup of an API group, as JSON. Raises ClusterError."""
        if not (served := self._served_kinds(group, {"PodGroup"})):
            raise ClusterError(_NO_POD_GROUPS.having(group=group))
        version, plural = served["PodGroup"]
        place = f"namespaces/{quote(namespace, safe='')}/{plural}/{quote(name, safe='')}"
        return self._get(f"{_group_path(group)}{version}/{place}")

    def log(self, namespace: str, pod: str, container: str, *, previous: bool, lines: int) -> str:
        """Return the last lines of a container's log. previous: of its previous run. Raises ClusterError."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        query = {
            "container": container,
            "previous": str(previous).lower(),
            "tailLines": str(lines),
            "limitBytes": str(_LOG_BYTES),
        }
        return self._call(_NO_LOG.having(name=container), lambda: self._api.text(path, query)).decode(
            errors="replace"
        )

    def ignored_namespaces(self) -> list[str]:
        """Return the namespaces that a label excludes; empty without the right to list namespaces.

        Raises ClusterError.
        """
        try:
            namespaces = self._list(Resource("Namespaces", NAMESPACES, IGNORED))
        except ClusterError as error:
            if isinstance(error.__cause__, ApiError):
                return []
            raise
        return sorted(namespace["metadata"]["name"] for namespace in namespaces)

    def namespaces(self) -> list[Object]:
        """Return the Namespaces, as JSON. Raises ClusterError."""
        listed = self._list(Resource("Namespaces", NAMESPACES))
        return [{"apiVersion": "v1", "kind": "Namespace", **namespace} for namespace in listed]

    def _served_kinds(self, group: str, kinds: set[str]) -> dict[str, tuple[str, str]]:
        """Return version and plural of the kinds of a group, by kind. Raises ClusterError."""
        versions = ["v1"]
        if group:
            try:
                document = self._get(f"/apis/{group}")
            except ClusterError as error:
                if isinstance(cause := error.__cause__, ApiError) and cause.status == HTTPStatus.NOT_FOUND:
                    return {}
                raise
            preferred = document.get("preferredVersion", {}).get("version")
            offered = [entry["version"] for entry in document.get("versions", ())]
            versions = [*dict.fromkeys([preferred, *offered] if preferred else offered)]
        served: dict[str, tuple[str, str]] = {}
        for version in versions[:_MAX_VERSIONS]:
            for resource in self._get(f"{_group_path(group)}{version}").get("resources", ()):
                if (
                    resource["kind"] in kinds
                    and "/" not in resource["name"]
                    and "list" in resource.get("verbs", ())
                ):
                    served.setdefault(resource["kind"], (version, resource["name"]))
            if kinds <= served.keys():
                break
        return served

    def _get(self, path: str) -> dict[str, Any]:
        return self._call(_NOT_READ.having(path=path), lambda: self._api.document(path))

    def webhooks(self) -> list[dict[str, Any]]:
        """Return the Deployments of gpugate's webhook, of all namespaces, as JSON. Raises ClusterError."""
        selector = "app.kubernetes.io/name=gpugate"
        deployments = self._list(Resource("Deployments", "/apis/apps/v1/deployments", selector))
        return [deployment for deployment in deployments if _component(deployment) == "webhook"]

    def limits(self, namespace: str) -> list[dict[str, Any]]:
        """Return the ResourceQuotas and LimitRanges of a namespace, as JSON. Raises ClusterError."""
        return [
            {"kind": kind, **item}
            for kind, path in limit_paths(namespace).items()
            for item in self._list(Resource(f"{kind}s of namespace {namespace!r}", path))
        ]

    def write_reports(
        self, documents: Sequence[Object], labels: Mapping[str, str], namespace: str | None
    ) -> tuple[int, int]:
        """Apply Reports of OpenReports, and delete other Reports that have these labels.

        namespace: delete only there; None: everywhere. Returns the numbers of applied and deleted Reports.
        Raises ClusterError.
        """
        place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        known = Resource("Reports of openreports.io", f"{_REPORTS}{place}/reports", selector, _Named)
        stale = {_report_path(report) for report in self._list(known)} - {
            _report_path(report) for report in documents
        }
        written = sum(
            self._write(self._api.apply, _report_path(report), report, _REPORT_MANAGER)
            for report in documents
        )
        return written, sum(self._write(self._api.delete, path) for path in sorted(stale))

    def _write(self, write: Callable[..., None], *arguments: Any) -> bool:
        """Call a method that writes; return False if the object or its namespace is gone. ClusterError."""
        try:
            write(*arguments)
        except NotFound:
            return False
        except KubernetesError as error:
            raise ClusterError(_NO_REPORTS.having(why=error)) from error
        return True

    def _list(self, resource: Resource) -> list[dict[str, Any]]:
        objects, *_ = self._call(
            _NOT_LISTED.having(name=resource.name), lambda: self._api.list_newest(resource)
        )
        return [*objects]

    def _call(self, failed: Message, request: Callable[[], T]) -> T:
        """Return the result of a request. Raises ClusterError, because of ApiError if the server refuses.

        failed: the text for that, whose `why` is the reason.
        """
        try:
            return request()
        except ApiError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                raise ClusterError(Text(UNAUTHORIZED)) from error
            raise ClusterError(failed.having(why=error)) from error
        except msgspec.DecodeError as error:
            raise ClusterError(failed.having(why=_NO_API_SERVER.having(why=error))) from error
        except UNANSWERED as error:
            raise ClusterError(Text(connection_error_text(error, self._api.url))) from error
