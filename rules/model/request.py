"""The part of an admission request that a decision depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """The part of an admission request that a decision depends on.

    object, old_object: the raw JSON, read only. group: the kind's API group, empty for the core. mutating: a
    patch may be answered; otherwise the object is checked as it is.
    """

    operation: str
    group: str
    kind: str
    namespace: str
    object: Mapping[str, Any] | None
    old_object: Mapping[str, Any] | None = None
    subresource: str = ""
    mutating: bool = True
