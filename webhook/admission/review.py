"""AdmissionReview v1: decode the request, encode the response. The only place that knows uid and base64.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rules import AdmissionRequest, Decision, Language
from rules.text.gc_pause import gc_paused

API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
# Source: StatusReason of k8s.io/apimachinery/pkg/apis/meta/v1.
_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 500: "InternalError"}
# Bytes: the API server drops warnings beyond 4096 in total.
# https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
_WARNINGS_LENGTH: Final = 4096
# Warnings travel as HTTP headers; the API server drops one with any of these.
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
# Bytes of one audit annotation: a decision has 12 at most, at both endpoints, and an API server may cut audit
# events of more than 100 KiB. https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/#log-entry-truncation
_AUDIT_LENGTH: Final = 4096
_ELLIPSIS: Final = "…"
# The end of a review's header, and the bytes in which it is searched: a user may have many groups.
_OBJECT: Final = b'"object":'
_HEADER_SIZE: Final = 64 * 2**10


class ReviewError(ValueError):
    """The body is not an AdmissionReview v1 that can be answered. The sender's fault."""


class _GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    kind: _GroupVersionKind
    operation: str
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    user_info: _UserInfo = _UserInfo()
    dry_run: bool | None = False


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: _Request


class Review(msgspec.Struct, frozen=True):
    """One AdmissionReview: the uid of its response, and its request."""

    uid: str
    name: str  # empty if the API server generates it later (generateName)
    user: str  # who sent the request
    dry_run: bool
    request: AdmissionRequest


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a request that the API server sends before the object."""

    kind: _GroupVersionKind
    namespace: str = ""
    user_info: _UserInfo = _UserInfo()


class _HeaderReview(msgspec.Struct):
    request: Header


_decoder = msgspec.json.Decoder(_Review)
_header_decoder = msgspec.json.Decoder(_HeaderReview)
_encoder = msgspec.json.Encoder()
encode = _encoder.encode


def decode_header(body: bytes | bytearray) -> Header | None:
    """Return the header of the review in a body, None if it is not where the API server writes it.

    Reads up to the object only, so it takes microseconds for each kilobyte of the header.
    """
    end = body.find(_OBJECT, 0, _HEADER_SIZE)
    if end < 0:
        return None
    try:
        return _header_decoder.decode(body[:end] + _OBJECT + b"null}}").request
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_review(body: bytes | bytearray, *, mutating: bool) -> Review:
    """Return the review in a body.

    mutating: whether the response may have a patch. Raises ReviewError with the place and the reason.
    """
    try:
        with gc_paused(len(body)):
            review = _decoder.decode(body)
    except RecursionError:
        raise ReviewError("not an AdmissionReview: nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(f"not an AdmissionReview: {error}") from None
    if review.api_version != API_VERSION or review.kind != _KIND:
        actual = f"{review.api_version} {review.kind}"
        raise ReviewError(f"expected {API_VERSION} {_KIND}, got {actual}: list v1 in admissionReviewVersions")
    request = review.request
    if not request.uid:
        raise ReviewError("not an AdmissionReview: `$.request.uid` is empty")
    return Review(
        uid=request.uid,
        name=request.name,
        user=request.user_info.username,
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


def encode_decision(uid: str, decision: Decision, language: Language = Language.EN) -> bytes:
    """Return the response body for a decision. language: of its messages."""
    response: dict[str, Any] = {"uid": uid, "allowed": decision.allowed}
    if not decision.allowed:
        response["status"] = {
            "status": "Failure",
            "code": decision.code,
            "reason": _REASONS[decision.code],
            "message": decision.denial.in_language(language),
        }
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = encode(decision.patch)  # bytes, which msgspec encodes as base64
    if decision.warning_lines:
        response["warnings"] = _sendable([line.in_language(language) for line in decision.warning_lines])
    if decision.audit:
        response["auditAnnotations"] = {name: _cut(text) for name, text in decision.audit.items()}
    return encode({"apiVersion": API_VERSION, "kind": _KIND, "response": response})


def _cut(text: str) -> str:
    """Return a text of at most _AUDIT_LENGTH bytes; the end of a longer one is cut."""
    if len(text) <= _AUDIT_LENGTH // 4 or len(content := text.encode()) <= _AUDIT_LENGTH:
        return text
    return content[: _AUDIT_LENGTH - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


def _sendable(warnings: Sequence[str]) -> list[str]:
    """Return the first warnings, without control characters, as many as the API server passes on."""
    room = _WARNINGS_LENGTH
    kept = []
    for line in warnings:
        warning = line if line.isprintable() else _CONTROLS.sub(" ", line)
        room -= len(warning.encode())
        if room < 0:
            break
        kept.append(warning)
    return kept
