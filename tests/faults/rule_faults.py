"""Faults of rules, and of the stored last valid versions of rules."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import yaml

from certs.kubernetes_api import KubernetesError
from tests.faults.broken_proxy import Refusing
from tests.faults.measure import AWAY, GONE, TWO, Breaks, Fault
from tests.faults.probes import B, Probe, rules
from tests.faults.world import RULES, empty
from tests.support.builders import resource_rule
from tests.support.webhooks import body, pod
from webhook.cluster.rule_snapshot import RuleSnapshot

if TYPE_CHECKING:
    from tests.faults.world import World

_CONFIG_MAPS: Final = "/api/v1/namespaces/gpugate/configmaps"
_LAST_GOOD: Final = f"{_CONFIG_MAPS}/gpugate-last-good"
# Number of valid rules, and of new invalid ones.
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
    """Make a rule invalid during the block, without the webhook; its previous version must stay in force."""
    good = next(rule for rule in rules() if rule["data"].get("key") == B)
    bad = good | {"data": good["data"] | {"limits": "optinal"}}
    with world.without_rule_webhook():
        world.put(bad)
        world.until(lambda: world.gate.sample('gpugate_rules{state="stale"}') >= 1)
    try:
        yield
    finally:
        world.put(good)


def _many(number: int, **data: str) -> dict[str, Any]:
    key, group = f"many.example.com/r{number}", f"many-{number // 2}"
    return dict(yaml.safe_load(resource_rule(key, group=group, **({"defaultValue": "7"} | data))))  # type: ignore[arg-type]


def _apply_all(world: World, documents: list[dict[str, Any]]) -> int:
    """Apply rules concurrently; return how many are denied."""

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
    """Return the probe that is answered right when one of the many rules is in force."""
    resource = f"many.example.com/r{number ^ 1}"
    return Probe("many rules", "/mutate", body(pod({resource: "1"})), allowed=True, needle='"7"')


@contextmanager
def _many_rules(world: World) -> Iterator[None]:
    """Apply a hundred valid rules, and wait until they are in force and stored."""
    _apply_all(world, [_many(number) for number in range(_MANY)])
    last_good = RuleSnapshot(world.api, "gpugate")
    world.until(partial(world.answers, _knows(_MANY - 1)))
    world.until(lambda: f"r{_MANY - 1}" in str(last_good.load()))
    try:
        yield
    finally:
        groups = ",".join(f"many-{number}" for number in range(_MANY))
        world.remove(f"{RULES}?labelSelector=features.cpaas.io/group+in+({groups})")


def _bad_rules(*, restart: bool = False) -> Breaks:
    """Return a fault that makes these invalid and adds as many invalid ones, without the webhook."""

    @contextmanager
    def breaks(world: World) -> Iterator[None]:
        with world.without_rule_webhook():
            _apply_all(world, _BAD)
        world.until(lambda: world.gate.sample('gpugate_rules{state="refused"}') >= _MANY)
        if restart:
            world.gate.kill()
            world.gate.start()
        yield

    return breaks


@contextmanager
def _denied_rules(world: World) -> Iterator[None]:
    """Apply as many invalid rules through the webhook; all must be denied."""
    accepted = 2 * _MANY - _apply_all(world, _BAD)
    assert not accepted, f"{accepted} invalid rules were accepted"
    yield


@contextmanager
def _applied(world: World) -> Iterator[None]:
    """Apply the manifests again."""
    world.installation.apply()
    yield


@contextmanager
def _restart_without_last_good(world: World) -> Iterator[None]:
    """Make a rule invalid and restart gpugate, while the last valid versions cannot be read."""
    with (
        _broken_rule(world),
        world.with_proxy_mode(Refusing(HTTPStatus.INTERNAL_SERVER_ERROR, only=_LAST_GOOD)),
    ):
        world.gate.kill()
        world.gate.start()
        yield


def _is_stored(world: World) -> bool:
    """Return whether the last valid versions are stored for a restart."""
    return bool(RuleSnapshot(world.api, "gpugate").load())


_KNOWN: Final = tuple(_knows(number) for number in range(_MANY))

FAULTS: Final = (
    Fault(
        "ConfigMap deleted",
        "`gpugate-last-good` is deleted and a rule is made invalid without the webhook; then the ConfigMap "
        "is applied again, empty, and the rule is fixed",
        "The versions in force are in memory, and stored again when the ConfigMap exists. Only a replica "
        "that is killed while a rule is invalid starts without that rule.",
        _last_good_deleted,
        restored=_is_stored,
    ),
    Fault(
        "200 invalid rules at once",
        "100 valid rules are made invalid and 100 invalid ones are added, without the webhook",
        "The last valid version of each stays in force.",
        _bad_rules(),
        prepare=_many_rules,
        probes=_KNOWN,
    ),
    Fault(
        "200 invalid rules at once, and a restart",
        "the same, and the only replica is killed and restarted",
        "The last valid versions are read from `gpugate-last-good`. " + GONE,
        _bad_rules(restart=True),
        loses=AWAY,
        remedy=TWO,
        prepare=_many_rules,
        probes=_KNOWN,
    ),
    Fault(
        "200 invalid rules through the webhook",
        "`kubectl apply` of the same 200, with the webhook for rules",
        "Each is denied.",
        _denied_rules,
        prepare=_many_rules,
        probes=_KNOWN,
    ),
    Fault(
        "restart while the last valid versions cannot be read",
        "a rule is made invalid without the webhook, the only replica is killed and restarted, and requests "
        "for `gpugate-last-good` are answered 500",
        "Not ready until they can be read, for at most 20 s; then ready without that rule. They are never "
        "overwritten. " + GONE,
        _restart_without_last_good,
        loses=AWAY,
        remedy=TWO,
    ),
    Fault(
        "manifests applied again",
        "`kubectl apply` of the overlay",
        "The manifests contain nothing that gpugate sets.",
        _applied,
    ),
)
