"""The ConfigMap of a rule: namespace, labels, key, size limits; the sources of rules, the result of loading.

No pydantic here: importing it takes as long as the rest of a command with the built-in rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from rules.model.rule import RuleSet
from rules.schema.errors import RuleError
from rules.text.i18n import Message

DEFAULT_NAMESPACE: Final = "kube-public"
# The same three labels in the older and the newer spelling; both are in use.
LABEL_PREFIXES: Final = ("features.alauda.io/", "features.cpaas.io/")
RESOURCE_RULE_TYPE: Final = "CustomResourceLimitation"
TYPE_LABEL: Final = "gpugate.dev/type"
ENABLED_LABEL: Final = "gpugate.dev/enabled"
# The key of a rule's document in `data`; a resource rule has its keys in `data` itself.
DOCUMENT_KEY: Final = "rule.yaml"

# Bytes of all texts of a ConfigMap. Source: MaxSecretSize in pkg/apis/core/types.go and ValidateConfigMap in
# pkg/apis/core/validation/validation.go of https://github.com/kubernetes/kubernetes
MOST_BYTES: Final = 2**20
# Values of a rule ConfigMap, about as many as it has characters that begin one in YAML or JSON. To read one
# takes 10 to 16 µs: 0.4 to 0.7 s for all. A list of images has 4,000 rows at most then, another rule a
# hundred values.
MOST_VALUES: Final = 40_000
_MEMBER: Final = 2  # values that a member or item of the ConfigMap itself counts for: it is also written
_BEGINNINGS: Final = ("\n", "\t", ",", ":", "[", "{", "- ")
_TOO_MANY_BYTES: Final = Message(
    "the ConfigMap is larger than 1 MiB, the most that Kubernetes stores. Split it into several"
)
_TOO_MANY_VALUES: Final = Message(
    "the ConfigMap has more than {most:,} values; gpugate reads no more of one. Split it into several",
    most=MOST_VALUES,
)

# The name of a file and its text, or the name of an object of a cluster and its value.
Source = tuple[str, str | Mapping[str, Any]]


class Loaded(Struct, frozen=True):
    """The result of loading: the valid rules, and errors and warnings in the order of the text."""

    rules: RuleSet = field(default_factory=RuleSet)
    errors: tuple[RuleError, ...] = ()
    warnings: tuple[RuleError, ...] = ()


def excess(config_map: Mapping[str, Any], *, is_bundle: bool = False) -> Message | None:
    """Return the message for a ConfigMap with too much text, or too many values; None within the limits.

    is_bundle: it has a bundle of facts, which has a limit of its own and is quick to read.
    """
    values, size = MOST_BYTES if is_bundle else MOST_VALUES, MOST_BYTES
    metadata = config_map.get("metadata")
    if isinstance(metadata, dict):
        metadata = {**metadata, "managedFields": None}
    todo: list[Any] = [{**config_map, "metadata": metadata}]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            size -= len(value.encode("utf-8", "surrogatepass"))
            values -= sum(map(value.count, _BEGINNINGS))
        elif isinstance(value, dict | list):
            values -= _MEMBER * len(value)
            todo += value.values() if isinstance(value, dict) else value
        if size < 0 or values < 0:
            return _TOO_MANY_BYTES if size < 0 else _TOO_MANY_VALUES
    return None
