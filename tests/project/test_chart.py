"""The Helm chart agrees with the program, the manifests and its own page, without Helm.

tests/e2e/test_chart_rendering.py has what it renders.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.chart import CHART, FILES, README, SCHEMA, VALUES, files, readme, values


def _schema() -> Any:
    return json.loads(SCHEMA.read_text("utf-8"))


def _defaults() -> Any:
    return yaml.safe_load(VALUES.read_text("utf-8"))


def test_the_readme_lists_the_values_with_their_comments(request: pytest.FixtureRequest) -> None:
    """`--update-golden` rewrites it."""
    if request.config.getoption("--update-golden"):
        README.write_text(readme(), "utf-8")

    assert readme() == README.read_text("utf-8")


def test_each_value_has_a_comment() -> None:
    """Or its parts have."""
    assert [] == [value.path for value in values() if not value.description]


def test_the_schema_admits_the_defaults_and_is_one() -> None:
    """Of a draft that Helm reads."""
    jsonschema.Draft202012Validator.check_schema(_schema())
    jsonschema.validate(_defaults(), _schema())


def test_the_schema_has_the_keys_of_the_values_and_no_others() -> None:
    """Of mappings with fixed keys; `global` is Helm's own."""

    def compare(value: Any, schema: Any, path: str) -> None:
        if schema.get("additionalProperties") is not False or not isinstance(value, dict):
            return
        assert set(schema["properties"]) - {"global"} == set(value), path
        for key, inner in value.items():
            compare(inner, schema["properties"][key], f"{path}.{key}")

    compare(_defaults(), _schema(), "")


def test_the_chart_is_of_this_version() -> None:
    """The application too, whose version is the tag of the image."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))

    assert chart["version"] == chart["appVersion"]


def test_the_chart_has_copies_of_manifests_and_rules(request: pytest.FixtureRequest) -> None:
    """`--update-golden` rewrites them."""
    if request.config.getoption("--update-golden"):
        FILES.mkdir(exist_ok=True)
        for name, text in files().items():
            (FILES / name).write_text(text, "utf-8")

    assert files() == {path.name: path.read_text("utf-8") for path in FILES.iterdir()}
