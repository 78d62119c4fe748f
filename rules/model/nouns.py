"""The nouns: what rule files say, what is asked, what is answered. Frozen values without behaviour."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rules.cel.expression import Expression
    from rules.compatibility.fitness import Terms
    from rules.cuda.image_catalog import ImageRow
    from rules.kube.json_patch import Operation
    from rules.model.match import Match, ResourceIndex


class Language(StrEnum):
    """The languages that messages come in."""

    EN = "en"
    ZH = "zh"


class Action(StrEnum):
    """What follows from a violation (`enforcementAction`)."""

    DENY = "deny"
    WARN = "warn"  # an admission warning, which kubectl prints
    DRYRUN = "dryrun"  # metric, log and audit annotation only


class InjectionAction(StrEnum):
    """What an injection rule does (`enforcementAction`)."""

    INJECT = "inject"
    DRYRUN = "dryrun"  # report what it would do


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
class Text:
    """The same words in each language; an empty one falls back to the other."""

    en: str = ""
    zh: str = ""

    def in_language(self, language: Language) -> str:
        """Return the words in a language."""
        return (self.zh or self.en) if language is Language.ZH else (self.en or self.zh)


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a rule file; line and column count from 1, 0 where there is none."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])


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
class Injection:
    """What an injection rule puts in. Entries are as in the Kubernetes API.

    env: entries as they will stand, or (name, EnvFromResource). The rest is merged into the pod or container.
    """

    env: tuple[tuple[str, EnvFromResource | Mapping[str, Any]], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    volume_mounts: tuple[Mapping[str, Any], ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    required_terms: tuple[Mapping[str, Any], ...] = ()
    preferred_terms: tuple[Mapping[str, Any], ...] = ()
    runtime_class: str = ""
    scheduler: str = ""
    host_ipc: bool = False
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
    terms: Terms
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


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What the API server asks, as far as a decision needs it.

    object, old_object: the raw JSON, read only. group: the kind's API group, empty for the core. mutating: a
    patch may be answered; otherwise the object is judged as it is.
    """

    operation: str
    group: str
    kind: str
    namespace: str
    object: Mapping[str, Any] | None
    old_object: Mapping[str, Any] | None = None
    subresource: str = ""
    mutating: bool = True


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that a rule does not let pass.

    path: as Kubernetes prints it. message: one line with container, path, found, wanted and what to do.
    """

    rule: str
    action: Action
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer: a verdict, and the edits where it is to allow.

    message: the whole refusal, empty where allowed. patch: RFC 6902 operations, none for what is denied or
    not to be changed. warnings: a line each. audit: annotations of the audit event, names without prefix.
    rules: names of those that matched. cuda_sources: what told each judged container's CUDA, or `unknown`.
    """

    allowed: bool = True
    message: str = ""
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: tuple[Operation, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()


ALLOWED = Decision()
