"""Rewrites CEL selectors of devices so that the CEL library evaluates them as Kubernetes does.

A domain, as in `device.attributes["gpu.nvidia.com"]`, becomes a variable, because Kubernetes has an empty map
for an unknown domain. cel.bind of a path is replaced by the path; `.?name.orValue(x)` and `.?name.hasValue()`
of a domain by `has`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, field

from rules.cel.cost_limits import TEXT

_TOKEN: Final = re.compile(
    rf"(?P<text>{TEXT.pattern})|(?P<space>\s+)|[A-Za-z_]\w*|\.?[0-9][\w.]*|&&|\|\||[=!<>]=|\.\?|\[\?|.",
    re.DOTALL,
)
_PLAIN_TEXT: Final = re.compile(r"""(["'])([^"'\\\n]*)\1""")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})
_SECTIONS: Final = frozenset({"attributes", "capacity"})
_SCALARS: Final = ([".", "driver"], [".", "allowMultipleAllocations"])
_DEVICE: Final = "device"
_COMMA: Final = ","
_VARIABLE: Final = "dra__"
_BEFORE_OPERAND: Final = frozenset({"(", "&&", "||", "?", ":", "!", ","})
# Tokens of an expression after each replacement, and of a path: they bound the time of the rewriting.
_MAX_TOKENS: Final = 10 * 1024
_MAX_PATH: Final = 32
_MAX_BINDS: Final = 16


class UnsupportedError(ValueError):
    """The expression cannot be evaluated here as in Kubernetes."""


class Domain(Struct):
    """The use of the attributes or the capacities of one domain."""

    section: str  # `attributes` or `capacity`
    name: str
    variable: str
    selected: set[str] = field(default_factory=set)  # names whose values are used
    tested: set[str] = field(default_factory=set)  # names whose existence is tested
    whole: bool = False  # all names may matter


class SelectorSource(Struct):
    """A rewritten selector."""

    text: str
    domains: tuple[Domain, ...]
    whole: bool  # it uses the set of domains of a device
    bound: frozenset[str]  # the variables of its macros


def rewrite(source: str) -> SelectorSource:
    """Return the rewritten selector. Raises UnsupportedError. source: 10 KiB at most."""
    domains: dict[tuple[str, str], Domain] = {}
    tokens = _with_optionals(list(_with_variables(_without_binds(_tokens(source)), domains)))
    by_variable = {domain.variable: domain for domain in domains.values()}
    whole = False
    for place, token in enumerate(tokens):
        if domain := by_variable.get(token):
            _record_use(tokens, place, domain)
        elif token == _DEVICE and tokens[place - 1 : place] != ["."]:
            whole |= tokens[place + 1 : place + 3] not in _SCALARS
    bound = {tokens[place + 2] for place in _macros(tokens)}
    if _DEVICE in bound:
        raise UnsupportedError("device is bound twice")
    return SelectorSource(" ".join(tokens), tuple(domains.values()), whole, frozenset(bound))


def _tokens(source: str) -> list[str]:
    """Return the tokens without space and comments."""
    tokens = [token[0] for token in _TOKEN.finditer(source) if not token["space"]]
    if any(token.startswith(_VARIABLE) for token in tokens):
        raise UnsupportedError(f"a name begins with {_VARIABLE}")
    return [token for token in tokens if not token.startswith("//")]


def _macros(tokens: Sequence[str]) -> Iterator[int]:
    """Yield the place of the name of each macro that binds a variable."""
    for place in range(len(tokens) - 3):
        if tokens[place] in _MACROS and tokens[place + 1] == "(" and tokens[place + 3] == ",":
            yield place


def _without_binds(tokens: list[str]) -> list[str]:
    """Return the tokens with each cel.bind replaced by its body, with the path instead of the name."""
    for _ in range(_MAX_BINDS):
        place = next(
            (at for at in range(len(tokens)) if tokens[at : at + 4] == ["cel", ".", "bind", "("]), None
        )
        if place is None:
            return tokens
        parts, end = _arguments(tokens, place + 3)
        if len(parts) != 3 or len(parts[0]) != 1 or not _is_path(parts[1]):
            raise UnsupportedError("cel.bind is supported of a path only, such as device.attributes['…']")
        (name,), path, body = parts
        if name in {body[at + 2] for at in _macros(body)} or _binds(body, name):
            raise UnsupportedError(f"{name} is bound twice")
        replaced = [
            word
            for at, token in enumerate(body)
            for word in (path if token == name and not _is_member(body, at) else [token])
        ]
        tokens = [*tokens[:place], "(", *replaced, ")", *tokens[end:]]
        if len(tokens) > _MAX_TOKENS:
            break
    raise UnsupportedError("too many uses of cel.bind")


def _is_member(tokens: list[str], place: int) -> bool:
    """Return whether a name is a member's, as `b` in `a.b`."""
    return place > 0 and tokens[place - 1] in (".", ".?")


def _binds(tokens: list[str], name: str) -> bool:
    return any(tokens[at : at + 5] == ["cel", ".", "bind", "(", name] for at in range(len(tokens)))


def _arguments(tokens: list[str], opening: int) -> tuple[list[list[str]], int]:
    """Return the arguments of a call and the place after it. opening: the place of its bracket."""
    depth = 0
    parts: list[list[str]] = [[]]
    for place in range(opening, len(tokens)):
        token = tokens[place]
        depth += (token in ("(", "[", "{", "[?")) - (token in (")", "]", "}"))
        if depth == 0:
            return parts, place + 1
        if depth == 1 and token == _COMMA:
            parts.append([])
        elif place > opening:
            parts[-1].append(token)
    raise UnsupportedError("a bracket is not closed")


def _is_path(tokens: list[str]) -> bool:
    """Return whether it is `device`, followed by names and texts in square brackets."""
    place = 1
    while place < len(tokens):
        if tokens[place] == "." and _NAME.fullmatch("".join(tokens[place + 1 : place + 2])):
            place += 2
        elif tokens[place] == "[" and _text(tokens, place + 1) is not None:
            place += 3
        else:
            return False
    return tokens[:1] == ["device"] and len(tokens) <= _MAX_PATH


def _text(tokens: Sequence[str], place: int) -> str | None:
    """Return the value of a plain text before a closing bracket, or None."""
    match = _PLAIN_TEXT.fullmatch(tokens[place]) if tokens[place + 1 : place + 2] == ["]"] else None
    return match[2] if match else None


def _with_variables(tokens: list[str], domains: dict[tuple[str, str], Domain]) -> Iterator[str]:
    """Yield the tokens with a variable instead of each domain; adds the domains to `domains`."""
    place = 0
    while place < len(tokens):
        section = (
            tokens[place + 2]
            if tokens[place : place + 2] == ["device", "."] and place + 2 < len(tokens)
            else ""
        )
        if section not in _SECTIONS or _is_member(tokens, place):
            yield tokens[place]
            place += 1
            continue
        following = tokens[place + 3 : place + 4]
        name = _text(tokens, place + 4) if following == ["["] else None
        if name is not None:
            place += 6
        elif following == ["."] and tokens[place + 5 : place + 6] != ["("]:
            name = "".join(tokens[place + 4 : place + 5])
            place += 5
        elif following in (["["], ["[?"], [".?"]):
            raise UnsupportedError("the domain must be a text, as in device.attributes['gpu.nvidia.com']")
        else:
            yield tokens[place]
            place += 1
            continue
        variable = f"{_VARIABLE}{len(domains)}"
        yield domains.setdefault((section, name), Domain(section, name, variable)).variable


def _with_optionals(tokens: list[str]) -> list[str]:
    """Return the tokens with `has` for each optional member of a domain."""
    for _ in range(_MAX_BINDS):
        place = next((at for at, token in enumerate(tokens) if token in (".?", "[?")), None)
        if place is None:
            return tokens
        variable, name = "".join(tokens[place - 1 : place]), "".join(tokens[place + 1 : place + 2])
        call = tokens[place + 2 : place + 5]
        if not variable.startswith(_VARIABLE) or not _NAME.fullmatch(name) or call[2:] != ["("]:
            break
        arguments, end = _arguments(tokens, place + 4)
        has = ["has", "(", variable, ".", name, ")"]
        if call[1] == "orValue" and len(arguments) == 1 and arguments[0]:
            new = ["(", *has, "?", variable, ".", name, ":", "(", *arguments[0], ")", ")"]
        elif call[1] == "hasValue" and arguments == [[]]:
            new = has
        else:
            break
        tokens = [*tokens[: place - 1], *new, *tokens[end:]]
    raise UnsupportedError("of optional members, only .?name.orValue(…) and .?name.hasValue() are supported")


def _record_use(tokens: list[str], place: int, domain: Domain) -> None:
    """Record the names that one use of a domain selects or tests."""
    before, after = tokens[max(place - 2, 0) : place], tokens[place + 1 : place + 4]
    name = _text(tokens, place + 2) if after[:1] == ["["] else None
    if after[:1] == ["."] and after[2:] != ["("]:
        name = "".join(after[1:2])
        if before == ["has", "("]:
            domain.tested.add(name)
            return
    if name is not None:
        domain.selected.add(name)
    elif before[1:] == ["in"] and (match := _PLAIN_TEXT.fullmatch(before[0])) and _is_alone(tokens, place):
        domain.tested.add(match[2])
    else:
        domain.whole = True


def _is_alone(tokens: list[str], place: int) -> bool:
    """Return whether `"name" in domain` is a whole operand. place: of the domain."""
    return (place < 3 or tokens[place - 3] in _BEFORE_OPERAND) and tokens[place + 1 : place + 2] not in (
        ["."],
        ["["],
    )
