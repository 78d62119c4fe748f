"""`gpugate nodes snapshot`: output and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.support.command import gpugate
from tests.support.node_builders import T4, gfd, gpu_pod, node


def _nodes(path: Path) -> Path:
    labels = gfd("11.4", T4) | {"kubernetes.io/hostname": "ip-10-1-2-3", "zone": "a"}
    path.write_text(json.dumps({"kind": "List", "items": [node("ip-10-1-2-3.internal", labels)]}), "utf-8")
    return path


def test_preview_takes_the_snapshot(tmp_path: Path) -> None:
    """With the same result as the original."""
    original, copied, pod = _nodes(tmp_path / "nodes.json"), tmp_path / "snapshot.yaml", tmp_path / "pod.json"
    pod.write_text(json.dumps(gpu_pod("team/app:cuda12.8")), "utf-8")
    copied.write_text(gpugate("nodes", "snapshot", "--nodes", original).stdout, "utf-8")
    before, after = (gpugate("preview", "-f", pod, "--nodes", nodes) for nodes in (original, copied))

    assert -1 == copied.read_text("utf-8").find("10-1-2-3")
    assert 1 == before.exit_code
    assert (before.exit_code, before.stdout, before.stderr) == (after.exit_code, after.stdout, after.stderr)


def test_the_summary_names_the_replaced_labels(tmp_path: Path) -> None:
    """On stderr, in both languages; not with --quiet."""
    nodes = _nodes(tmp_path / "nodes.json")
    english, chinese, quiet = (
        gpugate("nodes", "snapshot", "--nodes", nodes, *more)
        for more in (("--anonymize", "zon*"), ("--lang", "zh"), ("--quiet",))
    )

    assert [
        "1 nodes and 0 other objects; values replaced of the labels: kubernetes.io/hostname, zone\n",
        "1 个节点，0 个其他对象；以下标签的值已替换：kubernetes.io/hostname\n",
        "",
    ] == [result.stderr for result in (english, chinese, quiet)]


def test_yaml_and_json_have_the_same_objects(tmp_path: Path) -> None:
    """A List."""
    nodes = _nodes(tmp_path / "nodes.json")
    stdouts = [gpugate("nodes", "snapshot", "--nodes", nodes, "-o", kind).stdout for kind in ("yaml", "json")]

    assert yaml.safe_load(stdouts[0]) == json.loads(stdouts[1])
    assert "List" == json.loads(stdouts[1])["kind"]


def test_bad_input_is_an_error_at_its_place(tmp_path: Path) -> None:
    """A file of other objects, and one without any."""
    others, empty = tmp_path / "pods.json", tmp_path / "empty.json"
    others.write_text('{"kind": "Pod"}', "utf-8")
    empty.write_text('{"kind": "List", "items": []}', "utf-8")
    wrong, none = (gpugate("nodes", "snapshot", "--nodes", path) for path in (others, empty))

    assert (2, "", True) == (wrong.exit_code, wrong.stdout, "expected one of Node" in wrong.stderr)
    assert (2, "", f"error: {empty}: no nodes\n") == (none.exit_code, none.stdout, none.stderr)
