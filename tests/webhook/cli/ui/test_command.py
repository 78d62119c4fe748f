"""`gpugate ui` as a process: its address, its options, and who its socket answers."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.builders import resource_rule
from tests.support.command import gpugate
from tests.support.fact_builders import bundle
from tests.support.fake_api import FakeApi, running
from tests.support.node_builders import A100, gfd, node
from tests.support.paths import ROOT
from tests.support.ui_page import origin_of, ui_process
from tests.support.ui_questions import POD, T4


def _status(address: str, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request(method, path, body="{}" if method == "POST" else None, headers=headers)
    response = connection.getresponse()
    cookie = (response.getheader("Set-Cookie") or "").partition(";")[0]
    response.read()
    connection.close()
    return response.status, cookie


def test_the_page_answers_its_own_browser_only(tmp_path: Path) -> None:
    """By real requests; the token is in the address that the command prints."""
    (tmp_path / "nodes.yaml").write_text(T4, "utf-8")
    with ui_process("--nodes", str(tmp_path / "nodes.yaml")) as address:
        own, host = origin_of(address), urlsplit(address).netloc
        status, cookie = _status(address, "GET", f"/?{urlsplit(address).query}", {})
        assert 303 == status
        allowed = {"Cookie": cookie, "Origin": own}

        assert {
            "page": 200,
            "question": 200,
            "no token": 403,
            "wrong token": 403,
            "other host": 403,
            "other origin": 403,
            "no origin": 403,
        } == {
            "page": _status(address, "GET", "/", {"Cookie": cookie})[0],
            "question": _status(address, "POST", "/api/evaluate", allowed)[0],
            "no token": _status(address, "GET", "/", {})[0],
            "wrong token": _status(address, "GET", "/?token=x", {})[0],
            "other host": _status(address, "GET", "/", {"Cookie": cookie, "Host": "evil.example"})[0],
            "other origin": _status(
                address, "POST", "/api/evaluate", {**allowed, "Origin": "http://evil.example"}
            )[0],
            "no origin": _status(address, "POST", "/api/evaluate", {"Cookie": cookie})[0],
        }
        port = int(host.rpartition(":")[2])
        with socket.socket() as other, pytest.raises(OSError, match="refused"):
            other.connect(("127.0.0.2", port))  # only one address listens


def _json(address: str, cookie: str, method: str, path: str, body: object = None) -> Any:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    headers = {"Cookie": cookie, "Origin": origin_of(address)}
    connection.request(method, path, body=json.dumps(body), headers=headers)
    document = json.loads(connection.getresponse().read())
    connection.close()
    return document


def test_the_rules_nodes_and_quotas_of_a_cluster_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    """The cluster has one rule, one node, and a quota that is used up."""
    fake = FakeApi()
    fake.put("/api/v1/nodes", node("a100", gfd("12.4", A100)))
    rule = yaml.safe_load(resource_rule("vendor.com/device", name="cf-crl-group-device"))
    rule["metadata"]["namespace"] = "kube-public"
    fake.put("/api/v1/namespaces/kube-public/configmaps", rule)
    quota = {"kind": "ResourceQuota", "metadata": {"name": "gpus", "namespace": "ml"}}
    fake.put(
        "/api/v1/namespaces/ml/resourcequotas", {**quota, "spec": {"hard": {"requests.nvidia.com/gpu": 0}}}
    )
    with running(fake), ui_process("--kubeconfig", str(fake.kubeconfig(tmp_path))) as address:
        _, cookie = _status(address, "GET", f"/?{urlsplit(address).query}", {})
        settings = _json(address, cookie, "GET", "/api/session")
        question = {"pod": POD, "rules": "given", "nodes": "given"}
        (document,) = _json(address, cookie, "POST", "/api/evaluate", question)["objects"]
        refused = _json(address, cookie, "POST", "/api/ruletest", question)

    assert [str(tmp_path / "kubeconfig"), "builtin"] == [*settings["rules"].values()]
    assert 1 == settings["nodes"]["count"]
    assert ["quota"] == [finding["word"] for finding in document["findings"] if finding["level"] == "warn"]
    assert "--rules FILE" in refused["error"]
    assert {"GET"} == {request.method for request in fake.requests}


def test_the_page_decides_by_a_bundle_of_facts(tmp_path: Path) -> None:
    """Objects, and the matrix without nodes."""
    row = {"product": "X1", "label": "X1", "compute": "6.5", "arch": "x", "segment": "datacenter"}
    row |= {"brand": "nvidia", "source": "none", "status": "verified"}
    facts = tmp_path / "facts.json"
    facts.write_text(bundle(lambda tables: tables["gpus"].append(row)), "utf-8")
    lines = T4.replace("Tesla-T4", "NVIDIA-X1").splitlines()
    nodes = "\n".join(line for line in lines if "gpu.compute" not in line)
    with ui_process("--facts", str(facts)) as address:
        _, cookie = _status(address, "GET", f"/?{urlsplit(address).query}", {})
        tables = _json(address, cookie, "POST", "/api/matrix", {})["tables"]
        question = {"pod": POD, "nodes": "text", "nodeText": nodes}
        (document,) = _json(address, cookie, "POST", "/api/evaluate", question)["objects"]

    assert "6.5" in json.dumps(tables[1]["columns"])
    assert "compute capability 6.5, below 8.0" in json.dumps(document)


def _with_ctrl_c() -> None:
    """Let Ctrl-C end a process, even if it is ignored here, as by what a shell runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_the_command_quietly() -> None:
    """With the exit status of kubectl."""
    command = [sys.executable, "-m", "webhook", "ui", "--no-browser", "-q"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_with_ctrl_c,  # noqa: PLW1509 - no other thread is in a lock that it needs
    ) as run:
        assert run.stdout
        assert run.stderr
        run.stdout.readline()
        run.send_signal(signal.SIGINT)

        assert (130, b"") == (run.wait(60), run.stderr.read().strip())


def test_a_pod_and_a_case_are_shown_first(tmp_path: Path) -> None:
    """Files of -f."""
    (tmp_path / "pod.yaml").write_text(POD, "utf-8")
    case = {"apiVersion": "gpugate.dev/v1", "kind": "Case", "namespace": "ml", "pod": POD, "nodes": T4}
    (tmp_path / "case.yaml").write_text(json.dumps(case), "utf-8")

    for name, namespace, nodes in (("pod.yaml", "default", ""), ("case.yaml", "ml", T4)):
        with ui_process("-f", str(tmp_path / name)) as address:
            _, cookie = _status(address, "GET", f"/?{urlsplit(address).query}", {})
            session = _json(address, cookie, "GET", "/api/session")
        assert (POD, nodes, namespace) == (session["pod"], session["nodeText"], session["namespace"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "missing.yaml"], "missing.yaml: No such file or directory"),
        (["--nodes", "missing.yaml"], "missing.yaml: No such file or directory"),
        (["--rules", "missing"], "missing: No such file or directory"),
        (["--port", "99999"], "99999 is not in the range 0<=x<=65535"),
    ],
)
def test_bad_input_ends_the_command_with_its_reason(arguments: list[str], message: str) -> None:
    completed = gpugate("ui", "--no-browser", *arguments)

    assert 2 == completed.exit_code
    assert message in completed.stderr


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        completed = gpugate("ui", "--no-browser", "--port", port)

    assert f"error: 127.0.0.1:{port}: Address already in use; set another --port\n" == completed.stderr
    assert 2 == completed.exit_code


def test_a_case_with_an_error_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text("apiVersion: gpugate.dev/v1\nkind: Case\npods: x\n", "utf-8")

    completed = gpugate("ui", "--no-browser", "-f", path)

    assert 2 == completed.exit_code
    assert f"error: {path}:3:1: pods: unknown key" in completed.stderr


def test_rules_with_an_error_are_refused(tmp_path: Path) -> None:
    """The page would show decisions of other rules than the user's."""
    path = tmp_path / "rules.yaml"
    path.write_text("kind: [\n", "utf-8")

    completed = gpugate("ui", "--no-browser", "--rules", path)

    assert 2 == completed.exit_code
    assert "not YAML" in completed.stderr
