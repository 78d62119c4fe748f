"""YAML is read as kubectl reads it, each value has a location, and invalid YAML is an error."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rules.text.paths import Path
from rules.text.yaml_document import (
    MAX_DEPTH,
    MAX_DOCUMENTS,
    MAX_DUPLICATES,
    Document,
    Location,
    SourceError,
    read,
)

_UNCLOSED: Final = (
    "while parsing a flow node did not find expected node content; "
    "close each [ and {, and quote a value that begins with one"
)

BILLION_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 10)
)


def _documents(text: str) -> list[Document]:
    documents = []
    for document in read(text, "f"):
        assert isinstance(document, Document)
        documents.append(document)
    return documents


def _document(text: str) -> Document:
    (document,) = _documents(text)
    return document


def _errors(text: str) -> list[str]:
    return [str(result) for result in read(text, "f") if isinstance(result, SourceError)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-5", -5),
        ("+5", 5),
        ("0", 0),
        ("1_000", 1000),
        ("0x1f", 31),
        ("-0x1", -1),
        ("017", 15),
        ("0b11", 3),
        ("1.5", 1.5),
        ("1.0e+3", 1000.0),
        ("true", True),
        ("Yes", True),
        ("on", True),
        ("no", False),
        ("OFF", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("y", "y"),
        ("08", "08"),
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2026-11-21", "2026-11-21"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int x", "x"),
        ("!!binary aGk=", "aGk="),
        ("!mine x", "x"),
        ("9" * 5000, "9" * 5000),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("[1, {a: b}]", [1, {"a": "b"}]),
        ('{"a": [true, null, "\\u4e2d"]}', {"a": [True, None, "中"]}),
    ],
)
def test_a_value_is_read_as_kubectl_reads_it(text: str, value: Any) -> None:
    """YAML 1.1 without timestamps; values that JSON does not have stay strings; tags are ignored."""
    a = _document(f"a: {text}").value["a"]

    assert (type(value), value) == (type(a), a)


def test_keys_are_strings() -> None:
    """As in JSON."""
    assert {"1": "a", "true": "b", "": "c"} == _document("1: a\ntrue: b\n'': c").value


def test_an_alias_is_the_value_of_its_anchor() -> None:
    """So is a merge; keys of the object and earlier items of a list take precedence."""
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: *a\nd: {<<: *a, x: 5}\ne: {<<: [*a, *b]}"

    assert {
        "a": {"x": 1, "y": 2},
        "b": {"y": 3, "z": 4},
        "c": {"x": 1, "y": 2},
        "d": {"x": 5, "y": 2},
        "e": {"x": 1, "y": 2, "z": 4},
    } == _document(text).value


def test_documents_are_split_at_lines_of_dashes() -> None:
    """Each with its location; an empty document is kept, a document of comments is not."""
    documents = _documents("# head\n---\na: 1\n---\n---\nb: 2\n--- {c: 3}\n")

    assert [{"a": 1}, None, {"b": 2}, {"c": 3}] == [document.value for document in documents]
    assert [3, 6, 7] == [document.locate().line for document in documents if document.value]


def test_an_empty_text_has_no_documents() -> None:
    """And no errors."""
    assert [] == list(read("", "f"))


def test_an_error_does_not_hide_other_documents() -> None:
    """Each document is read separately."""
    parsed = list(read("a: 1\n---\nb: [\n---\nc: 3\n---\nd: }\n", "f"))

    assert [{"a": 1}, "f:4:1", {"c": 3}, "f:7:4"] == [
        str(item.location) if isinstance(item, SourceError) else item.value for item in parsed
    ]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_locations_do_not_depend_on_line_ends(newline: str) -> None:
    """Files from Windows are valid too."""
    documents = _documents("\ufeff" + newline.join(["a: 1", "---", "b:", "  c: x", ""]))

    assert ({"b": {"c": "x"}}, Location("f", 4, 6)) == (documents[1].value, documents[1].locate(("b", "c")))


TEXT = """\
kind: List
items:
- name: first
  list: [1, 22, {x: y}]
- name: >-
    second
  nested:
    key: "v"
"""


@pytest.mark.parametrize(
    ("path", "key", "place"),
    [
        ((), False, (1, 1)),
        (("kind",), False, (1, 7)),
        (("kind",), True, (1, 1)),
        (("items", 0, "name"), False, (3, 9)),
        (("items", 0, "list"), False, (4, 3)),
        (("items", 0, "list", 1), False, (4, 13)),
        (("items", 0, "list", 2, "x"), False, (4, 21)),
        (("items", 1), False, (5, 3)),
        (("items", 1, "name"), False, (5, 9)),
        (("items", 1, "nested"), False, (7, 3)),
        (("items", 1, "nested", "key"), False, (8, 10)),
        (("items", 1, "nested", "absent"), False, (7, 3)),
        (("items", 2), False, (2, 1)),
        (("items", "name"), False, (2, 1)),
        (("kind", "of", "scalar"), False, (1, 7)),
    ],
)
def test_a_value_is_located_by_its_path(path: Path, key: bool, place: tuple[int, int]) -> None:
    """A scalar at its value, an object at its key, an absent value at its nearest parent."""
    assert Location("f", *place) == _document(TEXT).locate(path, key=key)


def test_a_scalar_on_a_line_of_its_own_is_located_at_its_key() -> None:
    """The reader looks for the key."""
    assert Location("f", 2, 1) == _document("a: 1\nb:\n    long text\n").locate(("b",))


def test_a_tab_outside_of_indentation_is_valid() -> None:
    """It is not an error."""
    assert ["f:1:5"] == [error.partition(": ")[0] for error in _errors("a: b:\tc")]


def test_the_last_of_duplicate_keys_is_used_and_each_is_reported() -> None:
    """In nested objects and inline ones."""
    document = _document("a: 1\nb: {c: 1, c: 2}\na: 2\na: 3\n")

    assert ({"a": 3, "b": {"c": 2}}, Location("f", 4, 4)) == (document.value, document.locate(("a",)))
    assert [
        "f:2:11: duplicate key 'c': remove one of them",
        "f:3:1: duplicate key 'a': remove one of them",
        "f:4:1: duplicate key 'a': remove one of them",
    ] == [str(error) for error in document.duplicates]


def test_duplicate_keys_are_listed_below_a_path() -> None:
    """Each object of a list has its own duplicates."""
    _, last = _documents("x: 1\n---\nitems:\n- {a: 1, a: 2}\n- {b: 1}\n- c: 1\n  c: 2\n")

    assert [["f:4:10"], [], ["f:7:3"]] == [
        [str(error.location) for error in last.duplicates_below(("items", index))] for index in range(3)
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "a: [",
            (
                "f:2:1: not YAML: while parsing a flow node did not find expected node content; "
                "close each [ and {, and quote a value that begins with one"
            ),
        ),
        (
            "a: {b: 1",
            (
                "f:2:1: not YAML: while parsing a flow mapping did not find expected ',' or '}'; "
                "close each [ and {, and quote a value that begins with one"
            ),
        ),
        (
            "a: @x",
            (
                "f:1:4: not YAML: while scanning for the next token found character that cannot start any "
                "token; quote a value that begins with @, ` or %"
            ),
        ),
        (
            'a: "b',
            "f:1:6: not YAML: while scanning a quoted scalar found unexpected end of stream; close the quote",
        ),
        (
            "- a\nb: 1",
            (
                "f:2:1: not YAML: while parsing a block collection did not find expected '-' indicator; "
                "check the indentation"
            ),
        ),
        (
            "a: b: c",
            (
                "f:1:5: not YAML: mapping values are not allowed in this context; check the indentation, and "
                "quote a value that contains `: `"
            ),
        ),
        (
            "a:\n   b: 1\n  c: 2",
            (
                "f:3:3: not YAML: while parsing a block mapping did not find expected key; "
                "check the indentation"
            ),
        ),
        ("a: *b", "f:1:4: not YAML: found undefined alias; quote a value that begins with *"),
        (
            "a:\n\tb: 1",
            (
                "f:2:1: not YAML: while scanning for the next token found character that cannot"
                " start any token; "
                "indent with spaces, YAML does not allow tabs"
            ),
        ),
        ("? [a]\n: b", "f:1:3: expected a string as key"),
        (
            "name: {{ .Values.name }}",
            "f:1:8: expected a string as key; {{ is template syntax: render the template first",
        ),
        (
            "{{- if .Values.gpu }}\na: b\n",
            (
                "f:1:3: not YAML: while parsing a flow node did not find expected node content; "
                "{{ is template syntax: render the template first"
            ),
        ),
        ("a: {<<: 1}", "f:1:4: expected an object or a list of objects after `<<`"),
        ("a: {<<: [1]}", "f:1:4: expected an object or a list of objects after `<<`"),
        ("a: &a [*a]", "f:1:4: nested deeper than 200 levels"),
        ("a: &a {<<: *a}", "f:1:4: nested deeper than 200 levels"),
        ("a: 中中中中中\nb: 中\x01\nc: 1\nd: 1\n", "f:2:5: control characters are not allowed (#x0001)"),
        ("a: 1\r\rb: \x0c\r", "f:3:4: control characters are not allowed (#x000c)"),
        ("a: 1\n---\nb: \x7f", "f:3:4: control characters are not allowed (#x007f)"),
        ("a: 中\nb: \ud800", "f:2:4: surrogates not allowed (#xd800)"),
        (BILLION_LAUGHS, f"f:1:5: more than {len(BILLION_LAUGHS) + 5_000} values: aliases expand too much"),
    ],
)
def test_invalid_or_too_large_yaml_is_an_error_with_its_location(text: str, error: str) -> None:
    """In bounded time, for any text."""
    assert [error] == _errors(text)


def test_yaml_that_is_nested_too_deep_is_an_error_where_the_reader_or_its_library_stops() -> None:
    """PyYAML's library has a limit of its own since 6.0.4, and reads some brackets ahead."""
    (error,) = _errors("[" * 100_000)

    assert error in [f"f:1:{column}: nested deeper than 200 levels" for column in (201, 1001)]


def test_aliases_may_repeat_as_much_as_in_real_manifests() -> None:
    """A thousand containers with the variables of one, but not much more."""
    variables = "- &env [{name: A, value: 1}, {name: B, value: 2}]\n"
    repeated = _document(variables + "- *env\n" * 1000)
    laughs = "".join(f"- &a{number} [{f'*a{number - 1}, ' * 10}]\n" for number in range(1, 4))

    assert [[{"name": "A", "value": 1}, {"name": "B", "value": 2}]] * 1001 == repeated.value
    assert [] == _errors("- &a0 [x]\n" + laughs)
    assert ["f:1:3: more than 5210 values: aliases expand too much"] == _errors(
        "- &a0 [x]\n" + laughs + "- [*a3, *a3, *a3, *a3]\n"
    )


@pytest.mark.parametrize("text", ["[" * 300, f"{'[' * 300}{']' * 300}", "- " * 300])
def test_a_document_is_not_composed_deeper_than_it_is_read(text: str) -> None:
    """The library composes by recursion, and not every version of it has a limit."""
    assert ["nested deeper than 200 levels"] == [error.partition(": ")[2] for error in _errors(text)]


def test_a_large_document_is_located_too() -> None:
    """Its node tree is not kept, but composed again."""
    (document,) = _documents(f"- {'x' * 2**16}\n- b: 1\n")

    assert Location("f", 2, 6) == document.locate((1, "b"))


def _of_object(text: str, name: str) -> Document:
    (result,) = read({"data": {"rule.yaml": text}}, name)
    assert isinstance(result, Document)
    return result


def test_paths_of_an_object_of_a_cluster_have_no_lines_but_those_in_its_strings() -> None:
    """A string is found by its key."""
    document = _of_object("a: 1\nb: {c: 2, c: 3}\n", "configmap ns/x")
    inner = document.embedded(("data", "rule.yaml"))

    assert "configmap ns/x" == str(document.locate(("data", "rule.yaml")))
    assert [] == document.duplicates_below(("data",))
    assert "configmap ns/x rule.yaml:2:11" == str(inner.locate(("b", "c"), key=True))
    assert ["configmap ns/x rule.yaml:2:11: duplicate key 'c': remove one of them"] == [
        str(error) for error in inner.duplicates
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("b: [", f"f: not YAML: {_UNCLOSED}"),
        ("a: 1\nb: [", f"f rule.yaml:3:1: not YAML: {_UNCLOSED}"),
        ("", "f: expected one YAML document, got none"),
    ],
)
def test_an_error_in_a_string_of_an_object_has_its_location_in_the_string(text: str, error: str) -> None:
    """A string of one line, or without a document, has none."""
    with pytest.raises(SourceError) as caught:
        _of_object(text, "f").embedded(("data", "rule.yaml"))

    assert error == str(caught.value)


def test_deep_objects_are_read() -> None:
    """The limit is deeper than any object that an API server accepts."""
    assert [] == _errors("[" * MAX_DEPTH + "]" * MAX_DEPTH)


def test_two_megabytes_are_read() -> None:
    """A list of a thousand ConfigMaps is valid."""
    item = f"- {{kind: ConfigMap, data: {{text: '{'x' * 2000}'}}}}\n"
    document = _document(f"items:\n{item * 1000}")

    assert (1000, Location("f", 1001, 3)) == (len(document.value["items"]), document.locate(("items", 999)))


def _outer(written: str) -> Document:
    return _documents(f"x: 1\n---\nkind: ConfigMap\ndata:\n  rule.yaml: {written}\n")[1]


@pytest.mark.parametrize(
    ("written", "place", "duplicate"),
    [
        ("|\n    match: 1\n    inject: {a: b, a: c}", "f:7:23", "f:7:20"),
        ("|1\n    match: 1\n    inject: {a: b, a: c}", "f:7:23", "f:7:20"),
        ("|-\n\n    # comment\n    match: 1\n    inject: {a: b, a: c}", "f:9:23", "f:9:20"),
        ("|\n    ---\n    match: 1\n    inject: {a: b, a: c}", "f:8:23", "f:8:20"),
        (">\n    match: 1\n\n    inject: {a: b, a: c}", "f:5:14", "f:5:14"),
        ('"match: 1\\ninject: {a: b, a: c}"', "f:5:14", "f:5:14"),
        ("|\n    ---\n    ---\n    match: 1\n    inject: {a: b, a: c}", "f:9:23", "f:9:20"),
    ],
)
def test_a_document_in_a_string_keeps_its_locations_in_the_file(
    written: str, place: str, duplicate: str
) -> None:
    """By line in a literal block; otherwise the location of the string."""
    embedded_document = _outer(written).embedded(("data", "rule.yaml"))

    assert ({"match": 1, "inject": {"a": "c"}}, place, [duplicate]) == (
        embedded_document.value,
        str(embedded_document.locate(("inject", "a"))),
        [str(error.location) for error in embedded_document.duplicates],
    )


@pytest.mark.parametrize(
    ("written", "error"),
    [
        (
            "|\n    a: 1\n    b: [",
            (
                "f:8:5: not YAML: while parsing a flow node did not find expected node content; "
                "close each [ and {, and quote a value that begins with one"
            ),
        ),
        ("|\n    a: 1\n    ? [b]", "f:7:7: expected a string as key"),
        (
            '"a: ["',
            (
                "f:5:14: not YAML: while parsing a flow node did not find expected node content; "
                "close each [ and {, and quote a value that begins with one"
            ),
        ),
        ('""', "f:5:14: expected one YAML document, got none"),
        ("|\n    a: 1\n    ---\n    b: 2", "f:5:14: expected one YAML document, got 2"),
    ],
)
def test_an_error_in_an_embedded_document_has_a_location(written: str, error: str) -> None:
    """By line in a literal block; otherwise the location of the string."""
    with pytest.raises(SourceError) as caught:
        _outer(written).embedded(("data", "rule.yaml"))

    assert error == str(caught.value)


def test_an_embedded_document_of_a_merged_value_is_found() -> None:
    """At its anchor."""
    text = "base: &base\n  rule.yaml: |\n    a: 1\ndata: {<<: [*base], x: 1}\n"
    embedded_document = _document(text).embedded(("data", "rule.yaml"))

    assert ({"a": 1}, Location("f", 3, 8)) == (embedded_document.value, embedded_document.locate(("a",)))


@pytest.mark.parametrize(
    ("path", "place"),
    [(("own",), (2, 24)), (("first",), (1, 16)), (("second",), (1, 32)), (("none",), (2, 1))],
)
def test_a_merged_value_is_located_at_its_anchor(path: Path, place: tuple[int, int]) -> None:
    """At the first anchor that has it; an absent value at the object."""
    text = "a: [&a {first: 1}, &b {second: 2, first: 3}]\nb: {<<: [*a, *b], own: 4}\n"

    assert Location("f", *place) == _document(text).locate(("b", *path))


def test_embedding_an_absent_string_is_a_bug() -> None:
    """The caller must check that it is present."""
    with pytest.raises(KeyError):
        _document("a: 1").embedded(("b",))


@pytest.mark.parametrize(
    ("place", "text"), [(Location("f"), "f"), (Location("f", 3), "f:3"), (Location("f", 3, 4), "f:3:4")]
)
def test_a_location_is_printed_in_the_format_of_editors(place: Location, text: str) -> None:
    """file:line:column, as far as it is known."""
    assert text == str(place)


def test_the_first_duplicate_keys_are_recorded() -> None:
    """The others would only repeat the message."""
    assert MAX_DUPLICATES == len(_document("a: 1\n" * 1000).duplicates)


def test_of_several_merged_objects_the_first_takes_precedence() -> None:
    """And the object's own keys before all of them."""
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], z: 3}\n"

    assert {"x": 1, "y": 1, "z": 3} == _document(text).value["c"]


def test_a_key_is_located_in_linear_time_in_objects_that_merge_each_other() -> None:
    """Each of them is searched once; if a key is in none, it is located at the object."""
    twice = "".join(f"a{at}: &a{at} {{<<: [*a{at - 1}, *a{at - 1}]}}\n" for at in range(1, 10))
    document = _document(f"a0: &a0 {{k: 1}}\n{twice}")

    assert Location("f", 1, 13) == document.locate(("a9", "k"))
    assert Location("f", 10, 1) == document.locate(("a9", "absent"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("&a x: 1\n*a : 2\nb: *a", {"x": 2, "b": "x"}),
        ("a: &a [&b [1], *b]\nc: [*a, *b]", {"a": [[1], [1]], "c": [[[1], [1]], [1]]}),
        ("a: &a {b: &b {x: 1}}\nc: {<<: *b, y: 2}", {"a": {"b": {"x": 1}}, "c": {"x": 1, "y": 2}}),
        ("a: &a\nb: *a", {"a": None, "b": None}),
        ("a: ! 5\nb: ! 'x'", {"a": 5, "b": "x"}),
    ],
)
def test_anchors_are_read_anywhere(text: str, value: Any) -> None:
    """At keys, in what another alias repeats, and at an empty value."""
    assert value == _document(text).value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: &a 1\nb: &a 2", "f:2:4: not YAML: found duplicate anchor"),
        ("a: &a 1\n---\nb: *a", "f:3:4: not YAML: found undefined alias; quote a value that begins with *"),
        ("*a : 1", "f:1:1: not YAML: found undefined alias; quote a value that begins with *"),
        ("a: &a [1]\n*a : 1", "f:1:4: expected a string as key"),
        ("a: &a [{b: *a}]", "f:1:8: nested deeper than 200 levels"),
    ],
)
def test_an_invalid_anchor_is_an_error_with_its_location(text: str, error: str) -> None:
    """An anchor is of one document and one value, and an alias comes after it."""
    assert [error] == _errors(text)


def test_the_values_of_aliases_are_copies() -> None:
    """A change of one does not change the other."""
    value = _document("a: &a [1]\nb: *a").value
    value["a"].append(2)

    assert [1] == value["b"]


def test_a_text_with_too_many_documents_is_an_error_and_none_of_them_is_read() -> None:
    """A MiB of lines of `---` took 4 seconds; manifests of a whole cluster have some thousand documents."""
    most = _documents("---\n" * (MAX_DOCUMENTS - 1))
    (error,) = read("---\n" * 300_000, "f")

    assert MAX_DOCUMENTS - 1 <= len(most) <= MAX_DOCUMENTS
    assert f"f:{MAX_DOCUMENTS}:1: more than 20,000 documents; split the file, or write them as a List" == str(
        error
    )
