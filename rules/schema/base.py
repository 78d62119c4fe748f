"""Rule documents as people write them: the schema, field by field.

These models check one document each and know nothing of its neighbours; `load` turns them into the compiled
rules of `model`. Unknown keys are refused, all mistakes are reported at once.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
)

# Printable ASCII but `=`: Kubernetes since 1.32 (RelaxedEnvironmentVariableValidation).
_ENV_NAME: Final = r"^[ -<>-~]+$"
ACTIONS: Final = "deny refuses, warn has kubectl print it, dryrun tells metric, log and audit log alone"

NonEmpty = Annotated[str, StringConstraints(min_length=1)]


class RuleDocument(BaseModel):
    """A document or a part of one: unknown keys and wrong types are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextDocument(RuleDocument):
    """Words in English, Chinese, or both."""

    en: str = Field("", description="in English; empty: as in Chinese")
    zh: str = Field("", description="in Chinese; empty: as in English")
