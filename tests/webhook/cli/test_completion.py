"""Completion in bash, zsh and fish, and of `kubectl gpugate`, by the shells and kubectl themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import assets
from tests.support.paths import ROOT
from webhook.cli import main
from webhook.cli.completion import completions_for_kubectl

KUBECONFIG = """apiVersion: v1
kind: Config
contexts:
- name: production
- name: arn:aws:eks:one
- name: arn:aws:eks:two
- name: two words
- {broken: true}
"""
# (line, values, directive): a shell completes the last word of the line.
LINES = [
    ("gpugate sche", ["schema"], 4),
    ("gpugate rules mps-p", ["mps-pipe-directory"], 4),
    ("gpugate rules n", ["new"], 4),
    ("gpugate rules new inj", ["injection"], 4),
    ("gpugate rules -o y", ["yaml"], 4),
    ("gpugate rules --output=y", ["yaml"], 4),
    ("gpugate nodes --nodes docs/compatibility/nodes.yaml t4-", ["t4-a", "t4-b"], 4),
    ("gpugate nodes --nodes nowhere.yaml t4-", [], 4),
    (
        "gpugate rules compatibility-g",
        ["compatibility-gpu-manager-shares", "compatibility-gpu-manager-cards"],
        4,
    ),
    ("gpugate audit --context prod", ["production"], 4),
    ("gpugate audit --context=prod", ["production"], 4),
    ("gpugate preview -f ", [], 0),
    ("gpugate preview ", [], 0),
    ("gpugate lint doc", [], 0),
    ("gpugate lint bu", ["builtin"], 4),
    ("gpugate preview --rules doc", [], 0),
    ("gpugate schema --write ", [], 16),
    ("gpugate prview ", [], 4),
]


@pytest.fixture(autouse=True)
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put gpugate and kubectl's helper on the PATH, and contexts into the kubeconfig."""
    programs = {
        "gpugate": "from webhook.cli import main; main()",
        "kubectl-gpugate": "from webhook.cli import main; main()",
        "kubectl_complete-gpugate": "from webhook.cli import complete_for_kubectl as f; f()",
    }
    for name, code in programs.items():
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n', "utf-8")
        path.chmod(0o755)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG, "utf-8")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'kubeconfig'}:{tmp_path / 'absent'}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert "" == done.stderr
    return done.stdout


def _complete(line: str) -> tuple[list[str], int]:
    """Return values and directive of the protocol for the last word of a line."""
    *values, directive = completions_for_kubectl(main, line.split(" ")[1:])
    return [value.partition("\t")[0] for value in values], int(directive.removeprefix(":"))


@pytest.mark.parametrize(("line", "values", "directive"), LINES)
def test_commands_options_and_values_are_completed(line: str, values: list[str], directive: int) -> None:
    """Files by the shell; nothing after an unknown command."""
    completions, kind = _complete(line)

    assert (sorted(values), directive) == (sorted(completions), kind)


def test_commands_have_descriptions() -> None:
    """For shells that show them."""
    assert ["schema\tPrint the JSON Schema of rule files, for editors", ":4"] == (
        [*completions_for_kubectl(main, ["sch"])]
    )


def _in_bash(line: str) -> list[str]:
    """Return what bash inserts for the last word; `default` and `dirnames` are files and folders."""
    # As readline splits words: also at `=` and `:`.
    words = line.replace("=", " = ").replace(":", " : ").split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"""
        source <(gpugate completion bash)
        compopt() {{ echo "$2"; }}
        COMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}
        _gpugate_completion gpugate
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return [line for line in _run("bash", "--norc", "-c", script).splitlines() if line]


@pytest.mark.parametrize(
    ("line", "inserted"),
    [
        ("gpugate rules mps-p", ["mps-pipe-directory"]),
        ("gpugate rules --output=y", ["yaml"]),
        ("gpugate audit --context arn:aws:eks:o", ["one"]),
        ("gpugate audit --context=arn:aws:eks:o", ["one"]),
        ("gpugate audit --context arn:aws:", ["eks:one", "eks:two"]),
        ("gpugate audit --context two", ["'two words'"]),
        ("gpugate preview -f docs/ex", ["default"]),
        ("gpugate preview --nodes=docs/ex", ["default"]),
        ("gpugate schema --write do", ["dirnames"]),
        ("gpugate prview ", []),
    ],
)
def test_bash_completes(line: str, inserted: list[str]) -> None:
    """It replaces only what follows the last `=` or `:`."""
    assert inserted == _in_bash(line)


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish")
@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("gpugate rules mps-p", ["mps-pipe-directory"]),
        ("gpugate rules --output=y", ["--output=yaml"]),
        ("gpugate audit --context arn:aws:eks:o", ["arn:aws:eks:one"]),
        ("gpugate preview -f docs/exampl", ["docs/examples/"]),
        ("gpugate preview --nodes=docs/exampl", ["--nodes=docs/examples/"]),
        ("gpugate sch", ["schema"]),
    ],
)
def test_fish_completes(line: str, values: list[str]) -> None:
    """With descriptions after a tab."""
    completions = _run("fish", "-c", f"gpugate completion fish | source; complete -C '{line}'").splitlines()

    assert values == [completion.partition("\t")[0] for completion in completions]


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh")
@pytest.mark.parametrize(
    ("line", "called"),
    [
        ("gpugate rules mps-p", "values mps-pipe-directory"),
        ("gpugate audit --context arn:aws:eks:o", "values arn:aws:eks:one"),
        ("gpugate rules --output=y", "compset -P *=\nvalues yaml"),
        ("gpugate sch", "described schema:Print the JSON Schema of rule files, for editors"),
        ("gpugate preview -f docs/ex", "files -f"),
        ("gpugate preview --nodes=docs/ex", "compset -P *=\nfiles -f"),
        ("gpugate schema --write do", "files -/"),
    ],
)
def test_zsh_completes(line: str, called: str) -> None:
    """By the functions of its completion system."""
    script = f"""
        compdef() {{ }}; compset() {{ print -r -- compset "$@" }}
        _path_files() {{ print -r -- files "$@" }}; compadd() {{ print -r -- values $completions }}
        _describe() {{ print -r -- described $completions_with_descriptions }}
        source <(gpugate completion zsh)
        words=({line}) CURRENT={len(line.split())}
        _gpugate_completion
    """

    assert called == _run("zsh", "-f", "-c", script).strip()


def test_kubectl_completes_its_plugin() -> None:
    """It runs kubectl_complete-gpugate with the arguments after `kubectl gpugate`."""
    kubectl = assets() / "kubectl"
    if not kubectl.is_file():
        pytest.skip("no kubectl: run `make e2e-assets`")
    shown = subprocess.run(
        [kubectl, "__complete", "gpugate", "rules", "mps-p"], check=True, capture_output=True, text=True
    ).stdout

    assert ["mps-pipe-directory", ":4"] == shown.split()
