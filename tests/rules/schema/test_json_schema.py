"""The JSON Schemas of rule files: the files in docs/schema, `gpugate schema`, and validation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from rules.schema.config_map import DOCUMENT_KEY, TYPE_LABEL
from rules.schema.json_schema import DIALECT, schemas
from tests.rules.catalog.test_lint_catalog import ERRORS, RULES
from tests.support.builders import exemption, injection_rule, resource_rule
from tests.support.command import gpugate
from tests.support.node_builders import compatibility_rule, image_catalog, node_profile
from tests.support.paths import ROOT
from webhook.cli.test.schema import RuleTestDocument

FOLDER = ROOT / "docs/schema"
KINDS = {
    "InjectionRule": "injection-rule",
    "CompatibilityRule": "compatibility-rule",
    "ImageCatalog": "image-catalog",
    "Exemption": "exemption",
    "NodeProfile": "node-profile",
}


@cache
def validator(kind: str) -> Draft202012Validator:
    """Return a validator of a schema in docs/schema."""
    return Draft202012Validator(json.loads((FOLDER / f"{kind}.json").read_text("utf-8")))


def accepted(text: str) -> bool:
    """Return whether schemas accept a rule: the ConfigMap, and the document in it."""
    document = yaml.safe_load(text)
    kind = document["metadata"]["labels"].get(TYPE_LABEL)
    if kind is None and DOCUMENT_KEY not in document["data"]:
        return validator("resource-rule").is_valid(document)
    inner = yaml.safe_load(document["data"][DOCUMENT_KEY])
    return validator("config-map").is_valid(document) and validator(KINDS[kind]).is_valid(inner)


schema = partial(gpugate, "schema")


def test_the_schema_files_equal_those_of_the_models(tmp_path: Path) -> None:
    """If not, run: gpugate schema --write docs/schema."""
    result = schema("--write", tmp_path / "new")
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "new").iterdir()}

    assert (0, "") == (result.exit_code, result.stdout)
    assert written == {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    assert written["exemption.json"] == schema("exemption").stdout


@pytest.mark.parametrize("kind", schemas())
def test_a_schema_is_valid_by_its_metaschema(kind: str) -> None:
    """Draft 2020-12."""
    kind_schema = schemas()[kind]
    Draft202012Validator.check_schema(kind_schema)

    assert DIALECT == kind_schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


def mistakes(kind: str, document: Any) -> dict[str, set[str]]:
    """Return the keywords of a schema that a document violates, by path, with a space between steps."""
    keywords_by_path: dict[str, set[str]] = {}
    for error in validator(kind).iter_errors(document):
        keywords_by_path.setdefault(" ".join(map(str, error.absolute_path)), set()).add(str(error.validator))
    return keywords_by_path


@pytest.mark.parametrize("prefix", ["features.cpaas.io/", "features.alauda.io/"])
def test_an_unquoted_label_is_reported_at_the_label(prefix: str) -> None:
    """Editors show the message of the schema: that it belongs in quotes."""
    document = yaml.safe_load(resource_rule(prefix=prefix))
    labels = document["metadata"]["labels"]
    labels[f"{prefix}enabled"] = True
    path = f"metadata labels {prefix}enabled"

    assert {path: {"type", "enum"}} == mistakes("resource-rule", document)
    shown = schemas()["resource-rule"]["properties"]["metadata"]["properties"]["labels"]["properties"]
    assert 'must be "true" or "false", in quotes' == shown[f"{prefix}enabled"]["errorMessage"]
    del labels[f"{prefix}enabled"]
    assert {"metadata labels": {"required"}} == mistakes("resource-rule", document)


def test_a_value_without_its_quotes_is_reported_as_such() -> None:
    """Not as one that suits no alternative."""
    inject = {"env": [{"name": "A", "value": True}], "labels": {"a": 1}}
    document = {"match": {"resources": ["a.com/b"]}, "inject": inject}

    assert {"inject env 0 value": {"type"}, "inject labels a": {"type"}} == mistakes(
        "injection-rule", document
    )
    value = schemas()["injection-rule"]["$defs"]["EnvDocument"]["properties"]["value"]
    assert ("string", "must be text: put it in quotes") == (value["type"], value["errorMessage"])


@pytest.mark.parametrize("kind", schemas())
def test_a_schema_has_an_id_and_no_choice_that_hides_a_mistake(kind: str) -> None:
    """A validator says of anyOf only that no alternative suits."""
    assert f"https://gpugate.dev/schema/{kind}.json" == schemas()[kind]["$id"]
    assert '"anyOf"' not in json.dumps(schemas()[kind])


def undescribed(node: Any, place: str) -> Iterator[str]:
    """Yield the keys below a schema without a description."""
    if isinstance(node, dict):
        for key, value in node.get("properties", {}).items():
            if not value.get("description"):
                yield f"{place}.{key}"
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list) and key not in {"if", "then", "else"}:  # which only narrow
            yield from undescribed(value, f"{place}.{key}")


@pytest.mark.parametrize("kind", [*schemas(), "rule-test"])
def test_every_key_has_a_description(kind: str) -> None:
    """For editors and the page; including the keys of rule tests."""
    schema = schemas().get(kind, RuleTestDocument.model_json_schema())

    assert [] == list(undescribed(schema, kind))
    assert ["x.a"] == list(undescribed({"properties": {"a": {}}}, "x"))


@pytest.mark.parametrize("arguments", [[], ["exemption", "--write", "x"], ["exemptions"]])
def test_schema_prints_one_kind_or_writes_all(arguments: list[str]) -> None:
    """Any other usage is an error."""
    assert 2 == schema(*arguments).exit_code


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """With exit status 2."""
    (tmp_path / "file").write_text("", "utf-8")
    result = schema("--write", tmp_path / "file/folder")

    assert (2, f"error: {tmp_path}/file/folder: Not a directory") == (
        result.exit_code,
        result.stderr.splitlines()[-1],
    )


@pytest.mark.parametrize("file", RULES)
def test_each_built_in_rule_is_valid_by_its_schema(file: str) -> None:
    """An editor finds no error in it."""
    assert accepted(RULES[file])


@pytest.mark.parametrize("mistake", ["unknown-key", "wrong-value"])
@pytest.mark.parametrize("file", RULES)
def test_a_misspelt_key_or_value_is_invalid_by_the_schema(file: str, mistake: str) -> None:
    """As in lint; a schema cannot check CEL and namespaces."""
    assert not accepted(ERRORS[mistake](RULES[file])[0])


def patched(text: str, **data: str) -> str:
    """Return a rule with more keys in its data."""
    document = yaml.safe_load(text)
    return yaml.safe_dump(document | {"data": document["data"] | data})


ENV: list[dict[str, Any]] = [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (exemption("a", podSelector={"matchExpressions": [{"key": "a", "operator": "Exists"}]}), True),
        (exemption("a", podSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}), False),
        (exemption("a", expires="soon"), False),
        (exemption("a", expires="2026-12-31T18:00:00+08:00"), True),
        (exemption(), False),
        (patched(exemption("a"), enforcementAction="dryrun"), False),
        (patched(injection_rule({"env": ENV}), enforcementAction="dryrun"), True),
        (patched(injection_rule({"env": ENV}), enforcementAction="deny"), False),
        (patched(injection_rule({"env": ENV}), noFittingNode="warn"), False),
        (patched(compatibility_rule(), enforcementAction="deny", noFittingNode="warn"), True),
        (patched(compatibility_rule(), enforcementAction="inject"), False),
        (patched(compatibility_rule(), majorVersionMismatch="never"), False),
        (patched(compatibility_rule(), minCuda="12.4"), False),
        (image_catalog({"image": "x", "cuda": "12.4"}), True),
        (node_profile(), True),
        (node_profile(labelsAtCreation={}), False),
        (node_profile(labelsAtCreation={}, canScale=False), True),
        (node_profile(resources={}), False),
        (node_profile(resources={"cpu": 8}), False),
        (node_profile(resources={"nvidia.com/gpu": 0}), False),
        (node_profile(taints=[{"key": "a"}]), False),
        (patched(node_profile(), enforcementAction="deny"), False),
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
def test_a_schema_checks_what_json_schema_can_express(text: str, valid: bool) -> None:
    """Dependent keys, name patterns, and values in quotes."""
    assert valid is accepted(text)
