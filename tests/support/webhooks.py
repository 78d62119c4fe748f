"""Builders for tests of the webhook: pods, reviews, handlers."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from rules.text.i18n import Language
from webhook.admission.handler import AdmissionHandler
from webhook.cli.inputs.session import Session


@cache
def builtin_handler(language: Language = Language.EN) -> AdmissionHandler:
    """Return a handler with the built-in rules."""
    return AdmissionHandler(Session().read_rules([]), language)


def pod(limits: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """Return a pod with one container `main`; container: its other fields."""
    main = {"name": "main", "image": "registry.example.com:5000/team/train:1"} | container
    if limits is not None:
        main["resources"] = {"limits": limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"containers": [main]},
    }


def review(document: Any, **request: Any) -> dict[str, Any]:
    """Return the AdmissionReview of the creation of an object; request: additional or replaced fields."""
    api_version = document.get("apiVersion", "v1") if isinstance(document, dict) else "v1"
    group, _, version = api_version.rpartition("/")
    kind = document.get("kind", "") if isinstance(document, dict) else ""
    fields = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": f"{kind.lower()}s"},
        "namespace": "ml",
        "operation": "CREATE",
        "userInfo": {"username": "someone"},
        "object": document,
        "oldObject": None,
        "dryRun": False,
        "options": None,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields | request}


def body(document: Any, **request: Any) -> bytes:
    """Return the bytes of `review`."""
    return json.dumps(review(document, **request)).encode()
