"""The JSON Schema of rule files: what ships, what `gpugate schema` prints, and what it lets pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from rules.lint.rule_set_checks import lint
from rules.ruletest.schema import RuleTestDocument
from rules.schema.builder import DOCUMENT_KEY
from rules.schema.json_schema import DIALECT, schemas
from rules.schema.loader import TYPE_LABEL
from rules.schema.reference_page import reference
from tests.rules.catalog.test_lint_catalog import MISTAKES, RULES
from tests.support.builders import exemption, injection_rule, resource_rule
from tests.support.node_builders import image_catalog
from tests.support.pages import fences
from tests.support.paths import ROOT
from webhook.cli import main

FOLDER = ROOT / "docs/schema"
KINDS = {
    "InjectionRule": "injection-rule",
    "CompatibilityRule": "compatibility-rule",
    "ImageCatalog": "image-catalog",
    "Exemption": "exemption",
}


@cache
def validator(kind: str) -> Draft202012Validator:
    """Return what checks by a schema as it ships."""
    return Draft202012Validator(json.loads((FOLDER / f"{kind}.json").read_text("utf-8")))


def accepted(text: str) -> bool:
    """Tell whether schemas accept a rule: the ConfigMap, and the document in it."""
    document = yaml.safe_load(text)
    kind = document["metadata"]["labels"].get(TYPE_LABEL)
    if kind is None and DOCUMENT_KEY not in document["data"]:
        return validator("resource-rule").is_valid(document)
    inner = yaml.safe_load(document["data"][DOCUMENT_KEY])
    return validator("config-map").is_valid(document) and validator(KINDS[kind]).is_valid(inner)


def schema(*arguments: str | Path) -> Result:
    """Return the result of `gpugate schema`."""
    return CliRunner().invoke(main, ["schema", *map(str, arguments)])


def test_the_schemas_that_ship_are_those_of_the_models(tmp_path: Path) -> None:
    """Where they are not: gpugate schema --write docs/schema."""
    result = schema("--write", tmp_path / "new")
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "new").iterdir()}

    assert (0, "") == (result.exit_code, result.stdout)
    assert written == {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    assert written["exemption.json"] == schema("exemption").stdout


@pytest.mark.parametrize("kind", schemas())
def test_a_schema_is_one_by_its_own_metaschema(kind: str) -> None:
    """Draft 2020-12."""
    found = schemas()[kind]
    Draft202012Validator.check_schema(found)

    assert DIALECT == found["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


def test_the_reference_that_ships_is_that_of_the_models() -> None:
    """Where it is not: gpugate schema --markdown > docs/reference.md."""
    assert (FOLDER.parent / "reference.md").read_text("utf-8") == schema("--markdown").stdout


def silent(node: Any, place: str) -> Iterator[str]:
    """Yield the keys below a schema of which nobody says what they are."""
    if isinstance(node, dict):
        for key, value in node.get("properties", {}).items():
            if not value.get("description"):
                yield f"{place}.{key}"
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list) and key not in {"if", "then", "else"}:  # which only narrow
            yield from silent(value, f"{place}.{key}")


@pytest.mark.parametrize("kind", [*schemas(), "rule-test"])
def test_every_key_says_what_it_is(kind: str) -> None:
    """In editors, and on the page; keys of tests of rules too."""
    schema = schemas().get(kind, RuleTestDocument.model_json_schema())

    assert [] == list(silent(schema, kind))
    assert ["x.a"] == list(silent({"properties": {"a": {}}}, "x"))


def test_every_kind_has_an_example_that_is_right_and_leaves_no_doubt() -> None:
    """On the page: to the schema, and all together to lint; the sum of the examples is what is sound."""
    shown = {each.where: each.text for each in fences(reference(), "reference.md")}
    found = lint(shown.items(), now=0.0)
    kinds = [kind for kind in schemas() if kind != "config-map"]

    assert [] == [str(each) for each in (*found.errors, *found.warnings)]
    assert len(kinds) == len(shown) == len(list(found.rules))
    assert [] == [where for where, text in shown.items() if not accepted(text)]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["exemption", "--write", "x"],
        ["exemption", "--markdown"],
        ["--write", "x", "--markdown"],
        ["exemptions"],
    ],
)
def test_one_kind_is_printed_or_all_are_written_or_the_page_is(arguments: list[str]) -> None:
    """Anything else is wrong usage."""
    assert 2 == schema(*arguments).exit_code


def test_a_folder_that_cannot_be_written_is_told_plainly(tmp_path: Path) -> None:
    """With exit status 2."""
    (tmp_path / "file").write_text("", "utf-8")
    result = schema("--write", tmp_path / "file/folder")

    assert (2, f"Error: {tmp_path}/file/folder: Not a directory") == (
        result.exit_code,
        result.stderr.splitlines()[-1],
    )


@pytest.mark.parametrize("file", RULES)
def test_each_shipped_rule_is_as_its_schema_says(file: str) -> None:
    """An editor underlines nothing in it."""
    assert accepted(RULES[file])


@pytest.mark.parametrize("mistake", ["unknown-key", "wrong-value"])
@pytest.mark.parametrize("file", RULES)
def test_a_schema_refuses_a_misspelt_key_or_word(file: str, mistake: str) -> None:
    """As lint does; CEL and namespaces are beyond a schema."""
    assert not accepted(MISTAKES[mistake](RULES[file])[0])


ENV: list[dict[str, Any]] = [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (exemption("a", podSelector={"matchExpressions": [{"key": "a", "operator": "Exists"}]}), True),
        (exemption("a", podSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}), False),
        (exemption("a", expires="soon"), False),
        (exemption("a", expires="2026-12-31T18:00:00+08:00"), True),
        (exemption(), False),
        (image_catalog({"image": "x", "cuda": "12.4"}), True),
        (injection_rule({"env": ENV}), True),
        (injection_rule({}), False),
        (injection_rule({"env": [ENV[0] | {"valueFrom": {}}]}), False),
        (injection_rule({"env": [{"name": "A"}]}), False),
        (injection_rule({"env": ENV}, match={"resources": ["device"]}), False),
        (resource_rule(prefix="features.alauda.io/"), True),
        (resource_rule(name="device"), False),
        (resource_rule().replace("'true'", "true"), False),
        (resource_rule(defaultValue="1").replace("'1'", "1"), False),
    ],
)
def test_a_schema_knows_what_one_can_say(text: str, valid: bool) -> None:
    """Which keys go together, what names look like, that values are in quotes."""
    assert valid is accepted(text)
