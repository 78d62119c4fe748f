"""NVIDIA_REQUIRE_* variables: requirements of an image, in the language of libnvidia-container.

    cuda>=12.4 brand=tesla,driver>=535,driver<536

A space is OR, a comma is AND; several variables are ANDed. Properties: cuda (the driver's CUDA version),
driver, arch (compute capability), brand. An invalid variable is reported and requires nothing.

Source: NVIDIA/libnvidia-container src/cli/dsl.c, and NVIDIA/nvidia-container-toolkit
internal/config/image/cuda_image.go for the variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rules.cuda.versions import CudaVersion, DriverVersion
from rules.text.bounded_cache import bounded_cache, length
from rules.text.i18n import Message
from rules.text.printable import shortened

REQUIRE_PREFIX: Final = "NVIDIA_REQUIRE_"
REQUIRE_CUDA: Final = "NVIDIA_REQUIRE_CUDA"
_NOT_FOR_SERVERS: Final = "NVIDIA_REQUIRE_JETPACK"
DISABLE_REQUIRE: Final = "NVIDIA_DISABLE_REQUIRE"
# Go's strconv.ParseBool.
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})

# A run of these characters is the operator. dsl.c compares only as many characters as are given, so a single
# `!` is `!=`.
_FACTOR = re.compile(r"([^<>=!]+)([<>=!]+)([^<>=!].*)", re.DOTALL)
_VERSION = re.compile(r"\d{1,9}(?:\.+\d{1,9})*\.*", re.ASCII)
_PROPERTIES: Final = ("cuda", "driver", "arch", "brand")
# The longest value in NVIDIA's images has about 2,000 characters; longer ones than this are not parsed.
_MAX_LENGTH: Final = 16 * 1024
_MAX_CACHED: Final = 4096  # characters; the factors of a value of this length take about 170 KB
_MAX_SHOWN: Final = 80  # characters of a user's text in a message
# Steps for one condition of a variable: it is parsed, compared with some dozen kinds of nodes, and turned
# into labels.
STEPS_OF_CONDITION: Final = 200
_STEPS_OF_VARIABLE: Final = 500
# Cached results of an image's constraint: whether a kind of node satisfies it, and its groups by brand.
_MOST_ANSWERS: Final = 256
_MOST_BRANDS: Final = 32


_NO_MINOR: Final = 10**9  # above the minor version of any driver

Numbers = tuple[int, ...]  # of a version, without trailing zeros: 12.0 and 12 are the same

_COMPARE: Final[Mapping[str, Callable[[Numbers, Numbers], bool]]] = {
    "=": lambda actual, required: actual == required,
    "!=": lambda actual, required: actual != required,
    "<": lambda actual, required: actual < required,
    "<=": lambda actual, required: actual <= required,
    ">": lambda actual, required: actual > required,
    ">=": lambda actual, required: actual >= required,
}


class Host(Struct, frozen=True):
    """The properties of a node; None: unknown."""

    cuda: tuple[int, int] | None = None
    driver: str | None = None  # such as 535.104.05
    arch: tuple[int, int] | None = None
    brands: tuple[str, ...] = ()  # NVML prints one of these names; empty: unknown
    branch: int | None = None  # the driver branch, such as 535, if the full version is unknown
    architecture: str = ""  # as in kubernetes.io/arch; empty: unknown

    def numbers(self, name: str) -> tuple[Numbers, ...]:
        """Return a version of the node as comparable numbers, or its two bounds; empty if it is unknown."""
        if name == "driver":
            driver = _driver(self.driver) if self.driver else None
            if driver is not None:
                return (driver,)
            return ((self.branch,), (self.branch, _NO_MINOR)) if self.branch else ()
        version = self.cuda if name == "cuda" else self.arch
        return (_trimmed(version),) if version else ()


@lru_cache(maxsize=1024)  # driver versions of nodes
def _driver(text: str) -> Numbers | None:
    driver = DriverVersion.parse(text)
    return _trimmed(driver.numbers) if driver else None


class Factor(Struct, frozen=True):
    """One condition on a property."""

    name: str
    operator: str
    text: str
    numbers: Numbers | None  # the required version; None for a brand, which is a string

    def admits(self, brand: str) -> bool:
        """Return whether a GPU of a brand satisfies it; only for a condition on the brand."""
        return (brand == self.text.lower()) == (self.operator == "=")

    def holds(self, host: Host) -> bool | None:
        """Return whether a node satisfies it; None if that is unknown."""
        if self.numbers is None:
            return _same([self.admits(brand) for brand in host.brands])
        compare = _COMPARE[self.operator]
        return _same([compare(version, self.numbers) for version in host.numbers(self.name)])

    @property
    def lowest_cuda(self) -> CudaVersion | None:
        """The lowest CUDA version that can satisfy it; None if it sets no lower bound."""
        if self.name != "cuda" or self.numbers is None or self.operator not in {"=", ">=", ">"}:
            return None
        major, minor, *patch = (*self.numbers, 0, 0)
        # A driver's CUDA version has no patch: 12.4 is less than 12.4.1, so only 12.5 satisfies >=12.4.1.
        return CudaVersion(major, minor + (self.operator == ">" or any(patch)))


Group = tuple[Factor, ...]


class Constraint(Struct, frozen=True):
    """One variable: the groups are ORed, the factors of a group ANDed. Without groups it requires nothing.

    minimum: the CUDA version below which no node satisfies it; None if there is none.
    native: the CUDA version that the image was built with, as far as the variable shows. That is the minimum;
        if a group has only brand and driver (for which NVIDIA's images contain cuda-compat), it is the first
        lower bound of a group.
    problem: why the variable is invalid, or None.
    factors: the different factors of all groups.
    by_brand, answer: `of_brand` and `holds` with caches, for the variable of a known image.
    """

    variable: str
    text: str
    groups: tuple[Group, ...] = ()
    minimum: CudaVersion | None = None
    native: CudaVersion | None = None
    problem: Message | None = None
    factors: tuple[Factor, ...] = ()
    by_brand: Callable[[str | None], tuple[Group, ...]] | None = None
    answer: Callable[[Host], bool | None] | None = None

    def __eq__(self, other: object) -> bool:  # by name and text: the rest follows from them, and is long
        return isinstance(other, Constraint) and (self.variable, self.text) == (other.variable, other.text)

    def __hash__(self) -> int:
        return hash((self.variable, self.text))

    def holds(self, host: Host) -> bool | None:
        """Return whether a node satisfies it; None if that depends on an unknown property."""
        if not self.groups:
            return True
        return self.answer(host) if self.answer else held(self.groups, host)

    def of_brand(self, brand: str | None) -> tuple[Group, ...]:
        """Return its groups for GPUs of a brand, as the function `of_brand`."""
        return self.by_brand(brand) if self.by_brand else of_brand(self.groups, brand)

    @property
    def conditions(self) -> int:
        """The number of conditions that are compared with nodes; brands share equal ones."""
        return sum(len(group) for brand in (None, "") for group in self.of_brand(brand))

    @property
    def concerns_driver(self) -> bool:
        """Whether it states the admitted drivers: only then it replaces a comparison of versions."""
        return any(factor.name in {"cuda", "driver"} for factor in self.factors)

    @property
    def alternatives(self) -> tuple[Group, ...]:
        """The groups that admit drivers below the CUDA version of the image, by forward compatibility."""
        return tuple(group for group in self.groups if _lower_bound(group) is None)


def of_brand(groups: Iterable[Group], brand: str | None) -> tuple[Group, ...]:
    """Return the groups with a condition on the brand that a brand satisfies, without that condition.

    brand: empty for any brand; None for the groups without such a condition.
    """
    if brand is None:
        return tuple([group for group in groups if not any(factor.numbers is None for factor in group)])
    others: dict[Group, None] = {}
    for group in groups:
        brands = [factor for factor in group if factor.numbers is None]
        if brands and (not brand or all(factor.admits(brand) for factor in brands)):
            others[tuple([factor for factor in group if factor.numbers is not None])] = None
    return tuple(others)


def held(groups: tuple[Group, ...], host: Host) -> bool | None:
    """Return whether a node satisfies any of these groups, True without groups; None if it is unknown."""
    return _held(partial(of_brand, groups), host) if groups else True


def _held(groups_of: Callable[[str | None], tuple[Group, ...]], host: Host) -> bool | None:
    """Return whether a node satisfies any group. groups_of: returns the groups of a brand, see `of_brand`."""
    of_any = _any(_all(group, host) for group in groups_of(None))
    if of_any:
        return True
    if not host.brands:
        possible = of_any is None or any(_all(group, host) is not False for group in groups_of(""))
        return None if possible else False
    return _same(
        [_any([of_any, *[_all(group, host) for group in groups_of(brand)]]) for brand in host.brands]
    )


def requirement_cost(variables: Mapping[str, str]) -> int:
    """Return the maximum steps for the NVIDIA_REQUIRE_* variables, linear in their unparsed conditions.

    variables: names and values, with references expanded.
    """
    texts = [text for name, text in variables.items() if name.startswith(REQUIRE_PREFIX)]
    conditions = sum(1 + text.count(" ") + text.count(",") for text in texts)
    return _STEPS_OF_VARIABLE * len(texts) + STEPS_OF_CONDITION * conditions


def constraints(env: Mapping[str, str]) -> tuple[Constraint, ...]:
    """Return the constraints of a container's variables, which are ANDed."""
    named = [name for name in env if name.startswith(REQUIRE_PREFIX)]
    if not named or disabled(env):
        return ()
    return tuple(parse_constraint(name, env[name]) for name in named if not name.startswith(_NOT_FOR_SERVERS))


def disabled(env: Mapping[str, str]) -> bool:
    """Return whether the variables of a container switch all constraints off."""
    return env.get(DISABLE_REQUIRE) in _TRUE


def parse_constraint(variable: str, text: str) -> Constraint:
    """Return the constraint of a variable; an invalid one requires nothing and has a problem."""
    written = len(variable) + len(text)
    return _read((variable, text)) if written <= _MAX_LENGTH else _malformed(variable, text)


@lru_cache(maxsize=1024)  # values of NVIDIA's images, which are a few hundred
def constraint_of_image(variable: str, text: str) -> Constraint:
    """Return the constraint of a known image, which caches its results for nodes."""
    constraint = parse_constraint(variable, text)
    by_brand = bounded_cache(partial(of_brand, constraint.groups), _MOST_BRANDS, _always)
    answer = bounded_cache(partial(_held, by_brand), _MOST_ANSWERS, _always)
    return replace(constraint, by_brand=by_brand, answer=answer)


def _always(_: object) -> bool:
    return True


def _parse(key: tuple[str, str]) -> Constraint:
    variable, text = key
    groups = []
    for words in text.split(" "):
        factors = [_factor(word) for word in words.split(",") if word]
        group = tuple(factor for factor in factors if factor is not None)
        if len(group) < len(factors):
            return _malformed(variable, text)
        if group:
            groups.append(group)
        elif words:  # only commas: dsl.c of libnvidia-container stops here, with the result so far
            break
    bounds = [_lower_bound(group) for group in groups]
    known = [bound for bound in bounds if bound is not None]
    minimum = min(known) if known and len(known) == len(bounds) else None
    native = minimum or next(iter(known), None)
    once = tuple(dict.fromkeys(factor for group in groups for factor in group))
    return Constraint(variable, text, tuple(groups), minimum, native, factors=once)


_read = bounded_cache(_parse, 64, lambda key: length(key) <= _MAX_CACHED)


def _factor(word: str) -> Factor | None:
    match = _FACTOR.fullmatch(word)
    if match is None:
        return None
    name, operator, text = match[1].lower(), "!=" if match[2] == "!" else match[2], match[3]
    if name not in _PROPERTIES or operator not in _COMPARE:
        return None
    if name == "brand":
        return Factor(name, operator, text, None) if operator in {"=", "!="} else None
    if not _VERSION.fullmatch(text):
        return None
    return Factor(name, operator, text, _trimmed(tuple(int(part) for part in text.split(".") if part)))


def _trimmed(numbers: Numbers) -> Numbers:
    """Return a version without trailing zeros, so that 12 and 12.0 are equal."""
    end = len(numbers)
    while end and not numbers[end - 1]:
        end -= 1
    return numbers[:end]


def _lower_bound(group: Group) -> CudaVersion | None:
    return max(filter(None, (factor.lowest_cuda for factor in group)), default=None)


def _all(group: Group, host: Host) -> bool | None:
    """Return whether a node satisfies all conditions of a group; None if that is unknown."""
    holds: bool | None = True
    for factor in group:
        satisfied = factor.holds(host)
        if satisfied is False:
            return False
        holds = holds and satisfied
    return holds


def _any(values: Iterable[bool | None]) -> bool | None:
    """Return the OR of three-valued operands: True if any is True, else None if any is None."""
    present = set(values)
    return True if True in present else None if None in present else False


def _same(values: Sequence[bool | None]) -> bool | None:
    """Return the common value, or None if the values differ."""
    return values[0] if values and all(value is values[0] for value in values) else None


def _malformed(variable: str, text: str) -> Constraint:
    shown = shortened(text, _MAX_SHOWN)
    return Constraint(
        variable,
        text,
        problem=Message(
            "{variable}: `{shown}` is not an expression that the NVIDIA container runtime can read;"
            " write it as `cuda>=12.4`",
            variable=variable,
            shown=shown,
        ),
    )
