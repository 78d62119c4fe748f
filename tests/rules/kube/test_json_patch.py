"""Edits become RFC 6902 operations on exactly the fields that they name, and are visible to later reads."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from rules.kube.json_patch import ObjectError, Recorder, pointer
from rules.text.paths import Path, field_path


def _applied(document: Any, recorder: Recorder) -> Any:
    return jsonpatch.apply_patch(document, recorder.operations)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("spec", "containers", 0), "/spec/containers/0"),
        (("limits", "nvidia.com/gpu"), "/limits/nvidia.com~1gpu"),
        (("a~b", "~1"), "/a~0b/~01"),
        (("",), "/"),
    ],
)
def test_a_path_is_written_as_a_json_pointer(path: Path, text: str) -> None:
    """With the escapes of RFC 6901: tilde before slash."""
    assert text == pointer(path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("spec", "containers", 0, "image"), "spec.containers[0].image"),
        (("resources", "limits", "nvidia.com/gpu"), "resources.limits[nvidia.com/gpu]"),
        (("data", "rule.yaml"), "data[rule.yaml]"),
        (("metadata", "generate_name"), "metadata.generate_name"),
        ((0, "name"), "[0].name"),
    ],
)
def test_a_path_is_printed_in_kubernetes_notation(path: Path, text: str) -> None:
    """So that it can be found in the manifest."""
    assert text == field_path(path)


def test_a_new_member_is_added() -> None:
    """One operation on one field."""
    recorder = Recorder({"spec": {"a": 1}})
    recorder.set(("spec", "b"), 2)

    assert [{"op": "add", "path": "/spec/b", "value": 2}] == recorder.operations


def test_an_existing_member_is_replaced() -> None:
    """With `replace`, so that the patch fails on an object without it."""
    recorder = Recorder({"spec": {"a": 1}})
    recorder.set(("spec", "a"), 2)

    assert [{"op": "replace", "path": "/spec/a", "value": 2}] == recorder.operations


def test_absent_parents_are_created() -> None:
    """One operation creates all of them."""
    recorder = Recorder({"spec": {}})
    recorder.set(("spec", "affinity", "nodeAffinity", "x"), 1)

    assert [
        {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {"x": 1}}}
    ] == recorder.operations


def test_a_parent_that_is_null_is_replaced_by_an_object() -> None:
    """Some clients write null for an absent field."""
    recorder = Recorder({"limits": None})
    recorder.set(("limits", "a"), "1")

    assert [{"op": "replace", "path": "/limits", "value": {"a": "1"}}] == recorder.operations


def test_an_edit_inside_an_added_value_needs_no_second_operation() -> None:
    """It modifies the value of the first operation."""
    recorder = Recorder({})
    recorder.set(("a", "b"), 1)
    recorder.set(("a", "c"), 2)

    assert [{"op": "add", "path": "/a", "value": {"b": 1, "c": 2}}] == recorder.operations


def test_only_the_later_of_two_edits_of_a_field_is_sent() -> None:
    """A patch has no history."""
    recorder = Recorder({"a": 1})
    recorder.set(("a",), 2)
    recorder.set(("a",), 3)

    assert [{"op": "replace", "path": "/a", "value": 3}] == recorder.operations


def test_restoring_the_existing_value_leaves_no_operation() -> None:
    """Two rules that override each other must not patch an object forever."""
    recorder = Recorder({"a": 1})
    recorder.set(("a",), 2)
    recorder.set(("a",), 1)

    assert ([], 1) == (recorder.operations, recorder.get(("a",)))


def test_restoring_a_parent_leaves_no_operation_below_it() -> None:
    """Earlier edits below it are removed too."""
    recorder = Recorder({"a": {"b": 1}})
    recorder.set(("a", "b"), 2)
    recorder.set(("a",), {"b": 1})

    assert ([], 1) == (recorder.operations, recorder.get(("a", "b")))


def test_setting_null_is_an_edit() -> None:
    """Although it reads as absent."""
    recorder = Recorder({})
    recorder.set(("a",), None)

    assert [{"op": "add", "path": "/a", "value": None}] == recorder.operations


def test_true_in_place_of_one_is_a_change() -> None:
    """They are equal in Python, but not in JSON."""
    recorder = Recorder({"a": 1})
    recorder.set(("a",), True)

    assert [{"op": "replace", "path": "/a", "value": True}] == recorder.operations


def test_an_entry_is_appended_to_an_existing_list() -> None:
    """At its end, even if another webhook changes the list in the meantime."""
    recorder = Recorder({"env": [1]})
    recorder.append(("env",), 2)

    assert [{"op": "add", "path": "/env/-", "value": 2}] == recorder.operations


@pytest.mark.parametrize(("document", "op"), [({}, "add"), ({"env": None}, "replace")])
def test_an_absent_list_is_created_with_the_first_entry(document: Any, op: str) -> None:
    """Appending to an absent list would fail; later entries need no further operation."""
    recorder = Recorder(document)
    recorder.append(("env",), 1)
    recorder.append(("env",), 2)

    assert [{"op": op, "path": "/env", "value": [1, 2]}] == recorder.operations


def test_an_entry_of_a_list_is_replaced_at_its_index() -> None:
    """The order of env matters."""
    recorder = Recorder({"env": ["a", "b"]})
    recorder.set(("env", 1), "c")

    assert [{"op": "replace", "path": "/env/1", "value": "c"}] == recorder.operations


def test_a_replaced_appended_entry_is_read_and_sent_once() -> None:
    """A later rule can override an earlier one."""
    document = {"env": ["a"]}
    recorder = Recorder(document)
    recorder.append(("env",), "b")
    recorder.set(("env", 1), "c")

    assert ["a", "c"] == recorder.items(("env",)) == _applied(document, recorder)["env"]


def test_an_edit_inside_an_appended_entry_modifies_it() -> None:
    """The entry is the recorder's own."""
    document: dict[str, Any] = {"volumes": [{}]}
    recorder = Recorder(document)
    recorder.append(("volumes",), {"name": "a"})
    recorder.set(("volumes", 1, "hostPath"), "/dev")

    assert {"volumes": [{}, {"name": "a", "hostPath": "/dev"}]} == _applied(document, recorder)


def test_reads_return_the_document_with_the_edits_applied() -> None:
    """Set, appended and unchanged fields."""
    recorder = Recorder({"a": {"b": 1}, "list": [1], "same": "x"})
    recorder.set(("a", "c"), {"d": 2})
    recorder.append(("list",), 3)
    recorder.set(("list", 0), 2)

    assert (2, [2, 3], 3, "x") == (
        recorder.get(("a", "c", "d")),
        recorder.items(("list",)),
        recorder.get(("list", 1)),
        recorder.get(("same",)),
    )


def test_an_edit_of_a_parent_replaces_the_edits_below_it() -> None:
    """The later edit defines the whole field."""
    document = {"a": {"b": 1, "list": [1]}}
    recorder = Recorder(document)
    recorder.set(("a", "b"), 2)
    recorder.append(("a", "list"), 2)
    recorder.set(("a",), {"b": 3, "list": []})

    assert (3, []) == (recorder.get(("a", "b")), recorder.items(("a", "list")))
    assert {"a": {"b": 3, "list": []}} == _applied(document, recorder)


@pytest.mark.parametrize("path", [("x",), ("a", "b", "c"), ("list", 1), ("list", "name"), ("text", 0)])
def test_an_absent_path_reads_as_none(path: Path) -> None:
    """Also below a value without members."""
    assert None is Recorder({"a": {"b": 1}, "list": [1], "text": "abc"}).get(path)


def test_an_absent_list_reads_as_empty() -> None:
    """Null is absent."""
    recorder = Recorder({"null": None})

    assert ([], []) == (recorder.items(("null",)), recorder.items(("absent",)))


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"a": "text"}, "a string"),
        ({"a": 1}, "a number"),
        ({"a": 1.5}, "a number"),
        ({"a": False}, "a boolean"),
        ({"a": []}, "a list"),
    ],
)
def test_a_member_of_a_scalar_cannot_be_set(document: Any, found: str) -> None:
    """The error contains the path; nothing is recorded."""
    recorder = Recorder(document)
    with pytest.raises(ObjectError) as caught:
        recorder.set(("a", "b", "c"), 1)

    assert (f"a: expected an object, got {found}", []) == (str(caught.value), recorder.operations)


@pytest.mark.parametrize(
    "call", [lambda recorder: recorder.items(("a",)), lambda recorder: recorder.append(("a",), 1)]
)
def test_an_object_instead_of_a_list_is_an_error(call: Any) -> None:
    """The fault of the client."""
    recorder = Recorder({"a": {}})
    with pytest.raises(ObjectError) as caught:
        call(recorder)

    assert ("a: expected a list, got an object", []) == (str(caught.value), recorder.operations)


def test_an_error_of_the_whole_object_names_the_object() -> None:
    """Its path is empty."""
    assert "object: expected an object, got null" == str(ObjectError((), dict, None))


def test_the_document_is_never_modified() -> None:
    """Other code may read it."""
    document = {"a": {"b": 1}, "env": [{"name": "x"}], "none": None}
    before = deepcopy(document)
    recorder = Recorder(document)
    recorder.set(("a", "b"), 2)
    recorder.set(("a", "c", "d"), 2)
    recorder.set(("env", 0), {"name": "z"})
    recorder.append(("env",), {"name": "y"})
    recorder.append(("none",), 1)

    assert before == document
