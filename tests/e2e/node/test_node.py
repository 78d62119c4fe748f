"""Real nodes: pods run on them, with GPUs, and the machine is afterwards as it was before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.assets import build
from tests.e2e.node.pods import created, gpus_in, pod
from tests.e2e.node.real_cluster import RealCluster, kernel_settings, reason_to_skip
from tests.e2e.serve_process import eventually

# Runs one node until it is killed, and says when it is ready.
_PROGRAM = """
import sys
from pathlib import Path
from tests.e2e.node.real_cluster import NODES, cluster

with cluster(Path(sys.argv[1]), NODES[1:]):
    print("ready", flush=True)
    sys.stdin.read()
"""


# With the start of the cluster.
@pytest.mark.timeout(300)
def test_a_pod_with_a_gpu_runs_on_a_real_node(real: RealCluster) -> None:
    """It has as many devices as it requests, and the library of its node's driver."""
    pods = [pod(f"on-{name}", 1, nodeName=name) for name in ("gpu-1", "gpu-2")]
    pods[1]["spec"]["runtimeClassName"] = (
        "nvidia"  # its device plugin sets a variable, which this runtime reads
    )

    with created(real, *pods) as outcomes:
        assert ["Running", "Running"] == [outcome.reason for outcome in outcomes], outcomes
        assert [1, 1] == [len(gpus_in(real, pod_object["metadata"]["name"])) for pod_object in pods]
        libraries = [
            real.kubectl("exec", f"on-{name}", "--", "ls", "/usr/lib64").stdout for name in ("gpu-1", "gpu-2")
        ]
    assert ["libcuda.so.570.86.15" in libraries[0], "libcuda.so.535.129.03" in libraries[1]] == [True, True]


def test_pods_of_both_nodes_reach_each_other(real: RealCluster) -> None:
    """Through the bridges of their nodes."""
    server = pod("serves", command=["httpd", "-f", "-h", "/etc"], nodeName="gpu-2")
    with created(real, server, pod("asks", nodeName="gpu-1")):
        address = real.kubectl("get", "pod", "serves", "-o", "jsonpath={.status.podIP}").stdout
        ask = ("exec", "asks", "--", "wget", "-q", "-O", "-", f"http://{address}/hostname")
        eventually(lambda: real.kubectl(*ask, check=False).stdout == "serves\n")


def test_a_pod_reaches_the_api_server(real: RealCluster) -> None:
    """As its service account, by its variables, and the certificate and the token that the kubelet mounts."""
    client = pod("client", nodeName="gpu-1")
    client["spec"]["volumes"] = [{"name": "bin", "hostPath": {"path": str(build.folder())}}]
    client["spec"]["containers"][0]["volumeMounts"] = [{"name": "bin", "mountPath": "/kubernetes"}]
    with created(real, client):
        ask = ("exec", "client", "--", "/kubernetes/kubectl", "auth", "whoami", "-o", "json")
        answer = real.kubectl(*ask, check=False)

    assert "system:serviceaccount:default:default" in answer.stdout, answer.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["fails by an interrupt", "is killed"])
def test_nothing_is_left_of_a_node_whose_test(end: str, tmp_path: Path) -> None:
    """No process, no cgroup, no mount, no data; and the kernel has the settings that it had."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    before = kernel_settings()
    mounts = _mounts()
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as test:
        assert test.stdout is not None
        assert b"ready\n" == test.stdout.readline()
        first = int((tmp_path / "gpu-2/pid").read_text())
        group = Path("/sys/fs/cgroup/cpu") / _group_of(first)
        assert (group / "kubepods").is_dir()
        test.send_signal(signal.SIGKILL if end == "is killed" else signal.SIGINT)

    eventually(lambda: not group.exists() and not (tmp_path / "gpu-2/data").exists())
    assert [] == _processes_with(str(tmp_path))
    assert [] == list(Path("/sys/fs/cgroup").glob(f"*/**/{group.name}"))
    assert _mounts() <= mounts
    assert before == kernel_settings()


def test_no_kubelet_can_change_settings_of_the_kernel(real: RealCluster) -> None:
    """Each exits if one is different, and sees the values that it requires; this machine has others."""
    for name, node in real.nodes.items():
        configuration = json.loads(real.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/configz").stdout)
        seen = {
            setting: node.run("cat", f"/proc/sys/{setting}").stdout.strip() for setting in kernel_settings()
        }

        assert configuration["kubeletconfig"]["protectKernelDefaults"] is True
        assert ("1", "10", "1") == (
            seen["vm/overcommit_memory"],
            seen["kernel/panic"],
            seen["kernel/panic_on_oops"],
        )
        assert seen != kernel_settings()


def _mounts() -> set[str]:
    """Return the mounts of this machine, except those of podman in a test that runs beside this one."""
    return {line for line in Path("/proc/self/mounts").read_text().splitlines() if "/engine" not in line}


def _group_of(process: int) -> str:
    lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    (path,) = [line.split(":", 2)[2] for line in lines if line.split(":")[1] == "cpu"]
    return path.strip("/")


def _processes_with(text: str) -> list[str]:
    """Return the command lines of all processes that contain a text."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(path.parent.name) != os.getpid():
            lines.append(line)
    return lines
