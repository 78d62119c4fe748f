"""Each built-in rule has a page with examples, which explain and reports name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.project.test_docs import anchors
from tests.support.command import gpugate
from tests.support.paths import ROOT
from webhook.cli.inputs.session import Session
from webhook.cli.report.rule_pages import page_of

RULE = "cf-crl-pgpu-gpu"
PAGE = f"catalog/pgpu.md#{RULE}"


@pytest.fixture
def half_a_gpu(tmp_path: Path) -> str:
    """Return a file with a pod that the rule denies."""
    resources = {"limits": {"nvidia.com/gpu": "500m"}}
    spec = {"containers": [{"name": "main", "image": "busybox", "resources": resources}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "half"}, "spec": spec}
    path = tmp_path / "pod.yaml"
    path.write_text(json.dumps(pod))
    return str(path)


def test_the_page_of_each_built_in_rule_has_its_heading() -> None:
    """So each link leads to the rule."""
    pages = [page_of(rule.name).partition("#") for rule in Session().rules]
    headings = {path: anchors((ROOT / path).read_text("utf-8")) for path in {path for path, _, _ in pages}}

    assert [] == [anchor for path, _, anchor in pages if anchor not in headings[path]]


def test_a_rule_of_others_has_no_page() -> None:
    """Nobody wrote one."""
    assert "" == page_of("cf-crl-acme")


def test_explain_names_the_page_of_a_rule_that_finds_something(half_a_gpu: str) -> None:
    """And of no other."""
    lines = gpugate("explain", half_a_gpu).output.splitlines()

    assert [f"examples  docs/{PAGE}"] == [line.strip(" │├└─") for line in lines if "docs/" in line]


def test_a_report_links_the_page_where_somebody_publishes_it(half_a_gpu: str) -> None:
    """SARIF by helpUri, HTML by a link; without an address, neither has a broken one."""
    published = {"GPUGATE_DOCS_URL": "https://example.com/docs/"}
    sarif = ("preview", half_a_gpu, "-o", "sarif")
    (there,) = json.loads(gpugate(*sarif, env=published).stdout)["runs"][0]["tool"]["driver"]["rules"]
    (here,) = json.loads(gpugate(*sarif).stdout)["runs"][0]["tool"]["driver"]["rules"]
    html = ("audit", "-f", half_a_gpu, "-o", "html")

    assert f"https://example.com/docs/{PAGE}" == there["helpUri"]
    assert (None, f"docs/{PAGE}") == (here.get("helpUri"), here["help"]["text"])
    assert f'<a href="https://example.com/docs/{PAGE}">{RULE}</a>' in gpugate(*html, env=published).stdout
    assert PAGE not in gpugate(*html).stdout
