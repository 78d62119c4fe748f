"""Configurations of devices in the claims of a pod, which the driver of the devices may refuse.

The driver reads them when it prepares the devices: the pod is scheduled, and does not start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from rules.compatibility.result import ClaimAllowance
from rules.model.check_result import OFF, Level, capped
from rules.model.finding import Basis, Finding, notice
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.devices.claims import ClaimRequest, DeviceRequest, PodClaim, candidates, claim_of
from rules.nodes.devices.device_classes import IMPLICIT_PREFIX, DeviceClass, read_device_class
from rules.nodes.devices.device_configs import (
    DeviceConfig,
    DeviceType,
    Effect,
    Mistake,
    gate_of,
    kind_for,
    mistakes,
    newest_release,
    place_of,
    short_place,
    type_of_class,
    type_of_kind,
)
from rules.nodes.devices.devices import facts_of
from rules.nodes.devices.state import CLAIM, DEVICE_CLASS, TEMPLATE, DraState
from rules.text.i18n import Message
from rules.text.paths import Path

# Mistakes of one object that are reported. To find what a name is meant to be takes 0.05 ms.
_MOST: Final = 8
# What a configuration takes of the allowance of an object: up to 0.2 ms.
_CONFIG_COST: Final = 8
# Where the list of configurations is, by the kind of object.
_LISTS: Final[Mapping[str, Path]] = {
    CLAIM: ("spec", "devices", "config"),
    TEMPLATE: ("spec", "spec", "devices", "config"),
    DEVICE_CLASS: ("spec", "config"),
}
_REFUSED: Final = Message("{place}: {reason}; driver {driver} refuses it, and the pod does not start")
_PERHAPS: Final = Message("{place}: {reason}; driver {driver} refuses it if it is applied")
_DEPENDS: Final = Message("{place}: {reason}; most releases of driver {driver} up to {newest} refuse it")
_IGNORED: Final = Message("{place}: {reason}; it has no effect")
_OF_OBJECT: Final = Message("{kind} {name}: {what}")
_GATE: Final = Message("{place}: {strategy} needs the driver's feature gate {gate}, perhaps off")
_ENABLE: Final = Message("turn it on in the driver's chart, and list it in featureGates of the rule")


class _Source(NamedTuple):
    """An object with configurations: its kind and name, and the requests that they may be for.

    others: configurations that take precedence over all of these.
    """

    kind: str
    name: str
    configs: tuple[DeviceConfig, ...]
    requests: tuple[ClaimRequest, ...]
    others: tuple[DeviceConfig, ...] = ()


class _Mistaken(NamedTuple):
    """A mistake of a configuration, and whether the driver refuses it for sure."""

    source: _Source
    config: DeviceConfig
    mistake: Mistake
    certain: bool


class _Devices:
    """Finds the types of devices that requests may be given, within the allowance of the object."""

    __slots__ = ("_allowance", "_dra", "_found")

    def __init__(self, dra: DraState, allowance: ClaimAllowance) -> None:
        self._dra = dra
        self._allowance = allowance
        self._found: dict[int, set[DeviceType] | None] = {}  # by the id of the request

    def affords(self) -> bool:
        """Return whether one more configuration may be looked at."""
        self._allowance.left -= _CONFIG_COST
        return self._allowance.left >= 0

    def types(self, request: ClaimRequest) -> set[DeviceType] | None:
        """Return the types of devices that a request may be given; None if they are unknown."""
        if id(request) not in self._found:
            kinds = len(self._dra.devices.by_kind) + len(self._dra.devices.elsewhere)
            self._allowance.left -= kinds * len(request.alternatives)
            self._found[id(request)] = self._types(request) if self._allowance.left >= 0 else None
        return self._found[id(request)]

    def _types(self, request: ClaimRequest) -> set[DeviceType] | None:
        types: set[DeviceType] = set()
        classes, devices = self._dra.classes, self._dra.devices
        for alternative in request.alternatives:
            selected, unknown, *_ = candidates(ClaimRequest("", (alternative,)), classes, devices)
            if unknown or not selected:
                of_class = type_of_class(alternative.device_class)
                if of_class is None:
                    return None
                types.add(of_class)
                continue
            for candidate in selected:
                facts = facts_of(candidate.kind)
                types.add(DeviceType(candidate.kind.driver, (facts.type or "") if facts else ""))
        return None if request.unknown else types


def evaluate_configs(
    claims: Sequence[PodClaim],
    place: str,
    rules: Iterable[CompatibilityRule],
    dra: DraState,
    allowance: ClaimAllowance,
) -> list[Finding]:
    """Return the findings on the configurations of a pod's claims and of their DeviceClasses.

    place: the path of the claims in the object. rules: those that apply to the containers with claims.
    allowance: what is left for the claims of the object; the configurations beyond it are not looked at.
    """
    sources = [source for claim in claims for source in _sources(claim, dra)]
    return _findings(sources, place, rules, _Devices(dra, allowance), of_pod=True) if sources else []


def config_findings(
    kind: str, document: Mapping[str, Any], rules: Iterable[CompatibilityRule], dra: DraState
) -> list[Finding]:
    """Return the findings on the configurations of a claim, a template or a DeviceClass itself."""
    source = _own_source(kind, document)
    devices = _Devices(dra, ClaimAllowance())
    return _findings([source], "", rules, devices, of_pod=False) if source else []


def _findings(
    sources: Sequence[_Source],
    place: str,
    rules: Iterable[CompatibilityRule],
    devices: _Devices,
    *,
    of_pod: bool,
) -> list[Finding]:
    mistaken = [*islice(_evaluated(sources, devices), _MOST)]
    # What else is wrong is said first.
    gated = [] if mistaken else [*islice(_gated(sources), _MOST)]
    findings = []
    for rule in dict.fromkeys(rules if mistaken or gated else ()):
        findings += [
            finding
            for mistaken_config in mistaken
            if (finding := _finding(rule, mistaken_config, place, of_pod=of_pod))
        ]
        if rule.action is not Action.DRYRUN and rule.sharing.checks.claim_configs is not OFF:
            findings += [
                _of_gate(rule, source, config, gate, of_pod=of_pod)
                for source, config, gate in gated
                if gate not in rule.sharing.feature_gates
            ]
    return findings


def _gated(sources: Iterable[_Source]) -> Iterator[tuple[_Source, DeviceConfig, str]]:
    """Yield the configurations that need a feature gate, each gate once."""
    seen: set[str] = set()
    for source in sources:
        for config in source.configs:
            if (gate := gate_of(config)) and gate not in seen:
                seen.add(gate)
                yield source, config, gate


def config_resources(kind: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the resources that rules for an object with configurations match; empty if it has none."""
    source = _own_source(kind, document)
    if source is None or not source.configs:
        return ()
    classes = (
        alternative.device_class for request in source.requests for alternative in request.alternatives
    )
    return tuple(dict.fromkeys(IMPLICIT_PREFIX + name for name in classes))


def _own_source(kind: str, document: Mapping[str, Any]) -> _Source | None:
    if kind == DEVICE_CLASS:
        device_class, _ = read_device_class(document)
        return _of_class(device_class, device_class.name) if device_class else None
    claim = claim_of(kind, document)
    return _Source(*claim.source, claim.configs, claim.requests)


def _of_class(device_class: DeviceClass, name: str, request: str = "") -> _Source:
    requests = (ClaimRequest(request, (DeviceRequest("", name),)),)
    return _Source(DEVICE_CLASS, name, device_class.configs, requests)


def _sources(claim: PodClaim, dra: DraState) -> Iterator[_Source]:
    """Yield the claim and its DeviceClasses, if they have configurations."""
    if claim.configs:
        yield _Source(*claim.source, claim.configs, claim.requests)
    seen: set[str] = set()
    for request in claim.requests:
        for alternative in request.alternatives:
            device_class = dra.classes.by_name.get(alternative.device_class)
            if device_class and device_class.configs and device_class.name not in seen:
                seen.add(device_class.name)
                yield _Source(
                    DEVICE_CLASS, device_class.name, device_class.configs, (request,), claim.configs
                )


def _evaluated(sources: Iterable[_Source], devices: _Devices) -> Iterator[_Mistaken]:
    """Yield the mistakes of all configurations; a class of several claims has them once."""
    done: set[tuple[str, str]] = set()
    for source in sources:
        if (source.kind, source.name) in done:
            continue
        done.add((source.kind, source.name))
        for config in source.configs:
            if not devices.affords():
                return
            of_config = mistakes(config)
            for mistake in of_config:
                yield _Mistaken(source, config, mistake, _is_certain(source, config, mistake, devices))
            if not of_config and (mistake_of_type := _of_type(source, config, devices)):
                # Devices of the right type may come, unless the class is known to have none.
                certain = _is_certain(source, config, mistake_of_type, devices) and all(
                    type_of_class(alternative.device_class)
                    for request in _targets(source, config)
                    for alternative in request.alternatives
                )
                yield _Mistaken(source, config, mistake_of_type, certain)


def _targets(source: _Source, config: DeviceConfig) -> list[ClaimRequest]:
    """Return the requests that a configuration is for. Of a DeviceClass, that is each with the class."""
    named = config.requests if source.kind != DEVICE_CLASS else ()
    return [request for request in source.requests if not named or request.name in named]


def _of_type(source: _Source, config: DeviceConfig, devices: _Devices) -> Mistake | None:
    """Return the mistake of a configuration for devices of another type, or None."""
    expected = type_of_kind(config.kind)
    if expected is None:
        return None
    suitable = {expected, DeviceType(expected.driver, "")}
    targets = [devices.types(request) for request in _targets(source, config)]
    if any(types is None or types & suitable for types in targets):
        return None
    others = [other for types in targets for other in types or () if other.driver == config.driver]
    if not others:
        return None
    reason = Message("{kind} is not for devices of type {type}", kind=config.kind, type=others[0].device)
    better = kind_for(others[0])
    fix = Message("write {name}", name=better) if better else Message()
    named = source.kind == DEVICE_CLASS or config.requests
    return Mistake(Effect.INVALID if named else Effect.IGNORED, ("kind",), reason, fix)


def _is_certain(source: _Source, config: DeviceConfig, mistake: Mistake, devices: _Devices) -> bool:
    """Return whether the driver refuses a configuration, whatever devices the scheduler chooses."""
    if mistake.effect not in (Effect.UNDECODABLE, Effect.INVALID):
        return False
    targets = _targets(source, config)
    if mistake.effect is Effect.INVALID:
        later = [other for other in source.configs if other.position > config.position] + [*source.others]
        names = {request.name for request in targets}
        for other in later:  # takes precedence over this one
            if other.driver == config.driver and (not other.requests or names & {*other.requests}):
                return False
    expected = type_of_kind(config.kind)
    for request in targets:
        types = devices.types(request)
        if not types or any(device_type.driver != config.driver for device_type in types):
            continue
        named = source.kind == DEVICE_CLASS or config.requests
        other_driver = expected is None or expected.driver != config.driver
        if mistake.effect is Effect.UNDECODABLE or named or other_driver or types == {expected}:
            return True
    return False


def _finding(rule: CompatibilityRule, mistaken: _Mistaken, place: str, *, of_pod: bool) -> Finding | None:
    """Return the finding of a rule, None if the rule makes none. place: in the pod, if it is of one."""
    source, config, mistake, certain = mistaken
    setting = rule.sharing.checks.claim_configs
    if setting is OFF:
        return None
    if mistake.effect is Effect.IGNORED:
        words = _IGNORED
    elif mistake.effect is Effect.DEPENDS:
        words = _DEPENDS
    else:
        words = _REFUSED if certain else _PERHAPS
    cause = words.having(
        place=short_place(config, mistake.path),
        reason=mistake.reason,
        driver=config.driver,
        newest=newest_release(),
    )
    reason = _OF_OBJECT.having(kind=source.kind, name=source.name, what=cause) if of_pod else cause
    if capped(setting, certain=certain) is Level.INCOMPATIBLE:
        place = place or place_of(config, _LISTS[source.kind], mistake.path)
        return Finding(rule.name, rule.action, place, reason, mistake.fix, cause, Basis.FACT)
    return None if rule.action is Action.DRYRUN else notice(rule.name, reason, mistake.fix, cause)


def _of_gate(
    rule: CompatibilityRule, source: _Source, config: DeviceConfig, gate: str, *, of_pod: bool
) -> Finding:
    place = short_place(config, ("sharing", "strategy"))
    cause = _GATE.having(place=place, strategy=config.strategy, gate=gate)
    reason = _OF_OBJECT.having(kind=source.kind, name=source.name, what=cause) if of_pod else cause
    return notice(rule.name, reason, _ENABLE, cause)._replace(lacks_fact=True)
