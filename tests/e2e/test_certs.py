"""Rotation of certificates on a real API server, which verifies them at each call."""

from __future__ import annotations

import json
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import yaml

from certs.bundle import certificates_in
from certs.ca_bundle import KINDS, read_configurations, write_ca_bundles
from certs.kubernetes_api import Conflict
from certs.rotation_plan import Plan
from certs.rotator import CertRotator
from certs.store import SecretStore
from tests.e2e.daemon import HOST
from tests.e2e.manifests import MANIFESTS
from tests.support.command import gpugate
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.cluster import ControlPlane

SECRET = "gpugate-certs"  # noqa: S105 - the name of one
# Seconds in place of a minute and a day. Certificates know whole ones, so an overlap of 4 may be one of 3.
PLAN = Plan((HOST,), settling=timedelta(seconds=1), overlap=timedelta(seconds=4))


@pytest.fixture
def configurations(control_plane: ControlPlane) -> Iterator[Callable[[list[int]], None]]:
    """Yield a function that applies the webhook configurations with ports of this machine."""
    documents = list(yaml.safe_load_all((MANIFESTS / "base/webhooks.yaml").read_text("utf-8")))

    def apply(ports: list[int]) -> None:
        for document, port in zip(documents, ports, strict=True):
            for webhook in document["webhooks"]:
                path = webhook["name"].partition(".")[0]
                webhook["clientConfig"] = {"url": f"https://{HOST}:{port}/{path}"}
        control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))

    yield apply
    control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(documents))


def rotator(control_plane: ControlPlane, namespace: str) -> CertRotator:
    """Return the rotator of a replica, with its own connections."""
    api = ClusterApi.of_kubeconfig(str(control_plane.kubeconfig))
    return CertRotator(SecretStore(api, namespace, SECRET), PLAN, api)


def ca_bundles(control_plane: ControlPlane) -> set[tuple[bytes, ...]]:
    """Return the CA bundles of both configurations: one element if they are equal."""
    bundles = set()
    for kind in KINDS:
        document = json.loads(control_plane.kubectl("get", kind, "gpugate", "-o", "json").stdout)
        for webhook in document["webhooks"]:
            bundles.add(certificates_in(b64decode(webhook["clientConfig"].get("caBundle", ""))))
    return bundles


def test_of_concurrent_rotators_one_creates_the_secret_and_both_configurations_trust_it(
    control_plane: ControlPlane, namespace: str, configurations: Callable[[list[int]], None]
) -> None:
    """All end with the same pair."""
    configurations([1, 1])
    rotators = [rotator(control_plane, namespace) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        bundles = list(threads.map(CertRotator.reconcile, rotators))
    secret = json.loads(control_plane.kubectl("get", "secret", "-n", namespace, SECRET, "-o", "json").stdout)

    assert "kubernetes.io/tls" == secret["type"]
    assert 1 == len({bundle.authority for bundle in bundles}) == len({bundle.leaf for bundle in bundles})
    assert {bundles[0].trusted} == ca_bundles(control_plane)
    assert bundles[0].leaf
    assert b64decode(secret["data"]["tls.crt"]) == bundles[0].leaf.certificate_pem


def test_a_patch_of_a_changed_object_is_a_conflict(
    control_plane: ControlPlane, configurations: Callable[[list[int]], None]
) -> None:
    """The API server checks its resourceVersion; changes of others stay."""
    configurations([1, 1])
    api = ClusterApi.of_kubeconfig(str(control_plane.kubeconfig))
    (configuration, _) = read_configurations(api)
    control_plane.kubectl("label", configuration.kind, "gpugate", "team=ml", "--overwrite")

    with pytest.raises(Conflict, match="409"):
        write_ca_bundles(api, configuration, lambda _: (b"",))


def test_an_erased_ca_bundle_is_filled_again(
    control_plane: ControlPlane,
    namespace: str,
    configurations: Callable[[list[int]], None],
) -> None:
    """So is that of a configuration that was deleted and applied again."""
    configurations([1, 1])
    one = rotator(control_plane, namespace)
    trusted = one.reconcile().trusted
    erase = [{"op": "remove", "path": f"/webhooks/{place}/clientConfig/caBundle"} for place in (0, 1)]
    control_plane.kubectl("patch", KINDS[0], "gpugate", "--type=json", "-p", json.dumps(erase))
    control_plane.kubectl("delete", KINDS[1], "gpugate")
    configurations([1, 1])
    between = ca_bundles(control_plane)
    one.reconcile()

    assert {()} == between
    assert {trusted} == ca_bundles(control_plane)


def test_the_commands_work_on_a_cluster(
    control_plane: ControlPlane, namespace: str, configurations: Callable[[list[int]], None]
) -> None:
    """init, show, rotate, and rotate --ca with its overlap."""
    configurations([1, 1])
    place = ["--kubeconfig", str(control_plane.kubeconfig), "--namespace", namespace]

    def run(*arguments: str) -> tuple[int, str]:
        done = gpugate("certs", *arguments, *place)
        return done.exit_code, done.stdout

    assert 1 == run("show")[0]
    assert 0 == run("init")[0]
    assert 0 == run("rotate")[0]
    assert 0 == run("rotate", "--ca")[0]
    status, text = run("show", "-o", "json")
    document = json.loads(text)
    assert (0, []) == (status, document["problems"])
    assert ["CA", "old CA", "serving"] == [certificate["role"] for certificate in document["certificates"]]
    assert [list(KINDS)] * 3 == [certificate["trustedBy"] for certificate in document["certificates"]]
    assert {certificates_in(b64decode(document["caBundle"]))} == ca_bundles(control_plane)
