"""Compatibility rules and image catalogues as people write them, and what they are built into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.names import is_label_key
from rules.model.finding import Level
from rules.model.rule import Action, CompatibilityRule
from rules.model.sharing import SharingPolicy
from rules.nodes.label_families import LabelNames, read_driver_families, read_families
from rules.schema.base import ACTIONS, RuleDocument, TextDocument
from rules.schema.builder import RuleBuilder, read_rule
from rules.schema.field_types import CapabilityText, CudaText, parse_optional_version
from rules.schema.match_fields import MatchDocument, build_match
from rules.text.i18n import Text

_MINOR_VERSIONS: Final = {"deny": Level.INCOMPATIBLE, "warn": Level.UNSTABLE, "allow": Level.COMPATIBLE}
_IN_LABELS: Final = "whole in one label or its parts in several, with a blank between their keys"
_PARTS: Final = 3  # of a driver's version, which has the most


def _label(text: str) -> str:
    if not is_label_key(text):
        raise ValueError(f"expected the key of a label, such as example.com/gpu, got {text!r}")
    return text


def _label_glob(text: str) -> str:
    if not is_label_key(text.replace("*", "x").replace("?", "x")):
        raise ValueError(f"expected a glob of keys of labels, such as example.com/mig-*, got {text!r}")
    return text


def _family(text: str) -> str:
    keys = text.split()
    if not 1 <= len(keys) <= _PARTS or not all(map(is_label_key, keys)):
        raise ValueError(
            "expected the key of a label with the whole version, or those of its parts from the major on, "
            f"such as 'example.com/cuda.major example.com/cuda.minor', got {text!r}"
        )
    return text


LabelText = Annotated[str, AfterValidator(_label)]
LabelGlobText = Annotated[str, AfterValidator(_label_glob)]
FamilyText = Annotated[str, AfterValidator(_family)]


class LabelsDocument(RuleDocument):
    """Which labels of nodes tell what: of each fact the first that a node carries."""

    cuda: list[FamilyText] = Field([], description=f"the CUDA version of the driver, {_IN_LABELS}")
    driver: list[FamilyText] = Field([], description=f"the version of the driver, {_IN_LABELS}")
    compute_capability: list[FamilyText] = Field(
        [], alias="computeCapability", description=f"that of the GPU, {_IN_LABELS}"
    )
    product: list[LabelText] = Field([], description="the model of the GPU")
    memory: list[LabelText] = Field([], description="MiB of one GPU, for listings")
    mig_strategy: list[LabelText] = Field(
        [], alias="migStrategy", description="how MIG slices are offered, for listings"
    )
    mig_devices: list[LabelGlobText] = Field(
        [], alias="migDevices", description="globs of labels that only a node with MIG slices has"
    )
    sharing_strategy: list[LabelText] = Field(
        [], alias="sharingStrategy", description="how pods share a GPU, for listings"
    )
    device_mode: list[LabelText] = Field(
        [], alias="deviceMode", description="what the node is set up for: pgpu, vgpu or mps"
    )

    def names(self) -> LabelNames:
        """Return the labels by what they tell."""
        read: dict[str, Callable[[list[str]], Any]] = {
            "cuda": read_families,
            "compute_capability": read_families,
            "driver": read_driver_families,
        }
        return LabelNames(
            **{name: read.get(name, tuple)(getattr(self, name)) for name in self.model_fields_set}
        )


class CompatibilityRuleDocument(RuleDocument):
    """How containers share GPUs, and what that asks of image, driver and GPU."""

    description: TextDocument = Field(TextDocument(), description="what it is for, in listings")
    enforcement_action: Literal["deny", "warn", "dryrun"] = Field(
        "deny", alias="enforcementAction", description=f"what a violation does: {ACTIONS}; deny alone steers"
    )
    match: MatchDocument = Field(description="what it applies to; all that is given has to hold")
    sharing: Literal["physical", "virtual"] = Field(
        description="virtual: driver, runtime and baseline have one major version"
    )
    baseline: CudaText | None = Field(
        None, description="virtual: the highest CUDA version that the virtualisation knows, such as 12.4"
    )
    minor_versions: Literal["deny", "warn", "allow"] = Field(
        "deny",
        alias="minorVersionCompatibility",
        description="physical: what becomes of a driver of the runtime's major, but a lower minor version",
    )
    no_fitting_node: Literal["deny", "warn"] = Field(
        "deny",
        alias="noFittingNode",
        description="warn: instead of a refusal where no node fits and an autoscaler may bring one",
    )
    min_driver_cuda: CudaText | None = Field(
        None, alias="minDriverCuda", description="the lowest CUDA version of drivers that can do it: 11.5"
    )
    min_compute_capability: CapabilityText | None = Field(
        None, alias="minComputeCapability", description="the lowest of GPUs that can do it, such as 7.0"
    )
    device_mode: Literal["pgpu", "vgpu", "mps"] | None = Field(
        None, alias="deviceMode", description="not on nodes that say that they are set up for another"
    )
    mig_slices: Literal["allow", "deny"] = Field(
        "allow", alias="migSlices", description="deny: not on nodes whose GPUs are cut into MIG slices"
    )
    labels: LabelsDocument = Field(
        LabelsDocument(),
        description="which labels of nodes tell what; a fact that is not listed is read as shipped, one with "
        "an empty list not at all",
    )

    @model_validator(mode="after")
    def _settings_suit_sharing(self) -> Self:
        if self.baseline and self.sharing != "virtual":
            raise ValueError("baseline is for sharing: virtual")
        if self.minor_versions != "deny" and self.sharing == "virtual":
            raise ValueError("minorVersionCompatibility is for sharing: physical")
        return self


def build_compatibility_rule(part: RuleBuilder, data: Any) -> CompatibilityRule | None:
    """Return the rule that `rule.yaml` states, or None with the mistakes kept in part."""
    found = read_rule(part, data, CompatibilityRuleDocument)
    if found is None:
        return None
    document, read = found
    action = Action(read.enforcement_action)
    return CompatibilityRule(
        name=part.name,
        match=build_match(part, document, read.match),
        terms=SharingPolicy(
            virtual=read.sharing == "virtual",
            baseline=parse_optional_version(CudaVersion, read.baseline),
            minor_versions=_MINOR_VERSIONS[read.minor_versions],
            min_cuda=parse_optional_version(CudaVersion, read.min_driver_cuda),
            min_compute=parse_optional_version(ComputeCapability, read.min_compute_capability),
            device_mode=read.device_mode,
            mig=read.mig_slices == "allow",
            labels=read.labels.names(),
        ),
        no_fitting_node=Action(read.no_fitting_node if action is Action.DENY else action),
        action=action,
        description=Text(read.description.en, read.description.zh),
        enabled=part.enabled,
        location=part.document.locate(part.path),
    )
