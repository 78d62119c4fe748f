"""Validation of reports against the schemas of their formats; tests/support/schemas has the sources."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

import jsonschema
import xmlschema
import yaml

from tests.support.paths import TESTS

SCHEMAS: Final = TESTS / "support" / "schemas"


def sarif_errors(text: str) -> list[str]:
    """Return what the schema of OASIS finds in a SARIF document."""
    return [error.message for error in _sarif().iter_errors(json.loads(text))]


def junit_errors(text: str) -> list[str]:
    """Return what the schema of Jenkins finds in JUnit XML."""
    return [str(error.reason) for error in _junit().iter_errors(text)]


def open_report_errors(document: Any) -> list[str]:
    """Return what the schema of its CustomResourceDefinition finds in a Report; unknown fields, too."""
    return [error.message for error in _open_report().iter_errors(document)]


@cache
def _sarif() -> Any:
    return jsonschema.Draft4Validator(json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text("utf-8")))


@cache
def _junit() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


@cache
def _open_report() -> Any:
    definition = yaml.safe_load((SCHEMAS / "openreports.io_reports.yaml").read_text("utf-8"))
    (version,) = definition["spec"]["versions"]
    return jsonschema.Draft202012Validator(_closed(version["schema"]["openAPIV3Schema"]))


def _closed(schema: Any) -> Any:
    """Return a schema that refuses unknown fields, which the API server would prune."""
    if isinstance(schema, list):
        return [_closed(subschema) for subschema in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return closed | {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else closed
