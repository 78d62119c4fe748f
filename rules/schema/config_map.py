"""The ConfigMap of a rule: namespace, labels and key; the sources of rules, and the result of loading.

No pydantic here: importing it takes as long as the rest of a command with the built-in rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rules.model.rule import RuleSet
from rules.schema.errors import RuleError

DEFAULT_NAMESPACE: Final = "kube-public"
# The same three labels in the older and the newer spelling; both are in use.
LABEL_PREFIXES: Final = ("features.alauda.io/", "features.cpaas.io/")
RESOURCE_RULE_TYPE: Final = "CustomResourceLimitation"
TYPE_LABEL: Final = "gpugate.dev/type"
ENABLED_LABEL: Final = "gpugate.dev/enabled"
# The key of a rule's document in `data`; a resource rule has its keys in `data` itself.
DOCUMENT_KEY: Final = "rule.yaml"

# The name of a file and its text, or the name of an object of a cluster and its value.
Source = tuple[str, str | Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of loading: the valid rules, and errors and warnings in the order of the text."""

    rules: RuleSet = field(default_factory=RuleSet)
    errors: tuple[RuleError, ...] = ()
    warnings: tuple[RuleError, ...] = ()
