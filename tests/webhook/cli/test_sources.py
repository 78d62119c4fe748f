"""Which rules, which cluster and which files a command reads, and what it says of them."""

from __future__ import annotations

import gzip
import json
import shlex
from base64 import b64encode
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders import resource_rule
from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running
from tests.support.node_builders import A100, gfd, image_catalog, node
from tests.support.paths import ROOT
from webhook.cluster.rule_snapshot import NAME, content_of
from webhook.server.server import Server

KEY = "vendor.com/device"
RULES = "/api/v1/namespaces/kube-public/configmaps"
ANYWHERE = "/api/v1/configmaps"
BUILT_IN_NOTE = "evaluated with the built-in rules"
# A pod that the built-in rules deny: half of a GPU.
BAD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "half", "namespace": "ml"},
    "spec": {
        "containers": [
            {"name": "main", "image": "busybox", "resources": {"limits": {"tencent.com/vcuda-core": "150"}}}
        ]
    },
}
# A pod that only a rule denies: half of a GPU is what the API server denies, too.
CORES = {"tencent.com/vcuda-core": "150", "tencent.com/vcuda-memory": "8"}
BY_RULES = BAD | {
    "spec": {
        "containers": [
            {"name": "main", "image": "busybox", "resources": {"limits": CORES, "requests": CORES}}
        ]
    }
}
# A pod with two devices.
_DEVICES = {"resources": {"limits": {KEY: "2"}, "requests": {KEY: "2"}}}
TWO = BAD | {
    "metadata": {"name": "two", "namespace": "ml"},
    "spec": {"containers": [{"name": "main", "image": "busybox", **_DEVICES}]},
}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """Yield a cluster with a bad pod and a node, without rules; it is the current context."""
    fake = FakeApi()
    fake.put("/api/v1/pods", BAD)
    fake.put("/api/v1/nodes", node("a100", gfd("12.4", A100)))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with running(fake):
        path = fake.kubeconfig(tmp_path)
        # The library reads the variable when it is imported.
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        yield fake


@pytest.fixture
def bad_pod(tmp_path: Path) -> str:
    """Return a file with the bad pod."""
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps(BAD), "utf-8")
    return str(path)


def _rule(namespace: str = "kube-public", **data: Any) -> dict[str, Any]:
    rule: dict[str, Any] = yaml.safe_load(resource_rule(KEY, name="cf-crl-group-device", **data))
    rule["metadata"]["namespace"] = namespace
    return rule


# A cluster without rules.


@pytest.mark.parametrize("words", ["audit", "preview -f {file}", "explain -f {file}"])
def test_a_cluster_without_rules_is_judged_by_the_built_in_rules(
    words: str, bare: FakeApi, bad_pod: str
) -> None:
    """With one line that says so, and the exit status of what they find."""
    del bare
    result = gpugate(*words.format(file=bad_pod).split(), "--context", "fake")

    assert 1 == result.exit_code
    assert "multiple of 100" in result.stdout
    assert [
        f"warning: the cluster has no rules in namespace 'kube-public'; {BUILT_IN_NOTE}"
    ] == result.stderr.splitlines()[:1]
    assert 1 == result.stderr.count(BUILT_IN_NOTE)


@pytest.mark.parametrize("words", ["nodes", "matrix"])
def test_commands_that_read_node_labels_say_that_a_cluster_has_no_rules(words: str, bare: FakeApi) -> None:
    """A rule may set other labels, and a node profile is a rule."""
    del bare
    result = gpugate(words, "--context", "fake")

    assert (0, 1) == (result.exit_code, result.stderr.count(BUILT_IN_NOTE))


@pytest.mark.parametrize("words", ["rules", "lint"])
def test_a_list_of_the_rules_of_a_cluster_without_rules_is_empty(words: str, bare: FakeApi) -> None:
    """And says so, as `kubectl get` does, without an error."""
    del bare
    result = gpugate(words, "--context", "fake")

    assert (0, "") == (result.exit_code, result.stdout)
    assert "the cluster has no rules in namespace 'kube-public'\n" in result.stderr
    assert BUILT_IN_NOTE not in result.stderr


def test_the_namespaces_that_have_rules_are_named_for_a_wrong_rules_namespace(bare: FakeApi) -> None:
    """So that the option can be corrected."""
    for name in ("gpu-rules", "kube-public"):
        rule = _rule(name)
        rule["metadata"]["name"] = f"cf-crl-{name}"
        bare.put(ANYWHERE, rule)
    result = gpugate("audit", "--context", "fake", "--rules-namespace", "wrong")

    assert 1 == result.exit_code
    assert (
        "warning: the cluster has no rules in namespace 'wrong' (rule ConfigMaps are in gpu-rules, "
        f"kube-public: use --rules-namespace); {BUILT_IN_NOTE}"
    ) in result.stderr.splitlines()


def test_a_user_who_may_not_list_all_namespaces_is_told_only_that_rules_are_missing(bare: FakeApi) -> None:
    """The right to read other namespaces is not needed."""
    bare.statuses[ANYWHERE] = 403
    result = gpugate("audit", "--context", "fake")

    assert (1, 1) == (result.exit_code, result.stderr.count(BUILT_IN_NOTE))
    assert "403" not in result.stderr


@pytest.mark.parametrize("words", [("preview", "{file}"), ("audit", "-n", "ml")])
def test_without_rights_to_rules_and_nodes_the_built_in_rules_and_no_nodes_are_used(
    words: tuple[str, ...], bare: FakeApi, bad_pod: str
) -> None:
    """As for a developer with the role `view` in a namespace; warnings name both, and what replaces them."""
    bare.statuses |= {RULES: 403, "/api/v1/nodes": 403}
    bare.put("/api/v1/namespaces/ml/pods", BAD)
    result = gpugate(*(word.format(file=bad_pod) for word in words), "--context", "fake")

    assert 1 == result.exit_code, result.output
    assert (
        "warning: cannot list ConfigMaps of namespace 'kube-public': 403 refused by the test; evaluated with "
        "the built-in rules (use --rules for others)"
    ) in result.stderr.splitlines()
    assert (
        "warning: cannot list Nodes: 403 refused by the test; not compared with nodes (use --nodes FILE)"
    ) in result.stderr.splitlines()


@pytest.mark.parametrize("deployments", [HTTPStatus.FORBIDDEN, HTTPStatus.OK])
@pytest.mark.parametrize("readable", [True, False])
def test_of_a_rule_with_an_error_the_version_that_the_webhook_keeps_is_used(
    readable: bool, deployments: HTTPStatus, bare: FakeApi
) -> None:
    """If it may be read; otherwise it is said that the webhook decides by it. The exit status is 2.

    Without a Deployment of the webhook, or rights to those, it is in the namespace of the manifests.
    """
    path = "/api/v1/namespaces/gpugate/configmaps"
    valid = _rule(validations=[{"expression": "value <= 1"}])
    packed = gzip.compress(json.dumps({valid["metadata"]["name"]: content_of(valid)}).encode())
    saved = {"metadata": {"name": NAME}, "binaryData": {"rules.json.gz": b64encode(packed).decode()}}
    bare.put("/api/v1/namespaces/ml/pods", TWO)
    bare.put(RULES, _rule(limits="optinal"))
    bare.put(path, saved)
    if deployments is not HTTPStatus.OK:
        bare.statuses |= {"/apis/apps/v1/deployments": deployments}
    if not readable:
        bare.statuses |= {f"{path}/{NAME}": HTTPStatus.FORBIDDEN}
    result = gpugate("audit", "-n", "ml", "--context", "fake", "-o", "json")
    denied = [
        workload["name"] for workload in json.loads(result.stdout)["workloads"] if not workload["allowed"]
    ]

    assert 2 == result.exit_code
    assert ("which is used here, too" if readable else "which could not be read") in result.stderr
    assert (["two"] if readable else []) == denied


def test_rules_that_decide_nothing_do_not_replace_the_built_in_rules(bare: FakeApi) -> None:
    """Such as a catalog of images, which the image resolver writes."""
    bare.put(RULES, yaml.safe_load(image_catalog({"image": "team/*", "cuda": "12.1"})))
    result = gpugate("audit", "--context", "fake")

    assert (1, 1) == (result.exit_code, result.stderr.count(BUILT_IN_NOTE))


@pytest.mark.parametrize("data", [{}, {"limits": "optinal"}])
def test_the_rules_of_a_cluster_are_used_alone_if_there_are_any(data: dict[str, str], bare: FakeApi) -> None:
    """An invalid rule is reported as such."""
    bare.put("/api/v1/pods", BY_RULES)
    bare.put(RULES, _rule(**data))
    result = gpugate("audit", "--context", "fake")

    assert BUILT_IN_NOTE not in result.stderr
    assert (2 if data else 0) == result.exit_code


# --rules builtin.


@pytest.mark.parametrize(
    "words",
    [
        "preview -f {file} --rules builtin",
        "explain -f {file} --rules builtin",
        "audit -f {file} --rules builtin",
        "rules --rules builtin",
        "lint builtin",
        "test builtin --run 'half*'",
        "export builtin",
        "nodes --nodes {nodes} --rules builtin",
        "matrix --nodes {nodes} --rules builtin",
    ],
)
def test_builtin_names_the_built_in_rules_from_any_folder(
    words: str, bad_pod: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every command that takes rules."""
    monkeypatch.chdir(tmp_path)
    line = words.format(file=bad_pod, nodes=ROOT / "docs/compatibility/nodes.yaml")
    done = gpugate(*shlex.split(line))

    assert (1 if bad_pod in line else 0) == done.exit_code, done.stderr
    assert "note: " not in done.stderr
    assert "No such file" not in done.stderr


def test_serve_takes_the_built_in_rules_by_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With rules of one's own."""
    monkeypatch.setattr(Server, "run", lambda server: server._socket.close() or 0)
    monkeypatch.setattr("webhook.telemetry.logs.configure_logs", lambda **_: None)
    caplog.set_level("INFO", "gpugate")
    for rules in (("--rules", "builtin"), ("--rules", "builtin", "--rules", "docs/tutorial/npu")):
        gpugate("serve", "--port", "0", "--host", "127.0.0.1", *rules)
    one, both = (
        int(message.split(" with ")[1].split()[0])
        for message in caplog.messages
        if message.startswith("serving on")
    )

    assert one < both


def test_builtin_adds_up_with_other_rules(bad_pod: str) -> None:
    """Given twice, it is read once."""
    rules = ("--rules", "builtin", "--rules", "docs/tutorial/npu", "--rules", "builtin")
    result = gpugate("preview", "-f", bad_pod, *rules)

    assert (1, "") == (result.exit_code, result.stderr)


def test_builtin_rules_are_in_any_rules_namespace(bad_pod: str) -> None:
    """As a kustomization installs them there."""
    result = gpugate("preview", "-f", bad_pod, "--rules", "builtin", "--rules-namespace", "gpu-rules")

    assert (1, "") == (result.exit_code, result.stderr)


def test_a_folder_named_builtin_is_read_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ./builtin."""
    (tmp_path / "builtin").mkdir()
    (tmp_path / "builtin/rule.yaml").write_text(resource_rule(KEY), "utf-8")
    monkeypatch.chdir(tmp_path)
    named, here = (
        json.loads(gpugate("rules", "--rules", path, "-o", "json").stdout)
        for path in ("builtin", "./builtin")
    )

    assert 1 == len(here["rules"]) < len(named["rules"])


# Rules that are not in force.


def test_rules_that_replace_the_built_in_rules_are_named(tmp_path: Path) -> None:
    """With the option that adds the built-in rules."""
    path = tmp_path / "pod.yaml"
    path.write_text(json.dumps(BY_RULES), "utf-8")
    result = gpugate("preview", "-f", path, "--rules", "docs/tutorial/npu")

    assert (0, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert (
        "note: evaluated with the rules in docs/tutorial/npu, without the built-in rules "
        "(add them with --rules builtin)\n"
    ) == result.stderr


def test_rules_that_replace_those_of_the_cluster_are_named(bare: FakeApi) -> None:
    """Also the built-in ones."""
    bare.put(RULES, _rule())
    result = gpugate("audit", "--context", "fake", "--rules", "builtin", "--lang", "zh")

    assert 1 == result.exit_code
    assert "说明：使用 builtin 中的规则评估，而非集群中的规则" == result.stderr.splitlines()[0]


@pytest.mark.parametrize(
    "rules", [(), ("--rules", "builtin"), ("--rules", "rules/catalog"), ("--rules", ROOT / "rules/catalog")]
)
def test_without_a_cluster_the_built_in_rules_are_in_force(
    rules: tuple[str | Path, ...], bad_pod: str
) -> None:
    """No note is printed."""
    assert "" == gpugate("preview", "-f", bad_pod, *rules).stderr


# The current context.


@pytest.mark.parametrize("program", ["kubectl-gpugate", "kubectl gpugate"])
@pytest.mark.parametrize("words", ["audit", "preview {file}", "explain {file}", "nodes", "matrix", "rules"])
def test_the_kubectl_plugin_uses_the_current_context(
    words: str, program: str, bare: FakeApi, bad_pod: str
) -> None:
    """As kubectl does, for each command that reads a cluster."""
    result = gpugate(*words.format(file=bad_pod).split(), prog_name=program)

    assert "the cluster has no rules" in result.stderr
    assert RULES in {request.path for request in bare.requests}


@pytest.mark.parametrize(
    "words",
    [
        "lint {rules}",
        "rules --rules {rules}",
        "test {rules}",
        "export {rules}",
        "lint --nodes {nodes} builtin",
    ],
)
def test_commands_with_files_read_no_cluster_as_kubectl_plugin(words: str, bare: FakeApi) -> None:
    """The cluster need not be reachable."""
    files = {"rules": "docs/tutorial/npu", "nodes": "docs/compatibility/nodes.yaml"}
    result = gpugate(*words.format(**files).split(), prog_name="kubectl-gpugate")

    assert ([], 0) == (bare.requests, result.exit_code)


@pytest.mark.parametrize(
    "words", ["preview -f {file}", "explain -f {file}", "audit -f {file}", "matrix", "rules"]
)
def test_gpugate_itself_reads_a_cluster_only_if_told_to(words: str, bare: FakeApi, bad_pod: str) -> None:
    """So that the same command gives the same result on each machine."""
    gpugate(*words.format(file=bad_pod).split())

    assert [] == bare.requests


@pytest.mark.parametrize("words", ["audit", "nodes"])
def test_commands_about_a_cluster_use_the_current_context(words: str, bare: FakeApi) -> None:
    """They have no other meaning without files."""
    gpugate(words)

    assert bare.requests


@pytest.mark.parametrize(("words", "option"), [("audit", "-f FILE"), ("nodes", "--nodes FILE")])
def test_without_a_cluster_the_error_names_the_option_for_files(
    words: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without kubeconfig."""
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", "/nowhere/config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result = gpugate(words)

    assert 2 == result.exit_code
    assert (
        "error: no cluster: /nowhere/config: no configuration found; check --kubeconfig and --context "
        f"(or use {option})\n"
    ) == result.stderr


# Files.


@pytest.mark.parametrize(
    ("words", "option"),
    [("preview", ()), ("preview", ("-f",)), ("explain", ()), ("explain", ("-f",)), ("audit", ("-f",))],
)
def test_files_are_arguments_or_values_of_the_option(
    words: str, option: tuple[str, ...], bad_pod: str
) -> None:
    """`preview pod.yaml` is `preview -f pod.yaml`."""
    result = gpugate(words, *option, bad_pod)

    assert (1, True) == (result.exit_code, "multiple of 100" in result.stdout)


def test_stdin_is_an_argument_as_well(bad_pod: str) -> None:
    """As -."""
    words = ["preview", "-"]
    result = gpugate(*words, input=Path(bad_pod).read_text("utf-8"))

    assert (1, True) == (result.exit_code, "stdin:1" in result.stdout)


def test_without_files_the_error_says_how_to_give_them() -> None:
    """In one line."""
    assert "error: no objects given (use FILE or -f FILE; - is stdin)\n" == gpugate("preview").stderr
