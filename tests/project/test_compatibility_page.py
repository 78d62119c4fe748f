"""The page of what is checked has every check, and a pod that fails it."""

from __future__ import annotations

import re

import yaml

from rules.schema.compatibility_rule import ChecksDocument
from tests.support.command import gpugate
from tests.support.pages import text_of
from tests.support.paths import ROOT

FOLDER = ROOT / "docs/compatibility"
PODS = FOLDER / "checks.yaml"
PAGE = "docs/compatibility.md"
ROW = re.compile(r"^\| \[`(\w+)`\].* \| `(\w+)` \|$", re.MULTILINE)


def test_the_table_has_every_check_with_its_default() -> None:
    """In the order of the reference."""
    fields = ChecksDocument.model_fields.values()
    known = {field.alias or name: field.default for name, field in ChecksDocument.model_fields.items()}

    assert len(fields) == len(known)
    assert known == dict(ROW.findall(text_of(PAGE)))


def test_the_table_names_every_bad_pod() -> None:
    """By its name."""
    names = [pod["metadata"]["name"] for pod in yaml.safe_load_all(PODS.read_text("utf-8"))]

    assert [] == [name for name in names if f"| `{name}`: " not in text_of(PAGE)]


def test_every_bad_pod_is_denied_or_warned_of() -> None:
    """On the nodes of the page."""
    result = gpugate("preview", str(PODS), "--nodes", str(FOLDER / "checks-nodes.yaml"))
    answers = re.split(r"^[✓✎✗] ", result.output, flags=re.MULTILINE)[1:]

    assert 13 == len(answers)
    assert [] == [answer for answer in answers if "\n    deny " not in answer and "\n    warn " not in answer]
