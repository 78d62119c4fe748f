"""The objects and endpoints of one replica of gpugate, on a machine without controllers and kubelets.

The process of gpugate counts as a pod: its node answers for its log, its Service has its address, and its
Deployment is rolled out. All that asks (kubectl, the API server, gpugate) is real.
"""

from __future__ import annotations

import contextlib
import http
import json
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import trustme
import yaml

from tests.e2e.cluster import ControlPlane
from tests.e2e.daemon import Daemon
from tests.e2e.manifests import MANIFESTS, of_kind, render

# Seconds between two checks of the controllers.
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


class Replica:
    """A pod of gpugate that listens at own_address(); a context manager. log: what gpugate writes."""

    def __init__(self, cluster: ControlPlane, port: int, log: Path) -> None:
        self._cluster, self._port, self._log = cluster, port, log
        self._address = own_address()
        self._over = threading.Event()
        self._controllers = threading.Thread(target=self._control)

    def __enter__(self) -> Self:
        self._kubelet = _kubelet(self._address, self._log)
        threading.Thread(target=self._kubelet.serve_forever).start()
        self._create()
        self._controllers.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._controllers.join()
        self._kubelet.shutdown()
        self._kubelet.server_close()

    def _create(self) -> None:
        """Make what a kubelet makes of a pod and the controllers of a Service, on a node of its own."""
        objects = render(MANIFESTS / "base")
        (service,) = of_kind(objects, "Service")
        (deployment,) = of_kind(objects, "Deployment")
        template = deployment["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] |= {"name": f"{_NAME}-0", "namespace": _NAME}
        pod["spec"] |= {"nodeName": _NODE}
        for each in (self._node(), service, pod, *self._endpoints()):
            self._cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(each))
        self._status("pod", f"{_NAME}-0", self._pod_status(template["spec"]["containers"][0]))

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

    def _pod_status(self, container: dict[str, Any]) -> dict[str, Any]:
        running = {"name": container["name"], "image": container["image"], "imageID": "none"}
        running |= {"ready": True, "restartCount": 0, "state": {"running": {}}}
        return {
            "phase": "Running",
            "hostIP": self._address,
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [running],
        }

    def _endpoints(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return where the Service leads, in the kind that proxied requests read, and in that of webhooks."""
        target = {"kind": "Pod", "name": f"{_NAME}-0", "namespace": _NAME}
        ports = [{"name": "https", "port": self._port, "protocol": "TCP"}]
        labels = {"kubernetes.io/service-name": _NAME}
        older = {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": _NAME, "namespace": _NAME},
            "subsets": [{"addresses": [{"ip": self._address, "targetRef": target}], "ports": ports}],
        }
        newer = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{_NAME}-0", "namespace": _NAME, "labels": labels},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [self._address], "conditions": {"ready": True}, "targetRef": target}],
        }
        return older, newer

    def _control(self) -> None:
        """Roll the Deployment out as soon as it changes, and let the namespace go when it is deleted."""
        while not self._over.wait(_LOOK_S):
            with contextlib.suppress(subprocess.CalledProcessError):  # what was there is gone
                self._roll_out()
                self._let_go()

    def _roll_out(self) -> None:
        found = self._get("deployment")
        if not found or found["metadata"]["generation"] == found.get("status", {}).get("observedGeneration"):
            return
        replicas = found["spec"]["replicas"]
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        observed = {"observedGeneration": found["metadata"]["generation"]}
        self._status("deployment", _NAME, observed | dict.fromkeys(counts, replicas))

    def _let_go(self) -> None:
        found = self._get("namespace")
        if found and found["status"]["phase"] == "Terminating":
            found["spec"]["finalizers"] = []
            url = f"/api/v1/namespaces/{_NAME}/finalize"
            self._cluster.kubectl("replace", "--raw", url, "-f", "-", input=json.dumps(found))

    def _get(self, kind: str) -> dict[str, Any]:
        """Return the object of a kind that belongs to gpugate; empty if there is none."""
        get = ("get", kind, _NAME, "-n", _NAME, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(self._cluster.kubectl(*get).stdout or "{}")
        return found

    def _status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        patch = ("patch", kind, name, "-n", _NAME, "--subresource=status", "--type=merge")
        self._cluster.kubectl(*patch, "-p", json.dumps({"status": status}))


def _kubelet(address: str, log: Path) -> ThreadingHTTPServer:
    """Return a server that answers for the log of a container as a kubelet does, and for nothing else.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ (/containerLogs).
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            known = asked.path == f"/containerLogs/{_NAME}/{_NAME}-0/webhook"
            self.send_response(http.HTTPStatus.OK if known else http.HTTPStatus.NOT_FOUND)
            self.end_headers()
            (tail,) = parse_qs(asked.query).get("tailLines", ["0"])
            lines = log.read_bytes().splitlines(keepends=True) if known else []
            self.wfile.write(b"".join(lines[-int(tail) :]))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert(address).configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server
