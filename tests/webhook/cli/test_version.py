"""`gpugate version`: of the client, its rules, and a cluster's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from rules.cuda.tables import BUILT_IN
from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running
from tests.support.paths import ROOT

_RULES = "/api/v1/namespaces/kube-public/configmaps"
_DEPLOYMENTS = "/apis/apps/v1/deployments"


@pytest.fixture
def cluster() -> Iterator[FakeApi]:
    """Yield an API server that has the built-in rules."""
    fake = FakeApi()
    for file in sorted((ROOT / "rules/catalog").rglob("*.yaml")):
        if not file.name.endswith(".test.yaml") and file.name != "kustomization.yaml":
            for document in yaml.load_all(file.read_text("utf-8"), yaml.CSafeLoader):
                document["metadata"]["labels"]["helm.sh/chart"] = "gpugate-0.1.0"
                fake.put(_RULES, document)
    with running(fake):
        yield fake


def _deployment(name: str, component: str, image: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "gpugate"}
    template = {
        "metadata": {"labels": {**labels, "app.kubernetes.io/component": component}},
        "spec": {"containers": [{"image": image}]},
    }
    return {
        "metadata": {"name": name, "namespace": "gpugate", "labels": labels},
        "spec": {"replicas": 2, "template": template},
        "status": {"readyReplicas": 1},
    }


def _version(fake: FakeApi, folder: Path, *arguments: str) -> Result:
    return gpugate("version", "--kubeconfig", fake.kubeconfig(folder), *arguments)


@pytest.mark.parametrize("words", [["--enforcement-action=warn"], ["--enforcement-action", "warn"]])
def test_a_cap_of_the_webhook_is_shown_and_noted_in_previews(
    words: list[str], cluster: FakeApi, tmp_path: Path
) -> None:
    """Without the cap, neither says anything of it."""
    document = _deployment("gpugate", "webhook", "gpugate:0.1.0")
    cluster.put(_DEPLOYMENTS, document)
    pod = tmp_path / "pod.yaml"
    pod.write_text("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}\n", "utf-8")

    def outputs() -> tuple[str, str, str]:
        webhooks = json.loads(_version(cluster, tmp_path, "-o", "json").stdout)["webhooks"]
        preview = ["preview", str(pod), "--kubeconfig", str(tmp_path / "kubeconfig")]
        noted = gpugate(*preview).stderr
        return webhooks[0]["enforcementAction"], _version(cluster, tmp_path).stdout, noted

    action, shown, noted = outputs()
    assert ("deny", False, False) == (action, "enforcement" in shown, "enforcement" in noted)
    document["spec"]["template"]["spec"]["containers"][0]["args"] = ["serve", *words]
    cluster.put(_DEPLOYMENTS, document)
    action, shown, noted = outputs()

    assert ("warn", True) == (action, "replicas ready), enforcement action warn" in shown)
    assert "note: the webhook of this cluster runs with --enforcement-action=warn: it denies nothing" in noted


def test_without_a_cluster_the_client_and_its_rules_are_shown() -> None:
    """As `gpugate --version` and `gpugate rules` have them."""
    document = json.loads(gpugate("version", "-o", "json").stdout)
    rules = json.loads(gpugate("rules", "-o", "json").stdout)["rules"]

    assert {"client"} == document.keys()
    assert document["client"]["version"] == gpugate("--version").stdout.split()[1]
    states = [rule["state"] for rule in rules]
    counts = document["client"]["rules"]
    assert (len(rules), states.count("enabled")) == (counts["count"], counts["enabled"])
    built_in = f"Built-in Rules: {counts['enabled']} of {counts['count']} enabled, "
    assert built_in in gpugate("version").stdout
    assert {"date": BUILT_IN.date} == document["client"]["facts"]
    assert f"Built-in Facts: {BUILT_IN.date}" in gpugate("version").stdout.splitlines()


def test_the_webhook_and_the_rules_of_a_cluster_are_shown(cluster: FakeApi, tmp_path: Path) -> None:
    """The labels of Helm make no other revision, and the image resolver is no webhook."""
    cluster.put(_DEPLOYMENTS, _deployment("gpugate", "webhook", "registry.example.com/gpugate:0.1.0"))
    cluster.put(_DEPLOYMENTS, _deployment("gpugate-images", "images", "registry.example.com/gpugate:0.1.0"))
    _, _, _, rules, webhook = _version(cluster, tmp_path).stdout.splitlines()

    assert rules.startswith("Cluster Rules: ")
    assert rules.endswith(" (equal to the built-in rules)")
    assert (
        "Webhook Version: 0.1.0 (gpugate/gpugate, image registry.example.com/gpugate:0.1.0, "
        "1 of 2 replicas ready)" == webhook
    )


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_cluster_without_rules_is_a_warning(format_: str, tmp_path: Path) -> None:
    """Because gpugate admits every pod there."""
    fake = FakeApi()
    with running(fake):
        result = _version(fake, tmp_path, "-o", format_)

    assert 0 == result.exit_code
    assert "warning: the cluster has no rules in namespace 'kube-public'\n" == result.stderr


@pytest.mark.parametrize("key", ["data", "label"])
def test_a_changed_rule_is_another_revision(key: str, cluster: FakeApi, tmp_path: Path) -> None:
    """By its data, or by a label that disables it."""
    rule = cluster.objects(_RULES)[0]
    if key == "data":
        rule["data"]["limits"] = "9"
    else:
        rule["metadata"]["labels"]["features.cpaas.io/enabled"] = "false"
    cluster.put(_RULES, rule)
    document = json.loads(_version(cluster, tmp_path, "-o", "json").stdout)

    assert document["client"]["rules"]["count"] == document["rules"]["count"]
    assert document["client"]["rules"]["revision"] != document["rules"]["revision"]
    assert [] == document["webhooks"]


def test_an_image_by_digest_has_no_version(cluster: FakeApi, tmp_path: Path) -> None:
    """As yaml, null."""
    image = f"registry.example.com/gpugate@sha256:{'0' * 64}"
    cluster.put(_DEPLOYMENTS, _deployment("gpugate", "webhook", image))
    document = yaml.safe_load(_version(cluster, tmp_path, "-o", "yaml").stdout)

    assert [(image, None)] == [(webhook["image"], webhook["version"]) for webhook in document["webhooks"]]
    assert "Webhook Version: - (" in _version(cluster, tmp_path).stdout


def test_client_asks_no_cluster(cluster: FakeApi, tmp_path: Path) -> None:
    """As with kubectl."""
    result = _version(cluster, tmp_path, "--client")

    assert (0, 3, []) == (result.exit_code, len(result.stdout.splitlines()), cluster.requests)


def test_what_is_known_is_shown_if_the_cluster_refuses(cluster: FakeApi, tmp_path: Path) -> None:
    """With the error, and exit status 2."""
    cluster.statuses[_DEPLOYMENTS] = 403
    result = _version(cluster, tmp_path, "--lang", "zh")

    assert 2 == result.exit_code
    assert "错误：无法列出 Deployments：403" in result.stderr
    assert "客户端版本：" in result.stdout
    assert "（与内置规则相同）" in result.stdout
