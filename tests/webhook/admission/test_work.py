"""Which lane answers a request, whom its time is charged to, and how much memory its decoding takes."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.webhooks import pod, review
from webhook.admission.work import decoded_size, schedule
from webhook.server.http import Lane, Request, Work
from webhook.server.work_queue import MEMORY

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
LONG = {"annotation": "x" * 2**14}


def sent(document: Any, **request: Any) -> bytes:
    """Return a review as the API server writes it: without spaces, the object after its header."""
    return msgspec.json.encode(review(document, **request))


def scheduled(body: bytes, path: str = "/validate", method: str = "POST") -> Work:
    """Return how a request of one client is scheduled."""
    return schedule(Request(method, path, body=body, client="10.0.0.1"))


@pytest.mark.parametrize(
    ("body", "lane"),
    [
        (sent(pod({"nvidia.com/gpu": "1"})), Lane.QUICK),
        (sent(pod()).ljust(16 * 2**10), Lane.QUICK),
        (sent(pod()).ljust(16 * 2**10 + 1), Lane.LONG),
        (sent(CONFIG_MAP), Lane.RULES),
        (sent(CONFIG_MAP | LONG), Lane.RULES),
        (sent(CONFIG_MAP).replace(b'"ConfigMap"', b'"Config\\u004dap"'), Lane.RULES),
        (sent(pod(env=[{"name": "KIND", "value": "ConfigMap"}])), Lane.QUICK),
        (sent(pod(env=[{"name": "KIND", "value": "ConfigMap"}]) | LONG), Lane.LONG),
        (sent(CONFIG_MAP | {"apiVersion": "example.com/v1"}), Lane.QUICK),
        (b"", Lane.QUICK),
        (b'"ConfigMap"', Lane.LONG),
        (b'{"request":{"object":"ConfigMap"', Lane.LONG),
        (json.dumps(review(CONFIG_MAP), indent=1).encode(), Lane.RULES),
        (sent(CONFIG_MAP).replace(b'"object":', b'"object" :'), Lane.LONG),
    ],
)
def test_a_review_of_a_config_map_is_in_a_lane_of_its_own_and_a_large_one_is_long(
    body: bytes, lane: Lane
) -> None:
    """By the kind in the header, not by a text; what the API server would not write is long, to be safe."""
    assert lane == scheduled(body).lane


def test_a_config_map_is_no_rule_for_the_mutating_webhook() -> None:
    """Only the validating one checks rules."""
    assert Lane.QUICK == scheduled(sent(CONFIG_MAP), "/mutate").lane


@pytest.mark.parametrize(("path", "method"), [("/metrics", "GET"), ("/mutate", "GET"), ("/nowhere", "POST")])
def test_what_is_no_review_waits_for_no_review(path: str, method: str) -> None:
    """Nor is its body looked at."""
    assert Lane.OTHER == scheduled(sent(CONFIG_MAP), path, method).lane


@pytest.mark.parametrize("document", [pod(), pod() | LONG, CONFIG_MAP])
def test_a_review_is_charged_to_its_client_namespace_and_user(document: dict[str, Any]) -> None:
    """In every lane."""
    expected = ("client 10.0.0.1", "namespace ml", "user someone")

    assert expected == scheduled(sent(document)).accounts()


@pytest.mark.parametrize("body", [b"", b"{", b'{"request":{"object":', b'{"request":{"kind":1,"object":{}}}'])
def test_a_malformed_review_is_charged_to_its_client(body: bytes) -> None:
    """Nothing else is known of it."""
    assert ("client 10.0.0.1",) == scheduled(body).accounts()


def test_long_names_are_told_apart_but_not_kept() -> None:
    """A user name has no limit."""
    names = ["u" * 10_000, "u" * 10_001]
    accounts = [scheduled(sent(pod(), userInfo={"username": name})).accounts() for name in names]

    assert accounts[0] != accounts[1]
    assert max(len(account) for pair in accounts for account in pair) < 100


def joined(element: bytes, size: int) -> bytes:
    """Return a list of equal elements, of about `size` bytes."""
    return b"[" + b",".join([element] * (size // (len(element) + 1))) + b"]"


def keys(value: bytes, size: int) -> bytes:
    """Return an object of about `size` bytes whose keys differ."""
    return b"{" + b",".join(b'"%x":%b' % (number, value) for number in range(size // 10)) + b"}"


# Each fills the text with what takes most memory of one kind of object.
SHAPES: dict[str, Callable[[int], bytes]] = {
    "nested lists": lambda size: joined(b"[" * 100 + b"]" * 100, size),
    "nested objects": lambda size: joined(b'{"":' * 100 + b"0" + b"}" * 100, size),
    "empty lists": lambda size: joined(b"[]", size),
    "empty objects": lambda size: joined(b"{}", size),
    "lists of a number": lambda size: joined(b"[300]", size),
    "lists of five": lambda size: joined(b"[300,300,300,300,300]", size),
    "lists in objects": lambda size: joined(b'{"":[]}', size),
    "numbers in objects": lambda size: joined(b'{"":300}', size),
    "objects of six": lambda size: joined(b'{"":0,"a":0,"b":0,"c":0,"d":0,"e":0}', size),
    "integers": lambda size: joined(b"300", size),
    "long integers": lambda size: joined(b"9" * 300, size),
    "floats": lambda size: joined(b"1e9", size),
    "strings": lambda size: joined(b'"ab"', size),
    "wide strings": lambda size: joined('"😀"'.encode(), size),
    "strings of mixed width": lambda size: joined('"aaa一"'.encode(), size),
    "escapes": lambda size: joined(b'"\\ud83d\\ude00aaaa"', size),
    "a long wide string": lambda size: ('"😀' + "a" * size + '"').encode(),
    "keys": lambda size: keys(b"300", size),
    "keys of lists": lambda size: keys(b"[]", size),
}


def decoded(text: bytes) -> int:
    """Return the bytes that Python's allocators hold at the peak of decoding."""
    tracemalloc.start()
    try:
        value = msgspec.json.decode(text)
        _, peak = tracemalloc.get_traced_memory()
        del value
    finally:
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("shape", SHAPES)
def test_a_decoded_text_takes_at_most_its_decoded_size(shape: str) -> None:
    """Also at the peak of decoding."""
    text = SHAPES[shape](2**18)

    assert decoded(text) <= decoded_size(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=30,
)


@given(json_values)
def test_any_value_takes_at_most_its_decoded_size(value: Any) -> None:
    """However its objects, keys and texts are mixed."""
    text = joined(msgspec.json.encode(value), 20_000)

    assert decoded(text) <= decoded_size(text)


def test_the_longest_usual_reviews_fit_the_memory_of_their_lane() -> None:
    """An update of the largest object that etcd accepts, 1.5 MiB, of short variables; and 7 MiB of text."""
    largest = pod(env=[{"name": f"VARIABLE_{number}", "value": "a"} for number in range(42_000)])

    assert 1.5 * 2**20 < len(msgspec.json.encode(largest)) < 2 * 2**20
    assert scheduled(sent(largest, oldObject=largest)).memory <= MEMORY
    assert scheduled(sent(pod(args=["line of a script\n" * 400_000]))).memory <= MEMORY


def test_seven_mebibytes_of_the_worst_json_do_not_fit() -> None:
    """They would take 335 MiB."""
    assert scheduled(sent(pod()) + SHAPES["nested lists"](7 * 2**20)).memory > MEMORY
