"""`gpugate node`: its output, its exit status, and its end by a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from rules.cuda.versions import CudaVersion
from tests.support.command import gpugate
from tests.support.nvml import ERRORS, Answer, failing, library, recorded, well
from tests.support.paths import ROOT
from tests.support.release import RELEASE
from webhook.agent.cuda_view import CudaView
from webhook.agent.labels import LABELS, is_own
from webhook.agent.nvml_probe import HANG, Failure
from webhook.cli.commands.node import command
from webhook.cluster.client import ClusterApi


def node(*arguments: str) -> Result:
    """Run the command, outside any pod and node."""
    return gpugate("node", *arguments, env={"NODE_NAME": None, "KUBECONFIG": "/dev/null"})


@pytest.fixture(autouse=True)
def _kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the kernel a driver, and programs no libcuda, whatever this machine has."""
    monkeypatch.setattr("webhook.cli.commands.node.kernel_module", lambda: "535.129.03")
    monkeypatch.setattr("webhook.cli.commands.node.see_cuda_in_time", lambda: None)
    monkeypatch.setattr("webhook.cli.commands.node.fabric_manager_version", lambda: None)


def test_a_dry_run_prints_the_labels_without_a_cluster() -> None:
    """As JSON, or as text with one label a line."""
    with library("a100-mig"):
        as_json, as_text = node("label", "--dry-run", "-o", "json"), node("label", "--dry-run")

    assert recorded("a100-mig")["labels"] == json.loads(as_json.stdout)["labels"]
    assert "gpugate.dev/mig-1g.5gb.count=8\n" in as_text.stdout
    assert (0, 0) == (as_json.exit_code, as_text.exit_code)


def test_a_dry_run_prints_the_mode_of_the_container_runtime(tmp_path: Path) -> None:
    """By the configuration below the root of the node's file system."""
    config = tmp_path / "etc/nvidia-container-runtime/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[nvidia-container-runtime]\nmode = "legacy"\n', "utf-8")
    with library("t4"):
        shown = node("label", "--dry-run", "--host-root", str(tmp_path)).stdout

    assert "gpugate.dev/container-runtime-mode=legacy\n" in shown
    assert "container-toolkit-version" not in shown


def test_a_runtime_that_is_newer_than_all_lists_for_forward_compatibility_is_unknown() -> None:
    """NVIDIA's newest list has the driver branch; the other runtimes are as before."""
    with library({**recorded("h100"), "driver": "570.124.06", "cuda": 12080}):
        as_json, as_text = node("check", "-o", "json"), node("check")

    runtimes = {runtime["cuda"]: runtime for runtime in json.loads(as_json.stdout)["runtimes"]}
    why = "it may fail: cuda-compat of CUDA 13.5 may not support driver branch 570; that of 13.4 does"
    assert ("forward compatibility", False) == (runtimes["13.4"]["by"], runtimes["13.4"]["unknown"])
    assert (None, True) == (runtimes["13.5"]["by"], runtimes["13.5"]["unknown"])
    assert [f"the driver has CUDA 12.8, below 13.5, so {why}"] == runtimes["13.5"]["reasons"]
    (row,) = [line.split() for line in as_text.stdout.splitlines() if line.startswith("13.5 ")]
    assert ["13.5", "unknown"] == row[:2]


@pytest.mark.parametrize(
    ("machine", "driver", "cuda"), [("h100", "565.57.01", 12070), ("rtx-4090-d", "570.124.06", 12080)]
)
def test_a_newer_runtime_without_a_hope_of_forward_compatibility_does_not_run(
    machine: str, driver: str, cuda: int
) -> None:
    """The branch is in no list, or the GPU is a GeForce."""
    with library({**recorded(machine), "driver": driver, "cuda": cuda}):
        result = node("check", "-o", "json")

    runtimes = {runtime["cuda"]: runtime for runtime in json.loads(result.stdout)["runtimes"]}
    assert (None, False) == (runtimes["13.5"]["by"], runtimes["13.5"]["unknown"])


@pytest.mark.parametrize("option", ["--dry-run", "--once"])
def test_without_a_driver_it_prints_one_error_and_exits_2(option: str) -> None:
    """On stderr, so that a pipe gets nothing; also without a cluster."""
    with library("t4", failing("nvmlInit", "NVML_ERROR_DRIVER_NOT_LOADED")):
        result = node("label", option)

    assert (2, "") == (result.exit_code, result.stdout)
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "error: the kernel has driver 535.129.03, but its devices /dev/nvidia* are missing here"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("label",), "no cluster"),
        (("label", "--kubeconfig", "/dev/null"), "no cluster"),
        (("label", "--dry-run", "--watch"), "--dry-run cannot be used with --watch"),
        (("label", "--interval", "0"), "0.0 is not in the range"),
        (("check", "--kubeconfig", "/dev/null", "--node-name", "n"), "no cluster"),
    ],
)
def test_wrong_usage_is_an_error(arguments: tuple[str, ...], message: str) -> None:
    """Exit status 2."""
    with library("t4"):
        result = node(*arguments)

    assert 2 == result.exit_code
    assert message in result.stderr


def test_a_missing_node_name_is_an_error(tmp_path: Path) -> None:
    """In a pod it is in $NODE_NAME."""
    config = tmp_path / "config"
    config.write_text(json.dumps(_kubeconfig("http://127.0.0.1:1")))
    with library("t4"):
        result = node("label", "--kubeconfig", str(config))

    assert 2 == result.exit_code
    assert "no node name given" in result.stderr


def test_check_reports_supported_workloads_as_text_and_json() -> None:
    """A healthy node has exit status 0 and nothing on stderr."""
    with library("h100"):
        text, document = node("check"), json.loads(node("check", "-o", "json").stdout)

    assert (0, "") == (text.exit_code, text.stderr)
    rows = [re.split(r"  +", line) for line in text.stdout.splitlines()]
    assert ["driver 535.129.03, CUDA 12.2"] == rows[0]
    assert ["0", "NVIDIA H100 80GB HBM3", "9.0", "81559Mi", "-", "Default"] in rows
    assert ["11.8 to 12.2", "yes"] in rows
    assert ["data types", "float16, bfloat16, fp8"] in rows
    assert ["MPS", "can share these GPUs"] in rows
    assert {"cuda": "12.2", "by": "driver", "unknown": False, "reasons": []} in document["runtimes"]
    assert {"capable": True, "daemons": []} == document["mps"]
    assert recorded("h100")["labels"] == document["labels"]
    assert [] == document["problems"]


@pytest.mark.parametrize(
    ("name", "topology", "text"),
    [
        ("h100", "nvlink", "nvlink: each GPU has NVLink to another one"),
        ("a100-t4", "pcie", "pcie: a GPU has no NVLink to another one"),
        ("t4", None, "-"),
    ],
)
def test_check_and_label_show_the_topology(name: str, topology: str | None, text: str) -> None:
    """As the label of the node; a node with one GPU has none."""
    with library(name):
        shown, document = node("check").stdout, json.loads(node("check", "-o", "json").stdout)
        labels = node("label", "--dry-run").stdout.splitlines()

    assert ["topology", text] in [re.split(r"  +", line) for line in shown.splitlines()]
    assert topology == document["topology"]
    assert [f"gpugate.dev/gpu-topology={topology}"] * (topology is not None) == [
        line for line in labels if "topology" in line
    ]


@pytest.mark.parametrize(
    ("call", "error"), [("nvmlInit", "LIB_RM_VERSION_MISMATCH"), ("nvmlDeviceGetMemoryInfo", "GPU_IS_LOST")]
)
def test_check_of_a_broken_node_exits_1_with_the_reason(call: str, error: str) -> None:
    """On stderr, or in the JSON document."""
    with library("h100", failing(call, f"NVML_ERROR_{error}")):
        text, document = node("check"), node("check", "-o", "json")
    (problem,) = json.loads(document.stdout)["problems"]

    assert (1, 1) == (text.exit_code, document.exit_code)
    assert f"NVML_ERROR_{error}" == problem["nvml"]
    assert problem["at"].startswith(call)
    assert text.stderr.startswith("error: ")
    assert "" == document.stderr


@pytest.mark.parametrize(
    ("changes", "answer", "message"),
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
def test_check_names_the_cuda_error_of_programs(
    changes: dict[str, object], answer: Answer, message: str
) -> None:
    """A driver of two versions, no Fabric Manager, a GPU in mode Prohibited, and no device."""
    machine = recorded("h200")
    machine["gpus"][0] |= changes
    with library(machine, answer):
        result = node("check")

    assert 1 == result.exit_code
    assert message in result.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "shown"), [("a100-mig", "1g.5gb 1g.5gb"), ("a100-mig-unprivileged", "  on  "), ("t4", "  -  ")]
)
def test_check_shows_the_known_facts_about_mig(name: str, shown: str) -> None:
    """Instances, or only that MIG mode is on."""
    with library(name):
        result = node("check")

    assert shown in result.stdout.splitlines()[2]


def test_a_problem_that_is_not_broken_is_a_warning() -> None:
    """Exit status 0: pods run."""
    machine = recorded("t4")
    machine["gpus"][0]["computeMode"] = 3
    with library(machine):
        result = node("check")

    assert 0 == result.exit_code
    assert result.stderr.startswith("warning: GPU 0 is in compute mode Exclusive_Process")


def test_check_in_a_pod_works_without_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node and cluster may be broken at the same time."""
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
    """For any error and each command."""
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


# An agent whose NVML logs its start, and then hangs in C code for longer than any test.
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
    [(("-m", "webhook"), ("gpugate.agent", "WARNING")), (("-c", HANGS), ("nvml", "nvmlInitWithFlags"))],
    ids=["waiting", "hanging"],
)
def test_sigterm_ends_a_watch_immediately(
    tmp_path: Path, program: tuple[str, ...], first_line: tuple[str, str]
) -> None:
    """While it waits for an unreachable API server, and while NVML hangs; with status 0. Its log is JSON."""
    config = tmp_path / "config"
    config.write_text(json.dumps(_kubeconfig("http://127.0.0.1:1")))
    argv = [sys.executable, *program, "node", "label", "--watch", "--kubeconfig", str(config)]
    environment = os.environ | {"NODE_NAME": "gpu-1"}
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        line = json.loads(watching.stderr.readline())
        sent_at = time.monotonic()
        watching.send_signal(signal.SIGTERM)
        try:
            status, took_s = watching.wait(100), time.monotonic() - sent_at
        finally:
            watching.kill()

    assert (0, first_line) == (status, (line["logger"], line["level"]))
    assert took_s < 30  # far below the interval of 60, and NVML's 1000


def test_the_daemon_set_runs_a_watch_of_this_version() -> None:
    """Its arguments are options, its image is the one in the page."""
    daemon_set, *_ = yaml.safe_load_all((ROOT / "manifests/agent/daemonset.yaml").read_text("utf-8"))
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    group, name, *arguments = container["args"]
    page = (ROOT / "docs/agent.md").read_text("utf-8")

    assert ("node", False) == (group, command.commands[name].make_context(name, arguments).params["once"])
    assert f"gpugate:{RELEASE}" == container["image"]
    assert f"newTag: {RELEASE}" in page


def test_the_page_lists_every_label_that_is_set() -> None:
    """With the descriptions of the code."""
    page = (ROOT / "docs/agent.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", page, re.MULTILINE))

    assert LABELS == {key: what for key, what in rows.items() if is_own(key.replace("*", "1g.5gb"))}


def test_check_shows_what_a_program_sees_and_the_container_toolkit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first by libcuda beside NVML; what is not here is said to be unknown."""
    with library("t4"):
        without = node("check", "--host-root", str(tmp_path))
    monkeypatch.setattr(
        "webhook.cli.commands.node.see_cuda_in_time", lambda: CudaView(0, "", CudaVersion(12, 2), 1)
    )
    config = tmp_path / "etc/nvidia-container-runtime/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[nvidia-container-runtime]\nmode = "cdi"\n', "utf-8")
    with library({**recorded("t4"), "cuda": 12020}):
        shown = node("check", "--host-root", str(tmp_path))
        document = json.loads(node("check", "--host-root", str(tmp_path), "-o", "json").stdout)

    assert "libcuda      libcuda.so.1 was not found here: what a program sees is unknown" in without.stdout
    assert "toolkit      unknown: its configuration was not found" in without.stdout
    assert "libcuda      a program sees CUDA 12.2; devices: 1\n" in shown.stdout
    assert "toolkit      mode cdi, version -\n" in shown.stdout
    assert {"error": 0, "cuda": "12.2", "devices": 1} == document["libcuda"]
    assert {"mode": "cdi", "version": None} == document["containerToolkit"]
    assert (0, 0) == (without.exit_code, shown.exit_code)


def test_check_exits_with_1_if_programs_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although NVML reports the GPUs."""
    monkeypatch.setattr("webhook.cli.commands.node.see_cuda_in_time", lambda: CudaView(802, "cuInit"))
    with library("t4"):
        result = node("check")

    assert "libcuda      cuInit fails with error 802\n" in result.stdout
    assert result.stderr.startswith(
        "error: cuInit of libcuda.so.1 fails with error 802 (cudaErrorSystemNotReady (802)); start the Fabric"
    )
    assert 1 == result.exit_code


def test_mission_10_check_ends_if_libcuda_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernel log as the next step."""
    monkeypatch.setattr("webhook.cli.commands.node.see_cuda_in_time", lambda: CudaView(0, hung=True))
    with library("t4"):
        result, document = node("check"), json.loads(node("check", "-o", "json").stdout)

    assert "libcuda      libcuda.so.1 does not answer within 60 seconds\n" in result.stdout
    assert result.stderr.startswith(
        "error: libcuda.so.1 does not answer within 60 seconds; check the kernel log"
    )
    assert {"error": None, "cuda": None, "devices": None} == document["libcuda"]
    assert 1 == result.exit_code


def test_mission_10_check_ends_if_nvml_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The problem is one line; what is known without NVML is shown."""
    config = tmp_path / "etc/nvidia-container-runtime/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[nvidia-container-runtime]\nmode = "cdi"\n', "utf-8")
    monkeypatch.setattr("webhook.agent.nvml_probe.read_nvml_in_time", lambda: Failure(HANG))
    monkeypatch.setattr(
        "webhook.cli.commands.node.see_cuda_in_time", lambda: CudaView(0, "", CudaVersion(12, 2), 1)
    )
    result = node("check", "--host-root", str(tmp_path))
    document = json.loads(node("check", "--host-root", str(tmp_path), "-o", "json").stdout)

    assert (
        "error: NVML does not answer within 60 seconds; check the kernel log (dmesg) for `NVRM: Xid`; drain "
        "the node and run `nvidia-smi --gpu-reset`, or reboot it\n"
    ) == result.stderr
    assert [
        "toolkit      mode cdi, version -",
        "libcuda      a program sees CUDA 12.2; devices: 1",
    ] == result.stdout.splitlines()
    assert ({"mode": "cdi", "version": None}, "12.2", None) == (
        document["containerToolkit"],
        document["libcuda"]["cuda"],
        document["problems"][0]["nvml"],
    )
    assert 1 == result.exit_code


def test_mission_10_check_takes_facts(tmp_path: Path) -> None:
    """A bundle or a folder, as other commands; a wrong one is an error with its name."""
    wrong = tmp_path / "facts.json"
    wrong.write_text("{}", "utf-8")
    with library("t4"):
        built_in, without, failed = (
            node("check", *args) for args in (["--facts", "builtin"], [], ["--facts", str(wrong)])
        )

    assert built_in.stdout == without.stdout
    assert (0, 2) == (built_in.exit_code, failed.exit_code)
    assert str(wrong) in failed.stderr
