"""AdmissionReview v1: bytes to a request, a decision to bytes. The only place that knows uid, base64 and 403.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from rules import AdmissionRequest, Decision

API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
# kubectl shows a warning whole up to 256 characters, and the API server drops what is over 4096 in all:
# https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
_WARNING_LENGTH: Final = 256
_WARNINGS_LENGTH: Final = 4096
# Warnings travel as HTTP headers; the API server drops one with any of these.
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
# Bytes: two usual reviews. The dearest pod that fits is judged in 80 ms, a rule in more than a second.
_SHORT: Final = 16 * 2**10
_A_RULE: Final = b'"ConfigMap"'


class ReviewError(ValueError):
    """The body is no AdmissionReview v1 that can be answered. The fault of whoever sent it."""


class _GroupVersionKind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    kind: _GroupVersionKind
    operation: str
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    dry_run: bool | None = False


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: _Request


class Review(msgspec.Struct, frozen=True):
    """One AdmissionReview: what to answer it under, and what it asks. name may be empty (generateName)."""

    uid: str
    name: str
    dry_run: bool
    request: AdmissionRequest


_decoder = msgspec.json.Decoder(_Review)
_encoder = msgspec.json.Encoder()
encode = _encoder.encode


def is_quick(body: bytes | bytearray) -> bool:
    """Tell whether a body, if it is a review, is answered within a tenth of a second.

    Looks at it without decoding; some that are quick are told not to be.
    """
    return len(body) <= _SHORT and _A_RULE not in body


def decode_review(body: bytes, *, mutating: bool) -> Review:
    """Return the review that a body holds.

    mutating: whether its answer may carry a patch. Raises ReviewError, which says where and what.
    """
    try:
        review = _decoder.decode(body)
    except RecursionError:
        raise ReviewError("no AdmissionReview: nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(f"no AdmissionReview: {error}") from None
    if review.api_version != API_VERSION or review.kind != _KIND:
        found = f"{review.api_version} {review.kind}"
        raise ReviewError(f"expected {API_VERSION} {_KIND}, got {found}: list v1 in admissionReviewVersions")
    request = review.request
    if not request.uid:
        raise ReviewError("no AdmissionReview: `$.request.uid` is empty")
    return Review(
        uid=request.uid,
        name=request.name,
        dry_run=bool(request.dry_run),
        request=AdmissionRequest(
            operation=request.operation,
            group=request.kind.group,
            kind=request.kind.kind,
            namespace=request.namespace,
            object=request.object,
            old_object=request.old_object,
            subresource=request.sub_resource,
            mutating=mutating,
        ),
    )


def encode_decision(uid: str, decision: Decision) -> bytes:
    """Return the body that answers a review with a decision."""
    response: dict[str, Any] = {"uid": uid, "allowed": decision.allowed}
    if not decision.allowed:
        response["status"] = _status(403, "Forbidden", decision.message)
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = encode(decision.patch)  # bytes, which are encoded as base64
    if decision.warnings:
        response["warnings"] = _fitting(decision.warnings)
    if decision.audit:
        response["auditAnnotations"] = decision.audit
    return _answer(response)


def encode_failure(uid: str, *, allowed: bool) -> bytes:
    """Return the body that answers a review which could not be decided, for want of a bug's correction."""
    message = "gpugate failed on this object; the error is in its log under this uid"
    response: dict[str, Any] = {"uid": uid, "allowed": allowed}
    if allowed:
        response["warnings"] = [f"{message}; it was let pass unjudged"]
    else:
        response["status"] = _status(500, "InternalError", f"{message} {uid}")
    return _answer(response)


def _answer(response: dict[str, Any]) -> bytes:
    return encode({"apiVersion": API_VERSION, "kind": _KIND, "response": response})


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"status": "Failure", "code": code, "reason": reason, "message": message}


def _fitting(warnings: tuple[str, ...]) -> list[str]:
    """Return the warnings as far as the API server takes them."""
    room = _WARNINGS_LENGTH
    fitting = []
    for line in warnings:
        warning = _CONTROLS.sub(" ", line)
        text = warning if len(warning) <= _WARNING_LENGTH else f"{warning[: _WARNING_LENGTH - 1]}…"
        room -= len(text.encode())
        if room < 0:
            break
        fitting.append(text)
    return fitting
