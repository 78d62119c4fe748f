"""Node profiles: the document and the rule that it makes."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from rules.cuda.gpu_memory import MAX_MEMORY_MIB
from rules.kube.tolerations import Taint
from rules.model.rule import NodeProfile
from rules.nodes.label_families import DriverFamily
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools.document import may_be_required
from rules.schema.builder import KindDocument, RuleBuilder
from rules.schema.errors import expected
from rules.schema.field_types import (
    Capability,
    Cuda,
    Labels,
    LabelValue,
    ResourcePattern,
    RuleDocument,
    TaintKey,
    TextDocument,
)
from rules.text.glob import is_glob
from rules.text.i18n import Message

# Karpenter ignores pods whose node affinity uses the hostname, or another label of its domain than these two.
# https://karpenter.sh/docs/concepts/scheduling/ and pkg/apis/v1/labels.go of kubernetes-sigs/karpenter
# Labels, taints or resources of a profile; more than a node group has. Labels end up in the affinity of pods.
_MAX_ENTRIES: Final = 100
_DRIVER_KEY: Final = "driver"
_DRIVER: Final = Message("a driver version such as '580.95'")
_RESOURCE: Final = Message("the name of an extended resource, such as nvidia.com/gpu, without * and ?")


def _driver(text: str) -> str:
    if DriverFamily((_DRIVER_KEY,)).version({_DRIVER_KEY: text}) is None:
        raise ValueError(expected(_DRIVER, repr(text)))
    return text


def _extended(name: str) -> str:
    if is_glob(name):
        raise ValueError(expected(_RESOURCE, repr(name)))
    return name


DriverText = Annotated[str, AfterValidator(_driver)]
ExtendedResource = Annotated[ResourcePattern, AfterValidator(_extended)]
Amount = Annotated[int, Field(ge=1)]


class ProfileMatchDocument(RuleDocument):
    """The present nodes that belong to a profile."""

    node_labels: Labels = Field(
        alias="nodeLabels",
        min_length=1,
        max_length=_MAX_ENTRIES,
        description="labels with their values; a node must have all",
    )


class TaintDocument(RuleDocument):
    """A taint, as in the Kubernetes API."""

    key: TaintKey = Field(description="the taint key")
    value: LabelValue = Field("", description="the taint value")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(description="the taint effect")


class OffersDocument(RuleDocument):
    """What a node of the profile offers; what is absent is unknown."""

    resources: dict[ExtendedResource, Amount] = Field(
        min_length=1,
        max_length=_MAX_ENTRIES,
        description="amounts of extended resources that one node offers, by name",
        json_schema_extra={"additionalProperties": False},
    )
    product: LabelValue | None = Field(
        None, min_length=1, description="the product, as in the label nvidia.com/gpu.product"
    )
    cuda: Cuda | None = Field(None, description="the CUDA version of the driver's API, such as 13.0")
    driver: DriverText | None = Field(None, description="the driver version, such as 580.95")
    compute_capability: Capability | None = Field(
        None, alias="computeCapability", description="the compute capability; absent: that of the product"
    )
    memory: int | None = Field(
        None, ge=1, le=MAX_MEMORY_MIB, description="memory of one GPU in MiB; absent: that of the product"
    )


class NodeProfileDocument(KindDocument):
    """Nodes that an autoscaler may add."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"canScale": {"const": False}}, "required": ["canScale"]},
            "else": {
                "properties": {"labelsAtCreation": {"minProperties": 1}},
                "required": ["labelsAtCreation"],
            },
        }
    )

    description: TextDocument = Field(TextDocument(), description="the purpose, for listings")
    match: ProfileMatchDocument = Field(description="the present nodes that belong to the profile")
    labels_at_creation: Labels = Field(
        {},
        alias="labelsAtCreation",
        max_length=_MAX_ENTRIES,
        description="labels that the autoscaler sets on a node when it creates it, exactly as in its "
        "template; required unless canScale is false",
    )
    taints: list[TaintDocument] = Field([], max_length=_MAX_ENTRIES, description="taints of the nodes")
    offers: OffersDocument = Field(description="what one node offers")
    can_scale: bool = Field(
        True, alias="canScale", description="whether the autoscaler may add a node; false: not now"
    )

    @model_validator(mode="after")
    def _has_labels(self) -> Self:
        if self.can_scale and not self.labels_at_creation:
            raise ValueError(
                Message(
                    "labelsAtCreation is required: pods are directed to new nodes by these labels; "
                    "set them as in the autoscaler's template, or set canScale: false"
                )
            )
        return self

    def rule(self, builder: RuleBuilder) -> NodeProfile:
        """Return the rule."""
        for key in self.labels_at_creation:
            if not may_be_required(key):
                message = Message(
                    "{key} cannot be used: Karpenter ignores pods whose node affinity uses it; remove it",
                    key=key,
                )
                builder.add_error(("labelsAtCreation", key), message, builder.inner, key=True)
        offers = self.offers
        return NodeProfile(
            name=builder.name,
            match=tuple(self.match.node_labels.items()),
            labels=tuple(self.labels_at_creation.items()),
            taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in self.taints),
            resources=tuple(offers.resources.items()),
            capabilities=NodeCapabilities(
                cuda=offers.cuda,
                driver=offers.driver,
                compute_capability=offers.compute_capability,
                product=offers.product,
                memory_mib=offers.memory,
            ),
            can_scale=self.can_scale,
            description=self.description.text,
            enabled=builder.enabled,
            location=builder.location,
        )
