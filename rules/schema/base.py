"""Base classes of rule documents, the pydantic models of rule files.

Each model validates one document; the loader builds the compiled rules of `model` from them. Unknown keys are
errors, and all errors are reported at once.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
)

# Printable ASCII except `=`: Kubernetes since 1.32 (RelaxedEnvironmentVariableValidation).
_ENV_NAME: Final = r"^[ -<>-~]+$"
ACTIONS: Final = "deny: denies the pod; warn: kubectl prints a warning; dryrun: metric and logs only"

# Entries of a list in a rule: each is compared with other rules or entries, or compiled. Rules have a dozen.
MAX_ENTRIES: Final = 256
# CEL expressions of a rule, as matchConditions in Kubernetes: to compile the longest takes 4 ms.
MAX_EXPRESSIONS: Final = 64
# Names of namespaces or service accounts: some rules list every one.
MAX_NAMES: Final = 2048

NonEmpty = Annotated[str, StringConstraints(min_length=1)]


class RuleDocument(BaseModel):
    """A document or a part of one: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextDocument(RuleDocument):
    """A text in English, Chinese, or both."""

    en: str = Field("", description="in English; empty: as in Chinese")
    zh: str = Field("", description="in Chinese; empty: as in English")
