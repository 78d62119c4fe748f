"""`gpugate certs` with a directory, and with a cluster over HTTP."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from certs.authority import make_authority
from certs.bundle import Bundle, certificates_in
from certs.kubernetes_api import KubernetesError
from certs.rotation_plan import Plan, Step
from certs.rotator import CertRotator
from certs.store import DirectoryStore, SecretStore
from tests.support.command import gpugate
from tests.support.memory import (
    CONFIGURATIONS,
    SECRET,
    Memory,
    api_server,
    ca_bundles,
    webhook,
    with_configurations,
)
from tests.support.serving import connect, serving
from webhook.server.http import Response
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICE = "gpugate.gpugate.svc"
NAMES = [SERVICE, "gpugate.gpugate", "gpugate", f"{SERVICE}.cluster.local"]
HEADINGS = ["CERTIFICATE", "NOT AFTER", "DAYS LEFT", "TRUSTED BY", "NAMES"]
MORE_HEADINGS = ["SUBJECT", "NOT BEFORE", "SHA-256"]


certs = partial(gpugate, "certs")


def shown(*arguments: str | Path) -> dict[str, Any]:
    """Return what `show -o json` prints."""
    document: dict[str, Any] = json.loads(certs("show", *arguments, "-o", "json").stdout)
    return document


def age(memory: Memory | None, directory: Path | None, plan: Plan, when: datetime) -> None:
    """Create certificates as of another time."""
    store = SecretStore(memory, "gpugate", "gpugate-certs") if memory else None
    CertRotator(store or DirectoryStore(directory or Path()), plan, memory, lambda: when).reconcile()


@pytest.fixture
def memory() -> Memory:
    """Return the API server's objects."""
    return with_configurations()


@pytest.fixture
def cluster(memory: Memory, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Serve them; yields the option that selects the cluster."""
    with api_server(memory, tmp_path) as kubeconfig:
        yield ("--kubeconfig", str(kubeconfig))


@pytest.mark.parametrize("name", ["init", "show", "rotate"])
def test_each_has_help_with_examples(name: str) -> None:
    """Each subcommand."""
    assert f"Examples:\n    gpugate certs {name}" in certs(name, "--help").stdout


def test_init_makes_certificates_in_a_directory_that_a_server_serves(tmp_path: Path) -> None:
    """A client that trusts the caBundle of `show` accepts them."""
    done = certs("init", "--directory", tmp_path / "new", "--name", "localhost", "--name", "127.0.0.1")
    trusted = b64decode(shown("--directory", tmp_path / "new")["caBundle"]).decode()
    tls = TlsCertificate.from_files(tmp_path / "new/tls.crt", tmp_path / "new/tls.key")
    with serving(lambda _: Response(200, b""), tls=tls) as server:
        for name in ("localhost", "127.0.0.1"):
            connect(server.port, name, ssl.create_default_context(cadata=trusted)).close()

    assert (0, "") == (done.exit_code, done.stderr)
    assert ["CA", "serving", "caBundle"] == [line.split()[0] for line in done.stdout.splitlines()]


def test_init_keeps_valid_certificates(tmp_path: Path) -> None:
    """It is idempotent."""
    certs("init", "--directory", tmp_path, "--name", "localhost")
    before = shown("--directory", tmp_path)
    again = certs("init", "--directory", tmp_path)

    assert (0, before) == (again.exit_code, shown("--directory", tmp_path))


def test_init_makes_a_secret_that_the_webhook_configurations_trust(
    memory: Memory, cluster: tuple[str, str]
) -> None:
    """For the Service's names."""
    done = certs("init", *cluster)
    by_role = {certificate["role"]: certificate for certificate in shown(*cluster)["certificates"]}

    assert (0, "") == (done.exit_code, done.stderr)
    assert "kubernetes.io/tls" == memory.objects[SECRET]["type"]
    assert {certificates_in(b64decode(memory.objects[SECRET]["data"]["ca.crt"]))} == ca_bundles(memory)
    assert NAMES == by_role["serving"]["names"]
    assert (89, 3649) == (by_role["serving"]["daysLeft"], by_role["CA"]["daysLeft"])
    assert ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] == by_role["CA"]["trustedBy"]


def test_another_namespace_and_secret_may_be_named(memory: Memory, cluster: tuple[str, str]) -> None:
    """The Service is in the same namespace."""
    place = (*cluster, "--namespace", "gpu", "--secret", "other")
    certs("init", *place)

    assert "/api/v1/namespaces/gpu/secrets/other" in memory.objects
    assert "gpugate.gpu.svc" == shown(*place)["certificates"][1]["names"][0]


@pytest.mark.usefixtures("memory")
def test_show_prints_a_table(cluster: tuple[str, str]) -> None:
    """Aligned, with the days left; -o wide has all names, the subject and the fingerprint."""
    certs("init", *cluster)
    done, wide = certs("show", *cluster), certs("show", *cluster, "-o", "wide")
    rows = _rows_of(done.stdout, HEADINGS)
    wide_rows = _rows_of(wide.stdout, HEADINGS + MORE_HEADINGS)

    assert (0, 0) == (done.exit_code, wide.exit_code)
    assert (HEADINGS, HEADINGS + MORE_HEADINGS) == (rows[0], wide_rows[0])
    assert [["CA", "-"], ["serving", f"{NAMES[0]} + {len(NAMES) - 1} more..."]] == [
        [row[0], row[-1]] for row in rows[1:]
    ]
    assert [["-", "CN=gpugate CA"], [" ".join(NAMES), f"CN={SERVICE}"]] == [row[4:6] for row in wide_rows[1:]]
    assert {"mutating validating"} == {row[3] for row in rows[1:]}


def _rows_of(text: str, headings: list[str]) -> list[list[str]]:
    """Return the cells of a table below headings."""
    lines = text.splitlines()
    return [
        [line[lines[0].index(heading) :].split("  ")[0].strip() for heading in headings] for line in lines
    ]


def test_show_reports_expired_certificates(tmp_path: Path) -> None:
    """Exit status 1; the CA is still valid."""
    age(None, tmp_path, Plan(("localhost",)), datetime.now(UTC) - timedelta(days=91))
    done = certs("show", "--directory", tmp_path)
    serving_row = done.stdout.splitlines()[-1].split()

    assert 1 == done.exit_code
    assert done.stderr.startswith("error: serving: expired ")
    assert 1 == len(done.stderr.splitlines())
    assert "-2" in serving_row


def test_show_reports_configurations_that_do_not_trust_a_certificate(
    memory: Memory, cluster: tuple[str, str]
) -> None:
    """Exit status 1; a single webhook of a configuration is enough."""
    certs("init", *cluster)
    path = CONFIGURATIONS[1]
    webhooks = [*memory.objects[path]["webhooks"], webhook("more.gpugate.dev")]
    memory.put(path, memory.objects[path] | {"webhooks": webhooks})
    done = certs("show", *cluster)

    assert 1 == done.exit_code
    assert [
        "error: CA: not trusted by ValidatingWebhookConfiguration gpugate",
        "error: serving: not trusted by ValidatingWebhookConfiguration gpugate",
    ] == done.stderr.splitlines()
    assert "mutating" == _rows_of(done.stdout, HEADINGS)[-1][3]


def test_show_reports_a_missing_webhook_configuration(memory: Memory, cluster: tuple[str, str]) -> None:
    """The API server does not call the webhook then."""
    for path in CONFIGURATIONS:
        del memory.objects[path]
    certs("init", *cluster)
    done = certs("show", *cluster)

    assert (
        1,
        "error: webhook configuration gpugate not found; the API server does not call this webhook\n",
    ) == (done.exit_code, done.stderr)
    assert "none" == _rows_of(done.stdout, HEADINGS)[-1][3]


def test_show_and_rotate_of_an_empty_store_name_the_first_step(tmp_path: Path) -> None:
    """`show` exits with 1, `rotate` with 2."""
    show, rotate = (certs(name, "--directory", tmp_path / "nowhere") for name in ("show", "rotate"))

    assert (1, 2) == (show.exit_code, rotate.exit_code)
    for done in (show, rotate):
        assert done.stderr.endswith("nowhere is empty; next: gpugate certs init\n")


def test_show_reports_a_missing_serving_certificate(tmp_path: Path) -> None:
    """For example, after an interrupted init."""
    store = DirectoryStore(tmp_path)
    store.save(Bundle(make_authority("gpugate CA", datetime.now(UTC))), store.load())
    done = certs("show", "--directory", tmp_path)

    assert (1, "error: the serving certificate is missing; next: gpugate certs init\n") == (
        done.exit_code,
        done.stderr,
    )


def test_rotate_replaces_the_serving_certificate_alone(cluster: tuple[str, str]) -> None:
    """For the same names."""
    certs("init", *cluster, "--name", "localhost")
    before = shown(*cluster)
    done = certs("rotate", *cluster)
    after = shown(*cluster)

    assert 0 == done.exit_code
    assert before["caBundle"] == after["caBundle"]
    assert before["certificates"][0] == after["certificates"][0]
    assert ["localhost"] == after["certificates"][1]["names"]
    assert before["certificates"][1]["sha256"] != after["certificates"][1]["sha256"]


def test_rotate_ca_starts_a_rotation_with_overlap(memory: Memory, cluster: tuple[str, str]) -> None:
    """Both CAs are trusted; the old one still signs the serving certificate."""
    certs("init", *cluster)
    before = shown(*cluster)["certificates"]
    begun = certs("rotate", "--ca", *cluster)
    by_role = {certificate["role"]: certificate for certificate in shown(*cluster)["certificates"]}
    hurried = certs("rotate", *cluster)

    assert 0 == begun.exit_code
    assert "Both the new and the old CA are trusted. The new CA takes over at 2" in begun.stdout
    assert [by_role["old CA"]["sha256"], by_role["serving"]["sha256"]] == [
        certificate["sha256"] for certificate in before
    ]
    assert 1 == len(ca_bundles(memory))
    assert 2 == len(ca_bundles(memory).pop())
    assert 0 == certs("show", *cluster).exit_code
    assert (2, True) == (hurried.exit_code, "a CA rotation is in progress; try again at 2" in hurried.stderr)


def test_rotate_finishes_a_rotation_when_its_steps_are_due(tmp_path: Path) -> None:
    """Without a server: the new CA signs, and one day later the old CA is removed."""
    now = datetime.now(UTC)
    plan = Plan(("localhost",))
    age(None, tmp_path, plan, now - timedelta(days=5))
    store = DirectoryStore(tmp_path)
    keeper = CertRotator(store, plan, None, lambda: now - timedelta(minutes=2))
    keeper.force(Step.MAKE_AUTHORITY)
    assert 0 == certs("rotate", "--directory", tmp_path).exit_code
    bundle = store.load().bundle

    assert bundle
    assert 1 == len(bundle.previous)
    assert bundle.authority.certificate_pem == bundle.issuer()
    assert () == CertRotator(store, plan, None, lambda: now + timedelta(days=2)).reconcile().previous


@pytest.mark.parametrize(
    "options", [("--kubeconfig", "x"), ("--context", "x"), ("--namespace", "x"), ("--secret", "x")]
)
def test_a_directory_cannot_be_used_with_options_of_a_cluster(
    options: tuple[str, str], tmp_path: Path
) -> None:
    """They are alternatives."""
    done = certs("init", "--directory", tmp_path, *options)

    assert 2 == done.exit_code
    assert "--directory cannot be used with options of a cluster" in done.stderr


def test_an_invalid_bundle_prints_one_line(memory: Memory, cluster: tuple[str, str]) -> None:
    """And is not changed."""
    memory.put(SECRET, {"data": {"password": "c2VjcmV0"}})
    for name in ("init", "show", "rotate"):
        done = certs(name, *cluster)

        assert 2 == done.exit_code
        assert done.stderr.splitlines()[-1].startswith("error: Secret gpugate/gpugate-certs holds no cert")
    assert {"password": "c2VjcmV0"} == memory.objects[SECRET]["data"]


def test_an_error_of_the_api_server_is_printed(memory: Memory, cluster: tuple[str, str]) -> None:
    """With the HTTP reason, such as missing RBAC."""

    def forbid(method: str, path: str) -> None:
        raise KubernetesError(f"{method} {path} is forbidden")

    memory.before = forbid
    done = certs("init", *cluster)

    assert 2 == done.exit_code
    assert "gpugate-certs is forbidden" in done.stderr.splitlines()[-1]


def test_an_unavailable_api_server_is_reported(memory: Memory, tmp_path: Path) -> None:
    """After some retries."""
    with api_server(memory, tmp_path) as kubeconfig:
        pass
    done = certs("show", "--kubeconfig", kubeconfig)

    assert 2 == done.exit_code
    assert "error: the API server does not answer GET /apis/" in done.stderr


def test_an_invalid_kubeconfig_is_reported() -> None:
    """With the options to check."""
    done = certs("show", "--kubeconfig", "/nowhere")

    assert 2 == done.exit_code
    assert done.stderr.endswith("check --kubeconfig and --context\n")
