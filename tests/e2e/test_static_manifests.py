"""docs/export.md on a real API server that reads policies and webhook configurations from files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.e2e.cluster import ControlPlane, assets, missing
from tests.e2e.daemon import HOST, Daemon, reserve_port
from tests.e2e.serve_process import ServeProcess, eventually
from tests.support.builders import resource_rule
from tests.support.command import gpugate

pytestmark = pytest.mark.needs_kubernetes("1.37")

KEY, OTHER = "vendor.com/device", "vendor.com/other"


class Reading(ControlPlane):
    """A control plane whose API server has an admission configuration."""

    def __init__(self, binaries: Path, folder: Path, admission: Path) -> None:
        self._admission = admission
        super().__init__(binaries, folder)

    def _daemon(self, name: str, port: int, health: str, flags: dict[str, Any]) -> Daemon:
        if name == "kube-apiserver":
            flags = flags | {"admission-control-config-file": self._admission}
        return super()._daemon(name, port, health, flags)


def export(folder: Path, expression: str, *options: str) -> str:
    """Export a rule to the folder of the API server; return its configuration."""
    rules = folder.with_name("rules.yaml")
    rules.write_text(
        resource_rule(
            KEY,
            group="devices",
            validations=[{"expression": expression, "messageEn": "too many devices"}],
        )
        + "---\n"
        + resource_rule(OTHER, group="devices", limits="required", requests="required", defaultValue="3")
    )
    result = gpugate("export", rules, "--static", folder, *options)
    assert 0 == result.exit_code, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the files."""
    return tmp_path_factory.mktemp("static") / "files"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServeProcess]:
    """Yield gpugate with built-in rules and its certificate in files, which is not started yet."""
    authority = trustme.CA()
    leaf, place = authority.issue_cert(HOST), folder.parent
    authority.cert_pem.write_to_path(str(place / "ca.crt"))
    leaf.cert_chain_pems[0].write_to_path(str(place / "tls.crt"))
    leaf.private_key_pem.write_to_path(str(place / "tls.key"))
    with reserve_port() as held:
        port = held.getsockname()[1]
        options = [f"--tls-cert={place}/tls.crt", f"--tls-key={place}/tls.key", "--rules=builtin"]
        yield ServeProcess(port, [*options, "--drain-seconds=0"], place / "serve.log")


@pytest.fixture(scope="module")
def cluster(
    folder: Path, server: ServeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Yield a control plane that reads the files: policies, and later webhooks; gpugate is not running."""
    binaries = assets()
    if absent := missing(binaries):
        pytest.skip(f"no {', '.join(absent)} in {binaries}: run `make e2e-assets`")
    admission = folder.with_name("admission.yaml")
    admission.write_text(export(folder, "value <= 8", *webhook_options(folder, server)))
    export(folder, "value <= 8")
    with Reading(binaries, tmp_path_factory.mktemp("cluster"), admission) as running:
        yield running


def webhook_options(folder: Path, server: ServeProcess) -> list[str]:
    """Return the options to export the webhooks of the manifests."""
    url, ca = f"https://{HOST}:{server.port}", folder.with_name("ca.crt")
    return ["--manifests", "manifests/base/webhooks.yaml", "--webhook-url", url, "--webhook-ca", str(ca)]


def created(cluster: ControlPlane, limits: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the limits of a pod as the API server would store it, and its error."""
    container = {"name": "c", "image": "busybox", "resources": {"limits": limits}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    done = cluster.kubectl(
        *("create", "--dry-run=server", "-o", "json", "-f", "-"), input=json.dumps(pod), check=False
    )
    if done.returncode:
        return {}, done.stderr
    return json.loads(done.stdout)["spec"]["containers"][0]["resources"]["limits"], ""


def test_a_pod_that_a_rule_denies_is_denied_with_nothing_in_etcd_and_without_gpugate(
    cluster: ControlPlane,
) -> None:
    """From the first request on; the default is set as well."""
    kinds = "validatingadmissionpolicies,mutatingadmissionpolicies,mutatingwebhookconfigurations"
    limits, error = created(cluster, {KEY: "9", OTHER: "1"})
    allowed = created(cluster, {KEY: "8"})

    assert ({}, True) == (limits, "too many devices" in error)
    assert ({KEY: "8", OTHER: "3"}, "") == allowed
    assert [] == json.loads(cluster.kubectl("get", kinds, "-o", "json").stdout)["items"]


def test_nobody_can_delete_the_policies_or_create_others_of_their_names(cluster: ControlPlane) -> None:
    """Not even an administrator of the cluster."""
    name = "gpugate-devices.static.k8s.io"
    deleted = cluster.kubectl("delete", "validatingadmissionpolicy", name, check=False).stderr
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Audit"]},
    }
    made = cluster.kubectl("create", "-f", "-", input=json.dumps(policy), check=False).stderr

    assert "NotFound" in deleted
    assert "reserved for static manifest-based configurations" in made


def test_a_new_export_comes_into_force_without_a_restart(cluster: ControlPlane, folder: Path) -> None:
    """The API server watches the folder."""
    before = created(cluster, {KEY: "9"})[1]
    export(folder, "value <= 16")
    eventually(lambda: created(cluster, {KEY: "9"})[1] == "")
    export(folder, "value <= 8")
    eventually(lambda: created(cluster, {KEY: "9"})[1] != "")

    assert "too many devices" in before


def test_a_file_that_the_api_server_cannot_read_changes_nothing(cluster: ControlPlane, folder: Path) -> None:
    """It counts the failure."""
    failures = 'automatic_reloads_total{apiserver_id_hash="'
    broken = folder / "ValidatingAdmissionPolicy" / "broken.yaml"
    broken.write_text("kind: [")
    try:
        eventually(
            lambda: any(
                failures in line and 'status="failure"' in line
                for line in cluster.kubectl("get", "--raw", "/metrics").stdout.splitlines()
            )
        )
        error = created(cluster, {KEY: "9"})[1]
    finally:
        broken.unlink()

    assert "too many devices" in error


def test_webhooks_in_files_call_gpugate_by_its_url(
    cluster: ControlPlane, folder: Path, server: ServeProcess
) -> None:
    """While it does not answer, pods that request accelerators are denied, and others are created."""
    export(folder, "value <= 8", *webhook_options(folder, server))
    limits = {"tencent.com/vcuda-core": "150"}
    eventually(lambda: "failed calling webhook" in created(cluster, limits)[1])
    others = created(cluster, {"cpu": "1"})
    with server:
        denied = created(cluster, limits)[1]
    export(folder, "value <= 8")
    eventually(lambda: created(cluster, limits)[1] == "")

    assert ({"cpu": "1"}, "") == others
    assert "mutate.gpugate.dev" in denied
    assert "multiple of 100" in denied
