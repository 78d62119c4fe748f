"""`gpugate serve --certs-secret` on a real API server, which verifies its certificate at each call."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from click.testing import CliRunner

from certs.authority import make_leaf
from certs.bundle import Bundle, is_issued_by
from certs.inject import read_configurations
from certs.keeper import Keeper
from certs.rotation import Plan
from certs.store import SecretStore
from tests.e2e.daemon import HOST
from tests.e2e.gate import eventually
from tests.e2e.replicas import (
    SECRET,
    Load,
    Replica,
    apply_rules,
    called_at,
    is_completed,
)
from tests.e2e.service import Service, ask
from webhook.cli import main
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import ControlPlane


class Trust:
    """What the cluster holds of the certificates."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.api = ClusterApi.of_kubeconfig(str(control_plane.kubeconfig))
        self.store = SecretStore(self.api, namespace, SECRET)

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
        return {held for each in read_configurations(self.api) for held in each.ca_bundles.values()}

    def at_rest(self) -> bool:
        """Tell whether no CA is about to take over, and each webhook trusts the one that there is."""
        bundle = self.bundle
        is_over = bundle.issuer() == bundle.authority.certificate_pem and not bundle.previous
        return is_over and self.ca_bundles() == {bundle.trusted}


def rotate(control_plane: ControlPlane, namespace: str, *options: str) -> None:
    """Run `gpugate certs rotate`."""
    place = ["--kubeconfig", str(control_plane.kubeconfig), "--namespace", namespace, "--secret", SECRET]
    done = CliRunner().invoke(main, ["certs", "rotate", *place, *options])
    assert 0 == done.exit_code, done.output


def test_no_call_fails_while_leaf_and_authority_are_replaced_under_load(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Two replicas share the Secret; each call is a new handshake with one of them."""
    apply_rules(control_plane, namespace)
    trust = Trust(control_plane, namespace)
    with ExitStack() as stack:
        replicas = [
            stack.enter_context(
                Replica(control_plane, namespace, tmp_path / f"{number}.log", module="tests.e2e.quick_serve")
            )
            for number in range(2)
        ]
        service = stack.enter_context(Service([replica.port for replica in replicas]))
        stack.enter_context(called_at(control_plane, service.port))
        eventually(trust.at_rest)
        eventually(lambda: is_completed(control_plane, namespace))
        first = trust.bundle.authority.certificate_pem
        leaves = [trust.leaf]
        with Load(control_plane, namespace) as load:
            for options in ([], ["--ca"]):
                load.go_on()
                rotate(control_plane, namespace, *options)
                eventually(trust.at_rest)
                leaves.append(trust.leaf)
                eventually(lambda: {trust.leaf} == {replica.shown() for replica in replicas})
            load.go_on()
        reviews = [replica.reviews() for replica in replicas]

    assert [] == load.failures
    assert [True, True, False] == [is_issued_by(leaf, first) for leaf in leaves]
    assert 3 == len(set(leaves))
    assert sum(reviews) >= 2 * load.calls
    assert min(reviews) > load.calls / 2


def test_a_leaf_that_expired_while_the_server_was_down_is_renewed_at_its_start(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """By the CA that there is, so that the API server calls it at once."""
    apply_rules(control_plane, namespace)
    trust = Trust(control_plane, namespace)
    Keeper(trust.store, Plan((HOST,)), trust.api).look()
    before = trust.store.load()
    assert before.bundle
    long_ago = datetime.now(UTC) - timedelta(days=100)
    expired = make_leaf(before.bundle.authority, [HOST], long_ago)
    trust.store.save(replace(before.bundle, leaf=expired), before)
    with Replica(control_plane, namespace, tmp_path / "log") as replica:
        eventually(replica.ready)
        with called_at(control_plane, replica.port):
            eventually(lambda: is_completed(control_plane, namespace))

    assert before.bundle.authority == trust.bundle.authority
    assert expired.certificate_pem != trust.leaf


def test_a_server_that_starts_before_its_api_server_waits_for_it(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Alive and not ready, with what it waits for; the rest comes by itself."""
    apply_rules(control_plane, namespace)
    control_plane.kill_apiserver()
    try:
        with Replica(control_plane, namespace, tmp_path / "log") as replica:
            waiting = ask(replica.port, "/readyz")
            alive = ask(replica.port, "/healthz")
            control_plane.restart_apiserver()
            eventually(replica.ready)
            with called_at(control_plane, replica.port):
                eventually(lambda: is_completed(control_plane, namespace))
    finally:
        control_plane.restart_apiserver()

    assert (503, "not ready: waiting for nodes, rules, certificate\n") == waiting
    assert (200, "ok\n") == alive
