"""AdmissionReview: any bytes get an error with a reason, or a valid response."""

from __future__ import annotations

import gc
import json
import re
from base64 import b64decode
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules.decision.exemptions import _CHANGES
from rules.model.decision import CAP_ANNOTATION, Decision
from rules.model.finding import Basis, Finding
from rules.model.rule import Action
from rules.text.i18n import Text
from tests.support.builders import resource_rule
from tests.support.paths import ROOT
from tests.support.webhooks import body, builtin_handler, pod, review
from webhook.admission.review import (
    ReviewError,
    decode_review,
    encode_decision,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)
V1BETA1 = (
    "expected admission.k8s.io/v1 AdmissionReview, got admission.k8s.io/v1beta1 AdmissionReview: "
    "list v1 in admissionReviewVersions"
)
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def _response(answer: bytes) -> dict[str, Any]:
    document = json.loads(answer)
    assert ("admission.k8s.io/v1", "AdmissionReview") == (document["apiVersion"], document["kind"])
    response: dict[str, Any] = document["response"]
    return response


def test_a_review_has_a_uid_and_a_request() -> None:
    """The name may be missing; the namespace is in the request."""
    decoded = decode_review(body(pod({"nvidia.com/gpu": "1"}), dryRun=True), mutating=True)

    assert (UID, "", True) == (decoded.uid, decoded.name, decoded.dry_run)
    assert ("CREATE", "", "Pod", "ml") == (
        decoded.request.operation,
        decoded.request.group,
        decoded.request.kind,
        decoded.request.namespace,
    )


def _envelope(request: dict[str, Any], version: str = "v1", kind: str = "AdmissionReview") -> bytes:
    document = {"apiVersion": f"admission.k8s.io/{version}", "kind": kind, "request": request}
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not an AdmissionReview: Input data was truncated"),
        (b"\xff\xfe", "not an AdmissionReview: JSON is malformed: invalid character (byte 0)"),
        (b"[]", "not an AdmissionReview: Expected `object`, got `array`"),
        (b"{}", "not an AdmissionReview: Object missing required field `apiVersion`"),
        (
            _envelope({"kind": {}, "operation": "CREATE"}),
            "not an AdmissionReview: Object missing required field `uid` - at `$.request`",
        ),
        (
            _envelope({"uid": "", "kind": {}, "operation": "CREATE"}),
            "not an AdmissionReview: `$.request.uid` is empty",
        ),
        (
            _envelope({"uid": "1", "kind": {}, "operation": "CREATE"}, version="v1beta1"),
            V1BETA1,
        ),
        (
            _envelope({"uid": "1", "kind": {}, "operation": "CREATE"}, kind="ConversionReview"),
            V1BETA1.replace(
                "admission.k8s.io/v1beta1 AdmissionReview", "admission.k8s.io/v1 ConversionReview"
            ),
        ),
        (b'{"a":' * 100_000, "not an AdmissionReview: nested too deep"),
        (
            b'{"kind": "\xff"}',
            "not an AdmissionReview: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
    ],
)
def test_a_body_that_is_not_a_review_is_rejected_with_a_reason(text: bytes, message: str) -> None:
    """With the place."""
    with pytest.raises(ReviewError) as error:
        decode_review(text, mutating=True)

    assert message == str(error.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"spec": {"containers": {}}}, "spec.containers: expected a list, got an object"),
        ({"spec": {"containers": ["x"]}}, "spec.containers[0]: expected an object, got a string"),
        (
            {"spec": {"containers": [{"resources": {"limits": 5}}]}},
            "spec.containers[0].resources.limits: expected an object, got a number",
        ),
        ({"metadata": [], "spec": {}}, "metadata: expected an object, got a list"),
    ],
)
def test_a_malformed_object_is_denied_with_its_place(document: Any, message: str) -> None:
    """An API server sends those of kinds that have no schema."""
    sent = body({"apiVersion": "v1", "kind": "Pod", **document})
    answer = _response(builtin_handler().answer("mutate", sent))

    assert (UID, False, 400) == (answer["uid"], answer["allowed"], answer["status"]["code"])
    problem = f"malformed object, denied without checks: {message}"
    assert (f"gpugate: {problem}", {"error": problem}) == (
        answer["status"]["message"],
        answer["auditAnnotations"],
    )


def test_a_malformed_object_is_allowed_by_on_error() -> None:
    """With a warning."""
    malformed = Decision.errored(
        400, "malformed object", "spec: expected an object, got a list", allowed=True
    )
    answer = _response(encode_decision(UID, malformed))

    assert (True, None) == (answer["allowed"], answer.get("status"))
    assert answer["warnings"] == [
        "gpugate: malformed object, allowed without checks: spec: expected an object, got a list"
    ]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_long_place_of_an_error_is_cut(*, allowed: bool) -> None:
    """The API server drops a warning of more than 4096 bytes, and a name in an object may be long."""
    answer = _response(
        encode_decision(UID, Decision.errored(400, "malformed object", "错" * 2**20, allowed=allowed))
    )
    (text,) = answer["warnings"] if allowed else [answer["status"]["message"]]

    assert "malformed object, " in text
    assert 3000 < len(text.encode()) <= 4096


def test_half_a_surrogate_pair_is_not_json_and_no_api_server_sends_one() -> None:
    """It replaces one from a client with U+FFFD: https://pkg.go.dev/encoding/json#Unmarshal."""
    sent = body(pod({"nvidia.com/gpu": "1"})).replace(b'"main"', b'"%s"')
    whole, half, replaced = (sent % text for text in (rb"\ud83d\ude00", rb"\ud83d ", rb"\ufffd"))

    assert all(_response(builtin_handler().answer("mutate", text))["uid"] for text in (whole, replaced))
    with pytest.raises(ReviewError, match=r"JSON is malformed: .* utf-16 surrogate pair"):
        decode_review(half, mutating=True)


@given(st.binary())
def test_any_bytes_get_a_reason_or_a_response(text: bytes) -> None:
    """And no other exception."""
    with suppress(ReviewError):
        _response(builtin_handler().answer("mutate", text))


@given(JSON, st.sampled_from(["mutate", "validate"]), st.sampled_from(["CREATE", "UPDATE", "DELETE"]))
def test_any_object_gets_a_reason_or_a_response_with_its_uid(
    document: Any, endpoint: Any, operation: str
) -> None:
    """For any JSON in place of a pod."""
    text = json.dumps(review({"kind": "Pod"}, object={"spec": document}, operation=operation)).encode()
    with suppress(ReviewError):
        assert UID == _response(builtin_handler().answer(endpoint, text))["uid"]


def test_an_allowed_object_is_answered_with_its_patch() -> None:
    """patchType is set only with a patch."""
    answer = _response(builtin_handler().answer("mutate", body(pod({"tencent.com/vcuda-memory": "8"}))))
    operation = {
        "op": "add",
        "path": "/spec/containers/0/resources/limits/tencent.com~1vcuda-core",
        "value": "20",
    }

    assert (True, "JSONPatch", [operation]) == (
        answer["allowed"],
        answer["patchType"],
        json.loads(b64decode(answer["patch"])),
    )


def test_the_response_to_a_pod_without_accelerators_is_only_allowed() -> None:
    """This is the fastest path."""
    answer = _response(builtin_handler().answer("mutate", body(pod({"cpu": "1", "memory": "1Gi"}))))

    assert {"uid": UID, "allowed": True} == answer


def test_a_denied_object_is_answered_with_403_forbidden_and_no_patch() -> None:
    """The message has all violations."""
    limits = {"tencent.com/vcuda-core": "150"}
    answer = _response(builtin_handler().answer("mutate", body(pod(limits))))

    assert (False, 403, "Forbidden") == (
        answer["allowed"],
        answer["status"]["code"],
        answer["status"]["reason"],
    )
    assert answer["status"]["message"].startswith(
        "Pod denied by gpugate: container 'main', spec.containers[0]"
    )
    assert "patch" not in answer


def test_a_warning_is_one_line_of_printable_characters() -> None:
    """The API server sends warnings as HTTP headers and drops what does not fit in one."""
    answer = _response(
        encode_decision(UID, Decision(warning_lines=(Text("one\ntwo\r\n\tthree\x7f\x85four"),)))
    )

    assert ["one two three four"] == answer["warnings"]


@pytest.mark.parametrize(("line", "count"), [("x" * 256, 16), ("错" * 256, 5), ("x" * 1000, 4)])
def test_warnings_are_sent_up_to_the_limit_of_the_api_server(line: str, count: int) -> None:
    """It drops warnings beyond 4096 bytes in total; a warning is sent as a whole."""
    answer = _response(encode_decision(UID, Decision(warning_lines=(Text(line),) * 100)))

    assert [line] * count == answer["warnings"]


def test_the_validating_endpoint_answers_without_a_patch() -> None:
    """It validates the object without changing it."""
    answer = _response(builtin_handler().answer("validate", body(pod({"tencent.com/vcuda-memory": "8"}))))

    assert (True, None) == (answer["allowed"], answer.get("patch"))


@pytest.mark.parametrize("allowed", [True, False])
def test_the_response_to_an_internal_error_is_the_one_of_on_error(*, allowed: bool) -> None:
    """It has the uid and no traceback."""
    detail = f"see the log of gpugate for uid {UID}"
    answer = _response(encode_decision(UID, Decision.errored(500, "internal error", detail, allowed=allowed)))
    texts = answer["warnings"] if allowed else [answer["status"]["message"]]

    assert (UID, allowed) == (answer["uid"], answer["allowed"])
    assert {"error"} == set(answer["auditAnnotations"])
    done = "allowed" if allowed else "denied"
    assert [f"gpugate: internal error, {done} without checks: {detail}"] == texts
    assert "Traceback" not in json.dumps(answer)


LARGE = pod({"nvidia.com/gpu": "1"} | {f"nvidia.com/mig-{at}g": "1" for at in range(300)})
INVALID_RULE = yaml.safe_load(resource_rule(limits="optinal"))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            pod({"tencent.com/vcuda-core": "150"}),
            "cf-crl-gpu-manager-vcuda-core (policy): spec.containers[0].resources.limits[tencent.com/vcuda",
        ),
        (LARGE, "size-limit (limit): spec.containers[0] "),
        (INVALID_RULE, "cf-crl-group-device (policy): data.limits"),
    ],
)
def test_the_audit_event_of_a_denial_has_its_rules_or_its_limit(document: Any, expected: str) -> None:
    """With the basis of each."""
    where = "kube-public" if document["kind"] == "ConfigMap" else "ml"
    answer = _response(builtin_handler().answer("validate", body(document, namespace=where)))

    assert not answer["allowed"]
    assert answer["auditAnnotations"]["violations"].startswith(expected)


@pytest.mark.parametrize("character", ["x", "错"])
def test_an_audit_annotation_has_a_maximum_of_bytes(character: str) -> None:
    """Audit events have one, too."""
    audit = {"rules": character * 10_000, "notes": character * 1000}
    sent = _response(encode_decision(UID, Decision(audit=audit)))["auditAnnotations"]

    assert sent["notes"] == audit["notes"]
    assert sent["rules"].endswith(f"{character}…")
    assert 4090 < len(sent["rules"].encode()) <= 4096


def test_the_documented_audit_annotations_are_those_that_there_are() -> None:
    """Their names are valid for the API server, which prefixes them with the name of the webhook."""
    page = (ROOT / "docs/security.md").read_text("utf-8")
    _, _, section = page.partition("| audit annotation |")
    names = "".join(line.split("|")[1] for line in section.partition("\n\n")[0].splitlines()[2:])
    documented = re.findall("`([^`]+)`", names)
    sources = ["rules/decision/recorder.py", "rules/model/decision.py"]
    written = {
        name
        for path in sources
        for name in re.findall(r'audit(?:\[| = \{|, )"([a-z-]+)"', (ROOT / path).read_text("utf-8"))
    }

    written |= {CAP_ANNOTATION, *_CHANGES.values()}

    assert written == set(documented)
    assert all(re.fullmatch("[a-z]([a-z-]{0,61}[a-z])?", name) for name in documented)


def test_a_violation_of_a_warn_rule_is_a_warning_of_the_response() -> None:
    """kubectl prints it."""
    violation = Finding("rule", Action.WARN, "spec", Text("line"), basis=Basis.POLICY)
    answer = _response(
        encode_decision(UID, Decision(violations=(violation,), warning_lines=(Text("line [rule]"),)))
    )

    assert (True, ["line [rule]"]) == (answer["allowed"], answer["warnings"])


def test_the_garbage_collector_is_paused_while_a_long_review_is_decoded() -> None:
    """It would pass a hundred thousand new lists a hundred times, and keep all threads waiting."""
    content = body(pod() | {"unknown": [[] for _ in range(100_000)]})
    phases: list[str] = []

    def collect(phase: str, _: object) -> None:
        phases.append(phase)

    gc.callbacks.append(collect)
    try:
        decode_review(content, mutating=True)
    finally:
        gc.callbacks.remove(collect)

    assert phases.count("start") < 5
    assert gc.isenabled()
