"""Configurations of devices in claims and device classes, which the driver of the devices validates.

The driver does so when it prepares the devices of a pod; with a mistake, the pod does not start. Facts:
`facts/claim_configs.yaml`.
Source: https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-claim-v1/ (config).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from enum import Enum
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

from rules.cuda.tables import read_table
from rules.kube.quantity import QuantityError, parse_quantity
from rules.nodes.devices.devices import MAX_NAME
from rules.text.i18n import Joined, Message
from rules.text.paths import Path, field_path, object_at
from rules.text.printable import shortened

# Limits of the API, on configurations of one claim and on the requests that each names.
_MAX_CONFIGS: Final = 32
_MAX_REQUESTS: Final = 32
_MAX_MISTAKES: Final = 16  # of one configuration that are looked at
_MAX_REPORTED: Final = 4
_MAX_DEVICES: Final = 64  # in a map by device that are looked at; a claim has 32 at most
_LONGEST: Final = 80  # characters of the user's text in a message
_NO_FIX: Final = Message()
# strconv.Atoi accepts a sign and zeros; a UUID of NVIDIA begins with GPU- or MIG-.
_DEVICE_KEY: Final = re.compile(r"\+?\d+|(?:GPU|MIG)-\S+", re.ASCII)
_WORDS: Final = {
    "object": Message("an object"),
    "text": Message("a text"),
    "boolean": Message("true or false"),
    "integer": Message("a whole number"),
    "quantity": Message("a quantity, such as 10Gi"),
    "quantities": Message("an object"),
}


class Effect(Enum):
    """What a mistake does."""

    UNDECODABLE = 1  # the driver cannot decode the configuration, whatever it is applied to
    INVALID = 2  # the driver refuses to apply it
    DEPENDS = 3  # the releases of the driver differ
    IGNORED = 4  # without effect


class Mistake(NamedTuple):
    """A mistake of a configuration. path: of the field in the parameters."""

    effect: Effect
    path: Path
    reason: Message  # without the path
    fix: Message = _NO_FIX


class DeviceConfig(NamedTuple):
    """One configuration for a driver.

    position: in its list. requests: the names of those that it is for; empty: all. parameters: as JSON.
    """

    position: int
    requests: tuple[str, ...]
    driver: str
    parameters: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The `kind` of the parameters; empty if absent."""
        kind = self.parameters.get("kind")
        return kind if isinstance(kind, str) else ""

    @property
    def is_known(self) -> bool:
        """Whether facts are known about its driver, or about its parameters."""
        table = _facts()
        return self.driver in table.drivers or self.parameters.get("apiVersion") == table.api_version

    @property
    def strategy(self) -> str:
        """The sharing strategy; empty if absent."""
        strategy = object_at(self.parameters, "sharing").get("strategy")
        return strategy if isinstance(strategy, str) else ""


class _Field(NamedTuple):
    """A field of the parameters, as in the table."""

    name: str
    type: str
    required: bool
    values: tuple[str, ...]
    minimum: str
    maximum: str
    beside: str
    ignored: bool


class DeviceType(NamedTuple):
    """A type of a driver's devices."""

    driver: str
    device: str  # the type; empty if unknown


class _Facts(NamedTuple):
    """facts/claim_configs.yaml. types: by kind. classes: types by DeviceClass. fields: by kind and path."""

    api_version: str
    newest: str
    types: Mapping[str, DeviceType]
    classes: Mapping[str, DeviceType]
    drivers: frozenset[str]
    fields: Mapping[str, Mapping[Path, Mapping[str, _Field]]]
    gates: Mapping[str, str]


@cache
def _facts() -> _Facts:
    table = read_table("claim_configs")
    fields: dict[str, dict[Path, dict[str, _Field]]] = {}
    for row in table["fields"]:
        *parent, name = row["field"].split(".")
        field = _Field(
            name,
            row["type"],
            row.get("required", False),
            tuple(row.get("values", ())),
            row.get("minimum", ""),
            row.get("maximum", ""),
            row.get("beside", ""),
            row.get("ignored", False),
        )
        for kind in row["kinds"]:
            fields.setdefault(kind, {}).setdefault(tuple(parent), {})[name] = field
    types = {row["kind"]: DeviceType(row["driver"], row["device"]) for row in table["kinds"]}
    return _Facts(
        table["api_version"],
        table["newest"],
        types,
        {row["class"]: types[row["kind"]] for row in table["kinds"]},
        frozenset(of_kind.driver for of_kind in types.values()),
        fields,
        {row["strategy"]: row["gate"] for row in table["gates"]},
    )


def read_configs(raw: object) -> tuple[DeviceConfig, ...]:
    """Return the configurations in a list of a claim or class, as JSON, of which something is known."""
    configs = []
    for index, entry in enumerate(raw[:_MAX_CONFIGS] if isinstance(raw, list) else ()):
        opaque = object_at(entry, "opaque")
        driver, requests = opaque.get("driver"), entry.get("requests") if isinstance(entry, Mapping) else None
        names = requests[:_MAX_REQUESTS] if isinstance(requests, list) else ()
        config = DeviceConfig(
            index,
            tuple(name for name in names if isinstance(name, str)),
            driver[:MAX_NAME] if isinstance(driver, str) else "",
            object_at(opaque, "parameters"),
        )
        if config.is_known:
            configs.append(config)
    return tuple(configs)


def newest_release() -> str:
    """Return the newest release of the driver whose configurations are known."""
    return _facts().newest


def gate_of(config: DeviceConfig) -> str:
    """Return the feature gate of the driver that a configuration needs, or an empty string."""
    return _facts().gates.get(config.strategy, "")


def type_of_class(name: str) -> DeviceType | None:
    """Return the type of the devices of a DeviceClass of a driver's chart; None for another class."""
    return _facts().classes.get(name)


def type_of_kind(kind: str) -> DeviceType | None:
    """Return the type of the devices that take a kind of configuration; None if the kind is unknown."""
    return _facts().types.get(kind)


def kind_for(device_type: DeviceType) -> str:
    """Return the kind of configuration for a type of devices, or an empty string."""
    return next((kind for kind, of_kind in _facts().types.items() if of_kind == device_type), "")


def mistakes(config: DeviceConfig) -> list[Mistake]:
    """Return the mistakes of a configuration, some at most, those by which the pod does not start first."""
    first = islice(_mistakes(config), _MAX_MISTAKES)
    return sorted(first, key=lambda mistake: mistake.effect.value)[:_MAX_REPORTED]


def _mistakes(config: DeviceConfig) -> Iterator[Mistake]:
    facts, parameters, kind = _facts(), config.parameters, config.kind
    version = parameters.get("apiVersion")
    if version != facts.api_version:
        group = str(version).partition("/")[0]
        newer = group == facts.api_version.partition("/")[0] and group != version
        effect = Effect.DEPENDS if newer else Effect.UNDECODABLE
        yield _unexpected(effect, ("apiVersion",), version, [facts.api_version])
        return
    if kind not in facts.types:
        kinds = [name for name, of_kind in facts.types.items() if of_kind.driver == config.driver]
        kinds = kinds or [*facts.types]
        near = _near(kind, kinds)
        # A newer release may have another kind, but none that is written almost alike.
        effect = Effect.UNDECODABLE if near or not kind else Effect.DEPENDS
        yield _unexpected(effect, ("kind",), parameters.get("kind"), kinds)
        return
    if config.driver != facts.types[kind].driver:
        effect = Effect.INVALID if config.driver in facts.drivers else Effect.IGNORED
        reason = Message("{kind} is not for driver {driver}", kind=kind, driver=config.driver)
        yield Mistake(effect, (), reason, Message("write driver: {driver}", driver=facts.types[kind].driver))
        return
    yield from _of_object(kind, parameters, ())


def _of_object(kind: str, given: Mapping[str, Any], path: Path) -> Iterator[Mistake]:
    known = _facts().fields.get(kind, {}).get(path, {})
    for name, field in known.items():
        value, place = given.get(name), (*path, name)
        if value is None or (value == "" and field.required):
            if field.required:
                yield _unexpected(Effect.INVALID, place, None, field.values or [_WORDS[field.type]])
            continue
        strategy = given.get("strategy")
        if field.beside and isinstance(strategy, str) and strategy != field.beside:
            yield Mistake(
                Effect.IGNORED if field.ignored else Effect.INVALID,
                place,
                Message("it is not for strategy {strategy}", strategy=shortened(strategy, _LONGEST)),
                Message("remove {name}, or write strategy: {strategy}", name=name, strategy=field.beside),
            )
        elif field.type == "object" and isinstance(value, Mapping):
            yield from _of_object(kind, value, place)
        elif field.type == "quantities" and isinstance(value, Mapping):
            for key, quantity in islice(value.items(), _MAX_DEVICES):
                if not _DEVICE_KEY.fullmatch(str(key)):
                    of_device = Message("the index of a device, such as 0, or its UUID")
                    yield _unexpected(Effect.INVALID, place, key, [of_device])
                yield from _of_value(field._replace(type="quantity"), quantity, (*place, str(key)))
        else:
            yield from _of_value(field, value, place)
    for name in given:
        if name not in known and (path or name not in ("apiVersion", "kind")):
            shown = shortened(str(name), _LONGEST)
            reason = Message("{kind} has no field {name}", kind=kind, name=shown)
            yield Mistake(
                Effect.DEPENDS, (*path, str(name)), reason, _write(shown, known, Message("remove it"))
            )


def _of_value(field: _Field, value: object, path: Path) -> Iterator[Mistake]:
    """Yield the mistake of a value that is no object."""
    number: Any = None
    match field.type:
        case "text":
            decodable = isinstance(value, str)
        case "boolean":
            decodable = isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            decodable, number = whole and not isinstance(value, bool), value
        case "quantity":
            with suppress(QuantityError):
                number = parse_quantity(value)
            decodable = number is not None
        case _:
            decodable = False
    if not decodable:
        yield _unexpected(Effect.UNDECODABLE, path, value, [_WORDS[field.type]])
    elif field.values and value not in field.values:
        yield _unexpected(Effect.INVALID, path, value, field.values)
    elif (field.minimum and number < parse_quantity(field.minimum)) or (
        field.maximum and number > parse_quantity(field.maximum)
    ):
        least, most = field.minimum, field.maximum
        bounds = Message("{least} or more", least=least)
        if most:
            bounds = Message("{least} to {most}", least=least, most=most)
        yield _unexpected(Effect.INVALID, path, value, [bounds])


def _unexpected(effect: Effect, path: Path, value: object, expected: Iterable[str | Message]) -> Mistake:
    """Return the mistake of a value; None: it is missing."""
    allowed = [*expected]
    wanted: Message | str = allowed[0]
    if len(allowed) > 1:
        wanted = Message("{values} or {last}", values=Joined(", ", allowed[:-1]), last=allowed[-1])
    if value is None:
        return Mistake(effect, path, Message("it is missing, expected {expected}", expected=wanted))
    shown = shortened(value if isinstance(value, str) else str(value), _LONGEST)
    reason = Message("found {value}, expected {expected}", value=shown, expected=wanted)
    names = [name for name in allowed if isinstance(name, str)]
    only = Message("write {name}", name=names[0]) if len(names) == 1 else _NO_FIX
    return Mistake(effect, path, reason, _write(shown, names, only))


def _write(text: str, known: Iterable[str], otherwise: Message) -> Message:
    """Return the fix to write the known name that a text is meant to be."""
    near = _near(text, known)
    return Message("write {name}", name=near) if near else otherwise


def _near(text: str, known: Iterable[str]) -> str:
    """Return the known name that a text is meant to be, or an empty string."""
    by_case = {name.lower(): name for name in known}
    near = get_close_matches(text[:_LONGEST].lower(), by_case, 1, 0.75)
    return by_case[near[0]] if near else ""


def place_of(config: DeviceConfig, prefix: Path, path: Path) -> str:
    """Return the path of a field of a configuration in its object. prefix: of the list."""
    at = ("opaque", "parameters", *path) if path else ("opaque", "driver")
    return field_path((*prefix, config.position, *at))


def short_place(config: DeviceConfig, path: Path) -> str:
    """Return the place of a field of a configuration for a message, which is cut if it is long."""
    return f"config[{config.position}], {field_path(path) if path else 'driver'}"
