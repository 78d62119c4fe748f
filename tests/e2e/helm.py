"""Helm, and what it renders of the chart."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.assets import build
from tests.e2e.manifests import Object
from tests.support.chart import CHART

# Seconds for one command, which may delete or create 160 objects.
HELM_S: Final = 120.0
NAMESPACE: Final = "gpugate"


def run(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `helm`; the test is skipped if it is not built. Its own files are in a folder of the kubeconfig."""
    program = build.helm() / "helm"
    if not program.is_file():
        pytest.skip(f"no {program}: run `make e2e-assets`")
    environment = dict(os.environ)
    if kubeconfig is not None:
        home = str(kubeconfig.parent / "helm")
        homes = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HOME"), home)
        environment |= homes | {"KUBECONFIG": str(kubeconfig)}
    return subprocess.run(
        [str(program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HELM_S,
        check=False,
    )


def options(values: Mapping[str, Any]) -> list[str]:
    """Return the options for values: keys with dots are paths, as for `--set`."""
    return [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]


def rendered(
    values: Mapping[str, Any] | None = None, *flags: str, namespace: str = NAMESPACE
) -> list[Object]:
    """Return the objects of the chart, without its tests; AssertionError with Helm's message if it fails."""
    command = ("template", "gpugate", str(CHART), "--namespace", namespace, *(flags or ("--skip-tests",)))
    done = run(*command, *options(values or {}))
    assert not done.returncode, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def problem(values: Mapping[str, Any]) -> str:
    """Return the message for values that the chart does not accept."""
    done = run("template", "gpugate", str(CHART), *options(values))
    assert done.returncode
    return done.stderr
