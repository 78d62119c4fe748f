"""What the gate adds to the creation of pods in a real API server, beside none, a yes, and native policies.

One API server holds all of them at once, told apart by namespaces, so that they can take turns.
"""

from __future__ import annotations

import json
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import msgspec
import yaml

from certs.authority import make_authority, make_leaf
from certs.kubernetes_api import KubernetesError
from rules.report.validating_admission_policy import export
from rules.schema.loader import DEFAULT_NAMESPACE
from tests.bench.cases import BY_RULES, ROOT, catalog, node_of, shipped
from tests.bench.client import retrying
from tests.bench.figures import Effort, Samples, Section, Spread, Table
from tests.bench.served import HOST, constant, gpugate
from tests.e2e.cluster import ControlPlane, assets, missing
from webhook.cluster.client import NODES, ClusterApi, config_maps

TITLE: Final = "Through a real API server"
_LABEL: Final = "gpugate-bench"
_NONE, _YES, _GATE, _POLICIES = "none", "yes", "gate", "policies"
# What stands in the way of a pod, by namespace.
_WAYS: Final = {
    _NONE: "nothing",
    _YES: "two webhooks that say yes",
    _GATE: "the gate, both its webhooks",
    _POLICIES: "native policies: the resource rules, by `gpugate export`",
}
_PODS: Final = {
    "resource rules": BY_RULES["resource rules"],
    "no accelerator": BY_RULES["no accelerator"],
}
# As many clients at once as an API server on two cores has use for.
_CLIENTS: Final = 4
# Seconds until webhooks and policies are in force everywhere in the API server.
_PATIENCE: Final = 60.0
_NODES: Final = 20


def available() -> bool:
    """Tell whether there are binaries of a control plane."""
    return not missing(assets())


def run(effort: Effort) -> Section:
    """Return creations a second and milliseconds of each, by what stands in their way."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        plane = stack.enter_context(ControlPlane(assets(), folder / "plane"))
        api = ClusterApi.of_kubeconfig(str(plane.kubeconfig))
        stack.callback(api.close)
        _fill(plane, api)
        tls = _certificate(folder)
        options = ("--kubeconfig", str(plane.kubeconfig), *tls.options)
        gate = stack.enter_context(gpugate(*options))
        yes = stack.enter_context(constant("yes", *tls.options))
        # The gate's last: where they are in force, the others are.
        for name, port in ((_YES, yes.port), (_GATE, gate.port)):
            _apply(plane, _webhooks(name, port, tls.ca_pem))
        _apply(plane, _policies())
        creator = _Creator(api)
        bad = _spec(BY_RULES["refused"])
        for way in (_GATE, _POLICIES):
            retrying(partial(creator.refused, way, bad), _PATIENCE, pause=0.1)
        tables = tuple(_measured(pods, _spec(body), creator, effort) for pods, body in _PODS.items())
    return Section(tables)


def _spec(body: bytes) -> dict[str, Any]:
    spec: dict[str, Any] = msgspec.json.decode(body)["request"]["object"]["spec"]
    return spec


@dataclass(frozen=True, slots=True)
class _Tls:
    ca_pem: bytes
    options: tuple[str, ...]


def _certificate(folder: Path) -> _Tls:
    now = datetime.now(UTC)
    authority = make_authority("gpugate bench", now)
    leaf = make_leaf(authority, [HOST], now)
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes(leaf.certificate_pem)
    key.write_bytes(leaf.key_pem)
    return _Tls(authority.certificate_pem, ("--tls-cert", str(certificate), "--tls-key", str(key)))


def _apply(plane: ControlPlane, objects: list[dict[str, Any]]) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(document))


def _fill(plane: ControlPlane, api: ClusterApi) -> None:
    """Put in the namespaces, the rules that ship, and some nodes."""
    _apply(
        plane,
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {_LABEL: name}}}
            for name in _WAYS
        ],
    )
    for document in catalog():
        api.create(config_maps(DEFAULT_NAMESPACE), document)
    for number in range(_NODES):
        api.create(NODES, {"apiVersion": "v1"} | node_of(number))


def _webhooks(name: str, port: int, ca_pem: bytes) -> list[dict[str, Any]]:
    """Return our webhook configurations for one namespace and a server on this host."""
    text = (ROOT / "manifests/base/webhooks.yaml").read_text("utf-8")
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for document in documents:
        document["metadata"] = {"name": f"bench-{name}"}
        for webhook in document["webhooks"]:
            path = "mutate" if document["kind"].startswith("Mutating") else "validate"
            url = f"https://{HOST}:{port}/{path}"
            webhook["clientConfig"] = {"url": url, "caBundle": b64encode(ca_pem).decode()}
            webhook["namespaceSelector"] = {"matchLabels": {_LABEL: name}}
    return documents


def _policies() -> list[dict[str, Any]]:
    """Return the rules that ship as policies of the API server, bound to one namespace."""
    objects = list(export(shipped().rules.resources).objects)
    for each in objects:
        if each["kind"].endswith("Binding"):
            selector = {"namespaceSelector": {"matchLabels": {_LABEL: _POLICIES}}}
            each["spec"]["matchResources"] = each["spec"].get("matchResources", {}) | selector
    return objects


class _Creator:
    """Creates pods, each under a name of its own."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._numbers = count()

    def create(self, namespace: str, spec: dict[str, Any]) -> None:
        """Create a pod of this spec; KubernetesError where it is refused."""
        metadata = {"name": f"pod-{next(self._numbers)}", "namespace": namespace}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._api.create(f"/api/v1/namespaces/{namespace}/pods", document)

    def refused(self, namespace: str, spec: dict[str, Any]) -> bool:
        """Tell whether a pod of this spec is refused."""
        try:
            self.create(namespace, spec)
        except KubernetesError:
            return True
        return False

    def flood(self, namespace: str, spec: dict[str, Any], number: int) -> float:
        """Create so many, several at once; return creations a second."""
        with ThreadPoolExecutor(_CLIENTS) as pool:
            start = perf_counter()
            list(pool.map(lambda _: self.create(namespace, spec), range(number)))
            return number / (perf_counter() - start)

    def one_by_one(self, namespace: str, spec: dict[str, Any], number: int) -> float:
        """Create so many, one after the other; return the milliseconds of the one in the middle."""
        times = []
        for _ in range(number):
            start = perf_counter()
            self.create(namespace, spec)
            times.append((perf_counter() - start) * 1e3)
        return median(times)


def _measured(pods: str, spec: dict[str, Any], creator: _Creator, effort: Effort) -> Table:
    """Return creations a second and milliseconds of each, all ways by turns."""
    share = max(1, effort.creates // effort.rounds)
    rates: dict[str, list[float]] = {way: [] for way in _WAYS}
    times: dict[str, list[float]] = {way: [] for way in _WAYS}
    for _ in range(effort.rounds):
        for way in _WAYS:
            rates[way].append(creator.flood(way, spec, share))
            times[way].append(creator.one_by_one(way, spec, max(1, share // 2)))
    rate, time = Samples(rates), Samples(times)
    added = {way: [each - bare for each, bare in zip(times[way], times[_NONE], strict=True)] for way in _WAYS}
    rows = tuple(
        (
            what,
            str(rate.of(way)),
            str(rate.ratio(way, _NONE)),
            str(time.of(way)),
            str(Spread.of(added[way])) if way != _NONE else "",
        )
        for way, what in _WAYS.items()
    )
    columns = ("in the way", f"creates/s, {_CLIENTS} clients", "÷ nothing", "one alone, ms", "added, ms")
    return Table(f"Creating pods: {pods}", columns, rows)
