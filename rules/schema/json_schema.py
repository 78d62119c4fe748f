"""The JSON Schema of each kind of rule file, for editors; made from the models that check rule files.

A schema states the keys and the types of their values. It does not check CEL, quantities and other rules, as
`gpugate lint` does. Source: https://json-schema.org/draft/2020-12.
"""

from __future__ import annotations

import re
from typing import Any, Final

from rules.schema.builder import patchable_keys
from rules.schema.config_map import (
    DEFAULT_NAMESPACE,
    DOCUMENT_KEY,
    ENABLED_LABEL,
    LABEL_PREFIXES,
    RESOURCE_RULE_TYPE,
    TYPE_LABEL,
)
from rules.schema.field_types import RuleDocument
from rules.schema.loader import RULE_TYPES
from rules.schema.resource_rule import ResourceRuleData, ValidationDocument

# The start of the schemas' ids, by which editors and validators distinguish them; nothing is served there.
_IDS: Final = "https://gpugate.dev/schema/"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# Before each word but the first.
_UPPER: Final = re.compile("(?<!^)(?=[A-Z])")
# The documents in `rule.yaml`, by the names of their schema files.
_DOCUMENTS: Final = {_UPPER.sub("-", kind).lower(): model for kind, model in RULE_TYPES.items()}
_YAML: Final = {"contentMediaType": "application/yaml"}
# Editors with the YAML language server show it instead of "Incorrect type".
# Source: https://github.com/microsoft/vscode-json-languageservice/blob/main/src/jsonSchema.ts
_ERROR: Final = "errorMessage"
_NOT_TEXT: Final = "must be text: put it in quotes"
_TEXT: Final = {"type": "string", "minLength": 1, _ERROR: _NOT_TEXT}
_SWITCH: Final = {
    "type": "string",
    "enum": ["true", "false"],
    "description": "in quotes; false: the rule is disabled",
    _ERROR: 'must be "true" or "false", in quotes',
}
_GROUP: Final = "all rules of the group apply to a container that uses one resource of the group"
_NAMESPACE: Final = f"the namespace of rules: {DEFAULT_NAMESPACE}, or the value of --rules-namespace"


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each kind by name.

    `resource-rule` is the whole ConfigMap of a resource rule, `config-map` the ConfigMap of any other kind,
    in which `rule.yaml` is a string. The other schemas are for the document in that string.
    """
    by_name = {"resource-rule": _resource_rule(), "config-map": _config_map()}
    by_name |= {name: _schema(model) for name, model in _DOCUMENTS.items()}
    return {
        name: {"$schema": DIALECT, "$id": f"{_IDS}{name}.json", **schema} for name, schema in by_name.items()
    }


def type_of(schema: str) -> str:
    """Return the value of the type label by the name of a schema: `InjectionRule` for `injection-rule`."""
    return "".join(word.capitalize() for word in schema.split("-"))


def _schema(model: type[RuleDocument]) -> dict[str, Any]:
    schema: dict[str, Any] = _plain(model.model_json_schema(by_alias=True))
    return schema


def _plain(node: Any) -> Any:
    """Return a schema without null, and without titles, which pydantic derives from the keys.

    `anyOf` with one option is replaced by the option, so that validators report the mistake in the value. No
    key is named title.
    """
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        node = {key: value for key, value in node.items() if key not in {"anyOf", "default"}} | options[0]
    elif options and all("enum" in option or option.get("type") == "boolean" for option in options):
        words = [word for option in options for word in option.get("enum", (True, False))]
        node = {key: value for key, value in node.items() if key not in {"anyOf", "default"}} | {
            "enum": words
        }
    if node.get("type") == "string" and not {"enum", "const", "pattern"} & node.keys():
        node = {**node, _ERROR: _NOT_TEXT}
    return {key: _plain(value) for key, value in node.items() if key != "title"}


def _resource_rule() -> dict[str, Any]:
    labels = {
        prefix: {
            f"{prefix}type": {"const": RESOURCE_RULE_TYPE, "description": "marks a resource rule"},
            f"{prefix}group": _TEXT | {"description": _GROUP},
            f"{prefix}enabled": _SWITCH,
        }
        for prefix in LABEL_PREFIXES
    }
    name = {
        "type": "string",
        "pattern": "^cf-crl-",
        "description": "cf-crl-WORD-KEY; KEY: the part of `key` after the /, special characters as -",
    }
    older, newer = LABEL_PREFIXES
    prefixes = f"all with the prefix {newer} or, as in older clusters, {older}"
    data = _schema(ResourceRuleData) | {"description": "the rule"}
    validations = {"type": "array", "items": _schema(ValidationDocument)}
    data["properties"]["validations"] |= _YAML | {"contentSchema": validations}
    about = "How containers request one extended resource: a ConfigMap named cf-crl-*."
    of_both = {
        "type": "object",
        "properties": labels[newer] | labels[older],
        "if": {"required": [f"{older}type"]},
        "then": {"required": [*labels[older]]},
        "else": {"required": [*labels[newer]]},
        "description": prefixes,
    }
    return _whole(about, {"name": name, "labels": of_both}, data)


def _config_map() -> dict[str, Any]:
    kind = {"enum": list(RULE_TYPES), "description": "the kind of the rule"}
    labels = _object({TYPE_LABEL: kind, ENABLED_LABEL: _SWITCH}) | {"description": "other labels are allowed"}
    name = _TEXT | {"description": "name of the rule; injection rules apply in the order of their names"}
    rule = _TEXT | _YAML | {"description": "the rule, a YAML document in a string"}
    data = _object({DOCUMENT_KEY: rule}) | {
        "additionalProperties": False,
        "description": "the rule, and settings that an overlay can patch",
    }
    keys = dict.fromkeys(key for model in _DOCUMENTS.values() for key in patchable_keys(model))
    data["properties"] |= {key: _patchable(key) for key in keys}
    about = "The ConfigMap of every other kind of rule; the rule is a YAML document in a string."
    return _whole(about, {"name": name, "labels": labels}, data) | {
        "allOf": [_narrowed(kind, model) for kind, model in _DOCUMENTS.items()]
    }


def _patchable(key: str) -> dict[str, Any]:
    """Return the schema of a patchable key: the values that it has in any kind of rule."""
    models = {kind: model for kind, model in _DOCUMENTS.items() if key in patchable_keys(model)}
    words = {word: None for model in models.values() for word in _words(model, key)}
    kinds = " and ".join(map(type_of, models))
    about = f"of {kinds}: takes precedence over the same key in the rule"
    return _text_of([*words]) | {"description": about}


def _narrowed(kind: str, model: type[RuleDocument]) -> dict[str, Any]:
    """Return the condition that a kind of rule has only its own patchable keys, with its own values."""
    keys = patchable_keys(model)
    label = {"properties": {"labels": {"properties": {TYPE_LABEL: {"const": type_of(kind)}}}}}
    own = {
        "propertyNames": {"enum": [DOCUMENT_KEY, *keys]},
        "properties": {key: _text_of(_words(model, key)) for key in keys},
    }
    return {"if": {"properties": {"metadata": label}}, "then": {"properties": {"data": own}}}


def _text_of(words: list[str]) -> dict[str, Any]:
    """Return the schema of one of some words; without any, of a text."""
    return {"enum": words} if words else dict(_TEXT)


def _words(model: type[RuleDocument], key: str) -> list[str]:
    """Return the words that a patchable key can have; none if it is another text."""
    schema = _schema(model)
    name, _, inner = key.partition(".")
    member = schema["properties"][name]
    if inner:
        member = schema["$defs"][member["$ref"].rpartition("/")[2]]["properties"][inner]
    words: list[str] = member.get("enum", [])
    return words


def _whole(about: str, metadata: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    fixed = {
        "apiVersion": {"const": "v1", "description": "API version of ConfigMaps"},
        "kind": {"const": "ConfigMap", "description": "every rule is a ConfigMap"},
    }
    schema = _object(metadata) | {"description": "other keys are as in the Kubernetes API"}
    schema["properties"] = {"namespace": {"type": "string", "description": _NAMESPACE}} | schema["properties"]
    return {"description": about, **_object(fixed | {"metadata": schema, "data": data})}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
