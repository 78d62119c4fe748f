"""The image resolver on a real API server and a real registry: what it writes, and what the gate does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from certs.kubernetes_api import KubernetesError
from tests.e2e import registry as registries
from tests.e2e.daemon import HOST, reserve_port
from tests.e2e.installed import GPU, TEAM, Installed
from tests.e2e.manifests import ROOT, Object, of_kind
from tests.e2e.registry import Registry
from tests.e2e.resolver_process import Resolver, component
from tests.e2e.serve_process import eventually
from tests.support.fake_registry import FakeRegistry, Reply, fake_registry
from tests.support.image_builders import CUDA_ENV, config, index, manifest
from tests.support.serving import AUTHORITY
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from tests.e2e.cluster import ControlPlane

RULES = "kube-public"
# Seconds from an object to what the resolver does about it: two, and five for a slow registry.
SOON_S = 20.0
# The only node has CUDA 12.2.
TOO_NEW = CUDA_ENV | {"CUDA_VERSION": "13.0.0", "NVIDIA_REQUIRE_CUDA": "cuda>=13.0"}
FITS = CUDA_ENV | {"CUDA_VERSION": "12.1.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.1"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yield a registry with a password."""
    if registries.missing():
        pytest.skip("no docker-registry")
    with Registry(tmp_path_factory.mktemp("registry")) as registry_with_password:
        yield registry_with_password


def pod(image: str, kind: str = "Pod") -> str:
    """Return a pod with a GPU, or a Deployment of it."""
    name = re.sub(r"[^a-z0-9]+", "-", image.rpartition("/")[2].lower())[:50].strip("-")
    limits = {"limits": {GPU: "1"}}
    spec = {"containers": [{"name": "main", "image": image, "resources": limits}]}
    if kind == "Pod":
        return yaml.safe_dump({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        }
    )


KINDS = ("StatefulSet", "DaemonSet", "Job", "CronJob")


def workload(kind: str, image: str) -> str:
    """Return a workload of a kind with a GPU."""
    document = yaml.safe_load(pod(image, "Deployment"))
    document["kind"] = kind
    template = document["spec"]["template"]
    if kind == "StatefulSet":
        document["spec"]["serviceName"] = "x"
    if kind in {"Job", "CronJob"}:
        template["spec"]["restartPolicy"] = "Never"
        document["apiVersion"], document["spec"] = "batch/v1", {"template": template}
    if kind == "CronJob":
        document["spec"] = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": document["spec"]}}
    return yaml.safe_dump(document)


@contextmanager
def resolver(kubeconfig: Path, log: Path, *options: str) -> Iterator[Resolver]:
    """Run a resolver while the block runs."""
    with reserve_port() as held:
        port = held.getsockname()[1]
        given = [f"--kubeconfig={kubeconfig}", f"--port={port}", *options]
        argv = [sys.executable, "-P", "-m", "webhook", "images", *given]
        with log.open("ab") as out, subprocess.Popen(argv, cwd=ROOT, stderr=out) as process:
            try:
                running = Resolver(port, log)
                eventually(lambda: running.page("/readyz") == "ok\n")
                yield running
            finally:
                process.terminate()
    assert 0 == process.returncode, log.read_text("utf-8")


@pytest.fixture(scope="module")
def account(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the component as the page describes; return a kubeconfig of its service account."""
    objects = component(tmp_path_factory.mktemp("overlay"))
    installed.cluster.kubectl("apply", "--validate=strict", "-f", "-", input=yaml.safe_dump_all(objects))
    return installed.cluster.service_account("gpugate", "gpugate-images")


def rows(cluster: ControlPlane) -> dict[str, Any]:
    """Return the rows that were written, by the image."""
    listed = cluster.kubectl("get", "configmaps", "-n", RULES, "-l", "gpugate.dev/managed-by", "-o", "json")
    catalogs = [yaml.safe_load(item["data"]["rule.yaml"]) for item in json.loads(listed.stdout)["items"]]
    return {row.get("image", row["digest"]): row for catalog in catalogs for row in catalog["images"]}


def options(of: Registry) -> list[str]:
    """Return the options for a registry that asks for a password."""
    return [
        f"--private-registry={of.host}",
        f"--ca-file={of.ca_file}",
        f"--registry-config={of.config_file}",
    ]


def test_a_deployment_makes_its_image_known_and_the_pod_that_follows_is_judged_by_it(
    installed: Installed, account: Path, registry: Registry, tmp_path: Path
) -> None:
    """Within seconds; and after a restart nothing is read again."""
    of, arm = config(TOO_NEW), config(FITS, "arm64")
    top = index({"linux/amd64": manifest(of), "linux/arm64": manifest(arm)})
    new = registry.push("team/new:1", top, of, arm, manifest(of), manifest(arm))
    old = registry.push("team/old:1", manifest(config(FITS)), config(FITS))
    before = [installed.refusal(pod(pushed)) for pushed in (new, old)]
    log = tmp_path / "log"
    with resolver(account, log, *options(registry)) as running:
        for image in (new, old):
            installed.create(pod(image, "Deployment"))
        eventually(lambda: {new, old} <= rows(installed.cluster).keys(), within_s=SOON_S)
        eventually(lambda: installed.refusal(pod(new)) != "", within_s=SOON_S)
        after = [installed.refusal(pod(pushed)) for pushed in (new, old)]
        written = rows(installed.cluster)
        read = running.sample('gpugate_images{state="read"}')
    apply = ("apply", "--validate=strict", "-f", "-")  # an upgrade keeps the facts
    installed.cluster.kubectl(*apply, input=yaml.safe_dump_all(component(tmp_path)))
    with resolver(account, tmp_path / "second", *options(registry)) as again:
        eventually(lambda: again.sample('gpugate_images{state="read"}') == 2)
        fetched = again.sample('gpugate_image_fetches_total{result="ok"}')

    assert ["", "", ""] == [*before, after[1]]
    assert "below 13.0: NVIDIA's legacy container runtime does not start it (NVIDIA_REQUIRE_CUDA" in after[0]
    assert {"NVIDIA_REQUIRE_CUDA": "cuda>=12.1"} == written[old]["require"]
    assert written == rows(installed.cluster)
    assert (2, 0) == (read, fetched)
    assert not any(word in log.read_text("utf-8") for word in (registries.PASSWORD, "Basic", "Traceback"))


def test_the_pull_secret_of_a_pod_is_used_if_that_is_allowed(
    installed: Installed, account: Path, registry: Registry, tmp_path: Path
) -> None:
    """Without the right to it, and without the option, the image is not read."""
    image = registry.push("team/private:1", manifest(config(FITS)), config(FITS))
    content = f"--from-file=.dockerconfigjson={registry.config_file}"
    kind = ("create", "secret", "generic", "pull", "--type=kubernetes.io/dockerconfigjson", content)
    installed.cluster.kubectl(*kind, "-n", TEAM)
    document = yaml.safe_load(pod(image, "Deployment"))
    document["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "pull"}]
    installed.create(yaml.safe_dump(document))
    given = options(registry)[:2]
    with resolver(account, tmp_path / "without", *given, "--pull-secrets") as running:
        eventually(lambda: running.said(f"{image}: not read (unauthorized)"), within_s=SOON_S)
    with resolver(installed.cluster.kubeconfig, tmp_path / "with", *given, "--pull-secrets") as running:
        eventually(lambda: image in rows(installed.cluster), within_s=SOON_S)
    logs = [(tmp_path / name).read_text("utf-8") for name in ("without", "with")]
    installed.cluster.kubectl("delete", "deployments", "-n", TEAM, "--all")

    assert 'secrets \\"pull\\" is forbidden' in logs[0]
    assert not any(word in log for log in logs for word in (registries.PASSWORD + '"', "Basic", "Traceback"))


def test_images_of_every_kind_of_workload_are_read_and_an_outage_of_the_api_server_delays_that(
    installed: Installed, account: Path, registry: Registry, tmp_path: Path
) -> None:
    """Images that are named while it is down are read when it answers again."""
    images = {
        kind: registry.push(f"team/{kind.lower()}:1", manifest(config(FITS)), config(FITS)) for kind in KINDS
    }
    with resolver(account, tmp_path / "log", *options(registry)) as running:
        installed.cluster.restart_apiserver()
        for kind, image in images.items():
            created = installed.create(workload(kind, image))
            assert not isinstance(created, str), created
        eventually(lambda: {*images.values()} <= rows(installed.cluster).keys())
        alive = running.page("/healthz")
    resources = ",".join(f"{kind.lower()}s" for kind in KINDS)
    installed.cluster.kubectl("delete", resources, "-n", TEAM, "--all", "--wait=false")

    assert "ok\n" == alive
    assert "Traceback" not in (tmp_path / "log").read_text("utf-8")


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[FakeRegistry]:
    """Yield a registry that answers as a test says."""
    with fake_registry(tmp_path) as server:
        yield server


@dataclass(frozen=True)
class Failure:
    """How a registry answers, None for not at all; the reason and the words in the log."""

    reply: Reply | None
    reason: str
    words: str


@pytest.mark.parametrize(
    "failure",
    [
        Failure(
            Reply(401, {"WWW-Authenticate": 'Basic realm="x"'}), "unauthorized", "credentials are required"
        ),
        Failure(Reply(429, {"Retry-After": "3600"}), "rate-limited", "next attempt in 3600 s"),
        Failure(Reply(500), "unavailable", "HTTP 500"),
        Failure(Reply(slow=True), "timeout", "no complete answer within 5 seconds"),
        Failure(None, "unavailable", "no connection"),
        Failure(
            Reply(302, {"Location": "http://169.254.169.254/latest"}), "blocked", "only https is allowed"
        ),
        Failure(Reply(302, {"Location": "https://169.254.169.254/latest"}), "blocked", "link-local"),
    ],
)
def test_when_a_registry_fails_the_gate_decides_as_before_and_log_and_metric_say_why(
    installed: Installed,
    account: Path,
    failing: FakeRegistry,
    tmp_path: Path,
    failure: Failure,
) -> None:
    """One image that cannot be read is asked for once and not again at once."""
    reply, reason = failure.reply, failure.reason
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.certificate_pem)
    with reserve_port() as closed:
        host = f"{HOST}:{failing.port if reply else closed.getsockname()[1]}"
        image = f"{host}/team/app:{reason}"
        if reply:
            failing.replies[f"/v2/team/app/manifests/{reason}"] = reply
        before = installed.refusal(pod(image))
        given = [f"--private-registry={host}", f"--ca-file={tmp_path / 'ca.pem'}"]
        with resolver(account, tmp_path / "log", *given) as running:
            installed.create(pod(image, "Deployment"))
            counted = f'gpugate_image_fetches_total{{result="{reason}"}}'
            eventually(lambda: running.said(f"{image}: not read ({reason})"), within_s=SOON_S)
            eventually(lambda: running.sample(counted) > 0)
            after = installed.refusal(pod(image))
        installed.cluster.kubectl("delete", "deployments", "-n", TEAM, "--all")
    (line,) = [line for line in (tmp_path / "log").read_text("utf-8").splitlines() if image in line]

    assert failure.words in line
    assert (before, image in rows(installed.cluster)) == (after, False)
    assert len(failing.asked) <= 1


Right = tuple[str, str, str]


def granted(objects: list[Object]) -> set[Right]:
    """Return verb, resource and namespace of what the roles allow."""
    return {
        (verb, f"{group}/{resource}", role["metadata"].get("namespace", ""))
        for role in of_kind(objects, "Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def requests(cluster: ControlPlane, decision: str) -> set[Right]:
    """Return the same of the allowed, or the forbidden, requests of the resolver."""
    rights = set()
    for line in cluster.audit.read_text("utf-8").splitlines():
        event = json.loads(line)
        if (
            event["user"]["username"] == "system:serviceaccount:gpugate:gpugate-images"
            and event["annotations"]["authorization.k8s.io/decision"] == decision
        ):
            of = event.get("objectRef", {})
            resource = f"{of.get('apiGroup', '')}/{of.get('resource', '')}"
            rights.add((event["verb"], resource, of.get("namespace", "")))
    return rights


def test_the_resolver_uses_every_right_that_it_has_and_asks_for_no_other(
    installed: Installed, account: Path, registry: Registry, tmp_path: Path
) -> None:
    """By the audit log of the API server; pull secrets are another test's."""
    image = registry.push("team/rights:1", manifest(config(FITS)), config(FITS))
    installed.create(pod(image, "Deployment"))
    rights = granted(component(tmp_path))
    with resolver(account, tmp_path / "log", *options(registry)):
        eventually(lambda: image in rows(installed.cluster), within_s=SOON_S)
        with suppress(AssertionError):  # the comparison says more
            eventually(lambda: rights <= requests(installed.cluster, "allow"), within_s=SOON_S)

    assert rights == requests(installed.cluster, "allow")
    # An API server that starts forbids requests until it has read the roles.
    assert requests(installed.cluster, "forbid") - rights <= {("get", "/secrets", TEAM)}


def test_the_resolver_may_write_only_image_catalogues_in_its_config_maps(
    installed: Installed, account: Path
) -> None:
    """A stolen token cannot write an exemption, or read a Secret."""
    api = ClusterApi.of_kubeconfig(str(account))
    path = f"/api/v1/namespaces/{RULES}/configmaps/gpugate-images-7"
    refused = []

    def write(labels: dict[str, str]) -> bool:
        stored = api.get(path)
        try:
            api.replace(path, stored | {"metadata": stored["metadata"] | {"labels": labels}})
        except KubernetesError as error:
            refused.append(str(error))
            return False
        return True

    kinds = ({"gpugate.dev/type": "Exemption"}, {"features.cpaas.io/type": "CustomResourceLimitation"})
    eventually(lambda: not write(kinds[0]))  # the policy comes into force some moments after it is applied
    written = [write(kind) for kind in kinds]
    rights = [
        ["update", "configmaps/gpugate-last-good", RULES],
        ["create", "configmaps", RULES],
        ["update", "configmaps/gpugate-images-0", "gpugate"],
        ["get", "secrets", "gpugate"],
        ["get", "pods", TEAM],
        ["delete", "pods", TEAM],
        ["get", "nodes", ""],
    ]
    user = "--as=system:serviceaccount:gpugate:gpugate-images"

    assert [False, False] == written
    assert {"the image resolver may write only image catalogues"} == {
        refusal.rpartition("denied request: ")[2] for refusal in refused
    }
    assert ["no"] * len(rights) == [
        installed.cluster.kubectl(
            "auth", "can-i", verb, resource, user, "-n", namespace or "default", check=False
        ).stdout.strip()
        for verb, resource, namespace in rights
    ]
