"""Text to rules: errors with locations, or rules that can decide on pods.

JSON whose `data` holds objects is a ConfigMap with its documents unfolded, so that mutations reach into them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import compile_policy
from rules.lint.rule_set_checks import lint
from rules.model.decision import AdmissionRequest
from rules.nodes.inventory import Inventory
from rules.schema.config_map import Loaded
from rules.schema.json_schema import schemas
from rules.schema.loader import load_rules
from tests.fuzz.mutator import texts
from tests.fuzz.targets import TESTS

if TYPE_CHECKING:
    from collections.abc import Iterator

_CATALOG = TESTS.parent / "rules" / "catalog"
_POD = {
    "kind": "Pod",
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/paddle:1",
                "resources": {
                    "limits": {
                        "nvidia.com/gpu": "1",
                        "tencent.com/vcuda-core": "150",
                        "nvidia.com/mps-core": "50",
                    }
                },
            }
        ]
    },
}
_NO_NODES = Inventory()
_NOW = 1_800_000_000.0
# Rules in force, with which those of the text may conflict.
_OTHERS = load_rules(
    (path.name, path.read_text("utf-8"))
    for folder in ("gpu-manager", "injection", "mps", "pgpu")
    for path in sorted((_CATALOG / folder).glob("*.yaml"))
).rules


def seeds() -> Iterator[bytes]:
    """Yield the built-in rules: as written, and as plain YAML."""
    for path in sorted(_CATALOG.glob("*/*.yaml")):
        text = path.read_bytes()
        if path.name.endswith(".test.yaml"):
            continue
        yield text
        for document in yaml.safe_load_all(text):
            if document and "data" in document:
                for key in document["data"].keys() & {"rule.yaml", "validations"}:
                    document["data"][key] = yaml.safe_load(document["data"][key])
                yield json.dumps(document, default=str).encode()


def words() -> Iterator[str]:
    """Yield the strings of the rules, the keys of the schema, and special YAML syntax."""
    for seed in seeds():
        if seed.startswith(b"{"):
            yield from texts(json.loads(seed))
    yield from (text for text in texts(schemas()) if text.isidentifier())
    yield from (
        "&a ",
        "*a",
        "<<: ",
        "\n---\n",
        "lables",
        "spec",
        "rule.yml",
        "gpugate.dev/type",
        "features.cpaas.io/enable",
        "value = 8Gi and value",
        "!!binary ",
        "? ",
        "|2-\n",
        "\t",
        "\x85",
        "\ufeff",
        "[[",
        "{",
        "'",
    )


def check(data: bytes) -> None:
    """Each error is located in the text; valid rules can decide on a pod."""
    text = _folded(data.decode("utf-8", "surrogateescape"))
    loaded = lint([("f", text)], _NOW, others=_OTHERS)
    lines = len(text.splitlines()) + 1
    for error in (*loaded.errors, *loaded.warnings):
        assert error.location.file == "f"
        assert 1 <= error.location.line <= lines, error
        str(error)
    assert [rule.name for rule in load_rules([("f", text)]).rules] == [rule.name for rule in loaded.rules]
    _decide(loaded)


def _folded(text: str) -> str:
    try:
        value = json.loads(text)
        value["data"] = {
            key: entry if isinstance(entry, str) else json.dumps(entry)
            for key, entry in value["data"].items()
        }
        return json.dumps(value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return text


def _decide(loaded: Loaded) -> None:
    policy = compile_policy(loaded.rules)
    document: dict[str, Any] = _POD
    request = AdmissionRequest(
        operation="CREATE",
        group="",
        kind="Pod",
        namespace="ml",
        object=document,
        old_object=None,
        subresource="",
        mutating=True,
    )
    decide(Snapshot(policy, _NO_NODES), request, _NOW)
