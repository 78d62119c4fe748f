"""Bytes to the response of both endpoints: rejected as invalid, or a response that the API server accepts."""

from __future__ import annotations

import json
from base64 import b64decode
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import yaml

from rules.nodes.inventory_document import inventory_of
from tests.fuzz.mutator import texts
from tests.fuzz.targets import TESTS
from webhook.admission.handler import AdmissionHandler
from webhook.admission.review import ReviewError
from webhook.cli.inputs.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.handler import Endpoint

ENDPOINTS: Final[tuple[Endpoint, Endpoint]] = ("mutate", "validate")


def seeds() -> Iterator[bytes]:
    """Yield reviews of a real API server, without large irrelevant fields."""
    for path in sorted((TESTS / "reviews").glob("*/request.json")):
        review = json.loads(path.read_bytes())
        for name in ("object", "oldObject"):
            ((review["request"].get(name) or {}).get("metadata") or {}).pop("managedFields", None)
        yield json.dumps(review).encode()


def words() -> Iterator[str]:
    """Yield the texts of all of them."""
    for seed in seeds():
        yield from texts(json.loads(seed))


def check(data: bytes) -> None:
    """Check that the uid is kept, and that a patched object is allowed without a second patch."""
    answers = [_answer(endpoint, data) for endpoint in ENDPOINTS]
    if answers == [None, None]:
        return
    review = _read(data)
    if None in answers:  # a rule without metadata: /mutate lets rules pass without a look
        assert answers[1] is None
        assert review is None or review["request"]["kind"]["kind"] == "ConfigMap"
        return
    if review is None:
        return
    mutation, validation = (answer or {} for answer in answers)
    assert mutation["uid"] == validation["uid"] == review["request"]["uid"]
    if "patch" not in mutation:
        return
    assert mutation["allowed"]
    patch = json.loads(b64decode(mutation["patch"]))
    review["request"]["object"] = jsonpatch.apply_patch(review["request"]["object"], patch)
    again, final = (_answer(endpoint, json.dumps(review).encode()) for endpoint in ENDPOINTS)
    assert again is not None
    assert again["allowed"]
    assert "patch" not in again, again["patch"]
    assert final is not None
    assert final["allowed"], final


def _read(data: bytes) -> dict[str, Any] | None:
    """Return a review; None if a part that is never read is invalid JSON, or a number such as 2e308."""
    try:
        review = dict(json.loads(data.decode("utf-8", "replace"), strict=False))
        json.dumps(review, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return review


def _answer(endpoint: Endpoint, data: bytes) -> dict[str, Any] | None:
    """Return the response to a review, or None if the review is invalid."""
    try:
        answer = json.loads(_gate().answer(endpoint, data))
    except ReviewError:
        return None
    response: dict[str, Any] = answer.pop("response")
    assert answer == {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    assert response["allowed"] or response["status"]["code"] in (400, 403), response
    return response


@cache
def _gate() -> AdmissionHandler:
    """Return a handler with the built-in rules and the nodes of the documentation."""
    nodes = yaml.safe_load((TESTS.parent / "docs/compatibility/nodes.yaml").read_text("utf-8"))
    return AdmissionHandler(Session().read_rules([]), inventory=inventory_of(nodes["items"]))
