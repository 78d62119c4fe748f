"""`gpugate node` as its user meets it: what it prints, where, its exit status, and its end by a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.support.nvml import ERRORS, Answer, failing, library, recorded, well
from tests.support.paths import ROOT
from webhook.agent.labels import LABELS, is_own
from webhook.cli import main
from webhook.cli.commands.node import command
from webhook.cluster.client import ClusterApi


def node(*arguments: str) -> Result:
    """Run the command, outside any pod and node."""
    return CliRunner().invoke(main, ["node", *arguments], env={"NODE_NAME": None, "KUBECONFIG": "/dev/null"})


@pytest.fixture(autouse=True)
def _kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the kernel a driver, whatever this machine has."""
    monkeypatch.setattr("webhook.cli.commands.node.kernel_module", lambda: "535.129.03")


def test_a_dry_run_prints_the_labels_and_asks_no_cluster() -> None:
    """As JSON for machines, a line each for people."""
    with library("a100-mig"):
        as_json, as_text = node("label", "--dry-run", "-o", "json"), node("label", "--dry-run")

    assert recorded("a100-mig")["labels"] == json.loads(as_json.stdout)["labels"]
    assert "gpugate.dev/mig-1g.5gb.count=8\n" in as_text.stdout
    assert (0, 0) == (as_json.exit_code, as_text.exit_code)


@pytest.mark.parametrize("option", ["--dry-run", "--once"])
def test_without_a_driver_it_says_so_in_one_line_and_exits_2(option: str) -> None:
    """On stderr, so that a pipe gets nothing; also where there is no cluster either."""
    with library("t4", failing("nvmlInit", "NVML_ERROR_DRIVER_NOT_LOADED")):
        result = node("label", option)

    assert (2, "") == (result.exit_code, result.stdout)
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "error: the kernel has driver 535.129.03, and its devices /dev/nvidia* are not here"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("label",), "no cluster"),
        (("label", "--kubeconfig", "/dev/null"), "no cluster"),
        (("label", "--dry-run", "--watch"), "--dry-run looks once"),
        (("label", "--interval", "0"), "0.0 is not in the range"),
        (("check", "--kubeconfig", "/dev/null", "--node-name", "n"), "no cluster"),
    ],
)
def test_bad_usage_is_said_with_what_to_do(arguments: tuple[str, ...], said: str) -> None:
    """Exit status 2."""
    with library("t4"):
        result = node(*arguments)

    assert 2 == result.exit_code
    assert said in result.stderr


def test_a_node_without_a_name_is_asked_for(tmp_path: Path) -> None:
    """In a pod it is in $NODE_NAME."""
    config = tmp_path / "config"
    config.write_text(json.dumps(_kubeconfig("http://127.0.0.1:1")))
    with library("t4"):
        result = node("label", "--kubeconfig", str(config))

    assert 2 == result.exit_code
    assert "which node is this?" in result.stderr


def test_check_tells_people_what_runs_and_machines_the_same() -> None:
    """A sound node has status 0 and nothing on stderr."""
    with library("h100"):
        text, document = node("check"), json.loads(node("check", "-o", "json").stdout)

    assert (0, "") == (text.exit_code, text.stderr)
    rows = [re.split(r"  +", line) for line in text.stdout.splitlines()]
    assert ["driver 535.129.03, CUDA 12.2"] == rows[0]
    assert ["0", "NVIDIA H100 80GB HBM3", "9.0", "81559Mi", "-", "Default"] in rows
    assert ["11.8 to 12.2", "yes"] in rows
    assert ["data types", "float16, bfloat16, fp8"] in rows
    assert ["MPS", "can share these GPUs"] in rows
    assert {"cuda": "12.2", "by": "driver", "reasons": []} in document["runtimes"]
    assert {"capable": True, "daemons": []} == document["mps"]
    assert recorded("h100")["labels"] == document["labels"]
    assert [] == document["problems"]


@pytest.mark.parametrize(
    ("call", "error"),
    [("nvmlInit", "LIB_RM_VERSION_MISMATCH"), ("nvmlDeviceGetMemoryInfo", "GPU_IS_LOST")],
)
def test_check_of_a_broken_node_exits_1_and_says_why(call: str, error: str) -> None:
    """On stderr for people, in the document for machines."""
    with library("h100", failing(call, f"NVML_ERROR_{error}")):
        text, document = node("check"), node("check", "-o", "json")
    (problem,) = json.loads(document.stdout)["problems"]

    assert (1, 1) == (text.exit_code, document.exit_code)
    assert f"NVML_ERROR_{error}" == problem["nvml"]
    assert problem["at"].startswith(call)
    assert text.stderr.startswith("error: ")
    assert "" == document.stderr


@pytest.mark.parametrize(
    ("changes", "answer", "said"),
    [
        (
            {},
            failing("nvmlInit", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
            "cudaErrorSystemDriverMismatch (803)",
        ),
        ({"fabric": {"state": 1, "status": 0}}, well, "cudaErrorSystemNotReady (802)"),
        ({"computeMode": 2}, well, "cudaErrorDevicesUnavailable (46)"),
        ({}, failing("nvmlInit", "NVML_ERROR_DRIVER_NOT_LOADED"), "cudaErrorNoDevice (100)"),
    ],
)
def test_check_names_the_error_that_programs_end_in(
    changes: dict[str, object], answer: Answer, said: str
) -> None:
    """A driver of two versions, no Fabric Manager, a GPU that is closed to programs, and no device."""
    machine = recorded("h200")
    machine["gpus"][0] |= changes
    with library(machine, answer):
        result = node("check")

    assert 1 == result.exit_code
    assert said in result.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a100-mig", "1g.5gb 1g.5gb"), ("a100-mig-unprivileged", "  on  "), ("t4", "  -  ")],
)
def test_check_shows_mig_as_far_as_it_is_told(name: str, shown: str) -> None:
    """Instances, else that there is MIG mode."""
    with library(name):
        result = node("check")

    assert shown in result.stdout.splitlines()[2]


def test_what_is_only_worth_a_look_is_a_warning() -> None:
    """Exit status 0: pods do run."""
    machine = recorded("t4")
    machine["gpus"][0]["computeMode"] = 3
    with library(machine):
        result = node("check")

    assert 0 == result.exit_code
    assert result.stderr.startswith("warning: GPU 0 is in compute mode Exclusive_Process")


def test_a_pod_that_cannot_reach_its_cluster_checks_its_node_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may be broken at once."""
    config = tmp_path / "config"
    config.write_text(json.dumps(_kubeconfig("http://127.0.0.1:1")))
    monkeypatch.setattr("webhook.cli.commands.node.in_pod", lambda: True)
    monkeypatch.setattr(
        "webhook.cluster.client.connect", lambda *_: ClusterApi.of_kubeconfig(str(config), None)
    )
    with library("t4"):
        result = node("check", "--node-name", "gpu-1")

    assert 0 == result.exit_code
    assert "driver 535.129.03, CUDA 12.2" in result.stdout
    assert "warning: labels are not compared: the API server does not answer" in result.stderr


@pytest.mark.parametrize("error", ERRORS)
def test_no_error_of_nvml_is_a_traceback(error: str) -> None:
    """Whatever the driver answers, and whichever command asks."""
    for call in ("nvmlInit", "nvmlDeviceGetName"):
        with library("t4", failing(call, error)):
            codes = {node("check").exit_code, node("label", "--dry-run").exit_code}

        assert codes <= {0, 1, 2}, call


def _kubeconfig(server: str) -> dict[str, object]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }


# An agent whose NVML says that it begins, and then hangs in C code for longer than any test.
HANGS = """
import ctypes, json, sys
from tests.support.nvml import library
from webhook.cli import main
from webhook.cli.commands.node import command
from webhook.cluster.client import ClusterApi

def hang(name, number):
    print(json.dumps({"logger": "nvml", "level": name}), file=sys.stderr, flush=True)
    return ctypes.CDLL(None).sleep(1000)

with library("t4", hang):
    main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("program", "first_line"),
    [
        (("-m", "webhook"), ("gpugate.agent", "WARNING")),
        (("-c", HANGS), ("nvml", "nvmlInitWithFlags")),
    ],
    ids=["waiting", "hanging"],
)
def test_a_watch_ends_at_once_by_sigterm(
    tmp_path: Path, program: tuple[str, ...], first_line: tuple[str, str]
) -> None:
    """While it waits for an API server that is away, and while NVML hangs; with status 0. Its log is JSON."""
    config = tmp_path / "config"
    config.write_text(json.dumps(_kubeconfig("http://127.0.0.1:1")))
    argv = [sys.executable, *program, "node", "label", "--watch", "--kubeconfig", str(config)]
    environment = os.environ | {"NODE_NAME": "gpu-1"}
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        line = json.loads(watching.stderr.readline())
        asked = time.monotonic()
        watching.send_signal(signal.SIGTERM)
        try:
            status, took_s = watching.wait(100), time.monotonic() - asked
        finally:
            watching.kill()

    assert (0, first_line) == (status, (line["logger"], line["level"]))
    assert took_s < 30  # far below the interval of 60, and NVML's 1000


def test_the_daemon_set_runs_a_watch_of_this_version() -> None:
    """Its arguments are options, its image is the one that the page names."""
    daemon_set, *_ = yaml.safe_load_all((ROOT / "manifests/agent/daemonset.yaml").read_text("utf-8"))
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    group, name, *arguments = container["args"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    page = (ROOT / "docs/agent.md").read_text("utf-8")

    assert ("node", False) == (group, command.commands[name].make_context(name, arguments).params["once"])
    assert f"gpugate:{version}" == container["image"]
    assert f"newTag: {version}" in page


def test_the_page_lists_every_label_that_is_set() -> None:
    """In the words of the code."""
    page = (ROOT / "docs/agent.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", page, re.MULTILINE))

    assert LABELS == {key: what for key, what in rows.items() if is_own(key.replace("*", "1g.5gb"))}
