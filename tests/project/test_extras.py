"""What works without the extras of pyproject.toml: processes cannot import what an extra installs."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions, requires
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT
from tests.webhook.server.test_security import PROJECT

# Runs a command with the first argument's modules, separated by commas, absent.
pytestmark = pytest.mark.slow

_RUN: Final = """
import sys
absent = set(sys.argv.pop(1).split(","))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from webhook.cli import main
main(prog_name="gpugate")
"""
_EXAMPLES: Final = "docs/examples"


@cache
def installed_by(name: str, extra: str = "") -> frozenset[str]:
    """Return a distribution and all that it requires on this machine, by canonical names."""
    names: set[str] = {canonicalize_name(name)}
    for requirement in map(Requirement, requires(name) or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            names |= installed_by(requirement.name)
    return frozenset(names)


def distributions(extra: str) -> set[str]:
    """Return what `pip install gpugate[extra]` installs; without an extra: `pip install gpugate`."""
    listed = PROJECT["project"]["optional-dependencies"].get(extra, [])
    names: set[str] = set() if extra else {"gpugate"}
    for requirement in map(Requirement, [*PROJECT["project"]["dependencies"], *listed]):
        if requirement.name == "gpugate":
            names |= {name for extra in requirement.extras for name in distributions(extra)}
        else:
            names |= installed_by(requirement.name)
    return names


def run(extra: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run gpugate where only an extra is installed."""
    present = distributions(extra)
    absent = {
        module
        for module, of in packages_distributions().items()
        if not present & set(map(canonicalize_name, of)) and module not in {"rules", "certs", "webhook"}
    }
    assert absent
    command = [sys.executable, "-c", _RUN, ",".join(absent), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    "arguments",
    [
        ["preview", "-f", f"{_EXAMPLES}/patched.yaml"],
        ["explain", "-f", f"{_EXAMPLES}/patched.yaml"],
        ["audit", "-f", f"{_EXAMPLES}/patched.yaml"],
        ["audit", "-f", f"{_EXAMPLES}/patched.yaml", "-o", "html"],
        ["lint", "docs/tutorial/npu"],
        ["test", "docs/tutorial/npu"],
        ["rules"],
        ["nodes", "--nodes", "docs/compatibility/nodes.yaml"],
        ["matrix"],
        ["export"],
        ["schema", "resource-rule"],
        ["version"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_read_files_need_no_extra(arguments: list[str]) -> None:
    """What a job of a CI installs is small: docs/dependencies.md has the figures."""
    completed = run("", *arguments)

    assert 0 == completed.returncode, completed.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["audit", "--context", "none"], "cluster"),
        (["image", "inspect", "nvidia/cuda:12.4.1-base-ubuntu22.04"], "cluster"),
        (["serve", "--rules", "rules/catalog"], "server"),
        (["certs", "show"], "server"),
        (["ui", "--no-browser"], "server"),
        (["node", "check"], "agent"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(arguments: list[str], extra: str) -> None:
    """On one line, instead of a traceback."""
    completed = run("", *arguments)

    assert 2 == completed.returncode
    assert completed.stderr.endswith(f"; run: pip install 'gpugate[{extra}]'\n")
    assert 1 == completed.stderr.count("\n")


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("cluster", ["audit", "--context", "none"]),
        ("cluster", ["image", "inspect", "127.0.0.1:1/a:b"]),
        ("server", ["certs", "show"]),
        ("server", ["serve", "--host", "256.0.0.0"]),
        ("agent", ["node", "check"]),
    ],
)
def test_an_extra_has_all_that_its_commands_need(extra: str, arguments: list[str]) -> None:
    """They fail by what is absent in a test: a cluster, a registry, an address, a GPU."""
    completed = run(extra, *arguments)

    assert completed.returncode
    assert "not installed" not in completed.stderr
    assert "Traceback" not in completed.stderr
