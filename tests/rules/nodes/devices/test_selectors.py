"""CEL selectors of devices: each result is the one that Kubernetes has."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.nodes.devices.devices import DeviceKind, DeviceReader, KindPool
from rules.nodes.devices.selectors import MAX_LENGTH, Match, compile_selector

DRIVER: Final = "dra.example.com"
ATTRIBUTES: Final[dict[str, Any]] = {
    "yes": {"bool": True},
    "no": {"bool": False},
    "one": {"int": 1},
    "text": {"string": "Some Text-1"},
    "version": {"version": "12.8.1-rc.2+b"},
    "names": {"strings": ["fish", "bird"]},
    "numbers": {"ints": [1, 2]},
    "flags": {"bools": [True]},
    "versions": {"versions": ["1.0.0", "2.0.0"]},
    "other.example.com/name": {"string": "x"},
    "uuid": {"string": "GPU-1"},
}
CAPACITY: Final[dict[str, Any]] = {"memory": {"value": "40Gi"}, "cores": {"value": "1500m"}}
OWN: Final = f'device.attributes["{DRIVER}"]'
OF: Final = f'device.capacity["{DRIVER}"]'


def kind(attributes: dict[str, Any] | None = None, driver: str = DRIVER) -> DeviceKind:
    """Return a kind of devices."""
    raw = {"attributes": ATTRIBUTES if attributes is None else attributes, "capacity": CAPACITY}
    return DeviceReader("slice", driver, KindPool()).kind(raw)


def match(expression: str, of: DeviceKind | None = None) -> bool | None:
    """Return whether a device matches."""
    return compile_selector(expression).match(of or kind()).matches


# The expression and whether a device matches; an error is no match.
RESULTS: Final = [
    ("true", True),
    ("false", False),
    ("1", False),
    (f'device.driver == "{DRIVER}"', True),
    ('device.driver == "other.example.com"', False),
    (
        "device.driver.endsWith('.com') && device.driver.startsWith('dra') && device.driver.contains('x')",
        True,
    ),
    (f"{OWN}.yes", True),
    (f'{OWN}["yes"]', True),
    (f"device . attributes [ '{DRIVER}' ] . yes // a comment", True),
    (f"{OWN}.no", False),
    (f"!{OWN}.no", True),
    (f"{OWN}.one", False),
    (f"{OWN}.one > 0", True),
    (f"{OWN}.one + 1 == 2 && {OWN}.one % 2 == 1 && -{OWN}.one < 0", True),
    (f'{OWN}.one > "a"', False),
    (f"{OWN}.one == 1.0", True),
    (f"{OWN}.one in [1, 2] && !({OWN}.one in [3])", True),
    (f'{OWN}.text == "Some Text-1"', True),
    (f'{OWN}.text == {OWN}.text + ""', True),
    (f'{OWN}.text.lowerAscii() == "some text-1" && {OWN}.text.upperAscii().startsWith("SOME")', True),
    (f'{OWN}.text.matches("^Some .*-[0-9]$")', True),
    (f'{OWN}.text.matches("^some")', False),
    (f'{OWN}.text.split(" ") == ["Some", "Text-1"] && {OWN}.text.split(" ", 1).size() == 1', True),
    (f'{OWN}.text.split("-")[1] == "1" && {OWN}.text.split("-", 0).size() == 0', True),
    (f'{OWN}.text.replace("-", "") == "Some Text1" && {OWN}.text.replace("e", "", 1).size() == 10', True),
    (f'{OWN}.text.substring(5) == "Text-1" && {OWN}.text.substring(0, 4) == "Some"', True),
    (f'{OWN}.text.substring(5, 99) == ""', False),
    (f'{OWN}.text.indexOf("e") == 3 && {OWN}.text.lastIndexOf("e") == 6 && "a".indexOf("b") == -1', True),
    ('" a ".trim() == "a"', True),
    (f'"{DRIVER}" in device.attributes', None),
    ('"other.example.com" in device.attributes', None),
    ('device.attributes["other.example.com"].name == "x"', True),
    (f'device.attributes["{DRIVER}"].name == "x"', False),
    ('device.attributes["absent.example.com"].name == "x"', False),
    ('has(device.attributes["absent.example.com"].name)', False),
    ('"name" in device.attributes["absent.example.com"]', False),
    ('size(device.attributes["absent.example.com"]) == 0', True),
    ('device.attributes["other.example.com"].exists_one(key, key == "name")', True),
    ('device.attributes["other.example.com"].all(key, key == "name")', True),
    (f"has({OWN}.one) && {OWN}.one == 1", True),
    (f"has({OWN}.absent) && {OWN}.absent == 1", False),
    (f"!has({OWN}.absent) || {OWN}.absent == 1", True),
    (f'!("absent" in {OWN}) || {OWN}.absent == 1', True),
    (f"{OWN}.absent == 1", False),
    (f"{OWN}.absent == 1 || true", True),
    (f"true || {OWN}.absent == 1", True),
    (f"{OWN}.absent == 1 || false", False),
    (f"!({OWN}.absent == 1 && false)", True),
    (f"{OWN}.yes ? true : {OWN}.absent", True),
    (f"{OWN}.absent ? true : true", False),
    (f"{OWN}.?one.orValue(2) == 1", True),
    (f"{OWN}.?absent.orValue(2) == 2", True),
    (f"{OWN}.?absent.orValue({OWN}.one) == 1", True),
    (f"{OWN}.?one.hasValue() && !{OWN}.?absent.hasValue()", True),
    ('device.attributes["absent.example.com"].?name.orValue("") == ""', True),
    (f"cel.bind(dra, {OWN}, dra.yes && dra.one == 1)", True),
    (f"cel.bind(dra, {OWN}, cel.bind(version, dra.version, version.major() == 12))", True),
    (f"cel.bind(dra, {OWN}, dra.?absent.orValue(true))", True),
    (f"cel.bind(one, {OWN}, has(one.one) && one.one == 1)", True),
    (f'cel.bind(dra, {OWN}, "one" in dra)', True),
    (f"cel.bind(dra, {OWN}, true) && cel.bind(dra, {OF}, has(dra.memory))", True),
    (f'{OWN}.version.isGreaterThan(semver("12.8.0"))', True),
    (f'{OWN}.version.isGreaterThan(semver("12.8.1"))', False),
    (f'{OWN}.version.isLessThan(semver("12.8.1"))', True),
    (f'{OWN}.version.isLessThan(semver("12.8.1-rc.1"))', False),
    (f'{OWN}.version.compareTo(semver("12.10.0")) == -1', True),
    (f'{OWN}.version.compareTo(semver("v9.08", true)) == 1', True),
    (f'{OWN}.version.compareTo(semver("12.8.1-rc.2")) == 0', True),
    (f'{OWN}.version == semver("12.8.1-rc.2")', True),
    (f'{OWN}.version != semver("12.8.1-rc.2+other")', False),
    (f"{OWN}.version.major() == 12 && {OWN}.version.minor() == 8 && {OWN}.version.patch() == 1", True),
    (f'{OWN}.version.isGreaterThan(semver("12"))', False),
    (f'{OWN}.version.isGreaterThan("12.0.0")', False),
    (f'{OWN}.version.isGreaterThan(quantity("1"))', False),
    (f'{OWN}.version > semver("12.0.0")', False),
    (f'{OWN}.text.isGreaterThan(semver("12.0.0"))', False),
    (f"{OWN}.text.major() == 12", False),
    ('isSemver("1.2.3") && !isSemver("1.2") && isSemver("v1.2", true) && !isSemver("v1.2")', True),
    (f'{OF}.memory.isGreaterThan(quantity("40G"))', True),
    (f'{OF}.memory.isGreaterThan(quantity("40Gi"))', False),
    (f'{OF}.memory.compareTo(quantity("40960Mi")) >= 0', True),
    (f'{OF}.memory == quantity("40960Mi")', True),
    (f'{OF}.memory.isLessThan(quantity("41Gi")) && sign({OF}.memory) == 1', True),
    (f"{OF}.memory.asInteger() == 42949672960 && {OF}.memory.isInteger()", True),
    (f"{OF}.cores.isInteger()", False),
    (f"{OF}.cores.asInteger() == 1", False),
    (f"{OF}.cores.asApproximateFloat() == 1.5", True),
    (f'{OF}.cores.add(1).sub(quantity("500m")) == quantity("2")', True),
    (f"sign({OF}.cores.sub(2)) == -1", True),
    (f'{OF}.memory >= quantity("1")', False),
    (f"sign({OF}.absent) == 1", False),
    (f'!("absent" in {OF}) && "memory" in {OF}', True),
    ('sign(device.capacity["absent.example.com"].memory) == 1', False),
    ('isQuantity("1.5Gi") && !isQuantity("1,5") && !isQuantity("")', True),
    ('sign(quantity("x")) == 0', False),
    (
        f'{OWN}.names.includes("fish") && !{OWN}.names.includes("cat") && {OWN}.text.includes("Some Text-1")',
        True,
    ),
    (f"{OWN}.numbers.includes(2) && {OWN}.flags.includes(true) && !{OWN}.flags.includes(1)", True),
    (f'{OWN}.versions.includes(semver("2.0.0")) && !{OWN}.versions.includes(semver("3.0.0"))', True),
    (f'"bird" in {OWN}.names && {OWN}.names.size() == 2', True),
    (
        f'{OWN}.names.exists(name, name == "bird") && {OWN}.names.filter(name, name != "bird").size() == 1',
        True,
    ),
    (f'{OWN}.versions.all(each, each.isGreaterThan(semver("0.0.1")))', True),
    ("device.allowMultipleAllocations", False),
    ("device.attributes.other.example == 1", False),
    (f"{OWN}.text.add(1) == quantity('1')", False),
    (f"{OF}.memory.add(true) == quantity('1')", False),
    (f"{OF}.memory.major() == 1", False),
    (f'{OWN}.version.add(semver("1.0.0")) == quantity("1")', False),
    ("isSemver(1)", False),
    ("device.allowMultipleAllocations == false", True),
]
# What is told to be unknown, because it cannot be evaluated here as Kubernetes does.
UNKNOWN: Final = [
    f'{OWN}.uuid == "GPU-1"',
    f"has({OWN}.uuid)",
    f'{OWN}.exists(key, key == "text")',
    'device.attributes.exists(domain, domain == "dra.example.com")',
    "device.attributes[device.driver].yes",
    f'{OWN}.?text.optMap(text, text == "").orValue(true)',
    f'device.attributes[?"{DRIVER}"].?yes.orValue(false)',
    f'optional.of({OWN}.text).orValue("") == ""',
    'cel.bind(text, "a" + "b", text == "ab")',
    f"cel.bind(x, {OWN}, [1].exists(x, x == 1))",
    f"{OWN}.numbers.map(number, number * 2) == [2, 4]",
    f"{OWN}.numbers.all(index, number, number > 0)",
    "[1].exists(a, [1].exists(b, a == b))",
    'url("https://example.com").getHost() == ""',
    'ip("10.0.0.1").family() == 4',
    '"a".find("[a]") == "a"',
    "sets.contains([1], [1])",
    "[1].indexOf(1) == 0",
    "string(device) == ''",
    "unknown == 1",
    '[1].exists(device, device.driver == "x")',
    f'{OWN}.text.split("") == []',
    f'{OWN}.text.matches("(")',
    f"{OWN}.text.matches({OWN}.text)",
    "?!",
    "",
    "dra__0 == 1",
    "cel.bind(a, b)",
    "cel.bind(a",
]


@pytest.mark.parametrize(("expression", "matches"), RESULTS)
def test_a_selector_has_the_result_of_kubernetes(expression: str, matches: bool | None) -> None:
    assert matches is match(expression)


@pytest.mark.parametrize("expression", UNKNOWN)
def test_what_cannot_be_evaluated_is_unknown_with_a_reason(expression: str) -> None:
    matched = compile_selector(expression).match(kind())
    assert matched.matches is None
    assert matched.reason


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (f"{OWN}.absent == 1", "no such key: 'absent'"),
        (f'{OWN}.text.isGreaterThan(semver("1.2.3"))', "isGreaterThan fails"),
        (f"{OWN}.one", "the result is int, not true or false"),
        (f"{OWN}.text.matches('(')", "matches fails"),
        (f'{OWN}.one > "a"', "No such overload: the operation is not defined for the given operand types"),
        ("[1].find(1)", "the function find is not supported"),
    ],
)
def test_the_reason_of_a_failure_is_told(expression: str, reason: str) -> None:
    assert reason == compile_selector(expression).match(kind()).reason


def test_a_selector_that_fails_is_neither_false_nor_unknown() -> None:
    texts = [f"{OWN}.absent == 1", f"{OWN}.one == 2", f"{OWN}.yes", f'{OWN}.uuid == "GPU-1"']
    matches = [compile_selector(text).match(kind()) for text in texts]
    assert [(False, True), (False, False), (True, False), (None, False)] == [
        (outcome.matches, outcome.failed) for outcome in matches
    ]


def test_domains_are_asked_for_if_no_value_is_hidden() -> None:
    plain = kind({"other.example.com/name": {"string": "x"}})
    assert match('"other.example.com" in device.attributes', plain) is True
    assert match(f'"{DRIVER}" in device.attributes || "{DRIVER}" in device.capacity', plain) is True
    assert match('device.attributes.exists_one(domain, domain == "other.example.com")', plain) is True


def test_a_hidden_value_matters_only_where_it_decides() -> None:
    assert match(f'{OWN}.uuid == "GPU-1" || {OWN}.yes') is True
    assert match(f'{OWN}.yes && {OWN}.uuid == "GPU-1"') is None
    assert match(f'{OWN}.no && {OWN}.uuid == "GPU-1"') is False


def test_of_a_device_of_which_nothing_is_known_the_driver_may_decide() -> None:
    nothing = DeviceKind("gpu.nvidia.com", hidden=None)
    expression = "device.driver == '{}' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    assert match(expression.format("gpu.nvidia.com"), nothing) is None
    assert match(expression.format("nic.example.com"), nothing) is False
    assert match("device.driver == 'gpu.nvidia.com'", nothing) is True


def test_a_selector_is_evaluated_once_for_kinds_that_it_cannot_tell_apart() -> None:
    selector = compile_selector(f"{OWN}.one == 1")
    kinds = [kind({"one": {"int": 1}, "node": {"int": number}}) for number in range(5)]
    assert {Match(True)} == {selector.match(device_kind) for device_kind in kinds}
    assert 1 == len(selector._results)


def test_missing_false_and_hidden_are_told_apart() -> None:
    selector = compile_selector(f"{OWN}.?uuid.orValue('') == ''")
    assert [None, True] == [selector.match(kind(attributes)).matches for attributes in (ATTRIBUTES, {})]
    assert [True, False] == [
        match(f"{OWN}.one == 1", kind({"one": value})) for value in ({"int": 1}, {"bool": True})
    ]


def test_a_selector_longer_than_in_kubernetes_is_unknown() -> None:
    assert match("true" + " " * MAX_LENGTH) is None
    assert match("true" + " " * (MAX_LENGTH - 4)) is True


def test_a_long_selector_with_a_loop_is_unknown() -> None:
    assert match(f"[{'1,' * 3000}1].exists(number, number == 1)") is None


def test_a_text_that_grows_is_unknown() -> None:
    assert match('"aaaaaaaa"' + '.replace("a", "aaaaaaaa")' * 8 + ".size() > 1") is None


def test_chains_of_binds_are_bounded() -> None:
    expression = "cel.bind(a0, device.attributes, "
    expression += "".join(f"cel.bind(a{number}, a{number - 1}.x, " for number in range(1, 40))
    assert match(expression + "true" + ")" * 40) is None


WORDS: Final = """
device . attributes capacity ["a.b"] [ ] ( ) cel.bind( x , .? [? orValue( has( in "a" ' 1 && || ! ? : ==
exists( semver( { } quantity( compareTo( // \\ dra__0 r' matches( map( - 1.5 é
"""
PARTS: Final = st.sampled_from([*WORDS.split(), "\n", '"""'])


@given(st.lists(PARTS, max_size=14).map("".join) | st.lists(PARTS, max_size=14).map(" ".join) | st.text())
def test_any_text_has_a_result(expression: str) -> None:
    matched = compile_selector(expression).match(kind())
    assert matched.matches is not None or matched.reason


@given(
    st.sampled_from([source for source, _ in RESULTS]),
    st.integers(0, 200),
    st.integers(0, 4),
    st.text(max_size=3),
)
def test_any_damaged_selector_has_a_result(expression: str, place: int, cut: int, text: str) -> None:
    damaged = expression[:place] + text + expression[place + cut :]
    matched = compile_selector(damaged).match(kind())
    assert matched.matches is not None or matched.reason
