"""The time that gpugate adds to creating pods in a real API server, compared with alternatives.

The alternatives: no webhook, webhooks with a constant answer, native policies. One API server has all of them
at once, each in a namespace, so that they are measured alternately.
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
from rules.schema.config_map import DEFAULT_NAMESPACE
from tests.bench.cases import BY_RULES, ROOT, builtin, catalog, node_of
from tests.bench.client import retrying
from tests.bench.figures import Effort, Samples, Section, Spread, Table
from tests.bench.served import HOST, constant, gpugate
from tests.e2e.cluster import ControlPlane, assets, missing
from webhook.cli.export.policies import export
from webhook.cluster.client import ClusterApi
from webhook.cluster.resource import NODES, config_maps

TITLE: Final = "Through a real API server"
_LABEL: Final = "gpugate-bench"
_NONE, _CONSTANT, _GPUGATE, _POLICIES = "none", "constant", "gpugate", "policies"
# What admits the pods of a namespace.
_VARIANTS: Final = {
    _NONE: "nothing",
    _CONSTANT: "two webhooks, constant answer",
    _GPUGATE: "gpugate, both webhooks",
    _POLICIES: "native policies: the resource rules, by `gpugate export`",
}
_PODS: Final = {"resource rules": BY_RULES["resource rules"], "no accelerator": BY_RULES["no accelerator"]}
# Concurrent clients; more do not make an API server on two cores faster.
_CLIENTS: Final = 4
# Seconds until webhooks and policies are in effect everywhere in the API server.
_PATIENCE: Final = 60.0
_NODES: Final = 20


def available() -> bool:
    """Return whether there are binaries of a control plane."""
    return not missing(assets())


def run(effort: Effort) -> Section:
    """Return creations per second and milliseconds of each, by variant of admission."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        plane = stack.enter_context(ControlPlane(assets(), folder / "plane"))
        api = ClusterApi.of_kubeconfig(str(plane.kubeconfig))
        stack.callback(api.close)
        _fill(plane, api)
        tls = _certificate(folder)
        options = ("--kubeconfig", str(plane.kubeconfig), *tls.options)
        server = stack.enter_context(gpugate(*options))
        baseline = stack.enter_context(constant(*tls.options))
        # Those of gpugate last: if they are in effect, the others are.
        for name, port in ((_CONSTANT, baseline.port), (_GPUGATE, server.port)):
            _apply(plane, _webhooks(name, port, tls.ca_pem))
        _apply(plane, _policies())
        creator = _Creator(api)
        bad = _spec(BY_RULES["denied"])
        for variant in (_GPUGATE, _POLICIES):
            retrying(partial(creator.is_denied, variant, bad), _PATIENCE, pause=0.1)
        tables = tuple(_compare(pods, _spec(body), creator, effort) for pods, body in _PODS.items())
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
    """Create the namespaces, the built-in rules and some nodes."""
    _apply(
        plane,
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {_LABEL: name}}}
            for name in _VARIANTS
        ],
    )
    for document in catalog():
        api.create(config_maps(DEFAULT_NAMESPACE), document)
    for number in range(_NODES):
        api.create(NODES, {"apiVersion": "v1"} | node_of(number))


def _webhooks(name: str, port: int, ca_pem: bytes) -> list[dict[str, Any]]:
    """Return gpugate's webhook configurations for one namespace and a server on this host."""
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
    """Return the built-in rules as policies of the API server, bound to one namespace."""
    objects = list(export(builtin().rules.resources).objects)
    for document in objects:
        if document["kind"].endswith("Binding"):
            selector = {"namespaceSelector": {"matchLabels": {_LABEL: _POLICIES}}}
            document["spec"]["matchResources"] = document["spec"].get("matchResources", {}) | selector
    return objects


class _Creator:
    """Creates pods, each with its own name."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._numbers = count()

    def create(self, namespace: str, spec: dict[str, Any]) -> None:
        """Create a pod of this spec; KubernetesError if it is denied."""
        metadata = {"name": f"pod-{next(self._numbers)}", "namespace": namespace}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._api.create(f"/api/v1/namespaces/{namespace}/pods", document)

    def is_denied(self, namespace: str, spec: dict[str, Any]) -> bool:
        """Return whether a pod of this spec is denied."""
        try:
            self.create(namespace, spec)
        except KubernetesError:
            return True
        return False

    def flood(self, namespace: str, spec: dict[str, Any], number: int) -> float:
        """Create so many, several at once; return creations per second."""
        with ThreadPoolExecutor(_CLIENTS) as pool:
            start = perf_counter()
            list(pool.map(lambda _: self.create(namespace, spec), range(number)))
            return number / (perf_counter() - start)

    def one_by_one(self, namespace: str, spec: dict[str, Any], number: int) -> float:
        """Create so many, one after the other; return the median of their milliseconds."""
        times = []
        for _ in range(number):
            start = perf_counter()
            self.create(namespace, spec)
            times.append((perf_counter() - start) * 1e3)
        return median(times)


def _compare(pods: str, spec: dict[str, Any], creator: _Creator, effort: Effort) -> Table:
    """Return creations per second and milliseconds of each, all variants alternately."""
    share = max(1, effort.creates // effort.rounds)
    rates: dict[str, list[float]] = {variant: [] for variant in _VARIANTS}
    times: dict[str, list[float]] = {variant: [] for variant in _VARIANTS}
    for _ in range(effort.rounds):
        for variant in _VARIANTS:
            rates[variant].append(creator.flood(variant, spec, share))
            times[variant].append(creator.one_by_one(variant, spec, max(1, share // 2)))
    rate, time = Samples(rates), Samples(times)
    added = {
        variant: [took - bare for took, bare in zip(times[variant], times[_NONE], strict=True)]
        for variant in _VARIANTS
    }
    rows = tuple(
        (
            what,
            str(rate.of(variant)),
            str(rate.ratio(variant, _NONE)),
            str(time.of(variant)),
            str(Spread.of(added[variant])) if variant != _NONE else "",
        )
        for variant, what in _VARIANTS.items()
    )
    columns = ("admission", f"creates/s, {_CLIENTS} clients", "÷ nothing", "one at a time, ms", "added, ms")
    return Table(f"Creating pods: {pods}", columns, rows)
