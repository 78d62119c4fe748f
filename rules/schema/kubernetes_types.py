"""Kubernetes API types in rule documents: what a rule injects into pods."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rules.text.i18n import Text


class _Entry(BaseModel):
    """An entry that allows unknown fields and keeps them unchanged."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    def entry(self) -> dict[str, Any]:
        """Return the entry as it was written."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class _Known(_Entry):
    """An entry that does not allow unknown fields."""

    model_config = ConfigDict(extra="forbid")


class VolumeDocument(_Entry):
    """A volume, as in the Kubernetes API."""

    name: str = Field(min_length=1, description="name of the volume; other keys are as in the Kubernetes API")


class VolumeMountDocument(_Entry):
    """A volume mount, as in the Kubernetes API."""

    name: str = Field(min_length=1, description="name of the volume; other keys are as in the Kubernetes API")
    mount_path: str = Field(min_length=1, alias="mountPath", description="the mount path in the container")


class TolerationDocument(_Known):
    """A toleration, as in the Kubernetes API."""

    key: str = Field("", description="the taint key; empty with Exists: any")
    operator: Literal["Equal", "Exists", "Lt", "Gt"] = Field("Equal", description="how the value is compared")
    value: str = Field("", description="the taint value")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field("", description="empty: all")
    toleration_seconds: int | None = Field(
        None,
        alias="tolerationSeconds",
        description="with NoExecute, seconds until eviction; absent: never",
    )


class NodeSelectorTermDocument(_Entry):
    """A node selector term, as in the Kubernetes API."""

    match_expressions: list[dict[str, Any]] = Field(
        [], alias="matchExpressions", description="{key, operator, values} of node labels"
    )
    match_fields: list[dict[str, Any]] = Field(
        [], alias="matchFields", description="{key, operator, values} of node fields: metadata.name"
    )

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if not self.match_expressions and not self.match_fields:
            raise ValueError(
                Text(
                    "a term without expressions matches no node; set matchExpressions or matchFields",
                    "没有表达式的 term 不匹配任何节点；请设置 matchExpressions 或 matchFields",
                )
            )
        return self


class NodeSelectorDocument(_Known):
    """Node selector terms, of which at least one must match."""

    terms: list[NodeSelectorTermDocument] = Field(
        alias="nodeSelectorTerms", min_length=1, description="at least one must match"
    )


class PreferredTermDocument(_Known):
    """A preferred node selector term with its weight."""

    weight: int = Field(ge=1, le=100, description="added to the score of matching nodes")
    preference: NodeSelectorTermDocument = Field(description="the preferred nodes")


class NodeAffinityDocument(_Known):
    """Node affinity, as in the Kubernetes API."""

    required: NodeSelectorDocument | None = Field(
        None,
        alias="requiredDuringSchedulingIgnoredDuringExecution",
        description="ANDed into each of the pod's terms",
    )
    preferred: list[PreferredTermDocument] = Field(
        [],
        alias="preferredDuringSchedulingIgnoredDuringExecution",
        description="appended to the pod's preferences",
    )
