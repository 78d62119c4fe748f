"""A real control plane on this machine: etcd, kube-apiserver and kube-scheduler, for one test session.

Everything listens on 127.0.0.1 alone and lives in one folder: keys, etcd's data, kubeconfig, `logs/`. There
is no kubelet: nodes are objects that a test writes, and a bound pod stays Pending for ever. A test that needs
the pods of a Deployment or Job, or a deleted namespace to disappear, starts `controllers()`. With an address,
it is a control plane for real nodes (node/real_cluster.py).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.request import urlopen

import trustme

from tests.e2e.assets import build
from tests.e2e.daemon import HOST, Daemon, reserve_port

if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Iterator
    from types import TracebackType

# Seconds for one kubectl command: above its longest `wait` here, and for all manifests on a busy machine.
KUBECTL_S: Final = 240.0
# Without kubelets no node is healthy: both controllers would evict every pod.
_NEED_KUBELETS: Final = ("node-lifecycle-controller", "taint-eviction-controller")
# Of the Service `kubernetes`: the first address of service-cluster-ip-range.
KUBERNETES_SERVICE: Final = "10.0.0.1"
# Who did what to which object, for service accounts alone; a watch is answered when it starts.
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}],
}


def assets() -> Path:
    """Return the folder of the binaries: $KUBEBUILDER_ASSETS, else what `make e2e-assets` builds."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(named) if named else build.folder()


def missing(folder: Path) -> list[str]:
    """Return which binaries that no control plane can do without are absent; envtest has no scheduler."""
    return [name for name in ("etcd", "kube-apiserver", "kubectl") if not (folder / name).is_file()]


@cache
def kubernetes() -> tuple[int, int]:
    """Return major and minor version of the API server."""
    done = subprocess.run(
        [assets() / "kube-apiserver", "--version"], capture_output=True, text=True, check=True
    )
    major, minor = done.stdout.removeprefix("Kubernetes v").split(".")[:2]
    return int(major), int(minor)


def _certificate(user: tuple[Path, Path]) -> tuple[str, dict[str, str]]:
    """Return a user's name and credentials for a kubeconfig: certificate and key."""
    certificate, key = (base64.b64encode(path.read_bytes()).decode() for path in user)
    return user[0].stem, {"client-certificate-data": certificate, "client-key-data": key}


class ControlPlane:
    """etcd, kube-apiserver and, on demand, kube-scheduler; a context manager that starts and stops them.

    url: https://127.0.0.1:PORT, the same over restarts. ca_pem: the CA that signed every certificate in it.
    kubeconfig: a file for the user kubernetes-admin of system:masters. logs: one file a server. audit: JSON
    lines, one for each answer to a service account. address: of this machine, for a network of
    real nodes, whose pods reach the API server at KUBERNETES_SERVICE; its admission then expects all
    controllers.
    """

    def __init__(
        self, binaries: Path, folder: Path, *, scheduler: bool = False, address: str | None = None
    ) -> None:
        self._binaries, self._folder, self._address = binaries, folder, address
        self.logs, self._keys = folder / "logs", folder / "pki"
        self.logs.mkdir(parents=True)
        self._keys.mkdir(mode=0o700)
        self._authority = trustme.CA()
        self.ca_pem = self._authority.cert_pem.bytes()
        self._ca = self._keys / "ca.pem"
        self._ca.write_bytes(self.ca_pem)
        self._server = self._identity("kube-apiserver")
        admin = self._identity("kubernetes-admin", "system:masters")
        self._trust = ssl.create_default_context(cafile=self._ca)
        self._trust.load_cert_chain(*admin)

        self._ports: list[socket.socket] = []
        # In a network of its own, the port of the Service `kubernetes`, as nothing forwards.
        etcd_port, self._port = self._reserve(), 443 if address else self._reserve()
        self._etcd_url = f"https://{HOST}:{etcd_port}"
        self.url = f"https://{HOST}:{self._port}"
        self.kubeconfig = self._write_kubeconfig(*_certificate(admin))
        self.audit = self.logs / "audit.log"
        self._etcd = self._etcd_daemon(etcd_port)
        self._apiserver = self._apiserver_daemon(etcd_port)
        self._scheduler = self._scheduler_daemon() if scheduler else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def schedules(self) -> bool:
        """Whether a scheduler runs, so that pods get bound."""
        return self._scheduler is not None

    @property
    def resizes(self) -> bool:
        """Whether pods have the subresource `resize`."""
        return kubernetes() >= (1, 33)

    def start(self) -> None:
        """Start the servers, each once the one before it is ready; RuntimeError when one does not get so."""
        try:
            self._etcd.start()
            self._apiserver.start()
            if self._scheduler is not None:
                self._scheduler.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the servers, give the ports back and drop etcd's data; the logs stay."""
        for daemon in (self._scheduler, self._apiserver, self._etcd):
            if daemon is not None:
                daemon.stop()
        for held in self._ports:
            held.close()
        shutil.rmtree(self._folder / "etcd", ignore_errors=True)

    @contextmanager
    def controllers(self, *excluded: str) -> Iterator[None]:
        """Run kube-controller-manager while the block runs, except the excluded controllers, by their names.

        They make the pods of Deployments, StatefulSets, DaemonSets and Jobs, endpoints, and service accounts,
        and finish the deletion of namespaces. They also delete pods on nodes that do not exist.
        """
        daemon = self._controllers_daemon(excluded if self._address else (*_NEED_KUBELETS, *excluded))
        daemon.start()
        try:
            yield
        finally:
            daemon.stop()

    def kill_apiserver(self) -> None:
        """Kill the API server with SIGKILL; its port refuses connections until restart_apiserver()."""
        self._apiserver.kill()

    def stop_apiserver(self, number: signal.Signals) -> None:
        """Send the API server SIGSTOP, so that it keeps connections and does not answer, or SIGCONT."""
        self._apiserver.send(number)

    def restart_apiserver(self) -> None:
        """Kill the API server if it runs, and start it again on the same port and data.

        The scheduler restarts, too: by itself it would finally retry only once a minute.
        """
        self._apiserver.kill()
        self._apiserver.start()
        if self._scheduler is not None:
            self._scheduler.kill()
            self._scheduler.start()

    def forget(self) -> None:
        """Compact etcd up to now and restart the API server: older resourceVersions are gone (410)."""
        revision = self._ask_etcd("maintenance/status", {})["header"]["revision"]
        self._ask_etcd("kv/compaction", {"revision": revision, "physical": True})
        self.restart_apiserver()

    def kubectl(
        self,
        *args: str,
        input: str | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as kubernetes-admin; with check, CalledProcessError, with stderr as its note."""
        # kubectl caches under HOME which kinds a server has, by its address: another cluster's may differ.
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self._folder)}
        argv = [str(self._binaries / "kubectl"), *args]
        done = subprocess.run(
            argv, input=input, env=environment, capture_output=True, text=True, timeout=KUBECTL_S, check=False
        )
        if check and done.returncode:
            failure = subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
            failure.add_note(done.stderr)
            raise failure
        return done

    def service_account(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig for a service account, with a token for an hour, and return its path."""
        token = self.kubectl("create", "token", name, "-n", namespace).stdout.strip()
        return self._write_kubeconfig(f"{namespace}-{name}", {"token": token})

    def _ask_etcd(self, call: str, message: dict[str, Any]) -> dict[str, Any]:
        """Call etcd through its JSON gateway: https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/."""
        url = f"{self._etcd_url}/v3/{call}"
        body = json.dumps(message).encode()
        with urlopen(url, body, timeout=KUBECTL_S, context=self._trust) as answer:  # noqa: S310 - https
            answered: dict[str, Any] = json.load(answer)
        return answered

    def _reserve(self) -> int:
        self._ports.append(reserve_port())
        port: int = self._ports[-1].getsockname()[1]
        return port

    def _identity(self, user: str, group: str | None = None) -> tuple[Path, Path]:
        """Issue a certificate for a server on this host, which is good for a client of that name as well."""
        hosts = (HOST, *filter(None, [self._address]), "kubernetes.default.svc", KUBERNETES_SERVICE)
        leaf = self._authority.issue_cert(*hosts, common_name=user, organization_name=group)
        name = user.rpartition(":")[2]
        certificate, key = self._keys / f"{name}.pem", self._keys / f"{name}-key.pem"
        leaf.cert_chain_pems[0].write_to_path(str(certificate))
        leaf.private_key_pem.write_to_path(str(key))
        return certificate, key

    def _write_kubeconfig(self, name: str, credentials: dict[str, str]) -> Path:
        """Write the kubeconfig of a user with everything in it, so that the file alone is enough."""
        authority = base64.b64encode(self.ca_pem).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "e2e", "cluster": {"server": self.url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": name, "user": credentials}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
            "current-context": "e2e",
        }
        path = self._folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))  # JSON is YAML
        return path

    def _daemon(self, name: str, port: int, health: str, flags: dict[str, object]) -> Daemon:
        argv = [str(self._binaries / name), *(f"--{flag}={value}" for flag, value in flags.items())]
        if self._address:  # a killed test leaves nothing: the kernel kills what its thread has started
            argv = ["setpriv", "--pdeathsig=KILL", *argv]
        return Daemon(argv, port, health, self._trust, self.logs / f"{name}.log")

    def _etcd_daemon(self, port: int) -> Daemon:
        certificate, key = self._server
        return self._daemon(
            "etcd",
            port,
            "/health",
            {
                "data-dir": self._folder / "etcd",
                "listen-client-urls": f"https://{HOST}:{port}",
                "advertise-client-urls": f"https://{HOST}:{port}",
                "listen-peer-urls": f"http://{HOST}:0",  # a cluster of one: any port will do
                "client-cert-auth": "true",
                "trusted-ca-file": self._ca,
                "cert-file": certificate,
                "key-file": key,
                "unsafe-no-fsync": "true",  # the data outlives the API server, not this machine
            },
        )

    def _apiserver_daemon(self, etcd_port: int) -> Daemon:
        certificate, key = self._server
        _, service_account_key = self._identity("service-accounts")
        audited = self._folder / "audit-policy.json"
        audited.write_text(json.dumps(_AUDIT_POLICY))
        return self._daemon(
            "kube-apiserver",
            self._port,
            "/readyz",
            {
                "bind-address": HOST,
                "secure-port": self._port,
                "tls-cert-file": certificate,
                "tls-private-key-file": key,
                "client-ca-file": self._ca,
                "etcd-servers": f"https://{HOST}:{etcd_port}",
                "etcd-cafile": self._ca,
                "etcd-certfile": certificate,
                "etcd-keyfile": key,
                "authorization-mode": "RBAC",
                "allow-privileged": "true",
                "service-cluster-ip-range": "10.0.0.0/24",
                "endpoint-reconciler-type": "none",  # its own endpoint may not be a loopback address
                "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-key-file": service_account_key,
                "service-account-signing-key-file": service_account_key,
                "audit-policy-file": audited,
                "audit-log-path": self.audit,
                # Both wait for a controller that does not run here: one makes each namespace's default
                # service account, the other takes the not-ready taint off new nodes.
                "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
            }
            | self._for_nodes(),
        )

    def _for_nodes(self) -> dict[str, object]:
        """Return what is different with real nodes; their network has no default route."""
        if self._address is None:
            return {}
        return {
            "bind-address": "0.0.0.0",  # noqa: S104 - of a network of its own
            "advertise-address": self._address,
            "endpoint-reconciler-type": "lease",
            "kubelet-preferred-address-types": "InternalIP",
            "disable-admission-plugins": "",
            "enable-aggregator-routing": "true",  # without kube-proxy, it finds the pods of a Service itself
        }

    def _scheduler_daemon(self) -> Daemon:
        port = self._reserve()
        certificate, key = user = self._identity("system:kube-scheduler")
        return self._daemon(
            "kube-scheduler",
            port,
            "/readyz" if kubernetes() >= (1, 31) else "/healthz",
            {
                "bind-address": HOST,
                "secure-port": port,
                "tls-cert-file": certificate,
                "tls-private-key-file": key,
                "kubeconfig": self._write_kubeconfig(*_certificate(user)),
                "leader-elect": "false",
            },
        )

    def _controllers_daemon(self, excluded: tuple[str, ...]) -> Daemon:
        port = self._reserve()
        certificate, key = self._server
        return self._daemon(
            "kube-controller-manager",
            port,
            "/healthz",
            {
                "bind-address": HOST,
                "secure-port": port,
                "tls-cert-file": certificate,
                "tls-private-key-file": key,
                "kubeconfig": self.kubeconfig,
                "leader-elect": "false",
                "controllers": ",".join(["*", *(f"-{name}" for name in excluded)]),
            }
            | ({"root-ca-file": self._ca} if self._address else {}),
        )
