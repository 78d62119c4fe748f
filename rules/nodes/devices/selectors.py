"""CEL selectors of devices in DeviceClasses and claims.

A device matches, does not match, or may match: that is unknown if a selector cannot be evaluated here as in
Kubernetes. A device for which a selector fails does not match, and ends the allocation of the claim, see
`selectorsMatch` of https://pkg.go.dev/k8s.io/dynamic-resource-allocation/structured.
Two differences remain in `==`: a version is unequal to a text here, which is an error there, so that the
negation matches; and lists of versions are compared by value.
Source: `CELDeviceSelector` of https://kubernetes.io/docs/reference/kubernetes-api/resource/device-class-v1/
and https://pkg.go.dev/k8s.io/dynamic-resource-allocation/cel.
Also the selectors that messages suggest: a minimum version of the driver or GPU, or a minimum of memory.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rules.cel.expression import MAX_EXPRESSION_LENGTH, compile_program
from rules.cel.library import cel
from rules.cel.syntax_errors import ExpressionError
from rules.nodes.devices.cel_functions import FUNCTIONS, of_attribute, of_quantity
from rules.nodes.devices.devices import DeviceKind, gpu_drivers
from rules.nodes.devices.selector_source import Domain, SelectorSource, UnsupportedError, rewrite

# Characters of a selector in Kubernetes, CELSelectorExpressionMaxLength, and of one that was rewritten.
MAX_LENGTH: Final = 10 * 1024
_MAX_REWRITTEN: Final = 4 * MAX_LENGTH
# Cached selectors, and cached results of each. A cluster has a few, but each pod may have its own.
_SELECTORS: Final = 128
_RESULTS: Final = 512
# Functions whose results are as in Kubernetes, but which may fail where Kubernetes has a result.
_INEXACT: Final = frozenset(
    {"size", "matches", "string", "int", "double", "replace", "split", "indexOf", "lastIndexOf"}
)
_EXACT: Final = frozenset({"contains", "startsWith", "endsWith", *FUNCTIONS}) - _INEXACT
_ERRORS: Final = (KeyError, TypeError, ValueError, RuntimeError, IndexError, ArithmeticError)
_FAILED: Final = re.compile(r"Function '(\w+)' error")
_MAX_REASON: Final = 200
_MISSING: Final = object()


class Match(NamedTuple):
    """Whether a device matches a selector."""

    matches: bool | None  # None: unknown
    reason: str = ""  # why it is unknown, or the runtime error

    @property
    def failed(self) -> bool:
        """Whether the evaluation ends with an error, also in Kubernetes."""
        return self.matches is False and bool(self.reason)


class Selector:
    """One compiled selector. Any thread may use it. problem: why it cannot be evaluated, or empty."""

    __slots__ = ("_exact", "_functions", "_program", "_results", "_source", "problem")

    def __init__(self, expression: str) -> None:
        self.problem = ""
        self._results: dict[Hashable, Match] = {}
        try:
            self._source = rewrite(expression)
            longest = MAX_EXPRESSION_LENGTH if self._source.bound else _MAX_REWRITTEN
            self._program = compile_program(self._source.text, longest)
        except (UnsupportedError, ExpressionError) as error:
            self.problem = str(error)
            return
        names = {name for name in self._program.functions() if name[0].isalpha()}
        known = {"device", *(domain.variable for domain in self._source.domains), *self._source.bound}
        self._exact = names <= _EXACT
        self._functions = {name: FUNCTIONS[name] for name in names if name in FUNCTIONS}
        if others := sorted(names - _EXACT - _INEXACT):
            self.problem = f"the function {others[0]} is not supported"
        elif others := sorted(set(self._program.variables()) - known):
            self.problem = f"unknown variable {others[0]}"

    def match(self, kind: DeviceKind) -> Match:
        """Return whether devices of a kind match.

        Kinds with equal values for the names in the selector are evaluated once.
        """
        if self.problem:
            return Match(None, self.problem)
        view = _View(kind, self._source)
        if view.hidden:
            return Match(None, view.hidden)
        match = self._results.get(view.key)
        if match is None:
            match = self._evaluate(view)
            if len(self._results) >= _RESULTS:
                self._results.clear()
            self._results[view.key] = match
        return match

    def _evaluate(self, view: _View) -> Match:
        try:
            result = self._program.execute(cel.Context(view.variables(), self._functions))
        except _ERRORS as error:
            reason = f"no such key: {error}" if isinstance(error, KeyError) else _short(str(error))
            if view.unreadable:
                return Match(None, view.unreadable)
            return Match(False if self._exact else None, reason)
        if isinstance(result, bool):
            return Match(result)
        return Match(False, f"the result is {type(result).__name__}, not true or false")


def _short(error: str) -> str:
    """Return the cause of an error without the advice that follows it."""
    if failed := _FAILED.match(error):
        return f"{failed[1]} fails"
    return error.partition("\n")[0].partition(". ")[0][:_MAX_REASON]


class _View:
    """The values of a kind that a selector names.

    key: equal for kinds that the selector cannot distinguish.
    hidden: why the result is unknown, or empty.
    unreadable: why the result is unknown if the evaluation fails, or empty.
    """

    __slots__ = ("_kind", "_source", "hidden", "key", "unreadable")

    def __init__(self, kind: DeviceKind, source: SelectorSource) -> None:
        self._kind = kind
        self._source = source
        attributes, capacity = dict(kind.attributes), dict(kind.capacity)
        named: list[Hashable] = [kind.driver, kind.shared]
        unknown: list[str] = []
        failing: list[str] = []
        for domain in source.domains:
            values = attributes if domain.section == "attributes" else capacity
            if domain.whole:
                unknown += _hidden_of(kind, domain.name)
            for name in sorted(domain.selected | domain.tested):
                full = f"{domain.name}/{name}"
                if kind.hidden is None or full in kind.hidden:
                    (unknown if name in domain.tested else failing).append(full)
                named.append(values.get(full, _MISSING))
        if source.whole and kind.hidden != ():
            unknown += kind.hidden or ["the device"]
        self.hidden = f"unknown value: {unknown[0]}" if unknown else ""
        self.unreadable = f"unknown value: {failing[0]}" if failing else ""
        whole = source.whole or any(domain.whole for domain in source.domains)
        self.key: Hashable = kind if whole else (*named, *failing)

    def variables(self) -> dict[str, Any]:
        """Return the variables of the rewritten selector."""
        kind = self._kind
        sections = {
            "attributes": [(name, of_attribute(value)) for name, value in kind.attributes],
            "capacity": [(name, of_quantity(value)) for name, value in kind.capacity],
        }
        device: dict[str, Any] = {"driver": kind.driver, "allowMultipleAllocations": kind.shared}
        if self._source.whole:
            device |= {section: _by_domain(values) for section, values in sections.items()}
        variables: dict[str, Any] = {"device": device}
        for domain in self._source.domains:
            variables[domain.variable] = dict(_members(domain, sections[domain.section]))
        return variables


def _hidden_of(kind: DeviceKind, domain: str) -> list[str]:
    """Return the hidden names of a domain."""
    if kind.hidden is None:
        return [domain]
    return [name for name in kind.hidden if name.startswith(f"{domain}/")]


def _members(domain: Domain, values: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for full, value in values:
        name = full.removeprefix(f"{domain.name}/")
        if name != full:
            yield name, value


def _by_domain(values: list[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    by_domain: dict[str, dict[str, Any]] = {}
    for full, value in values:
        domain, _, name = full.partition("/")
        by_domain.setdefault(domain, {})[name] = value
    return by_domain


def compile_selector(expression: str) -> Selector:
    """Return the compiled selector; it is cached by its text."""
    return _compiled(expression) if len(expression) <= MAX_LENGTH else _TOO_LONG


_compiled = lru_cache(maxsize=_SELECTORS)(Selector)
_TOO_LONG: Final = Selector("")
_TOO_LONG.problem = f"longer than {MAX_LENGTH} characters"


def minimum_selector(driver: str, fact: str, version: Sequence[int]) -> str | None:
    """Return the selector for a minimum version; None if devices of the driver do not report the fact.

    driver: of devices, such as `gpu.nvidia.com`.
    fact: `cuda`, `driver` or `computeCapability`.
    version: three numbers are used, missing ones are 0; (535, 104, 5) is the driver 535.104.05.
    """
    attribute = gpu_drivers().get(driver, {}).get(fact)
    if attribute is None:
        return None
    text = ".".join(map(str, (*version, 0, 0)[:3]))
    return f'device.attributes["{driver}"].{attribute}.compareTo(semver("{text}")) >= 0'


def memory_selector(driver: str, amount: str) -> str | None:
    """Return the selector for a minimum of memory, a quantity; None if devices do not report memory."""
    capacity = gpu_drivers().get(driver, {}).get("memory")
    if capacity is None:
        return None
    return f'device.capacity["{driver}"].{capacity}.compareTo(quantity("{amount}")) >= 0'
