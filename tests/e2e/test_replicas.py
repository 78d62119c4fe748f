"""Replicas share one certificate, which the API server verifies at each call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
import yaml

from certs.authority import make_leaf
from certs.bundle import Bundle, is_issued_by
from certs.ca_bundle import read_configurations
from certs.rotation_plan import Plan, service_names
from certs.rotator import CertRotator
from certs.store import SecretStore
from tests.e2e.cluster import assets, missing
from tests.e2e.daemon import HOST, reserve_port
from tests.e2e.installed import install
from tests.e2e.load import CLIENTS, Load
from tests.e2e.manifests import MANIFESTS, render
from tests.e2e.replicas import RoutingControlPlane, own_address
from tests.e2e.serve_process import QUICK_SERVE, SERVE, ServeProcess, ask, eventually
from tests.e2e.service import Endpoints, Service
from tests.support.command import gpugate
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.e2e.cluster import ControlPlane
    from tests.e2e.installed import Installation

# Seconds. The Service sends the last new connection a second and a half after the signal.
DRAIN_S = 4.0


class Trust:
    """The certificates in the cluster."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.api = ClusterApi.of_kubeconfig(str(control_plane.kubeconfig))
        self.store = SecretStore(self.api, "gpugate", "gpugate-certs")

    @property
    def bundle(self) -> Bundle:
        """What is in the Secret."""
        bundle = self.store.load().bundle
        assert bundle
        return bundle

    @property
    def leaf(self) -> bytes:
        """The serving certificate in it, PEM."""
        leaf = self.bundle.leaf
        assert leaf
        return leaf.certificate_pem

    def ca_bundles(self) -> set[tuple[bytes, ...]]:
        """Return what the webhooks of both configurations trust: one element where they agree."""
        return {
            held
            for read_configuration in read_configurations(self.api)
            for held in read_configuration.ca_bundles.values()
        }

    def at_rest(self) -> bool:
        """Return whether no new CA is pending, and each webhook trusts the current one."""
        bundle = self.store.load().bundle
        if bundle is None:
            return False
        is_over = bundle.issuer() == bundle.authority.certificate_pem and not bundle.previous
        return is_over and self.ca_bundles() == {bundle.trusted}


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Yield an installation whose webhooks name the Service, without a running server.

    The API server chooses among the endpoints of the Service itself (`--enable-aggregator-routing`).
    """
    if absent := missing(assets()):
        pytest.skip(f"no {', '.join(absent)} in {assets()}: run `make e2e-assets`")
    with (
        reserve_port() as held,
        RoutingControlPlane(assets(), tmp_path_factory.mktemp("routed")) as cluster,
    ):
        installation = install(cluster, held.getsockname()[1])
        kinds = ("Service", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        by_service = [document for document in render(MANIFESTS / "base") if document["kind"] in kinds]
        cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(by_service))
        reached = ("--host=0.0.0.0", "--name=gpugate.gpugate.svc")
        yield replace(installation, options=[*installation.options, *reached])


@contextmanager
def two_replicas(
    installation: Installation,
    folder: Path,
    *options: str,
    program: Sequence[str] = SERVE,
    behind: Callable[[Sequence[int]], AbstractContextManager[object]] | None = None,
) -> Iterator[list[ServeProcess]]:
    """Run two servers while the block runs.

    behind: what leads to the ready ones of these ports; by default, the address of the webhooks.
    """
    with ExitStack() as stack:
        replicas = []
        for number in range(2):
            port = stack.enter_context(reserve_port()).getsockname()[1]
            log = folder / f"{number}.log"
            server = installation.serve(log, *options, port=port, program=program)
            replicas.append(stack.enter_context(server))
        ports = [replica.port for replica in replicas]
        stack.enter_context(behind(ports) if behind else Service(installation.port, ports))
        eventually(installation.in_force)
        yield replicas


def rotate(installation: Installation, options: Sequence[str] = ()) -> None:
    """Run `gpugate certs rotate`."""
    kubeconfig = str(installation.cluster.kubeconfig)
    done = gpugate("certs", "rotate", "--kubeconfig", kubeconfig, *options)
    assert 0 == done.exit_code, done.output


def lose(installation: Installation) -> None:
    """Delete the Secret, and apply the overlay, which creates it again, empty."""
    installation.cluster.kubectl("delete", "secret", "-n", "gpugate", "gpugate-certs")
    installation.apply()


def test_no_call_fails_while_leaf_and_authority_are_replaced_under_load(
    installation: Installation, tmp_path: Path
) -> None:
    """And the Secret is deleted. Each call is a new handshake with one of two replicas."""
    cluster = installation.cluster
    trust = Trust(cluster)
    with two_replicas(installation, tmp_path, program=QUICK_SERVE) as replicas:
        eventually(trust.at_rest)
        first = trust.bundle.authority.certificate_pem
        leaves = [trust.leaf]
        with Load(cluster) as load:
            for replace_them in (rotate, partial(rotate, options=["--ca"]), lose):
                load.go_on()
                replace_them(installation)
                eventually(trust.at_rest)
                leaves.append(trust.leaf)
                eventually(lambda: {trust.leaf} == {replica.shown() for replica in replicas})
            load.go_on()
        reviews = [replica.reviews() for replica in replicas]

    assert [] == load.failures
    assert [True, True, False, False] == [is_issued_by(leaf, first) for leaf in leaves]
    assert 4 == len(set(leaves))
    assert sum(reviews) >= 2 * load.calls
    assert min(reviews) > load.calls / 2


def test_no_call_fails_when_one_of_two_replicas_terminates(
    installation: Installation, tmp_path: Path
) -> None:
    """The busier one, under load, by SIGTERM; the other one answers all calls afterwards.

    The API server keeps its connections, so that one replica may have answered everything until then.
    """
    with two_replicas(installation, tmp_path, f"--drain-seconds={DRAIN_S}") as replicas:
        _terminate_the_busier(replicas, installation)


def test_no_call_fails_when_a_replica_terminates_that_the_api_server_chose_itself(
    routed: Installation, tmp_path: Path
) -> None:
    """Among the endpoints of the Service, by `--enable-aggregator-routing`."""
    options = (f"--drain-seconds={DRAIN_S}",)
    endpoints = partial(Endpoints, routed.cluster, own_address())
    with two_replicas(routed, tmp_path, *options, behind=endpoints) as replicas:
        _terminate_the_busier(replicas, routed)


def _terminate_the_busier(replicas: Sequence[ServeProcess], installation: Installation) -> None:
    with Load(installation.cluster) as load:
        load.go_on()
        other, busy = sorted(replicas, key=ServeProcess.reviews)
        status = busy.terminate()
        reviews, calls = other.reviews(), load.calls  # what comes between them is not expected
        load.go_on()
    ended = ask(busy.port, "/healthz")
    answered = other.reviews() - reviews

    assert [] == load.failures
    assert (0, (0, "")) == (status, ended)
    # Each call is one review to mutate, one to validate; those that were under way may count already.
    assert answered >= 2 * (load.calls - calls - CLIENTS)
    assert answered > 0


def test_a_leaf_that_expired_while_the_server_was_down_is_renewed_at_its_start(
    installation: Installation, tmp_path: Path
) -> None:
    """By the existing CA, so that the API server trusts it immediately."""
    trust = Trust(installation.cluster)
    names = (*service_names("gpugate"), HOST)
    CertRotator(trust.store, Plan(names), trust.api).reconcile()
    before = trust.store.load()
    assert before.bundle
    long_ago = datetime.now(UTC) - timedelta(days=100)
    expired = make_leaf(before.bundle.authority, names, long_ago)
    trust.store.save(replace(before.bundle, leaf=expired), before)
    with installation.serve(tmp_path / "log") as server:
        eventually(server.ready)
        eventually(installation.in_force)

    assert before.bundle.authority == trust.bundle.authority
    assert expired.certificate_pem != trust.leaf


def test_a_server_that_starts_before_its_api_server_waits_for_it(
    installation: Installation, tmp_path: Path
) -> None:
    """Alive and not ready, with the reason; it becomes ready by itself."""
    installation.cluster.kill_apiserver()
    with installation.serve(tmp_path / "log") as server:
        waiting = ask(server.port, "/readyz"), server.sample("gpugate_ready")
        installation.cluster.restart_apiserver()
        eventually(server.ready)
        eventually(installation.in_force)
        assert 1 == server.sample("gpugate_ready")

    assert ((503, "not ready: waiting for nodes, rules, certificate\n"), 0) == waiting
