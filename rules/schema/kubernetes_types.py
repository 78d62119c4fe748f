"""Parts of rule documents that are as in the Kubernetes API: what a rule puts into pods."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Entry(BaseModel):
    """An entry whose fields that are not named here pass as they are."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    def entry(self) -> dict[str, Any]:
        """Return the entry as it was written."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class _Known(_Entry):
    """An entry all of whose fields are named here."""

    model_config = ConfigDict(extra="forbid")


class VolumeDocument(_Entry):
    """A volume, as in the Kubernetes API."""

    name: str = Field(min_length=1, description="of the volume; all else is as in the Kubernetes API")


class VolumeMountDocument(_Entry):
    """A volume mount, as in the Kubernetes API."""

    name: str = Field(min_length=1, description="of the volume; all else is as in the Kubernetes API")
    mount_path: str = Field(min_length=1, alias="mountPath", description="where it is seen in the container")


class TolerationDocument(_Known):
    """A toleration, as in the Kubernetes API."""

    key: str = Field("", description="of the taint; empty, with Exists: any")
    operator: Literal["Equal", "Exists", "Lt", "Gt"] = Field("Equal", description="how values compare")
    value: str = Field("", description="of the taint")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field("", description="empty: all")
    toleration_seconds: int | None = Field(
        None,
        alias="tolerationSeconds",
        description="with NoExecute, seconds until eviction; absent: never",
    )


class NodeSelectorTermDocument(_Entry):
    """A node selector term, as in the Kubernetes API."""

    match_expressions: list[dict[str, Any]] = Field(
        [], alias="matchExpressions", description="{key, operator, values} of labels of the node"
    )
    match_fields: list[dict[str, Any]] = Field(
        [], alias="matchFields", description="{key, operator, values} of its fields: metadata.name"
    )

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if not self.match_expressions and not self.match_fields:
            raise ValueError(
                "a term without expressions matches no node; give matchExpressions or matchFields"
            )
        return self


class NodeSelectorDocument(_Known):
    """Node selector terms; any of them has to match."""

    terms: list[NodeSelectorTermDocument] = Field(
        alias="nodeSelectorTerms", min_length=1, description="of which any has to match"
    )


class PreferredTermDocument(_Known):
    """A preference of some weight."""

    weight: int = Field(ge=1, le=100, description="how much it counts beside others")
    preference: NodeSelectorTermDocument = Field(description="the nodes that are preferred")


class NodeAffinityDocument(_Known):
    """Node affinity, as in the Kubernetes API."""

    required: NodeSelectorDocument | None = Field(
        None,
        alias="requiredDuringSchedulingIgnoredDuringExecution",
        description="ANDed into each of the pod's terms",
    )
    preferred: list[PreferredTermDocument] = Field(
        [], alias="preferredDuringSchedulingIgnoredDuringExecution", description="added to the pod's"
    )
