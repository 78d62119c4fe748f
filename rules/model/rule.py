"""Rules, compiled. Frozen values without behaviour.

Two rules can set a single-valued setting differently: one value is used. Tolerations and node affinity are
no such settings: those of several rules are added up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from posixpath import normpath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from rules.kube.names import DEFAULT_SCHEDULERS
from rules.nodes.label_families import LabelNames
from rules.nodes.pools.document import NodePool
from rules.text.i18n import Text
from rules.text.yaml_document import Location

if TYPE_CHECKING:
    from rules.cel.expression import Expression
    from rules.cuda.image_catalog import ImageRow
    from rules.cuda.tables import Facts
    from rules.kube.pod import AnnotationRequest
    from rules.kube.tolerations import Taint
    from rules.model.match import Match, ResourceIndex
    from rules.model.sharing import SharingPolicy
    from rules.nodes.node_capabilities import NodeCapabilities
    from rules.text.paths import Path


class Action(StrEnum):
    """The effect of a violation (`enforcementAction`)."""

    DENY = "deny"
    WARN = "warn"  # an admission warning, which kubectl prints
    DRYRUN = "dryrun"  # metric, log and audit annotation only


def mildest(*actions: Action) -> Action:
    """Return the mildest of some actions."""
    return max(actions, key=[*Action].index)


class NewNodes(StrEnum):
    """Whether node affinity keeps a way in for nodes that an autoscaler adds (`newNodes`)."""

    AUTO = "auto"  # by instance type in a cluster with an autoscaler
    BY_INSTANCE_TYPE = "byInstanceType"
    NONE = "none"


class InjectionAction(StrEnum):
    """What an injection rule does (`enforcementAction`)."""

    INJECT = "inject"
    DRYRUN = "dryrun"  # report what it would inject


class FailurePolicy(StrEnum):
    """The effect of a validation that cannot be evaluated (`failurePolicy`)."""

    FAIL = "Fail"  # as if it were violated, as in the policies of Kubernetes
    IGNORE = "Ignore"  # a warning


class LimitsPolicy(StrEnum):
    """What a resource rule requires of `limits`."""

    DISABLED = "disabled"
    REQUIRED = "required"
    OPTIONAL = "optional"


class RequestsPolicy(StrEnum):
    """What a resource rule requires of `requests`."""

    DISABLED = "disabled"
    REQUIRED = "required"
    FROM_LIMITS = "fromLimits"


class RuleMeta(Struct, frozen=True):
    """What all rules have. name: of the ConfigMap, unique among those in force. location: of its text."""

    name: str
    description: Text
    enabled: bool
    location: Location


class Validation(Struct, frozen=True):
    """A CEL expression that a value must satisfy; message, effect and fix if it does not.

    fix: if it is empty, that of `messages.invalid` is used. variable: of the container, of which the
    value is wrong if the expression is false; empty: the quantity is.
    """

    expression: Expression
    message: Text
    action: Action
    fix: Text
    variable: str = ""


class ResourceRule(RuleMeta, frozen=True):
    """A `cf-crl-*` ConfigMap: how containers ask for one extended resource.

    key: the resource's name, or a glob for resources whose names carry a profile; key_pattern: the glob
    compiled, None for a name. default: the quantity as written, or empty. excludes: names and globs of
    resources that must not be used together with key in a container. default_when: the condition of the
    default; None: always. additional: it only adds validations, once for each container that asks for one of
    the resources, and other rules may have its key. related: keys of rules that apply together with this one,
    as those of its group do. by_annotation: of a key that is an annotation, how it is read.
    """

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
    new_nodes: NewNodes = NewNodes.AUTO
    default_when: Expression | None = None
    additional: bool = False
    related: tuple[str, ...] = ()
    by_annotation: AnnotationRequest | None = None

    def __hash__(self) -> int:
        return hash(self.name)  # no two in force have the same


class EnvFromResource(Struct, frozen=True):
    """A value computed from a container's quantity of a resource.

    unit: what one of the resource is, as a number (256Mi is 268435456). template: text in which `{value}` is
    the quantity, and `{bytes}`, `{MiB}`, `{GiB}` are the quantity times unit.
    """

    resource: str
    unit: int
    template: str


class PodField(Struct, frozen=True):
    """A single-valued field of a pod's spec that a rule can inject.

    unset: the values that stand for "not set by the user", with what the API server fills in before any
    webhook sees the pod. description: for the schema of rule files. calculated: fields that the API server
    calculates from it: it did so before any webhook sees the pod, does so again afterwards, and denies a pod
    in which the earlier values do not agree; they are removed.
    """

    name: str
    kind: type[str | bool | int]
    unset: tuple[Any, ...]
    description: str
    calculated: tuple[str, ...] = ()


# The single-valued fields that rules can inject. A new one is one entry here: rule files, schema, stage and
# the law that a user's value survives go through this table.
POD_FIELDS: Final = (
    PodField("runtimeClassName", str, (None, ""), "if the pod names none"),
    PodField(
        "schedulerName",
        str,
        DEFAULT_SCHEDULERS,
        "if the pod names none except default-scheduler",
    ),
    PodField("hostIPC", bool, (None,), "true: if the pod does not set it"),
    # https://github.com/kubernetes/kubernetes/blob/master/plugin/pkg/admission/priority/admission.go
    PodField(
        "priorityClassName",
        str,
        (None, ""),
        "if the pod names none; a PriorityClass of the cluster",
        calculated=("priority", "preemptionPolicy"),
    ),
    PodField(
        "activeDeadlineSeconds",
        int,
        (None,),
        "if the pod has none: seconds after which it fails; only for pods that end",
    ),
)


class Injection(Struct, frozen=True):
    """What an injection rule injects. Entries are as in the Kubernetes API.

    env: (name, entry or EnvFromResource). capabilities: of Linux, that are added to those of the container.
    pod_fields: values by the names of POD_FIELDS. The rest is merged into the pod or container.
    """

    env: tuple[tuple[str, EnvFromResource | Mapping[str, Any]], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    volume_mounts: tuple[Mapping[str, Any], ...] = ()
    capabilities: tuple[str, ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    required_terms: tuple[Mapping[str, Any], ...] = ()
    preferred_terms: tuple[Mapping[str, Any], ...] = ()
    pod_fields: Mapping[str, str | bool | int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class InjectionRule(RuleMeta, frozen=True):
    """What to inject into containers that match. override: also over what the user has set."""

    match: Match
    inject: Injection
    override: bool
    action: InjectionAction


class CompatibilityRule(RuleMeta, frozen=True):
    """How containers that match share GPUs, and what that requires of image, driver and GPU.

    no_fitting_node: the effect if no node is compatible; None: a warning if an autoscaler may add one,
    otherwise that of the rule. declarations: the effect if the pod declares what its image contains, None if
    it may. new_nodes: whether node affinity keeps a way in for nodes that an autoscaler adds. trial: the same
    rule with the checks that are a dry run, if there are any. action: the effect of everything else.
    """

    match: Match
    sharing: SharingPolicy
    no_fitting_node: Action | None
    declarations: Action | None
    action: Action
    new_nodes: NewNodes = NewNodes.AUTO
    trial: CompatibilityRule | None = None

    def __hash__(self) -> int:
        return hash(self.name)  # no two in force have the same

    def without_node(self, *, undeclared: bool) -> Action:
        """Return the effect if no node is compatible. undeclared: an autoscaler may add unknown ones."""
        if self.no_fitting_node is None:
            return mildest(self.action, Action.WARN) if undeclared else self.action
        return self.no_fitting_node


class NodeProfile(RuleMeta, frozen=True):
    """Nodes that an autoscaler may add. A fact that is not stated is unknown.

    match: labels of the present nodes that belong to it. labels: those that a node has when it is created,
    which the autoscaler knows. resources: offered amounts by name. capabilities: of its GPUs and its driver.
    can_scale: whether the autoscaler may add one now.
    """

    match: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    resources: tuple[tuple[str, int], ...]
    capabilities: NodeCapabilities
    can_scale: bool = True

    @property
    def pool(self) -> NodePool:
        """The nodes that may be added."""
        return NodePool(
            self.name,
            type(self).__name__,
            self.labels,
            self.taints,
            self.resources,
            self.capabilities,
            self.can_scale,
        )


class ImageCatalogRule(RuleMeta, frozen=True):
    """Image facts, which take precedence over the built-in catalogue."""

    rows: tuple[ImageRow, ...]


class Exemption(RuleMeta, frozen=True):
    """Rules that have no effect on some pods until a date.

    rules: names or globs of rules. match: the pods, by namespace and labels; it names no resources.
    service_accounts: compiled globs; empty for any. expires: seconds since the
    epoch (UTC), until: the same as written. description: why.
    """

    rules: tuple[str, ...]
    match: Match
    service_accounts: tuple[re.Pattern[str], ...]
    expires: float
    until: str


class FactRelease(RuleMeta, frozen=True):
    """A release of facts, which replaces the built-in one."""

    digest: str  # SHA-256 of the bundle, which identifies the facts
    facts: Facts

    def __eq__(self, other: object) -> bool:  # by digest, not by facts: the tables are read again for each
        return isinstance(other, FactRelease) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self.digest)

    def _identity(self) -> tuple[Any, ...]:
        return self.name, self.description, self.enabled, self.location, self.digest


Rule = (
    ResourceRule
    | InjectionRule
    | CompatibilityRule
    | ImageCatalogRule
    | Exemption
    | NodeProfile
    | FactRelease
)


def exclusive_key(rule: Rule) -> str:
    """Return what only one enabled rule may be for: a resource, or the facts; empty for other rules."""
    if isinstance(rule, ResourceRule):
        return "" if rule.additional else rule.key
    return "Facts" if isinstance(rule, FactRelease) else ""


class RuleSet(Struct, frozen=True):
    """All rules of a source, including the disabled ones."""

    resources: tuple[ResourceRule, ...] = ()
    injections: tuple[InjectionRule, ...] = ()
    compatibility: tuple[CompatibilityRule, ...] = ()
    images: tuple[ImageCatalogRule, ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    profiles: tuple[NodeProfile, ...] = ()
    releases: tuple[FactRelease, ...] = ()

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
            tuple(rule for rule in kept if isinstance(rule, NodeProfile)),
            tuple(rule for rule in kept if isinstance(rule, FactRelease)),
        )

    def __iter__(self) -> Iterator[Rule]:
        yield from self.resources
        yield from self.injections
        yield from self.compatibility
        yield from self.images
        yield from self.exemptions
        yield from self.profiles
        yield from self.releases

    @property
    def label_names(self) -> tuple[LabelNames, ...]:
        """The node labels that enabled compatibility rules read; without such rules, the built-in ones."""
        names = dict.fromkeys(rule.sharing.labels for rule in self.compatibility if rule.enabled)
        return tuple(names) or (LabelNames(),)

    @property
    def facts(self) -> Facts | None:
        """The facts that replace the built-in ones, if there are any."""
        return next((release.facts for release in self.releases if release.enabled), None)


def reads_namespaces(rules: RuleSet) -> bool:
    """Return whether an expression of an enabled rule names the labels of namespaces."""
    matched: list[InjectionRule | CompatibilityRule] = [*rules.injections, *rules.compatibility]
    expressions = [condition for rule in matched if rule.enabled for condition in rule.match.conditions]
    for rule in rules.resources:
        if rule.enabled:
            expressions += [validation.expression for validation in rule.validations]
            expressions += [rule.default_when] if rule.default_when else []
    return any("pod.namespaceLabels" in expression.inputs for expression in expressions)


PLACEHOLDER: Final = re.compile(r"\{(value|bytes|MiB|GiB)\}")


_RUNTIME_CLASS = "runtimeClassName"


class Setting(NamedTuple):
    """One value that a rule sets in a pod or, if of_container, in each container.

    name: as in the audit annotations, such as `env A` or `runtimeClassName`. path: in the rule's document.
    """

    name: str
    value: Any
    path: Path
    of_container: bool = False


def settings_of(rule: InjectionRule | ResourceRule) -> Iterator[Setting]:
    """Yield the single-valued settings of a rule."""
    if isinstance(rule, ResourceRule):
        if rule.runtime_class:
            yield Setting(_RUNTIME_CLASS, rule.runtime_class, ("data", _RUNTIME_CLASS))
        return
    inject = rule.inject
    for index, (name, value) in enumerate(inject.env):
        yield Setting(f"env {name}", value, ("inject", "env", index, "name"), of_container=True)
    for index, mount in enumerate(inject.volume_mounts):
        name = directory(mount["mountPath"])
        yield Setting(
            f"volumeMount {name}", mount, ("inject", "volumeMounts", index, "mountPath"), of_container=True
        )
    for index, volume in enumerate(inject.volumes):
        yield Setting(f"volume {volume['name']}", volume, ("inject", "volumes", index, "name"))
    for name in inject.pod_fields:
        yield Setting(name, inject.pod_fields[name], ("inject", name))
    for kind, entries in (("labels", inject.labels), ("annotations", inject.annotations)):
        for key, text in entries.items():
            yield Setting(f"{kind.removesuffix('s')} {key}", text, ("inject", kind, key))


def directory(path: str) -> str:
    """Return a mount path in the spelling that all spellings of it share: `/dev/shm/` is `/dev/shm`."""
    return normpath(f"/{path.lstrip('/')}")
