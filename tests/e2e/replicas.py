"""Replicas of gpugate without a kubelet and kube-proxy: a node, a Service, and one process behind it.

Kubernetes's own controllers and scheduler make the pods of gpugate's Deployment. `Replicas` reports that they
run and serves their log, as a kubelet does; the Service has the address of the process.
"""

from __future__ import annotations

import contextlib
import http
import json
import re
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import trustme
import yaml

from tests.e2e.cluster import ControlPlane
from tests.e2e.daemon import Daemon
from tests.e2e.manifests import MANIFESTS, of_kind, render

# Seconds between two checks of the pods.
_LOOK_S: Final = 0.5
_NAME: Final = "gpugate"
_NODE: Final = "of-the-server"
_SPARE: Final = {"cpu": "8", "memory": "16Gi", "pods": "110"}


class RoutingControlPlane(ControlPlane):
    """One whose API server finds the endpoints of a Service by itself, for there is no kube-proxy."""

    def _daemon(self, name: str, port: int, health: str, flags: dict[str, object]) -> Daemon:
        routing = {"enable-aggregator-routing": "true"} if name == "kube-apiserver" else {}
        return super()._daemon(name, port, health, flags | routing)


def own_address() -> str:
    """Return an address of this machine by which the API server takes endpoints: no loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("192.0.2.1", 9))  # sends nothing
        return str(asking.getsockname()[0])


class Replicas:
    """The pods of gpugate's Deployment, which all are one process at own_address(); a context manager.

    log: what gpugate writes. The controllers of the cluster must run, except those of endpoints.
    """

    def __init__(self, cluster: ControlPlane, port: int, log: Path) -> None:
        self._cluster, self._port, self._log = cluster, port, log
        self._address = own_address()
        self._over = threading.Event()
        self._pods = threading.Thread(target=self._run_pods)

    def __enter__(self) -> Self:
        self._kubelet = _kubelet(self._address, self._log)
        threading.Thread(target=self._kubelet.serve_forever).start()
        self._pods.start()
        objects = render(MANIFESTS / "base")
        (service,) = of_kind(objects, "Service")
        (deployment,) = of_kind(objects, "Deployment")
        created = (self._node(), service, deployment)
        self._cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(created))
        ready = f"jsonpath={{.status.readyReplicas}}={deployment['spec']['replicas']}"
        self._cluster.kubectl("wait", f"deployment/{_NAME}", "-n", _NAME, f"--for={ready}")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pods.join()
        self._kubelet.shutdown()
        self._kubelet.server_close()

    def _node(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": _NODE},
            "status": {
                "addresses": [{"type": "InternalIP", "address": self._address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._kubelet.server_address[1]}},
                "capacity": _SPARE,
                "allocatable": _SPARE,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }

    def _run_pods(self) -> None:
        """Do what a kubelet does with the pods of its node, and the controllers of endpoints."""
        bound = ("get", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={_NODE}", "-o", "json")
        served: list[str] = []
        while not self._over.wait(_LOOK_S):
            with contextlib.suppress(subprocess.CalledProcessError):  # a pod was deleted meanwhile
                pods = json.loads(self._cluster.kubectl(*bound).stdout)["items"]
                for pod in pods:
                    self._run(pod)
                names = sorted(pod["metadata"]["name"] for pod in pods if self._runs(pod))
                if names != served:
                    text = yaml.safe_dump_all(self._endpoints(names))
                    self._cluster.kubectl("apply", "-f", "-", input=text)
                    served = names

    def _run(self, pod: dict[str, Any]) -> None:
        """Report that a new pod runs, or that a deleted one has ended."""
        named = (pod["metadata"]["name"], "-n", pod["metadata"]["namespace"])
        if "deletionTimestamp" in pod["metadata"]:
            self._cluster.kubectl("delete", "pod", *named, "--force", "--wait=false")
        elif pod["status"]["phase"] == "Pending":
            change = json.dumps({"status": self._status(pod["spec"]["containers"])})
            self._cluster.kubectl(
                "patch", "pod", *named, "--subresource=status", "--type=merge", "-p", change
            )

    def _runs(self, pod: dict[str, Any]) -> bool:
        """Return whether a pod is a running one of gpugate."""
        metadata = pod["metadata"]
        known = metadata["namespace"] == _NAME and "deletionTimestamp" not in metadata
        return known and pod["status"]["phase"] == "Running"

    def _endpoints(self, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return where the Service leads, in the kind that older API servers read, and in that of newer ones.

        Not by the controllers, because the process does not listen on the port of its pods.
        """
        targets = [{"kind": "Pod", "name": name, "namespace": _NAME} for name in names]
        ports = [{"name": "https", "port": self._port, "protocol": "TCP"}]
        older = {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": _NAME, "namespace": _NAME},
            "subsets": [
                {"addresses": [{"ip": self._address, "targetRef": target}], "ports": ports}
                for target in targets
            ],
        }
        newer = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{_NAME}-0",
                "namespace": _NAME,
                "labels": {"kubernetes.io/service-name": _NAME},
            },
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [
                {"addresses": [self._address], "conditions": {"ready": True}, "targetRef": target}
                for target in targets
            ],
        }
        return older, newer

    def _status(self, containers: list[dict[str, Any]]) -> dict[str, Any]:
        started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        running = {"imageID": "none", "ready": True, "restartCount": 0}
        running |= {"state": {"running": {"startedAt": started}}}
        return {
            "phase": "Running",
            "hostIP": self._address,
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": started}],
            "containerStatuses": [
                running | {"name": container["name"], "image": container["image"]} for container in containers
            ],
        }


def _kubelet(address: str, log: Path) -> ThreadingHTTPServer:
    """Return a server that answers for the log of a container as a kubelet does, and for nothing else.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ (/containerLogs).
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            known = re.fullmatch(f"/containerLogs/{_NAME}/{_NAME}-[^/]+/webhook", url.path) is not None
            self.send_response(http.HTTPStatus.OK if known else http.HTTPStatus.NOT_FOUND)
            self.end_headers()
            (tail,) = parse_qs(url.query).get("tailLines", ["0"])
            lines = log.read_bytes().splitlines(keepends=True) if known else []
            self.wfile.write(b"".join(lines[-int(tail) :]))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert(address).configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server
