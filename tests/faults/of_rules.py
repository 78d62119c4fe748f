"""Faults of rules, and of the versions of them that are in force."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import yaml

from certs.kubernetes_api import KubernetesError
from tests.faults.load import WRONG
from tests.faults.measure import AWAY, GONE, TWO, Breaks, Fault
from tests.faults.probes import B, Probe, rules
from tests.faults.ways import Refusing
from tests.faults.world import RULES, empty
from tests.support.builders import resource_rule
from tests.support.webhooks import body, pod
from webhook.cluster.rule_snapshot import RuleSnapshot

if TYPE_CHECKING:
    from tests.faults.world import World

_CONFIG_MAPS: Final = "/api/v1/namespaces/gpugate/configmaps"
_LAST_GOOD: Final = f"{_CONFIG_MAPS}/gpugate-last-good"
# Good rules, and as many new ones that are bad.
_MANY: Final = 100


@contextmanager
def _last_good_deleted(world: World) -> Iterator[None]:
    world.remove(_LAST_GOOD)
    with _broken_rule(world):
        try:
            yield
        finally:
            world.put(empty("ConfigMap", "gpugate-last-good"), _CONFIG_MAPS)


@contextmanager
def _broken_rule(world: World) -> Iterator[None]:
    """Break a rule past the webhook while the block runs: its version before has to stay in force."""
    good = next(rule for rule in rules() if rule["data"].get("key") == B)
    bad = good | {"data": good["data"] | {"limits": "optinal"}}
    with world.past_the_webhook():
        world.put(bad)
        world.until(lambda: world.gate.sample('gpugate_rules{state="stale"}') >= 1)
    try:
        yield
    finally:
        world.put(good)


def _many(number: int, **data: str) -> dict[str, Any]:
    key, group = f"many.example.com/r{number}", f"many-{number // 2}"
    return dict(yaml.safe_load(resource_rule(key, group=group, **({"defaultValue": "7"} | data))))  # type: ignore[arg-type]


def _at_once(world: World, documents: list[dict[str, Any]]) -> int:
    """Put in rules, several at a time; return how many are refused."""

    def put(document: dict[str, Any]) -> int:
        try:
            world.put(document)
        except KubernetesError:
            return 1
        return 0

    with ThreadPoolExecutor(8) as threads:
        return sum(threads.map(put, documents))


_BAD: Final = [_many(number, limits="optinal") for number in range(2 * _MANY)]


def _knows(number: int) -> Probe:
    """Return the question whose answer tells that a rule of the many is in force."""
    asked = f"many.example.com/r{number ^ 1}"
    return Probe("many rules", "/mutate", body(pod({asked: "1"})), allowed=True, needle='"7"')


@contextmanager
def _many_rules(world: World) -> Iterator[None]:
    """Have a hundred good rules in force, and kept."""
    _at_once(world, [_many(number) for number in range(_MANY)])
    last_good = RuleSnapshot(world.api, "gpugate")
    world.until(partial(world.answers, _knows(_MANY - 1)))
    world.until(lambda: f"r{_MANY - 1}" in str(last_good.load()))
    try:
        yield
    finally:
        groups = ",".join(f"many-{number}" for number in range(_MANY))
        world.remove(f"{RULES}?labelSelector=features.cpaas.io/group+in+({groups})")


def _bad_rules(*, restart: bool = False) -> Breaks:
    """Return what breaks those, and puts in as many new ones that are bad, past the webhook."""

    @contextmanager
    def breaks(world: World) -> Iterator[None]:
        with world.past_the_webhook():
            _at_once(world, _BAD)
        world.until(lambda: world.gate.sample('gpugate_rules{state="refused"}') >= _MANY)
        if restart:
            world.gate.kill()
            world.gate.start()
        yield

    return breaks


@contextmanager
def _refused_rules(world: World) -> Iterator[None]:
    """Apply as many bad rules through the webhook; none may be taken."""
    taken = 2 * _MANY - _at_once(world, _BAD)
    assert not taken, f"{taken} bad rules were taken"
    yield


@contextmanager
def _applied(world: World) -> Iterator[None]:
    """Apply the manifests again, which have the matchConditions of the rules that ship."""
    world.installation.apply()
    yield


@contextmanager
def _restart_while_unread(world: World) -> Iterator[None]:
    """Break a rule and restart the gate, which the API server answers all but the last good versions."""
    with _broken_rule(world), world.broken(Refusing(HTTPStatus.INTERNAL_SERVER_ERROR, only=_LAST_GOOD)):
        world.gate.kill()
        world.gate.start()
        yield


def _is_kept(world: World) -> bool:
    """Tell whether the last good versions are where a restart finds them."""
    return bool(RuleSnapshot(world.api, "gpugate").load())


_KNOWN: Final = tuple(_knows(number) for number in range(_MANY))

FAULTS: Final = (
    Fault(
        "ConfigMap deleted",
        "`gpugate-last-good` is deleted and a rule broken past the webhook; then it is applied again, empty, "
        "and the rule mended",
        "The versions in force are in memory, and kept again once the ConfigMap is there. Only who is killed "
        "meanwhile, while a rule is broken, starts without that rule.",
        _last_good_deleted,
        restored=_is_kept,
    ),
    Fault(
        "200 bad rules at once",
        "100 good rules are replaced by bad ones and 100 bad ones are new, past the webhook",
        "The last good version of each stays in force.",
        _bad_rules(),
        prepare=_many_rules,
        probes=_KNOWN,
    ),
    Fault(
        "200 bad rules at once, and a restart",
        "the same, and the only replica is killed and starts",
        "The last good versions are read from `gpugate-last-good`. " + GONE,
        _bad_rules(restart=True),
        loses=AWAY,
        remedy=TWO,
        prepare=_many_rules,
        probes=_KNOWN,
    ),
    Fault(
        "200 bad rules through the webhook",
        "`kubectl apply` of the same 200, with the webhook for rules in place",
        "Each is refused.",
        _refused_rules,
        prepare=_many_rules,
        probes=_KNOWN,
    ),
    Fault(
        "restart while the last good versions cannot be read",
        "a rule is broken past the webhook, the only replica is killed and starts, and is answered 500 for "
        "`gpugate-last-good`",
        "Not ready until they can be read, for 20 s at most, then without that rule; they are never written "
        "over. " + GONE,
        _restart_while_unread,
        loses=AWAY,
        remedy=TWO,
    ),
    Fault(
        "manifests applied again",
        "`kubectl apply` of the overlay, whose matchConditions name the resources of the rules that ship and "
        "no others",
        "Until the gate has written its own back, within 2 s, the API server does not ask about pods with "
        "resources of other rules: they pass unjudged.",
        _applied,
        loses=frozenset({WRONG}),
        remedy="apply the manifests while no pods are created that no shipped rule is about, or keep your "
        "matchConditions in an overlay.",
    ),
)
