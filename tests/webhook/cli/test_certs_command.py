"""`gpugate certs` as a user meets it, on a directory and on a cluster over HTTP."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from certs.authority import make_authority
from certs.bundle import Bundle, certificates_in
from certs.kubernetes_api import KubernetesError
from certs.rotation_plan import Plan, Step
from certs.rotator import CertRotator
from certs.store import DirectoryStore, SecretStore
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
from webhook.cli import main
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICE = "gpugate.gpugate.svc"
NAMES = [SERVICE, "gpugate.gpugate", "gpugate", f"{SERVICE}.cluster.local"]
HEADINGS = [
    "CERTIFICATE",
    "SUBJECT",
    "NAMES",
    "NOT BEFORE",
    "NOT AFTER",
    "DAYS LEFT",
    "SHA-256",
    "TRUSTED BY",
]


def certs(*arguments: str | Path) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["certs", *map(str, arguments)])


def shown(*arguments: str | Path) -> dict[str, Any]:
    """Return what `show -o json` prints."""
    document: dict[str, Any] = json.loads(certs("show", *arguments, "-o", "json").stdout)
    return document


def age(memory: Memory | None, directory: Path | None, plan: Plan, when: datetime) -> None:
    """Make certificates as they would have been made at another time."""
    store = SecretStore(memory, "gpugate", "gpugate-certs") if memory else None
    CertRotator(store or DirectoryStore(directory or Path()), plan, memory, lambda: when).reconcile()


@pytest.fixture
def memory() -> Memory:
    """Return the API server's objects."""
    return with_configurations()


@pytest.fixture
def cluster(memory: Memory, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Serve them; yields the option that names the cluster."""
    with api_server(memory, tmp_path) as kubeconfig:
        yield ("--kubeconfig", str(kubeconfig))


@pytest.mark.parametrize("name", ["init", "show", "rotate"])
def test_each_has_help_with_examples(name: str) -> None:
    """Of its own."""
    assert f"Examples:\n    gpugate certs {name}" in certs(name, "--help").stdout


def test_init_makes_certificates_in_a_directory_that_a_server_serves(tmp_path: Path) -> None:
    """Who trusts the caBundle that `show` prints accepts them."""
    done = certs("init", "--directory", tmp_path / "new", "--name", "localhost", "--name", "127.0.0.1")
    trusted = b64decode(shown("--directory", tmp_path / "new")["caBundle"]).decode()
    tls = TlsCertificate.from_files(tmp_path / "new/tls.crt", tmp_path / "new/tls.key")
    with serving(lambda *_: [], tls=tls) as server:
        for name in ("localhost", "127.0.0.1"):
            connect(server.port, name, ssl.create_default_context(cadata=trusted)).close()

    assert (0, "") == (done.exit_code, done.stderr)
    assert ["CA", "serving", "caBundle"] == [line.split()[0] for line in done.stdout.splitlines()]


def test_init_leaves_what_is_good(tmp_path: Path) -> None:
    """It can be run at each installation."""
    certs("init", "--directory", tmp_path, "--name", "localhost")
    before = shown("--directory", tmp_path)
    again = certs("init", "--directory", tmp_path)

    assert (0, before) == (again.exit_code, shown("--directory", tmp_path))


def test_init_makes_a_secret_that_the_webhook_configurations_trust(
    memory: Memory, cluster: tuple[str, str]
) -> None:
    """For the Service's names."""
    done = certs("init", *cluster)
    found = {each["role"]: each for each in shown(*cluster)["certificates"]}

    assert (0, "") == (done.exit_code, done.stderr)
    assert "kubernetes.io/tls" == memory.objects[SECRET]["type"]
    assert {certificates_in(b64decode(memory.objects[SECRET]["data"]["ca.crt"]))} == ca_bundles(memory)
    assert NAMES == found["serving"]["names"]
    assert (89, 3649) == (found["serving"]["daysLeft"], found["CA"]["daysLeft"])
    assert ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] == found["CA"]["trustedBy"]


def test_another_namespace_and_secret_may_be_named(memory: Memory, cluster: tuple[str, str]) -> None:
    """The Service is in the same namespace."""
    place = (*cluster, "--namespace", "gpu", "--secret", "other")
    certs("init", *place)

    assert "/api/v1/namespaces/gpu/secrets/other" in memory.objects
    assert "gpugate.gpu.svc" == shown(*place)["certificates"][1]["names"][0]


@pytest.mark.usefixtures("memory")
def test_show_prints_a_table(cluster: tuple[str, str]) -> None:
    """Aligned, with the days that are left."""
    certs("init", *cluster)
    done = certs("show", *cluster)
    lines = done.stdout.splitlines()
    rows = [[line[lines[0].index(each) :].split("  ")[0].strip() for each in HEADINGS] for line in lines]

    assert 0 == done.exit_code
    assert HEADINGS == rows[0]
    assert [["CA", "CN=gpugate CA", "-"], ["serving", f"CN={SERVICE}", " ".join(NAMES)]] == [
        row[:3] for row in rows[1:]
    ]
    assert {"mutating validating"} == {row[-1] for row in rows[1:]}


def test_show_tells_what_has_expired(tmp_path: Path) -> None:
    """Exit status 1; the CA still holds."""
    age(None, tmp_path, Plan(("localhost",)), datetime.now(UTC) - timedelta(days=91))
    done = certs("show", "--directory", tmp_path)
    serving_row = done.stdout.splitlines()[-1].split()

    assert 1 == done.exit_code
    assert done.stderr.startswith("error: serving: expired ")
    assert 1 == len(done.stderr.splitlines())
    assert "-2" in serving_row


def test_show_tells_who_does_not_trust(memory: Memory, cluster: tuple[str, str]) -> None:
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
    assert done.stdout.splitlines()[-1].endswith("  mutating")


def test_show_tells_that_there_is_no_webhook_configuration(memory: Memory, cluster: tuple[str, str]) -> None:
    """Then nobody calls."""
    for path in CONFIGURATIONS:
        del memory.objects[path]
    certs("init", *cluster)
    done = certs("show", *cluster)

    assert (1, "error: there is no webhook configuration gpugate, so nobody calls this server\n") == (
        done.exit_code,
        done.stderr,
    )
    assert done.stdout.splitlines()[-1].endswith("  nobody")


def test_show_and_rotate_of_nothing_say_what_is_first(tmp_path: Path) -> None:
    """To be found, or bad usage."""
    show, rotate = (certs(name, "--directory", tmp_path / "nowhere") for name in ("show", "rotate"))

    assert (1, 2) == (show.exit_code, rotate.exit_code)
    for done in (show, rotate):
        assert done.stderr.endswith("nowhere is empty; next: gpugate certs init\n")


def test_show_tells_that_there_is_no_serving_certificate_yet(tmp_path: Path) -> None:
    """As where somebody was stopped in the middle."""
    store = DirectoryStore(tmp_path)
    store.save(Bundle(make_authority("gpugate CA", datetime.now(UTC))), store.load())
    done = certs("show", "--directory", tmp_path)

    assert (1, "error: there is no serving certificate yet; next: gpugate certs init\n") == (
        done.exit_code,
        done.stderr,
    )


def test_rotate_replaces_the_serving_certificate_alone(cluster: tuple[str, str]) -> None:
    """For the names that it has."""
    certs("init", *cluster, "--name", "localhost")
    before = shown(*cluster)
    done = certs("rotate", *cluster)
    after = shown(*cluster)

    assert 0 == done.exit_code
    assert before["caBundle"] == after["caBundle"]
    assert before["certificates"][0] == after["certificates"][0]
    assert ["localhost"] == after["certificates"][1]["names"]
    assert before["certificates"][1]["sha256"] != after["certificates"][1]["sha256"]


def test_rotate_ca_begins_a_rotation_with_overlap(memory: Memory, cluster: tuple[str, str]) -> None:
    """The new CA is trusted beside the old one, which still signs what serves; nothing else is hurried."""
    certs("init", *cluster)
    before = shown(*cluster)["certificates"]
    begun = certs("rotate", "--ca", *cluster)
    found = {each["role"]: each for each in shown(*cluster)["certificates"]}
    hurried = certs("rotate", *cluster)

    assert 0 == begun.exit_code
    assert "The new CA is trusted beside the old one. It may take over at 2" in begun.stdout
    assert [found["old CA"]["sha256"], found["serving"]["sha256"]] == [each["sha256"] for each in before]
    assert 1 == len(ca_bundles(memory))
    assert 2 == len(ca_bundles(memory).pop())
    assert 0 == certs("show", *cluster).exit_code
    assert (2, True) == (
        hurried.exit_code,
        "a new CA is about to take over; try again at 2" in hurried.stderr,
    )


def test_rotate_finishes_what_was_begun_when_its_time_has_come(tmp_path: Path) -> None:
    """Where no server does: the new CA signs, and a day later the old one is forgotten."""
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
def test_a_directory_is_no_secret(options: tuple[str, str], tmp_path: Path) -> None:
    """One or the other."""
    done = certs("init", "--directory", tmp_path, *options)

    assert 2 == done.exit_code
    assert "--directory stands alone" in done.stderr


def test_what_is_no_bundle_is_refused_in_one_line(memory: Memory, cluster: tuple[str, str]) -> None:
    """And left as it is."""
    memory.put(SECRET, {"data": {"password": "c2VjcmV0"}})
    for name in ("init", "show", "rotate"):
        done = certs(name, *cluster)

        assert 2 == done.exit_code
        assert done.stderr.splitlines()[-1].startswith("Error: Secret gpugate/gpugate-certs holds no cert")
    assert {"password": "c2VjcmV0"} == memory.objects[SECRET]["data"]


def test_what_the_api_server_refuses_is_told_in_its_words(memory: Memory, cluster: tuple[str, str]) -> None:
    """For RBAC to be looked at."""

    def forbid(method: str, path: str) -> None:
        raise KubernetesError(f"{method} {path} is forbidden")

    memory.before = forbid
    done = certs("init", *cluster)

    assert 2 == done.exit_code
    assert "gpugate-certs is forbidden" in done.stderr.splitlines()[-1]


def test_an_api_server_that_is_away_is_told(memory: Memory, tmp_path: Path) -> None:
    """After a few tries."""
    with api_server(memory, tmp_path) as kubeconfig:
        pass
    done = certs("show", "--kubeconfig", kubeconfig)

    assert 2 == done.exit_code
    assert "Error: the API server does not answer GET /apis/" in done.stderr


def test_a_kubeconfig_that_is_none_is_told() -> None:
    """With the options to look at."""
    done = certs("show", "--kubeconfig", "/nowhere")

    assert 2 == done.exit_code
    assert done.stderr.endswith("check --kubeconfig and --context\n")
