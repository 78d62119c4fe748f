"""The pages name the Kubernetes versions that the end-to-end tests build."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.e2e.assets import build
from tests.support.paths import ROOT

PINNED = build.pinned(build.KUBERNETES)
OLDEST = build.pinned(build.KUBERNETES, build.OLDEST_MODULE)
MINOR = OLDEST.removeprefix("v").rpartition(".")[0]
# A part of what Kubernetes publishes: https://proxy.golang.org/k8s.io/kubernetes/@v/v1.31.14.mod
PUBLISHED = """\
// This is a generated file. Do not edit directly.

module k8s.io/kubernetes

go 1.22.0

require (
	go.uber.org/zap v1.26.0
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.130.1
)

require (
	go.etcd.io/etcd/server/v3 v3.5.13 // indirect
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
)
"""


@pytest.mark.parametrize(
    "sentence",
    [
        "README.md: Kubernetes {} or newer is required",
        "README.zh-CN.md: 需要 Kubernetes {} 或更新版本",
        "docs/install.md: gpugate requires Kubernetes {} or newer",
        "docs/agent.md: It requires Kubernetes {} or newer",
    ],
)
def test_the_oldest_kubernetes_that_a_page_names_is_the_one_that_is_tested(sentence: str) -> None:
    """`make e2e KUBERNETES=v1.NN` builds it from tests/e2e/assets/oldest."""
    page, text = sentence.format(MINOR).split(": ")

    assert text in (ROOT / page).read_text("utf-8")


def test_the_chart_accepts_the_oldest_kubernetes_and_no_older_one() -> None:
    """Helm compares it with the version of the cluster."""
    chart = yaml.safe_load((ROOT / "manifests/chart/Chart.yaml").read_text("utf-8"))

    assert chart["kubeVersion"] == f">={MINOR}.0-0"


def test_the_table_of_versions_has_the_oldest_and_the_newest() -> None:
    """One column each."""
    page = (ROOT / "docs/versions.md").read_text("utf-8")

    assert {OLDEST, PINNED} <= set(re.findall(r"v\d+\.\d+\.\d+", page))


@pytest.mark.parametrize("version", [PINNED, PINNED.rpartition(".")[0]])
def test_a_pinned_version_is_built_from_the_tree(version: str) -> None:
    """With its patch or without."""
    assert build.module_of(version) == build.MODULE


@pytest.mark.parametrize("version", [OLDEST, OLDEST.rpartition(".")[0]])
def test_the_oldest_version_is_built_from_the_tree(version: str) -> None:
    """With its patch or without."""
    assert build.module_of(version) == build.OLDEST_MODULE


@pytest.mark.parametrize("version", ["v1.3", "v1.31", f"{OLDEST}0"])
def test_any_other_version_is_built_from_a_module_in_the_cache(version: str) -> None:
    """Also one whose text begins like a pinned version."""
    module = build.module_of(version)

    assert module.name == version
    assert not module.is_relative_to(ROOT)


@pytest.mark.parametrize("text", ["", "1.31", "v1", "v1.31.x", "v1.31/..", "latest"])
def test_what_is_no_version_is_an_error(text: str) -> None:
    """The message has an example."""
    with pytest.raises(ValueError, match=r"is no version of Kubernetes: write v1\.31 or v1\.31\.4"):
        build.module_of(text)


def test_a_module_for_another_version_has_its_etcd_and_its_packages() -> None:
    """Go adds the rest from the go.mod of Kubernetes."""
    assert build.module_file(PUBLISHED, "v1.31.14") == (
        "// The programs of Kubernetes v1.31.14, written by build.py.\n"
        "module gpugate.dev/tests/e2e/assets\n"
        "\n"
        "go 1.22.0\n"
        "\n"
        "require (\n"
        "\tgo.etcd.io/etcd/server/v3 v3.5.13\n"
        "\tk8s.io/kubernetes v1.31.14\n"
        ")\n"
        "\n"
        "replace (\n"
        "\tk8s.io/api => k8s.io/api v0.31.14\n"
        ")\n"
    )
