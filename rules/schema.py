"""The JSON Schema of each kind of rule file, for editors; made from the models that check rule files.

A schema says what keys there are and what they take. What only `gpugate lint` knows (CEL, quantities, other
rules) is beyond it. Source: https://json-schema.org/draft/2020-12.
"""

from __future__ import annotations

from typing import Any, Final

from rules.build import DOCUMENT_KEY
from rules.compatibility_document import CompatibilityRuleDocument, ImageCatalogDocument
from rules.document import InjectionRuleDocument, ResourceRuleData, RuleDocument
from rules.exemption_document import ExemptionDocument
from rules.load import ENABLED_LABEL, LABEL_PREFIXES, RESOURCE_RULE_TYPE, RULE_TYPES, TYPE_LABEL

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# Kinds by the names of their files: the documents in `rule.yaml`.
_DOCUMENTS: Final[dict[str, type[RuleDocument]]] = {
    "injection-rule": InjectionRuleDocument,
    "compatibility-rule": CompatibilityRuleDocument,
    "image-catalog": ImageCatalogDocument,
    "exemption": ExemptionDocument,
}
_TEXT: Final = {"type": "string", "minLength": 1}
_SWITCH: Final = {"enum": ["true", "false"]}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each kind by name.

    `resource-rule` is the whole ConfigMap, and so is `config-map`, of any other kind, whose `rule.yaml` is a
    string to a schema. The others are of the document in that string.
    """
    return {
        "resource-rule": _resource_rule(),
        "config-map": _config_map(),
        **{name: {"$schema": DIALECT, **_schema(model)} for name, model in _DOCUMENTS.items()},
    }


def _schema(model: type[RuleDocument]) -> dict[str, Any]:
    schema: dict[str, Any] = _untitled(model.model_json_schema(by_alias=True))
    return schema


def _untitled(node: Any) -> Any:
    """Return a schema without titles, which pydantic makes up of the names of keys; none is a key itself."""
    if isinstance(node, dict):
        return {key: _untitled(value) for key, value in node.items() if key != "title"}
    return [_untitled(item) for item in node] if isinstance(node, list) else node


def _resource_rule() -> dict[str, Any]:
    labels = [
        _object(
            {
                f"{prefix}type": {"const": RESOURCE_RULE_TYPE},
                f"{prefix}group": _TEXT,
                f"{prefix}enabled": _SWITCH,
            }
        )
        for prefix in LABEL_PREFIXES
    ]
    name = {"type": "string", "pattern": "^cf-crl-"}
    about = "A resource rule: a ConfigMap named cf-crl-*."
    return _whole(about, {"name": name, "labels": {"anyOf": labels}}, _schema(ResourceRuleData))


def _config_map() -> dict[str, Any]:
    labels = _object({TYPE_LABEL: {"enum": list(RULE_TYPES)}, ENABLED_LABEL: _SWITCH})
    data = _object({DOCUMENT_KEY: _TEXT}) | {"additionalProperties": False}
    return _whole("The ConfigMap of a rule in `rule.yaml`.", {"name": _TEXT, "labels": labels}, data)


def _whole(about: str, metadata: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    fixed = {"apiVersion": {"const": "v1"}, "kind": {"const": "ConfigMap"}}
    members = fixed | {"metadata": _object(metadata), "data": data}
    return {"$schema": DIALECT, "description": about, **_object(members)}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
