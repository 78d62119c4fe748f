"""Certificates that renew themselves, on a real API server that verifies them at each call."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
import yaml
from click.testing import CliRunner

import certs.keeper
import webhook.server
from certs.bundle import Bundle, certificates_in, is_issued_by
from certs.inject import KINDS, read_configurations, write_ca_bundles
from certs.keeper import Keeper
from certs.kube import ApiServer, Conflict, KubernetesError
from certs.rotation import Plan, Step
from certs.store import SecretStore
from tests.e2e.test_control_plane import pod
from tests.serving import HOST, serving
from tests.webhooks import shipped_gate
from webhook.app import create_app
from webhook.cli import main
from webhook.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from tests.e2e.cluster import ControlPlane

ROOT = Path(__file__).parents[2]
SECRET = "gpugate-certs"  # noqa: S105 - the name of one
VCUDA = "tencent.com/vcuda-core"
# Seconds in place of a minute and a day. Certificates know whole ones, so an overlap of 4 may be one of 3.
PLAN = Plan((HOST,), settling=timedelta(seconds=1), overlap=timedelta(seconds=4))
# Seconds. A rotation of these terms takes some six.
PATIENCE = 60.0


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a namespace of this test's own, named after it; it goes at once, there is nobody to clean it."""
    name = request.node.name.replace("_", "-")[:63].strip("-")
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def configurations(control_plane: ControlPlane) -> Iterator[Callable[[list[int]], None]]:
    """Yield what applies the shipped webhook configurations, by ports of this machine; they go afterwards."""
    documents = list(yaml.safe_load_all((ROOT / "manifests/base/webhooks.yaml").read_text("utf-8")))

    def apply(ports: list[int]) -> None:
        for document, port in zip(documents, ports, strict=True):
            for each in document["webhooks"]:
                path = each["name"].partition(".")[0]
                each["clientConfig"] = {"url": f"https://{HOST}:{port}/{path}"}
        control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))

    yield apply
    control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(documents))


def keeper(control_plane: ControlPlane, namespace: str, kubeconfig: Path | None = None) -> Keeper:
    """Return a replica's keeper, with connections of its own."""
    api = ApiServer.connect(str(kubeconfig or control_plane.kubeconfig))
    return Keeper(SecretStore(api, namespace, SECRET), PLAN, api)


def ca_bundles(control_plane: ControlPlane) -> set[tuple[bytes, ...]]:
    """Return what the API server stores in both configurations: one element where they agree."""
    found = set()
    for kind in KINDS:
        document = json.loads(control_plane.kubectl("get", kind, "gpugate", "-o", "json").stdout)
        for each in document["webhooks"]:
            found.add(certificates_in(b64decode(each["clientConfig"].get("caBundle", ""))))
    return found


def test_of_keepers_that_race_one_makes_the_secret_and_both_configurations_trust_it(
    control_plane: ControlPlane, namespace: str, configurations: Callable[[list[int]], None]
) -> None:
    """All come to rest with the same pair."""
    configurations([1, 1])
    keepers = [keeper(control_plane, namespace) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        bundles = list(threads.map(Keeper.look, keepers))
    secret = json.loads(control_plane.kubectl("get", "secret", "-n", namespace, SECRET, "-o", "json").stdout)

    assert "kubernetes.io/tls" == secret["type"]
    assert 1 == len({bundle.authority for bundle in bundles}) == len({bundle.leaf for bundle in bundles})
    assert {bundles[0].trusted} == ca_bundles(control_plane)
    assert b64decode(secret["data"]["tls.crt"]) == keepers[0].pair().certificate_pem


def test_a_patch_of_what_has_changed_is_a_conflict(
    control_plane: ControlPlane, configurations: Callable[[list[int]], None]
) -> None:
    """The API server holds it to the resourceVersion in it; what others wrote stays."""
    configurations([1, 1])
    api = ApiServer.connect(str(control_plane.kubeconfig))
    (configuration, _) = read_configurations(api)
    control_plane.kubectl("label", configuration.kind, "gpugate", "team=ml", "--overwrite")

    with pytest.raises(Conflict, match="409"):
        write_ca_bundles(api, configuration, lambda _: (b"",))


def _wait_until_allowed(control_plane: ControlPlane, namespace: str) -> None:
    """Wait for the API server to see new bindings, which it watches like everybody else."""
    user = f"--as=system:serviceaccount:{namespace}:gpugate"
    asked = [(f"secrets/{SECRET}", "-n", namespace), *((f"{kind.lower()}s/gpugate",) for kind in KINDS)]
    deadline = time.monotonic() + 20
    for resource in asked:
        while control_plane.kubectl("auth", "can-i", "get", *resource, user, check=False).returncode:
            assert time.monotonic() < deadline, f"not allowed: {resource[0]}"
            time.sleep(0.1)


def test_the_least_rights_are_enough(
    control_plane: ControlPlane,
    namespace: str,
    configurations: Callable[[list[int]], None],
    tmp_path: Path,
) -> None:
    """To read and update one empty Secret that was applied, and to read and patch two configurations."""
    configurations([1, 1])
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    control_plane.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(secret))
    control_plane.kubectl("create", "serviceaccount", "gpugate", "-n", namespace)
    allow = partial(control_plane.kubectl, "create")
    allow(
        "role",
        "certs",
        "-n",
        namespace,
        "--verb=get,update",
        "--resource=secrets",
        f"--resource-name={SECRET}",
    )
    account = f"--serviceaccount={namespace}:gpugate"
    allow("rolebinding", "certs", "-n", namespace, "--role=certs", account)
    resources = ",".join(f"{kind.lower()}s" for kind in KINDS)
    allow("clusterrole", namespace, "--verb=get,patch", f"--resource={resources}", "--resource-name=gpugate")
    allow("clusterrolebinding", namespace, f"--clusterrole={namespace}", account)
    asked = ["auth", "can-i", "--as", f"system:serviceaccount:{namespace}:gpugate", "-n", namespace]
    for right in [("update", f"secret/{SECRET}"), *(("patch", f"{kind}/gpugate") for kind in KINDS)]:
        # The API server itself hears of a new role a moment later.
        wait_for(lambda right=right: "yes" in control_plane.kubectl(*asked, *right, check=False).stdout)  # type: ignore[misc]
    token = control_plane.kubectl("create", "token", "gpugate", "-n", namespace).stdout.strip()
    document = json.loads(control_plane.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    _wait_until_allowed(control_plane, namespace)

    bundle = keeper(control_plane, namespace, tmp_path / "kubeconfig").look()
    control_plane.kubectl("delete", f"clusterrole/{namespace}", f"clusterrolebinding/{namespace}")

    assert bundle.leaf
    assert {bundle.trusted} == ca_bundles(control_plane)


def wait_for(what: Callable[[], bool]) -> None:
    """Return when it is so."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def closing(app: WSGIApplication, seen: set[bytes], tls: TlsCertificate) -> WSGIApplication:
    """Return the application with an end to each connection, so that each call shakes hands anew."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        seen.add(tls.pair.certificate_pem)

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, ("Connection", "close")], *more)

        return app(environ, start)

    return answer


@contextmanager
def replicas(
    control_plane: ControlPlane, namespace: str, seen: list[set[bytes]]
) -> Iterator[tuple[list[Keeper], list[int]]]:
    """Run two replicas: a keeper with its thread, and a server; yields the keepers and the ports."""
    with ExitStack() as stack:
        keepers, ports = [], []
        for each in seen:
            one = keeper(control_plane, namespace)
            one.start()
            stack.callback(one.stop)
            tls = TlsCertificate(one.pair)
            app = closing(create_app(shipped_gate()), each, tls)
            ports.append(stack.enter_context(serving(app, tls=tls)).port)
            keepers.append(one)
        yield keepers, ports


class Load:
    """Creates pods until it is told to stop: by kubectl, and by two clients as fast as they can.

    created, dry: how many so far, failures among them. failures: what the API server said.
    """

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.created = 0
        self.dry = 0
        self.failures: list[str] = []
        self._control_plane, self._namespace = control_plane, namespace
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=each) for each in (self._kubectl, self._client, self._client)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def go_on(self) -> None:
        """Return when two more pods were created by kubectl, the second begun from now on."""
        before = self.created
        wait_for(lambda: self.created >= before + 2)

    def _kubectl(self) -> None:
        while not self._stopping.is_set():
            document = pod(f"pod-{self.created}", {VCUDA: "20"})
            create = ("create", "-n", self._namespace, "-f", "-")
            done = self._control_plane.kubectl(*create, input=document, check=False)
            self.failures += [done.stderr] if done.returncode else []
            self.created += 1

    def _client(self) -> None:
        api = ApiServer.connect(str(self._control_plane.kubeconfig))
        document = json.loads(pod("dry", {VCUDA: "20"}))
        while not self._stopping.is_set():
            try:
                api.create(f"/api/v1/namespaces/{self._namespace}/pods?dryRun=All", document)
            except KubernetesError as error:
                self.failures.append(str(error))
            self.dry += 1


def test_pods_are_admitted_all_the_while_that_leaf_and_authority_are_replaced(
    control_plane: ControlPlane,
    namespace: str,
    configurations: Callable[[list[int]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One replica is called to mutate, the other to validate; each call is a new handshake."""
    monkeypatch.setattr(certs.keeper, "LOOK_INTERVAL", 0.2)
    monkeypatch.setattr(webhook.server, "_RELOAD_INTERVAL", 0.1)
    seen: list[set[bytes]] = [set(), set()]
    store = SecretStore(ApiServer.connect(str(control_plane.kubeconfig)), namespace, SECRET)

    def stored() -> Bundle:
        bundle = store.load().bundle
        assert bundle
        return bundle

    def settled() -> bool:
        return stored().issuer() == stored().authority.certificate_pem and not stored().previous

    with replicas(control_plane, namespace, seen) as (keepers, ports):
        configurations(ports)
        first = stored()
        wait_for(lambda: ca_bundles(control_plane) == {first.trusted})
        with Load(control_plane, namespace) as load:
            for step in (Step.ISSUE_LEAF, Step.MAKE_AUTHORITY):
                load.go_on()
                keepers[0].force(step)
                wait_for(settled)
            load.go_on()
        last = stored()

    assert [] == load.failures
    assert load.dry > load.created
    assert [3, 3] == [len(each) for each in seen]
    assert last.leaf
    assert not is_issued_by(last.leaf.certificate_pem, first.authority.certificate_pem)
    assert {last.trusted} == ca_bundles(control_plane)
    assert 1 == len(last.trusted)


def test_an_erased_ca_bundle_is_filled_again(
    control_plane: ControlPlane,
    namespace: str,
    configurations: Callable[[list[int]], None],
) -> None:
    """And one of a configuration that was deleted and applied anew."""
    configurations([1, 1])
    one = keeper(control_plane, namespace)
    trusted = one.look().trusted
    erase = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    control_plane.kubectl("patch", KINDS[0], "gpugate", "--type=json", "-p", json.dumps(erase))
    control_plane.kubectl("delete", KINDS[1], "gpugate")
    configurations([1, 1])
    between = ca_bundles(control_plane)
    one.look()

    assert {()} == between
    assert {trusted} == ca_bundles(control_plane)


def test_the_commands_work_on_a_cluster(
    control_plane: ControlPlane, namespace: str, configurations: Callable[[list[int]], None]
) -> None:
    """init, show, rotate, and rotate --ca with its overlap."""
    configurations([1, 1])
    place = ["--kubeconfig", str(control_plane.kubeconfig), "--namespace", namespace]

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["certs", *arguments, *place])
        return done.exit_code, done.stdout

    assert 1 == run("show")[0]
    assert 0 == run("init")[0]
    assert 0 == run("rotate")[0]
    assert 0 == run("rotate", "--ca")[0]
    status, text = run("show", "-o", "json")
    found = json.loads(text)
    assert (0, []) == (status, found["problems"])
    assert ["CA", "old CA", "serving"] == [each["role"] for each in found["certificates"]]
    assert [list(KINDS)] * 3 == [each["trustedBy"] for each in found["certificates"]]
    assert {certificates_in(b64decode(found["caBundle"]))} == ca_bundles(control_plane)
