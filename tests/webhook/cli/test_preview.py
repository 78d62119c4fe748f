"""`gpugate preview`: output, exit status, and agreement with admission."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml
from click.testing import Result

from rules.text.yaml_document import SourceError
from tests.support.builders import exemption
from tests.support.builders import pod as pod_of
from tests.support.command import gpugate
from tests.support.dra_clusters import T4_NAME, bare_node, claim_template, device_class, gpus_of
from tests.support.paths import MANIFESTS, ROOT, needs_manifests
from tests.support.pseudo_terminal import on_terminal
from tests.support.serving import client, serving
from tests.support.webhooks import body, builtin_handler, pod, review
from webhook.admission.app import create_server_application
from webhook.cli.inputs.objects import objects_in
from webhook.server.server import Server

EXAMPLES = ROOT / "docs" / "examples"


_preview = partial(gpugate, "preview")


def _objects(result: Result) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = json.loads(result.stdout)["objects"]
    return objects


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve the built-in rules."""
    with serving(create_server_application(builtin_handler())) as server:
        yield server


def _write(folder: Path, *documents: Any) -> Path:
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(documents), "utf-8")
    return path


def test_the_examples_are_patched_denied_and_unchanged() -> None:
    """As the first command of the README shows them."""
    result = _preview("-f", EXAMPLES)
    lines = [line for line in result.stdout.splitlines() if line and not line.startswith(" ")]

    assert (1, "") == (result.exit_code, result.stderr)
    assert ["✗ denied", "✎ patched", "· unchanged"] == [" ".join(line.split()[:2]) for line in lines[:3]]
    assert "Pod shop/web; no accelerators requested" in lines[2]
    assert "3 objects: 1 patched, 1 denied, 1 unchanged, 0 with warnings" == lines[3]


def test_the_diff_shows_the_lines_that_change(tmp_path: Path) -> None:
    """Plain in a pipe: no escape codes."""
    result = _preview("-f", _write(tmp_path, pod({"tencent.com/vcuda-memory": 8})))

    assert 0 == result.exit_code
    assert "    +        tencent.com/vcuda-core: '20'\n" in result.stdout
    assert "\x1b" not in result.stdout


def test_colours_are_used_on_a_terminal_only(tmp_path: Path) -> None:
    """Added lines are green."""
    arguments = ["preview", "-f", str(_write(tmp_path, pod({"tencent.com/vcuda-memory": 8})))]

    assert "\x1b[32m" in gpugate(*arguments, color=True).stdout


def test_a_denial_is_broken_between_words_on_a_terminal() -> None:
    """With indented lines; in a pipe it is one line."""
    path = EXAMPLES / "denied.yaml"
    status, shown = on_terminal(["preview", "-f", path], 80)
    lines = [line.rstrip() for line in shown.splitlines() if line.startswith("    ")]
    whole = [line for line in _preview("-f", path).stdout.splitlines() if line.startswith("    ")]

    assert (1, 3) == (status, len(whole))
    assert 80 >= max(map(len, lines))
    assert {"    deny ", "    note ", "         "} == {line[:9] for line in lines}
    assert " ".join(whole).split() == " ".join(lines).split()


def test_objects_without_pods_are_counted_as_skipped(tmp_path: Path) -> None:
    """Unchanged objects are those that were evaluated."""
    result = _preview("-f", _write(tmp_path, pod(), {"apiVersion": "v1", "kind": "Service"}))

    assert "2 objects: 0 patched, 0 denied, 1 unchanged, 0 with warnings, 1 skipped" in result.stdout


@pytest.mark.parametrize("command", ["preview", "explain"])
def test_an_exempt_pod_is_not_only_unchanged(command: str, tmp_path: Path) -> None:
    """The exemption is named, with its end."""
    rules = tmp_path / "exemption.yaml"
    rules.write_text(
        exemption("cf-crl-pgpu-*", expires="2999-01-01", namespaces={"include": ["ml"]}), "utf-8"
    )
    path = _write(tmp_path, pod({"nvidia.com/gpu": 1}))
    options = ["--rules", "builtin", "--rules", rules]

    assert "exempt: exemption until 2999-01-01" in gpugate(command, path, *options).stdout
    (facts,) = _objects(_preview(path, *options, "-o", "json"))
    assert [{"rule": "cf-crl-pgpu-gpu", "name": "exemption", "until": "2999-01-01"}] == facts["exemptions"]


@pytest.mark.parametrize("command", ["preview", "explain"])
def test_without_nodes_a_line_says_that_cuda_was_not_checked(command: str, tmp_path: Path) -> None:
    """In the heading of each object, and why at the end of the text format; not with nodes."""
    path = _write(tmp_path, pod({"nvidia.com/gpu": 1}), pod({"nvidia.com/gpu": 1}))
    nodes = ["--nodes", str(EXAMPLES.parent / "compatibility/nodes.yaml")]
    whole, with_nodes, for_machines = (
        gpugate(command, "-f", path, *more).stdout for more in ([], nodes, ["-o", "json"])
    )

    assert whole.endswith(
        "\n– CUDA compatibility not checked: no nodes given (use --nodes FILE or --context NAME)\n"
    )
    assert [2, 1] == [whole.count(text) for text in ("Pod ml/train; CUDA not checked ", "– CUDA")]
    assert "CUDA compatibility not checked" not in with_nodes
    assert [["CUDA compatibility not checked: no nodes given (use --nodes FILE or --context NAME)"]] * 2 == [
        [entry["reason"] for entry in document["notChecked"]]
        for document in json.loads(for_machines)["objects"]
    ]


def test_explain_has_all_violations_and_warnings_of_preview_in_json(tmp_path: Path) -> None:
    """Beside those of each rule: a script finds them at the same place."""
    document = pod({"nvidia.com/gpu": "1.5"}, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    path = _write(tmp_path, document)

    previewed, explained = (
        json.loads(gpugate(command, "-f", path, "-o", "json").stdout)["objects"][0]
        for command in ("preview", "explain")
    )

    for name in ("allowed", "violations", "warnings", "notChecked"):
        assert previewed[name] == explained[name]
    assert previewed["violations"]
    assert previewed["warnings"]


@pytest.mark.parametrize("command", ["preview", "explain", "audit", "why"])
def test_each_command_names_a_model_server_without_a_gpu(command: str, tmp_path: Path) -> None:
    """Whatever its exit status says of other things: it is no violation."""
    server = {"image": "vllm/vllm-openai:v0.20.0", "args": ["--model=Qwen/Qwen3-8B"]}
    document = pod({}, **server)

    result = gpugate(command, "-f", _write(tmp_path, document))

    assert "no container asks for a GPU, which vLLM in container 'main' needs" in result.stdout
    assert "denied  " not in result.stdout


def test_without_nodes_the_answer_is_what_the_pod_needs_and_which_gpus_have_it(tmp_path: Path) -> None:
    """In text and JSON, and by `explain`; with nodes, they are the answer."""
    path = _write(tmp_path, pod({"nvidia.com/gpu": 1}, image="vllm/vllm-openai:v0.20.0"))
    nodes = ["--nodes", str(EXAMPLES.parent / "compatibility/nodes.yaml")]
    needs = (
        "container 'main' needs CUDA 13.0 (drivers from 580 on have it), compute capability 7.5; "
        "suitable GPUs: Turing to Blackwell, perhaps Rubin"
    )

    assert f"    note {needs}\n" in _preview("-f", path).stdout
    assert [[needs]] == [
        document["notes"] for document in json.loads(_preview("-f", path, "-o", "json").stdout)["objects"]
    ]
    assert "requires  suitable GPUs: Turing to Blackwell" in gpugate("explain", "-f", str(path)).stdout
    for command in ("preview", "explain"):
        assert "Turing to Blackwell" not in gpugate(command, "-f", str(path), *nodes).stdout


@pytest.mark.parametrize(("field", "meant"), [("limit", "limits"), ("request", "requests")])
def test_a_misspelt_field_of_resources_is_an_error(field: str, meant: str, tmp_path: Path) -> None:
    """The pod would seem to request nothing; kubectl rejects it."""
    document = pod({"nvidia.com/gpu": 1})
    document["spec"]["containers"][0]["resources"] = {field: {"nvidia.com/gpu": 1}}
    result = _preview("-f", _write(tmp_path, document))
    place = f"spec.containers[0].resources.{field}"

    assert 2 == result.exit_code
    assert f"{place}: unknown field {field!r} – did you mean {meant!r}?" in result.stderr


@pytest.mark.parametrize("output", ["diff", "yaml", "json", "patch", "sarif", "github", "markdown"])
def test_a_misspelt_resource_is_reported_in_every_format(output: str, tmp_path: Path) -> None:
    """The webhook allows it, and the pod would stay Pending."""
    result = _preview("-f", _write(tmp_path, pod({"nvidia.com/gpus": 1})), "-o", output)
    printed = result.stderr if output in ("yaml", "patch") else result.stdout

    assert 0 == result.exit_code
    assert "no enabled rule for resource nvidia.com/gpus – did you mean 'nvidia.com/gpu'?" in printed


def test_json_has_result_violations_and_patch_of_each_object(tmp_path: Path) -> None:
    """The format for scripts."""
    result = _preview("-f", _write(tmp_path, pod({"tencent.com/vcuda-core": 150})), "-o", "json")
    (check_result,) = _objects(result)
    (violation,) = check_result["violations"]

    assert 1 == result.exit_code
    assert [
        "source",
        "kind",
        "namespace",
        "name",
        "allowed",
        "violations",
        "warnings",
        "notes",
        "notChecked",
        "exemptions",
        "quotas",
        "patch",
        "podsPatch",
        "nodes",
        "auditAnnotations",
    ] == list(check_result)
    assert ("Pod", "ml", "train", False, []) == (
        check_result["kind"],
        check_result["namespace"],
        check_result["name"],
        check_result["allowed"],
        check_result["patch"],
    )
    assert {
        "rule": "cf-crl-gpu-manager-vcuda-core",
        "action": "deny",
        "basis": "policy",
        "certainty": "likely",
        "path": "spec.containers[0].resources.limits[tencent.com/vcuda-core]",
    } == {name: violation[name] for name in ("rule", "action", "basis", "certainty", "path")}
    assert (
        "container 'main', spec.containers[0].resources.limits[tencent.com/vcuda-core]: found 150, "
        "expected 1 to 100, or a multiple of 100 "
        "(GPU vcore count, 100 virtual cores equal 1 physical GPU core)"
    ) == violation["message"]


def test_what_is_not_checked_fails_if_asked(tmp_path: Path) -> None:
    """As for a misspelt resource, for which no rule is enabled."""
    file = _write(tmp_path, pod({"nvidia.com/gpus": 1}))
    results = [_preview("-f", file, f"--fail-on={what}").exit_code for what in ("deny", "warn", "unchecked")]

    assert results == [0, 0, 3]


def test_a_resource_that_no_node_offers_is_the_reason_that_none_may_be_chosen(tmp_path: Path) -> None:
    """Instead of labels, taints and amounts; also as JSON."""
    arguments = "-f", _write(tmp_path, pod({"nvidia.com/gpus": 1})), "--nodes", "t4@570"
    (result,) = _objects(_preview(*arguments, "-o", "json"))

    assert "    nodes none of 1: none of them offers nvidia.com/gpus\n" in _preview(*arguments).stdout
    assert [["nvidia.com/gpus"]] == [row["notOffered"] for row in result["nodes"]]


def test_a_deployment_shows_what_its_pods_get_and_where_they_may_run(tmp_path: Path) -> None:
    """In words, as a diff of its template, and as JSON; the object that is admitted is unchanged."""
    half = {"name": "main", "image": "vllm/vllm-openai:v0.8.5", "args": ["--dtype=bfloat16", "--model=x/y"]}
    template = {"spec": {"containers": [half | {"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}
    file = _write(tmp_path, deployment | {"metadata": {"name": "serve", "namespace": "ml"}})
    arguments = "-f", file, "--nodes", ROOT / "docs" / "compatibility" / "nodes.yaml"
    text = _preview(*arguments).stdout
    (result,) = _objects(_preview(*arguments, "-o", "json"))
    (admitted,) = yaml.safe_load_all(_preview(*arguments, "-o", "yaml").stdout)

    assert text.startswith("✓ unchanged  Deployment ml/serve; its pods: ✎ patched  ")
    assert "    nodes 1 of 3 that the scheduler may choose: NVIDIA-A100-SXM4-40GB\n" in text
    assert "    --- template\n    +++ pods\n" in text
    assert "    +        nodeAffinity:\n" in text
    assert "1 unchanged, 0 with warnings; the pods of 1 object are patched\n" in text
    assert [] == result["patch"]
    assert "/spec/template/spec/affinity" in [operation["path"] for operation in result["podsPatch"]]
    assert [("spec.template", 1, 3)] == [(row["path"], row["count"], row["of"]) for row in result["nodes"]]
    assert admitted["spec"]["template"] == template

    markdown = _preview(*arguments, "-o", "markdown").stdout
    assert (
        "\n**Deployment ml/serve: unchanged; its pods: ✎ patched**\n\n```diff\n--- template\n+++ pods\n"
        in markdown
    )
    assert "\n+        nodeAffinity:\n" in markdown
    assert markdown.endswith("\n```\n")
    (diff,) = re.findall(r"```diff\n.*?```", markdown, re.DOTALL)
    audited = gpugate("audit", *arguments, "-o", "markdown").stdout
    assert f"\n**Deployment ml/serve: its pods: ✎ patched**\n\n{diff}\n" in audited

    explained = gpugate("explain", *arguments).stdout
    (facts,) = _objects(gpugate("explain", *arguments, "-o", "json"))
    assert explained.startswith("✓ unchanged  Deployment ml/serve; its pods: ✎ patched  ")
    assert "nodes  1 of 3 that the scheduler may choose: NVIDIA-A100-SXM4-40GB\n" in explained
    assert "- matchExpressions:\n" in explained
    assert facts["nodes"] == result["nodes"]


def test_messages_are_available_in_chinese(tmp_path: Path) -> None:
    """With the rule's own Chinese description."""
    result = _preview(
        "-f", _write(tmp_path, pod({"tencent.com/vcuda-core": 150})), "-o", "json", "--lang", "zh"
    )

    assert (
        "容器 'main'，spec.containers[0].resources.limits[tencent.com/vcuda-core]：当前为 150，"
        "要求 1 至 100，或 100 的整数倍"
        "（GPU 虚拟核心数，100 个虚拟核心等于 1 个物理 GPU 核心）"
    ) == _objects(result)[0]["violations"][0]["message"]


def test_results_and_summary_are_available_in_chinese(tmp_path: Path) -> None:
    """Aligned by display width."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    other = _write(tmp_path, service, pod({"nvidia.com/gpus": 1}))
    lines = _preview("-f", EXAMPLES, "-f", other, "--lang", "zh").stdout.splitlines()

    assert [
        f"✗ 拒绝       Pod ml/train-on-a-card-and-a-half  {EXAMPLES}/denied.yaml:2",
        f"✎ 已修改     Pod ml/paddle-inference；未检查 CUDA  {EXAMPLES}/patched.yaml:2",
        f"· 未修改     Pod shop/web；未申请加速器  {EXAMPLES}/unchanged.yaml:2",
        f"– 已跳过     Service default/a  {other}:1",
        f"– 未修改     Pod ml/train  {other}:6",
    ] == [line for line in lines if line[:1] in {"✎", "✗", "·", "–"} and "CUDA 兼容性" not in line]
    assert "5 个对象：1 个已修改，1 个拒绝，2 个未修改，0 个有警告，1 个已跳过" in lines
    assert ["拒绝", "拒绝", "–"] == [line.split()[0] for line in lines if line[4:6] in {"拒绝", "– "}]


def test_json_constants_are_the_same_in_each_language() -> None:
    """Except messages."""
    (denied,) = _objects(_preview("-f", EXAMPLES / "denied.yaml", "--lang", "zh", "-o", "json"))

    assert ["deny", "deny"] == [violation["action"] for violation in denied["violations"]]


def test_patch_is_one_line_of_rfc_6902_an_object(tmp_path: Path) -> None:
    """In the format of `kubectl patch --type=json`."""
    path = _write(tmp_path, pod({"tencent.com/vcuda-memory": 8}), pod())
    result = _preview("-f", path, "-o", "patch")
    operation = {
        "op": "add",
        "path": "/spec/containers/0/resources/limits/tencent.com~1vcuda-core",
        "value": "20",
    }

    assert [[operation], []] == [json.loads(line) for line in result.stdout.splitlines()]


def test_yaml_has_the_admitted_objects_only(tmp_path: Path) -> None:
    """Unknown fields are kept; denials are on stderr."""
    future = pod({"tencent.com/vcuda-memory": 8}, fooBar={"x": [1]})
    result = _preview("-f", _write(tmp_path, future, pod({"tencent.com/vcuda-core": 150})), "-o", "yaml")
    (admitted,) = yaml.safe_load_all(result.stdout)

    assert 1 == result.exit_code
    assert {"tencent.com/vcuda-memory": 8, "tencent.com/vcuda-core": "20"} == admitted["spec"]["containers"][
        0
    ]["resources"]["limits"]
    assert {"x": [1]} == admitted["spec"]["containers"][0]["fooBar"]
    assert "Pod ml/train: Pod denied by gpugate: container 'main'" in result.stderr


def test_stdin_is_read_for_a_dash() -> None:
    """For use in a pipe."""
    assert "train" == _objects(_preview("-f", "-", "-o", "json", input=json.dumps(pod())))[0]["name"]


def test_an_error_in_one_object_does_not_hide_the_results_of_others(tmp_path: Path) -> None:
    """Each error with its position, exit status 2."""
    path = tmp_path / "objects.yaml"
    wrong = "kind: [\n---\n{apiVersion: v1, kind: Pod, spec: {containers: 5}}\n---\n- 1\n"
    path.write_text(f"{wrong}---\n{{apiVersion: v1, kind: Pod}}\n", "utf-8")
    result = _preview("-f", path, "-o", "json")

    assert (2, 1) == (result.exit_code, len(_objects(result)))
    assert [
        (
            f"error: {path}:2:1: not YAML: while parsing a flow node did not find expected node content; "
            "close each [ and {, and quote a value that begins with one"
        ),
        f"error: {path}:3: spec.containers: expected a list, got a number",
        f"error: {path}:5: expected a Kubernetes object with apiVersion and kind",
    ] == result.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "/nowhere.yaml"], "error: /nowhere.yaml: No such file or directory"),
        ([], "error: no objects given (use FILE or -f FILE; - is stdin)"),
        (["-f", "-", "--rules", "/nowhere"], "error: /nowhere: No such file or directory"),
    ],
)
def test_wrong_usage_exits_with_2_and_prints_the_reason(arguments: list[str], message: str) -> None:
    """In one line."""
    result = _preview(*arguments, input="{}")

    assert (2, f"{message}\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    ("file", "fix"),
    [("pods.yaml", " – did you mean 'pod.yaml'?"), ("other", "; the path is relative to {folder}")],
)
def test_a_missing_file_is_reported_with_what_to_do(
    file: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A similar name in its folder, or the folder that the path starts in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text("{}", "utf-8")
    result = _preview("-f", file)

    expected = f"error: {file}: No such file or directory{fix.format(folder=tmp_path)}\n"
    assert (2, expected) == (result.exit_code, result.stderr)


def test_a_file_without_objects_is_reported(tmp_path: Path) -> None:
    """Exit status 2."""
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing yet\n", "utf-8")
    result = _preview("-f", path)

    assert (2, f"error: {path}: contains no objects\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{apiVersion: v1, kind: pod}", "unknown kind 'pod' – did you mean 'Pod'?"),
        ("{apiVersion: apps/v1, kind: deployment}", "unknown kind 'deployment' – did you mean 'Deployment'?"),
        ("{kind: Pod}", "expected a Kubernetes object with apiVersion and kind"),
    ],
)
def test_an_object_that_an_api_server_rejects_is_not_skipped(text: str, message: str, tmp_path: Path) -> None:
    """A pod with a misspelt kind would seem admitted."""
    path = tmp_path / "object.yaml"
    path.write_text(text, "utf-8")
    result = _preview("-f", path)
    assert (2, "") == (result.exit_code, result.stdout)
    assert f"{path}:1: " in result.stderr
    assert message in result.stderr


def test_files_without_rules_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("{apiVersion: v1, kind: Pod}", "utf-8")
    result = _preview("-f", path, "--rules", path)
    assert (2, "") == (result.exit_code, result.stdout)
    assert f"{path}: no rules found; a rule is a ConfigMap" in result.stderr


def test_a_file_that_is_not_utf_8_is_named_with_the_line(tmp_path: Path) -> None:
    """For example, from an editor with another locale."""
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"kind: Pod\nname: caf\xe9\n")
    result = _preview("-f", path)

    assert (2, f"error: {path}:2: not UTF-8; save the file as UTF-8") == (
        result.exit_code,
        result.stderr.splitlines()[-1],
    )


def test_warnings_only_exit_with_3_where_asked(tmp_path: Path) -> None:
    """And with 0 otherwise."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "rule.yaml").write_text(
        """
apiVersion: v1
kind: ConfigMap
metadata:
  name: cf-crl-x-device
  labels:
    features.cpaas.io/type: CustomResourceLimitation
    features.cpaas.io/group: x
    features.cpaas.io/enabled: "true"
data:
  {key: example.com/device, dataType: integer, limits: disabled, requests: disabled, enforcementAction: warn}
""",
        "utf-8",
    )
    arguments: list[str | Path] = ["-f", _write(tmp_path, pod({"example.com/device": 1})), "--rules", rules]

    assert (0, 3) == (_preview(*arguments).exit_code, _preview(*arguments, "--fail-on", "warn").exit_code)


def test_lists_and_admission_reviews_are_split(tmp_path: Path) -> None:
    """The output of `kubectl get -o yaml`, and a recorded review."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [pod(), pod({"tencent.com/vcuda-core": 150})]}
    result = _preview("-f", _write(tmp_path, listed, review(pod({"nvidia.com/gpu": "1x"}))), "-o", "json")

    assert [True, False, False] == [check_result["allowed"] for check_result in _objects(result)]


def test_items_of_a_typed_list_have_its_kind(tmp_path: Path) -> None:
    """The format of the API and of `kubectl get --raw`."""
    untyped = {
        key: value
        for key, value in pod({"tencent.com/vcuda-core": 150}).items()
        if key in ("metadata", "spec")
    }
    result = _preview(
        "-f", _write(tmp_path, {"apiVersion": "v1", "kind": "PodList", "items": [untyped]}), "-o", "json"
    )

    assert [("Pod", False)] == [
        (check_result["kind"], check_result["allowed"]) for check_result in _objects(result)
    ]


def test_an_object_without_a_name_or_namespace_is_shown(tmp_path: Path) -> None:
    """By generateName and the given namespace."""
    unnamed = pod() | {"metadata": {"generateName": "train-"}}
    (result,) = _objects(_preview("-f", _write(tmp_path, unnamed), "-o", "json", "-n", "research"))

    assert ("train-*", "research") == (result["name"], result["namespace"])


def _post(connection: HTTPSConnection, path: str, content: bytes) -> dict[str, Any]:
    connection.request("POST", path, content)
    answer = connection.getresponse()
    response: dict[str, Any] = json.loads(answer.read())["response"]
    assert 200 == answer.status
    return response


def _differences(server: Server, folder: Path) -> list[str]:
    """Return the files of a folder for which preview and the two endpoints differ."""
    result = _preview("-f", folder, "-o", "json")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    previewed = _objects(result)
    # What has a misspelt field is not previewed; kubectl rejects it, too.
    misspelt = {line.split()[1][:-1] for line in result.stderr.splitlines() if "unknown field" in line}
    entries = [entry for entry in objects_in(str(folder)) if not isinstance(entry, SourceError)]
    documents = [(str(source), value) for source, value in entries if str(source) not in misspelt]
    differing = []
    with client(server.port) as connection:
        for preview, (source, document) in zip(previewed, documents, strict=True):
            namespace = preview["namespace"]
            mutated = _post(connection, "/mutate", body(document, namespace=namespace))
            patch = b64decode(mutated.get("patch", b64encode(b"[]")))
            final = jsonpatch.apply_patch(document, json.loads(patch))
            validated = _post(connection, "/validate", body(final, namespace=namespace))
            reasons = [reason["message"] for reason in preview["violations"] if reason["action"] == "deny"]
            same = (
                preview["source"] == source
                and preview["allowed"] == mutated["allowed"] == validated["allowed"]
                and json.dumps(preview["patch"], separators=(",", ":"), ensure_ascii=False).encode() == patch
                and all(reason in mutated["status"]["message"] for reason in reasons)
            )
            differing += [] if same else [source]
    return differing


def test_preview_and_admission_give_the_same_result_for_the_examples(server: Server) -> None:
    """Byte for byte."""
    assert [] == _differences(server, EXAMPLES)


@needs_manifests
def test_preview_and_admission_give_the_same_result_for_public_manifests(server: Server) -> None:
    """Byte for byte, without a traceback, for hundreds of files."""
    result = _preview("-f", MANIFESTS, "-o", "json")
    previewed = {check_result["source"].rpartition(":")[0] for check_result in _objects(result)}
    misspelt = {
        line.split()[1].partition(":")[0] for line in result.stderr.splitlines() if "unknown field" in line
    }

    assert {str(path) for path in MANIFESTS.rglob("*.yaml")} == previewed | misspelt
    assert [] == _differences(server, MANIFESTS)


@pytest.mark.parametrize("template_first", [True, False])
def test_claims_in_the_same_files_are_known(tmp_path: Path, *, template_first: bool) -> None:
    """Wherever they are: `kubectl apply` creates them all."""
    main = {"name": "main", "image": "team/app:cuda12.4", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    claiming = pod_of(main, resourceClaims=claims)
    template = claim_template("gpu", namespace=claiming["metadata"]["namespace"])
    cluster = _write(tmp_path, bare_node("t4"), gpus_of("t4", T4_NAME, "12.2"), device_class())
    nodes = cluster.rename(tmp_path / "nodes.yaml")
    documents = [template, claiming] if template_first else [claiming, template]
    result = _preview("-f", _write(tmp_path, *documents), "--nodes", nodes)

    assert 1 == result.exit_code
    assert "no device that claim 'gpu' may be given is compatible" in result.output


def test_a_warning_names_the_file_of_nodes_that_offer_no_resource_of_the_pod(tmp_path: Path) -> None:
    """The file may not have all of them."""
    node = {"kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node]}), "utf-8")
    document = _write(tmp_path, pod({"nvidia.com/mps-core": "10"}))
    result = _preview("-f", document, "--nodes", str(nodes))

    assert (
        "none of the 1 nodes in nodes.yaml offers nvidia.com/mps-core; check that nodes.yaml has all nodes"
        in " ".join(result.stdout.split())
    )
