"""The nouns: what rule files say, what is asked, what is answered. Frozen values without behaviour."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rules.text.i18n import Text
from rules.text.location import Location

if TYPE_CHECKING:
    from rules.cel.expression import Expression
    from rules.cuda.image_catalog import ImageRow
    from rules.model.match import Match
    from rules.model.resource_index import ResourceIndex
    from rules.model.sharing import SharingPolicy


class Action(StrEnum):
    """What follows from a violation (`enforcementAction`)."""

    DENY = "deny"
    WARN = "warn"  # an admission warning, which kubectl prints
    DRYRUN = "dryrun"  # metric, log and audit annotation only


class InjectionAction(StrEnum):
    """What an injection rule does (`enforcementAction`)."""

    INJECT = "inject"
    DRYRUN = "dryrun"  # report what it would do


class FailurePolicy(StrEnum):
    """The effect of a validation that cannot be evaluated (`failurePolicy`)."""

    FAIL = "Fail"  # as if it were violated, as in the policies of Kubernetes
    IGNORE = "Ignore"  # a warning


class LimitsPolicy(StrEnum):
    """What a resource rule wants of `limits`."""

    DISABLED = "disabled"
    REQUIRED = "required"
    OPTIONAL = "optional"


class RequestsPolicy(StrEnum):
    """What a resource rule wants of `requests`."""

    DISABLED = "disabled"
    REQUIRED = "required"
    FROM_LIMITS = "fromLimits"


@dataclass(frozen=True, slots=True)
class Validation:
    """One CEL expression that a value has to satisfy; what to say, and what follows, where it does not."""

    expression: Expression
    message: Text
    action: Action


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """A `cf-crl-*` ConfigMap: how containers ask for one extended resource.

    key: the resource's name, or a glob for resources whose names carry a profile; key_pattern: the glob
    compiled, None for a name. default: the quantity as written, or empty. excludes: names and globs of
    resources that may not stand beside key in a container.
    """

    name: str
    key: str
    key_pattern: re.Pattern[str] | None
    group: str
    integer: bool
    default: str
    limits: LimitsPolicy
    requests: RequestsPolicy
    excludes: ResourceIndex[str]
    validations: tuple[Validation, ...]
    failure_policy: FailurePolicy
    unit: str
    runtime_class: str
    action: Action
    description: Text
    enabled: bool
    location: Location

    def __hash__(self) -> int:
        return hash(self.name)  # no two in force have the same


@dataclass(frozen=True, slots=True)
class EnvFromResource:
    """A value computed from a container's quantity of a resource.

    unit: what one of the resource is, as a number (256Mi is 268435456). template: text in which `{value}` is
    the quantity, and `{bytes}`, `{MiB}`, `{GiB}` are the quantity times unit.
    """

    resource: str
    unit: int
    template: str


@dataclass(frozen=True, slots=True)
class PodField:
    """A single-valued field of a pod's spec that a rule can inject.

    unset: the values that stand for "not set by the user", with what the API server fills in before any
    webhook sees the pod. description: for the schema of rule files.
    """

    name: str
    kind: type[str | bool]
    unset: tuple[Any, ...]
    description: str


# The single-valued fields that rules can inject. A new one is one entry here: rule files, schema, stage and
# the law that a user's value survives go through this table.
POD_FIELDS: Final = (
    PodField("runtimeClassName", str, (None, ""), "if the pod names none"),
    PodField(
        "schedulerName",
        str,
        (None, "", "default-scheduler"),
        "if the pod names none except default-scheduler",
    ),
    PodField("hostIPC", bool, (None,), "true: if the pod does not set it"),
)


@dataclass(frozen=True, slots=True)
class Injection:
    """What an injection rule injects. Entries are as in the Kubernetes API.

    env: (name, entry or EnvFromResource). pod_fields: values by the names of POD_FIELDS. The rest is merged
    into the pod or container.
    """

    env: tuple[tuple[str, EnvFromResource | Mapping[str, Any]], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    volume_mounts: tuple[Mapping[str, Any], ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    required_terms: tuple[Mapping[str, Any], ...] = ()
    preferred_terms: tuple[Mapping[str, Any], ...] = ()
    pod_fields: Mapping[str, str | bool] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InjectionRule:
    """What to put into containers that match. override: also where the user has set it."""

    name: str
    match: Match
    inject: Injection
    override: bool
    action: InjectionAction
    description: Text
    enabled: bool
    location: Location


@dataclass(frozen=True, slots=True)
class CompatibilityRule:
    """How containers that match share GPUs, and what that asks of image, driver and GPU.

    no_fitting_node: what follows where no node fits; action: what follows from all else.
    """

    name: str
    match: Match
    sharing: SharingPolicy
    no_fitting_node: Action
    action: Action
    description: Text
    enabled: bool
    location: Location

    def __hash__(self) -> int:
        return hash(self.name)  # no two in force have the same


@dataclass(frozen=True, slots=True)
class ImageCatalogRule:
    """What images carry, before what the built-in catalogue says."""

    name: str
    rows: tuple[ImageRow, ...]
    description: Text
    enabled: bool
    location: Location


@dataclass(frozen=True, slots=True)
class Exemption:
    """Rules that have no effect on some pods for some time.

    rules: names or globs of rules. match: the pods, by namespace and labels; it names no resources.
    service_accounts: compiled globs of the names that pods run as; empty for any. expires: seconds since the
    epoch (UTC), until: the same as written. description: why.
    """

    name: str
    rules: tuple[str, ...]
    match: Match
    service_accounts: tuple[re.Pattern[str], ...]
    expires: float
    until: str
    description: Text
    enabled: bool
    location: Location


Rule = ResourceRule | InjectionRule | CompatibilityRule | ImageCatalogRule | Exemption


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of a source, those that are switched off too."""

    resources: tuple[ResourceRule, ...] = ()
    injections: tuple[InjectionRule, ...] = ()
    compatibility: tuple[CompatibilityRule, ...] = ()
    images: tuple[ImageCatalogRule, ...] = ()
    exemptions: tuple[Exemption, ...] = ()

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> RuleSet:
        """Return rules of any kinds as a set, those of a kind in their order."""
        kept = list(rules)
        return cls(
            tuple(rule for rule in kept if isinstance(rule, ResourceRule)),
            tuple(rule for rule in kept if isinstance(rule, InjectionRule)),
            tuple(rule for rule in kept if isinstance(rule, CompatibilityRule)),
            tuple(rule for rule in kept if isinstance(rule, ImageCatalogRule)),
            tuple(rule for rule in kept if isinstance(rule, Exemption)),
        )

    def __iter__(self) -> Iterator[Rule]:
        yield from self.resources
        yield from self.injections
        yield from self.compatibility
        yield from self.images
        yield from self.exemptions


PLACEHOLDER: Final = re.compile(r"\{(value|bytes|MiB|GiB)\}")
