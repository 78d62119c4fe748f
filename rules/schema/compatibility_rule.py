"""Compatibility rules: the document and the rule that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Self

from msgspec.structs import replace
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rules.kube.names import is_label_key
from rules.model.check_result import Level
from rules.model.rule import Action, CompatibilityRule, NewNodes, mildest
from rules.model.sharing import CHECKS_OFF, Checks, SharingPolicy
from rules.nodes.label_families import LabelNames, read_driver_families, read_families
from rules.nodes.runtime_modes import RuntimeMode
from rules.schema.builder import KindDocument, RuleBuilder
from rules.schema.field_types import (
    ACTIONS,
    MAX_ENTRIES,
    WORD,
    Capability,
    Cuda,
    EnforcementAction,
    MatchDocument,
    RuleDocument,
    TextDocument,
    build_match,
)
from rules.text.i18n import Message

_LEVELS: Final = {"deny": Level.INCOMPATIBLE, "warn": Level.UNSTABLE, "allow": Level.COMPATIBLE}
# Of the checks; `off` and `dryrun` (see CompatibilityRule.trial) find nothing.
_EFFECTS: Final = {"deny": Level.INCOMPATIBLE, "warn": Level.UNSTABLE}
_IN_LABELS: Final = "one label with the whole version, or one for each part, separated by spaces"
_PARTS: Final = 3  # the maximum, of a driver version


def _label(text: str) -> str:
    if not is_label_key(text):
        raise ValueError(Message("expected a label key, such as example.com/gpu, got {text!r}", text=text))
    return text


def _label_glob(text: str) -> str:
    if not is_label_key(text.replace("*", "x").replace("?", "x")):
        raise ValueError(
            Message("expected a glob of label keys, such as example.com/mig-*, got {text!r}", text=text)
        )
    return text


def _family(text: str) -> str:
    keys = text.split()
    if not 1 <= len(keys) <= _PARTS or not all(map(is_label_key, keys)):
        raise ValueError(
            Message(
                "expected the key of a label with the whole version, or the keys of its parts, major first, "
                "such as 'example.com/cuda.major example.com/cuda.minor', got {text!r}",
                text=text,
            )
        )
    return text


LabelText = Annotated[str, AfterValidator(_label)]
LabelGlobText = Annotated[str, AfterValidator(_label_glob)]
FamilyText = Annotated[str, AfterValidator(_family)]


class LabelsDocument(RuleDocument):
    """The node labels that report each fact; the first one that a node has is used."""

    cuda: list[FamilyText] = Field([], description=f"the CUDA version of the driver, {_IN_LABELS}")
    driver: list[FamilyText] = Field([], description=f"the version of the driver, {_IN_LABELS}")
    compute_capability: list[FamilyText] = Field(
        [], alias="computeCapability", description=f"the compute capability of the GPU, {_IN_LABELS}"
    )
    product: list[LabelText] = Field([], description="the model of the GPU")
    memory: list[LabelText] = Field([], description="memory of one GPU in MiB")
    mig_strategy: list[LabelText] = Field(
        [], alias="migStrategy", description="the MIG strategy, for listings"
    )
    mig_devices: list[LabelGlobText] = Field(
        [], alias="migDevices", description="globs of labels that only a node with MIG devices has"
    )
    sharing_strategy: list[LabelText] = Field(
        [], alias="sharingStrategy", description="the strategy for sharing GPUs, such as mps (sharedGpuCount)"
    )
    device_mode: list[LabelText] = Field(
        [], alias="deviceMode", description="the configured device mode of the node: pgpu, vgpu or mps"
    )

    def names(self) -> LabelNames:
        """Return the labels by the fact that they report."""
        read: dict[str, Callable[[list[str]], Any]] = {
            "cuda": read_families,
            "compute_capability": read_families,
            "driver": read_driver_families,
        }
        return LabelNames(
            **{name: read.get(name, tuple)(getattr(self, name)) for name in self.model_fields_set}
        )


def _off(value: Any) -> Any:
    """Return the word `off`, which YAML 1.1 reads as false, as it is written."""
    return "off" if value is False else value


Effect = Annotated[Literal["deny", "warn", "dryrun", "off"], BeforeValidator(_off)]


class ChecksDocument(RuleDocument):
    """The effect of each optional check; a finding that is not certain only warns."""

    gpu_count: Effect = Field(
        "deny",
        alias="gpuCount",
        description="the pod requests more GPUs than any node has, or may have, or a MIG profile of no GPU",
    )
    taints: Effect = Field(
        "warn", description="every otherwise compatible node has a taint that the pod does not tolerate"
    )
    parallelism: Effect = Field(
        "deny",
        description="parallelism flags of an inference or training program need other GPUs than requested",
    )
    shared_memory: Effect = Field(
        "warn",
        alias="sharedMemory",
        description="several GPUs, or tensor parallelism, without a memory-backed volume at /dev/shm",
    )
    shared_gpu_count: Effect = Field(
        "deny",
        alias="sharedGpuCount",
        description="more than one replica of GPUs that are shared by time-slicing or MPS",
    )
    exclusive_devices: Effect = Field(
        "warn",
        alias="exclusiveDevices",
        description="two MIG profiles or devices of two vendors in one container, or an image for "
        "another accelerator",
    )
    architecture: Effect = Field(
        "deny", description="the image has no platform of the node, such as amd64 only on an arm64 node"
    )
    gpu_memory: Effect = Field(
        "deny",
        alias="gpuMemory",
        description="the GPU, or the share, has less memory than declared as minimum",
    )
    gpu_settings: Effect = Field(
        "warn",
        alias="gpuSettings",
        description="variables, privileges or mounts contradict the NVIDIA GPUs that the container requests",
    )
    model: Effect = Field(
        "deny",
        description="the model of an inference server does not fit the GPUs: its weights, data type or "
        "attention heads",
    )
    interception: Effect = Field(
        "deny",
        description="privileges, RuntimeClass or variables keep the library of a sharing system from working "
        "in the container",
    )
    claim_configs: Effect = Field(
        "deny",
        alias="claimConfigs",
        description="the driver refuses the configuration of devices in a claim or its DeviceClass",
    )

    def levels(self, action: str | None = None) -> Checks:
        """Return the levels of the checks; action: of those with this effect only, as if they denied."""
        effects = {name: getattr(self, name) for name in type(self).model_fields}
        if action is not None:
            return Checks(
                **{
                    name: Level.INCOMPATIBLE if effect == action else Level.COMPATIBLE
                    for name, effect in effects.items()
                }
            )
        return Checks(**{name: _EFFECTS.get(effect, Level.COMPATIBLE) for name, effect in effects.items()})


class CompatibilityRuleDocument(KindDocument):
    """How containers share GPUs, and what that requires of image, driver and GPU."""

    description: TextDocument = Field(TextDocument(), description="the purpose, for listings")
    enforcement_action: EnforcementAction = Field(
        Action.DENY,
        alias="enforcementAction",
        description=f"effect of a violation: {ACTIONS}; only deny injects node affinity",
    )
    match: MatchDocument = Field(
        description="the containers that the rule applies to; all conditions must match"
    )
    sharing: Literal["physical", "virtual", "withoutCuda"] = Field(
        description="virtual: CUDA calls are intercepted; driver, runtime and baseline should have one major "
        "version. withoutCuda: the accelerators run no CUDA; nothing is compared with nodes, and of `checks` "
        "only those of a container alone apply"
    )
    baseline: Cuda | None = Field(
        None, description="virtual: the highest CUDA version that the virtualisation supports, such as 12.4"
    )
    minor_versions: Literal["deny", "warn", "allow"] = Field(
        "deny",
        alias="minorVersionCompatibility",
        description="action when the driver has the same major but a lower minor CUDA version",
    )
    major_versions: Literal["deny", "warn", "allow"] = Field(
        "deny",
        alias="majorVersionMismatch",
        description="virtual: action when driver, runtime and baseline differ in the major version; "
        "physical: action when the driver's is older, and it is unknown whether the image has forward "
        "compatibility libraries",
    )
    newer_majors: Literal["warn", "allow"] = Field(
        "allow",
        alias="newerMajorVersions",
        description="action when the driver's CUDA is more than one major version newer; allow: other nodes "
        "are preferred, as NVIDIA's drivers are backward compatible",
    )
    no_fitting_node: Literal["auto", "deny", "warn"] = Field(
        "auto",
        alias="noFittingNode",
        description="if no node is compatible; auto: warn in a cluster with Karpenter, which may add one, "
        "otherwise deny",
    )
    new_nodes: Annotated[NewNodes, WORD] = Field(
        NewNodes.AUTO,
        alias="newNodes",
        description="whether node affinity admits nodes that an autoscaler adds, before they have the labels "
        "of a GPU: by the instance types whose nodes are all compatible; auto: in a cluster with Karpenter",
    )
    declarations: Literal["deny", "warn", "allow"] = Field(
        "allow",
        description="action when an annotation or variable of the pod replaces what is known of its image",
    )
    min_driver_cuda: Cuda | None = Field(
        None, alias="minDriverCuda", description="the minimum CUDA version of the driver, such as 11.5"
    )
    min_compute_capability: Capability | None = Field(
        None,
        alias="minComputeCapability",
        description="the minimum compute capability of the GPU, such as 7.0",
    )
    device_mode: Literal["pgpu", "vgpu", "mps"] | None = Field(
        None, alias="deviceMode", description="nodes that report another device mode are incompatible"
    )
    mig_slices: Literal["allow", "deny"] = Field(
        "allow",
        alias="migSlices",
        description="deny: nodes whose GPUs are partitioned with MIG are incompatible",
    )
    container_runtime: Literal["auto", "legacy", "cdi"] = Field(
        "auto",
        alias="containerRuntime",
        description="the mode of NVIDIA's container runtime on all nodes: legacy evaluates NVIDIA_REQUIRE_*, "
        "cdi does not; auto: as each node shows, otherwise unknown",
    )
    feature_gates: list[str] = Field(
        [],
        alias="featureGates",
        max_length=MAX_ENTRIES,
        description="feature gates of the DRA driver that are on; a claim whose configuration needs another "
        "one is warned of",
    )
    checks: ChecksDocument = Field(
        ChecksDocument(), description="the effect of each optional check; an absent key has its default"
    )
    labels: LabelsDocument = Field(
        LabelsDocument(),
        description="the node labels that report each fact; an absent key has its built-in labels, an empty "
        "list disables the fact",
    )

    @model_validator(mode="after")
    def _settings_suit_sharing(self) -> Self:
        if self.baseline and self.sharing != "virtual":
            raise ValueError(Message("baseline is for sharing: virtual"))
        return self

    def rule(self, builder: RuleBuilder) -> CompatibilityRule:
        """Return the rule."""
        action = self.enforcement_action
        rule = CompatibilityRule(
            name=builder.name,
            match=build_match(self.match),
            sharing=SharingPolicy(
                cuda=self.sharing != "withoutCuda",
                virtual=self.sharing == "virtual",
                baseline=self.baseline,
                minor_versions=_LEVELS[self.minor_versions],
                major_versions=_LEVELS[self.major_versions],
                warns_of_newer_majors=self.newer_majors == "warn",
                min_cuda=self.min_driver_cuda,
                min_compute=self.min_compute_capability,
                device_mode=self.device_mode,
                mig=self.mig_slices == "allow",
                labels=self.labels.names(),
                runtime_mode=None
                if self.container_runtime == "auto"
                else RuntimeMode(self.container_runtime),
                feature_gates=frozenset(self.feature_gates),
                checks=self.checks.levels(),
            ),
            no_fitting_node=None
            if self.no_fitting_node == "auto"
            else mildest(action, Action(self.no_fitting_node)),
            new_nodes=self.new_nodes,
            declarations=None if self.declarations == "allow" else mildest(action, Action(self.declarations)),
            action=action,
            description=self.description.text,
            enabled=builder.enabled,
            location=builder.location,
        )
        tried = self.checks.levels("dryrun")
        if tried == CHECKS_OFF:
            return rule
        now = rule.sharing
        sharing = SharingPolicy(cuda=now.cuda, labels=now.labels, checks=tried, trial=True)
        trial = replace(rule, sharing=sharing, action=Action.DRYRUN, no_fitting_node=None, declarations=None)
        return replace(rule, trial=trial)
