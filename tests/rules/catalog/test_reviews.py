"""Golden reviews: what a real API server sent (v1.20, recorded), and what the gate answers.

`request.json` is the recording; `mutate.json` and `validate.json` are the answers, the patch in clear text.
`pytest tests/rules/catalog/test_reviews.py --update-golden` writes them; read the diff before a commit.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any, Literal

import jsonpatch
import pytest

from tests.support.paths import TESTS
from tests.support.webhooks import builtin_handler

REVIEWS = TESTS / "reviews"
CASES = sorted(path.name for path in REVIEWS.iterdir())


def _answer(endpoint: Literal["mutate", "validate"], review: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = json.loads(builtin_handler().answer(endpoint, json.dumps(review).encode()))
    if "patch" in response["response"]:
        response["response"]["patch"] = json.loads(b64decode(response["response"]["patch"]))
    return response


def _request(case: str) -> dict[str, Any]:
    review: dict[str, Any] = json.loads((REVIEWS / case / "request.json").read_text("utf-8"))
    return review


@pytest.mark.parametrize("endpoint", ["mutate", "validate"])
@pytest.mark.parametrize("case", CASES)
def test_a_recorded_review_gets_its_golden_answer(
    case: str, endpoint: Literal["mutate", "validate"], pytestconfig: pytest.Config
) -> None:
    """Any change of an answer to a real request is seen in review."""
    golden = REVIEWS / case / f"{endpoint}.json"
    answer = _answer(endpoint, _request(case))
    if pytestconfig.getoption("--update-golden"):
        golden.write_text(json.dumps(answer, indent=1, ensure_ascii=False) + "\n", "utf-8")

    assert json.loads(golden.read_text("utf-8")) == answer


@pytest.mark.parametrize("case", CASES)
def test_the_patched_object_of_a_recorded_review_gets_no_second_patch(case: str) -> None:
    """Reinvocation changes nothing, and the validating endpoint agrees with the mutating one."""
    review = _request(case)
    first = _answer("mutate", review)["response"]
    if review["request"]["object"] is not None:
        review["request"]["object"] = jsonpatch.apply_patch(
            review["request"]["object"], first.get("patch", [])
        )
    again = _answer("mutate", review)["response"]
    final = _answer("validate", review)["response"]

    assert (None, first["allowed"], first["allowed"]) == (
        again.get("patch"),
        again["allowed"],
        final["allowed"],
    )


def test_a_pod_whose_requests_the_api_server_copied_from_limits_passes_requests_disabled() -> None:
    """The API server defaults requests before any webhook sees the pod."""
    review = _request("000-create-pod-vcuda-limits-only")
    resources = review["request"]["object"]["spec"]["containers"][0]["resources"]
    answer = _answer("mutate", review)["response"]

    assert resources["limits"]["tencent.com/vcuda-core"] == resources["requests"]["tencent.com/vcuda-core"]
    assert {"allowed": True} == {key: answer[key] for key in ("allowed", "status", "patch") if key in answer}
