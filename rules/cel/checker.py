"""The types of a CEL expression, checked against the declared variables while it is parsed.

The CEL library compiles an expression that names a member which does not exist; each evaluation then fails.
The checker gets only expressions that compile, so their syntax is right. Source of the grammar and the types:
https://github.com/google/cel-spec/blob/master/doc/langdef.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from rules.cel.cost_limits import TEXT
from rules.cel.syntax_errors import (
    ExpressionError,
    Mistake,
    at_position,
    misplaced_resource,
    mistake_message,
    number_meant,
    unknown_function,
    unknown_variable,
)
from rules.cel.variables import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INPUTS,
    INT,
    NULL,
    QUANTITY,
    STRING,
    UINT,
    Type,
    list_of,
    map_of,
    type_name,
)
from rules.text.i18n import Message

# Quantities of extended resources are whole, or the API server refuses them.
MIXED: Final = Message("type mismatch: quantities are int; convert first, e.g. double(value) * 1.5")
# Resources of a container without a domain. Source:
# https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#resource-types
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_QUANTITIES: Final = ("limits", "requests")
_TOKEN: Final = re.compile(
    rf"(?P<text>{TEXT.pattern})|(?P<space>\s+)"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?[uU]?)"
    r"|(?P<name>[A-Za-z_]\w*)|(?:&&|\|\||[=!<>]=|.)",
    re.DOTALL,
)
_PLAIN_TEXT: Final = re.compile(r"""(["'])([^"'\\\n]*)\1""")
_PRECEDENCE: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys("*/%", 5),
}
_NUMBERS: Final = frozenset({"int", "uint", "double", "quantity"})
_ORDERED: Final = frozenset({"string", "bool", "bytes", "duration", "timestamp"})
_LITERALS: Final = {"true": BOOL, "false": BOOL, "null": NULL}
_MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
_DURATION: Final = Type("duration")
_TIMESTAMP: Final = Type("timestamp")
_TYPE: Final = Type("type")
# The functions of the CEL library: the types of receiver and argument that they take, and the result.
_TEXT_METHODS: Final = frozenset({"contains", "startsWith", "endsWith", "matches"})
_SIZED: Final = frozenset({"string", "bytes", "list", "map"})
_CONVERSIONS: Final[Mapping[str, tuple[frozenset[str], Type]]] = {
    "int": (_NUMBERS | {"string", "timestamp"}, INT),
    "uint": (_NUMBERS | {"string"}, UINT),
    "double": (_NUMBERS | {"string"}, DOUBLE),
    "string": (_NUMBERS | {"string", "bytes", "timestamp", "duration"}, STRING),
    "bytes": (frozenset({"string"}), BYTES),
    "duration": (frozenset({"string"}), _DURATION),
    "timestamp": (frozenset({"string"}), _TIMESTAMP),
}
_WORDS: Final = {"yes": "true", "true": "true", "on": "true", "1": "true"} | dict.fromkeys(
    ("no", "false", "off", "0"), "false"
)


class Checked(NamedTuple):
    """The inputs and keys of maps that an expression names."""

    uses: Mapping[
        str, frozenset[str | None]
    ]  # by input, the keys of a map; with None if it uses the whole map
    lookups: frozenset[tuple[str, str]]  # (input, key) whose absence makes the evaluation fail
    tested: frozenset[tuple[str, str]]  # (input, key) whose existence it tests


def check(source: str, variables: Mapping[str, Type]) -> Checked:
    """Return the names in a compiled expression. Raises ExpressionError for unknown names and wrong types."""
    checker = _Checker(source, variables)
    result = checker.whole()
    if result.name not in ("bool", "dyn"):
        kind = type_name(result)
        raise ExpressionError(Message("the result is {kind}, not true or false", kind=kind))
    uses = {name: frozenset(keys) for name, keys in checker.uses.items()}
    return Checked(uses, frozenset(checker.lookups), frozenset(checker.tested))


class _Token(NamedTuple):
    text: str
    group: str | None
    start: int


class _Term(NamedTuple):
    """A part of the expression."""

    kind: Type
    start: int
    end: int
    path: str = ""  # if the part is a variable or an input, its name
    literal: str | None = None  # the value of a plain string literal


class _Checker:
    """A parser whose result is a type. Operators of equal precedence take no stack, brackets four frames."""

    def __init__(self, source: str, variables: Mapping[str, Type]) -> None:
        self._source = source
        self._variables = variables
        self._bound: dict[str, Type] = {}
        self._tokens = [
            _Token(match[0], match.lastgroup, match.start())
            for match in _TOKEN.finditer(source)
            if not match["space"] and not match[0].startswith("//")
        ]
        self._tokens.append(_Token("", None, len(source)))
        self._at = 0
        self.uses: dict[str, set[str | None]] = {}
        self.lookups: set[tuple[str, str]] = set()
        self.tested: set[tuple[str, str]] = set()

    def whole(self) -> Type:
        """Return the type of the whole expression."""
        kind = self._value(self._expression())
        if self._peek():
            raise self._error(Mistake(self._tokens[self._at].start, self._peek(), ""))
        return kind

    def _peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._tokens[place].text if place < len(self._tokens) else ""

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        if self._at < len(self._tokens) - 1:
            self._at += 1
        return token

    def _take(self, text: str) -> bool:
        if self._peek() != text or self._tokens[self._at].group == "text":
            return False
        self._next()
        return True

    def _expect(self, text: str) -> int:
        """Return the position after a token."""
        token = self._next()
        if token.text != text:
            raise self._error(Mistake(token.start, token.text or "<end>", text))
        return token.start + len(text)

    def _error(self, mistake: Mistake) -> ExpressionError:
        return ExpressionError(mistake_message(self._source, mistake))

    def _fail(self, position: int, message: Message) -> ExpressionError:
        return ExpressionError(at_position(self._source, position, message))

    def _written(self, term: _Term) -> str:
        return self._source[term.start : term.end]

    def _value(self, term: _Term, key: str | None = None) -> Type:
        """Return the type of a term, and record its use. key: the only key of a map that is used."""
        if term.path:
            if term.path not in INPUTS:
                names = ", ".join(term.kind.fields)
                message = Message("name a member of {path}: {names}", path=term.path, names=names)
                raise self._fail(term.start, message)
            self.uses.setdefault(term.path, set()).add(key)
        return term.kind

    # Grammar

    def _expression(self) -> _Term:
        term = self._operation(1)
        start, branches = term.start, []
        while self._take("?"):
            self._boolean(term)
            branches.append(self._value(self._operation(1)))
            self._expect(":")
            term = self._operation(1)
        if not branches:
            return term
        return _Term(_joined([*branches, self._value(term)]), start, term.end)

    def _operation(self, least: int) -> _Term:
        left = self._unary()
        while (precedence := self._precedence()) >= least:
            operator = self._next()
            right = self._operation(precedence + 1)
            left = _Term(self._result(operator, left, right), left.start, right.end)
        return left

    def _precedence(self) -> int:
        token = self._tokens[self._at]
        return 0 if token.group == "text" else _PRECEDENCE.get(token.text, 0)

    def _unary(self) -> _Term:
        signs = []
        while self._peek() in ("!", "-"):
            signs.append(self._next())
        term = self._member()
        for sign in reversed(signs):
            if sign.text == "!":
                self._boolean(term)
                kind = BOOL
            else:
                kind = self._value(term)
                if kind != DYN and kind.name not in _NUMBERS:
                    raise self._wrong(term, Message("a number"))
            term = _Term(kind, sign.start, term.end)
        return term

    def _member(self) -> _Term:
        term = self._primary()
        while True:
            if self._take("."):
                name = self._next()
                if self._peek() == "(":
                    term = self._call(name, term)
                else:
                    term = self._selected(term, name.text, name.start + len(name.text))
            elif self._take("["):
                index = self._expression()
                term = self._indexed(term, index, self._expect("]"))
            else:
                return term

    def _primary(self) -> _Term:
        token = self._next()
        start, end = token.start, token.start + len(token.text)
        if token.group is None:
            return self._bracketed(token)
        if token.group == "text":
            plain = _PLAIN_TEXT.fullmatch(token.text)
            kind = BYTES if re.match("[rR]?[bB]", token.text) else STRING
            return _Term(kind, start, end, literal=plain[2] if plain else None)
        if token.group == "number":
            return _Term(_number(token.text), start, end)
        if self._peek() == "(":
            return self._call(token, None)
        known = {**self._variables, **_LITERALS, **self._bound}
        if token.text not in known:
            raise ExpressionError(unknown_variable(self._source, token.text, [*self._variables]))
        is_variable = token.text in self._variables and token.text not in self._bound
        return _Term(known[token.text], start, end, token.text if is_variable else "")

    def _bracketed(self, token: _Token) -> _Term:
        """Return an expression in brackets, a list or a map. token: the opening bracket."""
        if token.text == "(":
            term = self._expression()
            return term._replace(start=token.start, end=self._expect(")"))
        if token.text == "[":
            items, end = self._list("]")
            return _Term(list_of(_joined([self._value(item) for item in items])), token.start, end)
        if token.text == "{":
            return self._map(token.start)
        raise self._error(Mistake(token.start, token.text, ""))

    def _list(self, closing: str) -> tuple[list[_Term], int]:
        """Return the terms up to a bracket, and the position after it."""
        items: list[_Term] = []
        while self._peek() != closing or self._tokens[self._at].group == "text":
            items.append(self._expression())
            if not self._take(","):
                break
        return items, self._expect(closing)

    def _map(self, start: int) -> _Term:
        values = []
        while self._peek() != "}":
            self._value(self._expression())
            self._expect(":")
            values.append(self._value(self._expression()))
            if not self._take(","):
                break
        return _Term(map_of(_joined(values)), start, self._expect("}"))

    # Members

    def _selected(self, term: _Term, name: str, end: int) -> _Term:
        """Return the member of a term."""
        kind, path = term.kind, f"{term.path}.{name}"
        if kind.name == "object":
            if name not in kind.fields:
                raise self._unknown_member(term, name, end)
            if path not in INPUTS:
                self._value(term)
                path = ""
            return _Term(kind.fields[name], term.start, end, path)
        if kind.name == "map":
            if term.path in _QUANTITIES and name not in _NATIVE:
                raise self._no_resource(term, name)
            return self._looked_up(term, name, end)
        if self._value(term) == DYN:
            return _Term(DYN, term.start, end)
        kind_name = type_name(kind)
        written = self._written(term)
        raise self._fail(
            term.start,
            Message("`{written}` is {kind}, which has no members", written=written, kind=kind_name),
        )

    def _looked_up(self, term: _Term, key: str | None, end: int) -> _Term:
        """Return the value of a key of a map. key: None if it is not a literal."""
        self._value(term, key)
        if key is not None and term.path:
            self.lookups.add((term.path, key))
        return _Term(term.kind.item or DYN, term.start, end)

    def _indexed(self, term: _Term, index: _Term, end: int) -> _Term:
        kind, key = term.kind, self._value(index)
        if kind.name == "object":
            if index.literal is not None:
                return self._selected(term, index.literal, end)
            self._value(term)
            return _Term(DYN, term.start, end)
        if kind.name == "map":
            if not _comparable(key, STRING) and term.path:
                raise self._wrong(index, Message("a text"))
            return self._looked_up(term, index.literal, end)
        self._value(term)
        if kind.name == "list":
            if key != DYN and (key.name not in _NUMBERS or key == DOUBLE):
                raise self._wrong(index, Message("a whole number"))
            return _Term(kind.item or DYN, term.start, end)
        if kind != DYN:
            raise self._wrong(term, Message("a list or a map"))
        return _Term(DYN, term.start, end)

    # Calls

    def _call(self, name: _Token, receiver: _Term | None) -> _Term:
        """Return the result of a function; the next token is the bracket that opens its arguments."""
        start = name.start if receiver is None else receiver.start
        self._next()
        if receiver is not None and name.text in _MACROS:
            return self._macro(name, receiver)
        if receiver is None and name.text == "has":
            before = set(self.lookups)
            self._value(self._expression())
            self.tested |= self.lookups - before
            self.lookups = before
            return _Term(BOOL, start, self._expect(")"))
        terms, end = self._list(")")
        given = [self._value(term) for term in terms]
        if receiver is not None:
            given.insert(0, self._value(receiver))
        kind = _result_of(name.text, given, method=receiver is not None)
        if kind is None:
            raise self._unknown_function(name, receiver, terms)
        return _Term(kind, start, end)

    def _unknown_function(self, name: _Token, receiver: _Term | None, terms: list[_Term]) -> ExpressionError:
        literal = terms[0].literal if len(terms) == 1 and receiver is None else None
        if name.text == "quantity" and literal is not None and (number := number_meant(literal)):
            return self._error(Mistake(name.start, self._source[name.start : terms[0].end + 1], number))
        return ExpressionError(unknown_function(self._source, name.text))

    def _macro(self, name: _Token, receiver: _Term) -> _Term:
        kind = self._value(receiver)
        if kind.name not in ("list", "map", "dyn"):
            raise self._wrong(receiver, Message("a list or a map"))
        item = STRING if kind.name == "map" else kind.item or DYN
        variable = self._next().text
        self._expect(",")
        outer = self._bound
        self._bound = {**outer, variable: item}
        body = self._expression()
        if name.text != "map":
            self._boolean(body)
        result = {"map": list_of(self._value(body)), "filter": list_of(item)}.get(name.text, BOOL)
        self._bound = outer
        return _Term(result, receiver.start, self._expect(")"))

    # Operators

    def _boolean(self, term: _Term) -> None:
        kind = self._value(term)
        if kind not in (BOOL, DYN):
            raise self._wrong(term, Message("true or false"))

    def _wrong(self, term: _Term, expected: Message) -> ExpressionError:
        kind, written = type_name(term.kind), self._written(term)
        return self._fail(
            term.start,
            Message("`{written}` is {kind}, not {expected}", written=written, kind=kind, expected=expected),
        )

    def _result(self, operator: _Token, left: _Term, right: _Term) -> Type:
        """Return the type of the result of an operator."""
        if operator.text == "in":
            return self._contained(left, right)
        if operator.text in ("&&", "||"):
            self._boolean(left)
            self._boolean(right)
            return BOOL
        kinds = [self._value(left), self._value(right)]
        if operator.text in ("==", "!="):
            if not _comparable(*kinds):
                raise self._incomparable(left, right)
            return BOOL
        if operator.text in ("<", "<=", ">", ">="):
            names = {kind.name for kind in kinds}
            if not ("dyn" in names or names <= _NUMBERS or (len(names) == 1 and names <= _ORDERED)):
                raise self._incomparable(left, right)
            return BOOL
        if result := _sum(operator.text, *kinds):
            return result
        raise self._wrong(left if kinds[0].name not in _NUMBERS else right, Message("a number"))

    def _contained(self, left: _Term, right: _Term) -> Type:
        kind = right.kind
        item = self._value(left)
        if kind.name == "map":
            self._value(right, left.literal)
            if left.literal is not None and right.path:
                self.tested.add((right.path, left.literal))
            if right.path and not _comparable(item, STRING):
                raise self._wrong(left, Message("a text"))
            return BOOL
        self._value(right)
        if kind.name not in ("list", "dyn"):
            raise self._wrong(right, Message("a list or a map"))
        if not _comparable(item, entry := kind.item or DYN):
            names = type_name(item), type_name(entry)
            written = self._written(left), self._written(right)
            message = Message(
                "`{left}` is {left_kind}, an entry of `{right}` is {right_kind}; they cannot be compared",
                left=written[0],
                left_kind=names[0],
                right=written[1],
                right_kind=names[1],
            )
            raise self._fail(left.start, message)
        return BOOL

    def _incomparable(self, left: _Term, right: _Term) -> ExpressionError:
        """Return the error of a comparison that is never true, or fails."""
        for one, other in ((left, right), (right, left)):
            meant = None
            if one.kind.name in _NUMBERS and other.literal is not None:
                meant = number_meant(other.literal)
            elif one.kind == BOOL and other.literal is not None:
                meant = _WORDS.get(other.literal.lower())
            elif one.kind == BOOL and other.kind.name in _NUMBERS:
                meant = _WORDS.get(self._written(other))
            elif one.kind.name == "map" and one.path and other.kind == one.kind.item:
                meant = f"{self._written(one)}['key']"
            if meant:
                wrong = one if one.kind.name == "map" else other
                return self._error(Mistake(wrong.start, self._written(wrong), meant))
        kinds = [type_name(term.kind) for term in (left, right)]
        if kinds[0] == kinds[1]:
            return self._fail(
                left.start,
                Message(
                    "`{left}` cannot be compared with `{right}`",
                    left=self._written(left),
                    right=self._written(right),
                ),
            )
        return self._fail(
            left.start,
            Message(
                "`{left}` is {left_kind}, `{right}` is {right_kind}; they cannot be compared",
                left=self._written(left),
                left_kind=kinds[0],
                right=self._written(right),
                right_kind=kinds[1],
            ),
        )

    # Names that do not exist

    def _unknown_member(self, term: _Term, name: str, end: int) -> ExpressionError:
        owner, known = self._written(term), [*term.kind.fields]
        similar = get_close_matches(name, known, 1)
        if not similar:  # container.img, pod.ns
            similar = [
                member for member in known if len(name) > 1 and member.lower().startswith(name.lower())
            ][:1]
        if similar:
            text = self._source[term.start : end]
            return self._error(Mistake(term.start, text, f"{owner}.{similar[0]}"))
        names = ", ".join(known)
        return self._fail(
            term.start,
            Message("{owner} has no member {name!r}: there are {names}", owner=owner, name=name, names=names),
        )

    def _no_resource(self, term: _Term, name: str) -> ExpressionError:
        text = f"{self._written(term)}.{name}"
        if mistake := misplaced_resource(self._source):
            return self._error(mistake)
        if similar := get_close_matches(name, _NATIVE, 1):
            return self._error(Mistake(term.start, text, f"{term.path}['{similar[0]}']"))
        return self._error(Mistake(term.start, text, f"{term.path}['vendor.com/{name}']"))


def _number(text: str) -> Type:
    if text[-1] in "uU":
        return UINT
    return INT if text.isdigit() or text[:2] in ("0x", "0X") else DOUBLE


def _sum(operator: str, left: Type, right: Type) -> Type | None:
    """Return the type of the result of an arithmetic operator; None if there is none. May raise `MIXED`."""
    names = {left.name, right.name}
    if "dyn" in names or (operator in ("+", "-") and names <= {"duration", "timestamp"}):
        return DYN
    if names <= _NUMBERS:
        if "double" in names and (len(names) > 1 or operator == "%"):
            raise ExpressionError(MIXED)
        return QUANTITY if "quantity" in names else left
    if operator == "+" and len(names) == 1 and names <= {"string", "bytes", "list"}:
        return left if left == right else list_of(DYN)
    return None


def _joined(kinds: Iterable[Type]) -> Type:
    """Return the type of a value that is one of several."""
    first, *others = [*kinds] or [DYN]
    if all(kind == first for kind in others):
        return first
    return QUANTITY if all(kind.name in _NUMBERS for kind in (first, *others)) else DYN


def _comparable(one: Type, other: Type) -> bool:
    """Return whether values of two types may be equal."""
    if "dyn" in (one.name, other.name) or (one.name in _NUMBERS and other.name in _NUMBERS):
        return True
    if one.name != other.name:
        return False
    if one.name == "object":
        return one == other
    return _comparable(one.item or DYN, other.item or DYN)


def _result_of(name: str, given: list[Type], *, method: bool) -> Type | None:
    """Return the type of the result of a function, or None if there is none for these arguments."""
    names = [kind.name for kind in given]
    if name == "size" and len(given) == 1:
        return INT if names[0] in (*_SIZED, "dyn") else None
    if name in _TEXT_METHODS:
        return BOOL if len(given) == 2 and {*names} <= {"string", "dyn"} else None
    if method:
        # of times and durations: getFullYear, getHours, …
        return (
            DYN if name.startswith("get") and {*names} <= {"timestamp", "duration", "dyn", "string"} else None
        )
    if len(given) != 1:
        return None
    if name in ("dyn", "type"):
        return DYN if name == "dyn" else _TYPE
    kinds, result = _CONVERSIONS.get(name, (frozenset(), DYN))
    return result if names[0] in kinds or (kinds and names[0] == "dyn") else None
