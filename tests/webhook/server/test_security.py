"""The security page matches tests and limits, and the parts of a release are pinned."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

import click
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rules.affinity import node_affinity
from rules.cel import expression
from rules.decision import size_limit as size
from rules.kube import pod as environment
from rules.text import bounded_cache as budget
from rules.text import yaml_document as source
from tests.support.paths import ROOT
from webhook.cli import main
from webhook.server import connection, connections, request_parser, work_queue
from webhook.server.server import ServerConfig

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
# What the extras add, without the names of other extras.
OPTIONAL: Final = [
    requirement
    for extra in PROJECT["project"]["optional-dependencies"].values()
    for requirement in extra
    if not requirement.startswith("gpugate[")
]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text("utf-8")
WORKLOADS: Final = ("base/deployment.yaml", "agent/daemonset.yaml")
# Each pin of a lock file with what follows it: a marker, and the hashes.
_PIN: Final = re.compile(r"^(\S+)==(\S+)((?:.*\\\n)*.*)$", re.MULTILINE)


def workload(file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pod of a workload in manifests/, and its container."""
    document = next(yaml.safe_load_all((ROOT / "manifests" / file).read_text("utf-8")))
    pod = document["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_every_test_that_the_page_names_exists() -> None:
    """It names them by their function names, as sentences."""
    page = (ROOT / "docs/security.md").read_text("utf-8")
    table = page.partition("## What is enforced, and where")[2].partition("\n## ")[0]
    named = [
        row.split(" | ")[-1].rstrip(" |") for row in re.findall(r"^\| (?!against|-).*", table, re.MULTILINE)
    ]
    tests = {
        name.replace("_", " ")
        for path in ROOT.glob("tests/**/test_*.py")
        for name in re.findall(r"^def test_(\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    }

    assert len(named) > 15
    assert not {sentence for cell in named for sentence in cell.split("; ")} - tests


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    """Each with the words next to it."""
    page = (ROOT / "docs/security.md").read_text("utf-8")
    server = ServerConfig()

    for text in (
        f"| {server.client_timeout:.0f} s for handshake, head, body",
        f"beyond {server.connections:,} connections",
        f"kept for {server.keep_alive:.0f} s",
        f"{request_parser.OVERHEAD_LIMIT // 2**10} KiB and {server.body_limit // 2**20} MiB (431, 413)",
        f"(431, 413), {request_parser.MAX_HEADERS} headers",
        f"after {work_queue.PATIENCE} s 429",
        f"{work_queue.MEMORY // 2**20} MiB for all long reviews at once",
        f"{connections._READ_SIZE // 2**10} KiB are read at once, {connection._TURN} records",
        f"{server.bodies_limit // 2**20} MiB of all bodies together",
        f"{size.TEMPLATE.most:,} pod templates that request accelerators",
        f"{size.CONTAINER.most:,} such containers, {size.RESOURCE.most:,} resources",
        f"{size.TERM.most:,} terms, {size.EXPRESSION.most:,} labels and expressions of node selectors",
        f"{size.TOLERATION.most:,} tolerations, {size.CLAIM.most:,} resource claims",
        f"or {size.DEBUGGING.most:,} debugging containers",
        f"{size.MOST_READ:,} templates and containers of any kind",
        f"{size.MOST_NAMES} resources in one container",
        f"{budget.MOST_STEPS:,} steps to read containers",
        f"{size.MOST_EVALUATIONS:,} steps to evaluate requirements",
        f"{node_affinity.MOST_PAIRS:,} combinations of node selector terms",
        f"expanded to {environment.LONGEST // 2**20} MiB, and to {source.MAX_VALUES:,} values",
        f"CEL of {expression.MAX_EXPRESSION_LENGTH:,} characters, {expression._MAX_DEPTH} brackets",
    ):
        assert text in page


@pytest.mark.parametrize(
    ("file", "requirements"),
    [
        ("requirements.lock", [*PROJECT["project"]["dependencies"], *OPTIONAL]),
        ("requirements-build.lock", PROJECT["build-system"]["requires"]),
    ],
)
def test_a_lock_file_pins_all_requirements_with_hashes(file: str, requirements: list[str]) -> None:
    """In versions that pyproject.toml allows."""
    text = (ROOT / file).read_text("utf-8")
    pins = {canonicalize_name(name): (version, rest) for name, version, rest in _PIN.findall(text)}

    assert not _PIN.sub("", text).strip()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", rest) for _, rest in pins.values())
    for requirement in map(Requirement, requirements):
        assert Version(pins[canonicalize_name(requirement.name)][0]) in requirement.specifier


def test_the_build_requirements_are_those_that_are_locked() -> None:
    """pyproject.toml must list them twice."""
    assert PROJECT["build-system"]["requires"] == PROJECT["dependency-groups"]["build"]


def test_the_image_contains_the_program_that_the_manifests_start() -> None:
    """With one base of an exact version, and the user and port of the Deployment."""
    pod, container = workload(WORKLOADS[0])
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    base = re.search(r"^ARG BASE=python:(\d+\.\d+\.\d+)-slim-[a-z]+$", DOCKERFILE, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    context = (ROOT / ".dockerignore").read_text("utf-8")
    instructions = {
        word: re.findall(rf"^{word} (.+)$", DOCKERFILE, re.MULTILINE)[-1]
        for word in ("USER", "EXPOSE", "ENTRYPOINT", "CMD")
    }

    assert ["${BASE}"] * 2 == stages
    assert base is not None
    assert Version(base[1]) in Requirement(f"python{PROJECT['project']['requires-python']}").specifier
    assert (
        f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
        == instructions["USER"]
    )
    assert [instructions["EXPOSE"]] == [str(port["containerPort"]) for port in container["ports"]]
    assert ["gpugate"] == yaml.safe_load(instructions["ENTRYPOINT"])
    assert main.get_command(click.Context(main), *yaml.safe_load(instructions["CMD"]))
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}\n" in context
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(copied)


@pytest.mark.parametrize("file", WORKLOADS)
def test_a_container_has_no_rights_over_its_node(file: str) -> None:
    """No root, no capability, no access to the host, and a read-only root file system."""
    pod, container = workload(file)

    assert {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "runAsGroup": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    } == pod["securityContext"]
    assert {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    } == container["securityContext"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & pod.keys()
