"""What an object contains acts on no terminal, and begins no line of its own, whatever the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import gpugate
from tests.support.node_builders import gfd, node
from tests.support.pseudo_terminal import on_terminal
from webhook.yaml_output import dump_yaml

# The end of each text: a command of GitHub Actions on a line of its own, then conceal, a title of the
# terminal, BEL, a control character of 8 bits, and a mark that reverses the direction of text.
HOSTILE = "\n::error::forged\x1b[8m\x1b]0;title\x07\x9b31m\u202e"
# The styles of click and rich.
STYLES = re.compile(r"\x1b\[(?:0|1|2|3[0-7]|9[0-7]|1;3[0-7])m")
PRINTABLE = re.compile(r"[^\x1b\x07\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]*")


def hostile(text: str) -> str:
    """Return a text with everything that a terminal or a CI system acts on."""
    return text + HOSTILE


def pod(*, valid: bool, **spec: Any) -> dict[str, Any]:
    """Return a pod; valid: as an API server accepts it, with hostile texts where these have any form."""
    name = str if valid else hostile
    known = {
        "name": name("a"),
        "image": hostile("nvidia/cuda:13.0.0-base-ubuntu22.04"),
        "command": [hostile("vllm"), "serve"],
        "args": [hostile("--dtype=bfloat16"), hostile("--tensor-parallel-size=4")],
        "env": [
            {"name": "NVIDIA_REQUIRE_CUDA", "value": hostile("cuda>=13.0")},
            {"name": "CUDA_VERSION", "value": hostile("13.0")},
        ],
        "resources": {"limits": {"nvidia.com/gpu": name("9"), name("acme.com/npu"): "1"}},
        "volumeMounts": [{"name": name("v"), "mountPath": hostile("/dev/shm")}],
    }
    plain = {
        "name": name("b"),
        "image": "nvidia/cuda:13.0.0-base-ubuntu22.04",
        "resources": {"limits": {"nvidia.com/gpu": "1", name("nvidia.com/gpuss"): "1"}},
    }
    annotations = {
        "gpugate.dev/cuda-version": hostile("12.4"),
        **({} if valid else {hostile("gpugate.dev/cuda-versoin"): "1"}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name("p"), "namespace": name("ml"), "annotations": annotations},
        "spec": {"containers": [known, plain], **spec},
    }


def alone(*, valid: bool, **spec: Any) -> dict[str, Any]:
    """Return such a pod with its second container only."""
    document = pod(valid=valid, **spec)
    del document["spec"]["containers"][0]
    return document


def job(kind: str, template: dict[str, Any]) -> dict[str, Any]:
    """Return a workload with the spec of a pod."""
    spec = {"template": {"spec": template["spec"]}}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": hostile("j")}, "spec": spec}


SELECTOR = {"nodeSelector": {hostile("gpu"): hostile("t4")}}
MISSPELT = pod(valid=False)
MISSPELT["spec"]["containers"][0]["resources"] = {hostile("limit"): {}, "limitz": {}}
SHAPELESS = pod(valid=False, containers=hostile("x"))
RULE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": hostile("r"),
        "namespace": "kube-public",
        "labels": {"gpugate.dev/type": hostile("InjectionRule"), hostile("gpugate.dev/enabledd"): "true"},
    },
    "data": {hostile("rule.yaml"): hostile("match: {}")},
}
OBJECTS = {
    "valid": pod(valid=True),
    "excluded": pod(valid=True, nodeSelector={"gpu": "t4"}),
    "alone": alone(valid=True),
    "file": pod(valid=False, **SELECTOR),
    "file-alone": alone(valid=False, **SELECTOR),
    "job": job("Job", pod(valid=False)),
    "job-of-a-valid-pod": job("Job", alone(valid=True)),
    "kind": job(hostile("Jobx"), pod(valid=False)),
    "misspelt": MISSPELT,
    "shapeless": SHAPELESS,
    "rule": RULE,
}
FAILING = pod(valid=False) | {
    "status": {
        "phase": hostile("Pending"),
        "reason": hostile("Failed"),
        "message": hostile("text"),
        "containerStatuses": [
            {
                "name": hostile("a"),
                "restartCount": 3,
                "state": {
                    "waiting": {
                        "reason": hostile("CreateContainerError"),
                        "message": hostile("nvidia-container-cli: requirement error: unsatisfied condition"),
                    }
                },
            }
        ],
    }
}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "reason": hostile("FailedScheduling"),
    "message": hostile("0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
    "involvedObject": {"kind": "Pod", "name": hostile("p"), "namespace": hostile("ml")},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the objects, nodes, and the events and the log of a pod."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "objects").mkdir()
    for name, document in OBJECTS.items():
        (folder / f"objects/{name}.json").write_text(json.dumps(document), "utf-8")
    nodes = [node("n", gfd("11.4") | {"gpu": "t4"}, **{"nvidia.com/gpu": "4"})]
    for name, value in (("nodes", nodes), ("pod", FAILING), ("events", [EVENT])):
        document = {"apiVersion": "v1", "kind": "List", "items": value} if isinstance(value, list) else value
        (folder / f"{name}.json").write_text(json.dumps(document), "utf-8")
    lines = ("CUDA out of memory", "no kernel image is available for execution on the device")
    (folder / "log").write_text("\n".join(map(hostile, lines)), "utf-8")
    return folder


OF_POD = ("why", "-f", "pod.json", "--log", "log", "--events", "events.json", "--nodes", "nodes.json")
OF_OBJECTS = ("-f", "objects", "--nodes", "nodes.json")
COMMANDS = [
    *(("preview", *OF_OBJECTS, "-o", output) for output in ("diff", "yaml", "patch", "json", "junit")),
    *(("preview", *OF_OBJECTS, "-o", output) for output in ("sarif", "github", "markdown")),
    ("preview", "-f", "objects"),
    ("preview", *OF_OBJECTS, "--lang", "zh"),
    ("explain", *OF_OBJECTS, "--all"),
    ("explain", "-f", "objects", "-o", "json"),
    *(("audit", *OF_OBJECTS, "-o", output) for output in ("table", "wide", "json", "html", "sarif", "junit")),
    *(("audit", *OF_OBJECTS, "-o", output) for output in ("github", "markdown", "openreports")),
    *((*OF_POD, "-o", output) for output in ("text", "json", "yaml")),
    ("whatif", *OF_OBJECTS, "--driver", "580.65.06"),
    ("whatif", *OF_OBJECTS, "--driver", "580.65.06", "-o", "json"),
    ("images", "-f", "objects"),
    ("lint", "objects"),
    ("lint", "objects", "-o", "json"),
    ("export", "objects"),
    ("rules", "--rules", "objects"),
    ("nodes", "--nodes", "objects"),
]


def _run(folder: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.chdir(folder)
    done = gpugate(*command, color=True)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.stdout, done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_an_object_contains_acts_on_no_terminal_and_begins_no_line(
    command: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stdout and stderr, in colour; `::error::` is a command of GitHub Actions, also after spaces."""
    outputs = _run(folder, command, monkeypatch)

    assert "" != "".join(outputs).strip()
    for text in outputs:
        own = STYLES.sub("", text)
        lines = own.split("\n")
        assert [] == [line for line in lines if not PRINTABLE.fullmatch(line)]
        assert [] == [line for line in lines if line.strip().startswith("::error::forged")]


@pytest.mark.parametrize("command", [("preview", *OF_OBJECTS), ("explain", *OF_OBJECTS), OF_POD])
def test_a_terminal_gets_no_escape_sequence_of_an_object(command: tuple[str, ...], folder: Path) -> None:
    """Where lines are broken, too."""
    paths = {path.name: str(path) for path in folder.iterdir()}
    _, text = on_terminal([paths.get(word, word) for word in command], 80)

    assert "forged" in text
    assert [] == [line for line in text.split("\n") if not PRINTABLE.fullmatch(line)]


def test_documents_keep_the_values(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML and JSON escape what is not printable."""
    command = ("preview", "-f", "objects/alone.json", "-f", "objects/valid.json")
    patched = list(yaml.safe_load_all(_run(folder, (*command, "-o", "yaml"), monkeypatch)[0]))
    (known, _) = patched[1]["spec"]["containers"]
    facts = json.loads(_run(folder, ("why", *OF_POD[1:], "-o", "json"), monkeypatch)[0])

    assert OBJECTS["valid"]["spec"]["containers"][0]["args"] == known["args"]
    assert hostile("12.4") == patched[0]["metadata"]["annotations"]["gpugate.dev/cuda-version"]
    assert (hostile("p"), hostile("ml")) == (facts["pod"], facts["namespace"])


@pytest.mark.parametrize(
    "text", ["a\u202eb", "\u2028", "a\nb", "a\n::set-env x\n", " ##[x]\n", "\x85\n", "x" * 2000 + " ::y"]
)
def test_yaml_is_loaded_as_it_was_written(text: str) -> None:
    """Long texts are not broken."""
    written = dump_yaml({text: [text]})

    assert {text: [text]} == yaml.safe_load(written)
    assert not re.search(r"[\x85\u2028\u202e]|^\s*(::|##)", written, re.MULTILINE)
