"""Names, label keys and label values as the API server accepts them; the labels of namespaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

# A DNS subdomain, except its maximum length of 253:
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
SUBDOMAIN: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:(?=[^/]{{1,253}}/){SUBDOMAIN}/)?{_NAME}")
# Characters of the key of a label, or of the name of a resource, with its domain.
MAX_QUALIFIED_NAME: Final = 253 + len("/") + 63
_LABEL_VALUE = re.compile(rf"(?:{_NAME})?")
# A label value cannot hold a sign, and has 63 characters at most.
_DIGITS = re.compile(r"[0-9]{1,63}")
_INT64_MAX = 2**63 - 1
# Keys repeat in every node. Longer ones of a malicious pod do not fill the cache.
_match_key = lru_cache(maxsize=4096)(_LABEL_KEY.fullmatch)


def is_label_key(key: object) -> bool:
    """Return whether it is a valid label key."""
    return isinstance(key, str) and len(key) <= MAX_QUALIFIED_NAME and _match_key(key) is not None


def is_label_value(value: object) -> bool:
    """Return whether it is a valid label value."""
    return isinstance(value, str) and _LABEL_VALUE.fullmatch(value) is not None


def parse_int64(text: str) -> int | None:
    """Return the number of a label value in Gt and Lt, or None if it is not a number."""
    number = int(text) if _DIGITS.fullmatch(text) else None
    return number if number is not None and number <= _INT64_MAX else None


# Extended resources have a domain, and at most 63 characters after it; here each part may be a glob.
# https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
RESOURCE_PATTERN: Final = re.compile(
    r"[a-z0-9*?](?:[-a-z0-9.*?]*[a-z0-9*?])?/[A-Za-z0-9*?](?:[-A-Za-z0-9_.*?]{0,61}[A-Za-z0-9*?])?"
)
# What stands before the name of an annotation of the pod that requests something, as a resource does.
ANNOTATION: Final = "annotation/"
# What the API server sets if a pod names no scheduler.
DEFAULT_SCHEDULER: Final = "default-scheduler"
# Values of schedulerName of pods that have it, whose annotations no scheduler reads as requests.
DEFAULT_SCHEDULERS: Final = (None, "", DEFAULT_SCHEDULER)
# Of all names that rules may have.
REQUEST_PATTERN: Final = re.compile(f"{RESOURCE_PATTERN.pattern}|{ANNOTATION}{_LABEL_KEY.pattern}")
_REQUESTS: Final = "requests."
_OBJECT: Final = re.compile(rf"(?=.{{1,253}}$){SUBDOMAIN}", re.DOTALL)
_NATIVE: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-\w+")


def is_resource_pattern(name: str) -> bool:
    """Return whether it is the name of an extended resource or a requesting annotation, or a glob of such."""
    return REQUEST_PATTERN.fullmatch(name) is not None


def requesting_annotation(name: str) -> str:
    """Return the annotation that a name of a rule stands for; empty if it stands for a resource."""
    return name.removeprefix(ANNOTATION) if name.startswith(ANNOTATION) else ""


def is_resource(name: str) -> bool:
    """Return whether it is a valid resource name of a container, or a glob of extended resources."""
    return is_resource_pattern(name) or _NATIVE.fullmatch(name) is not None


def is_extended_resource(name: str) -> bool:
    """Return whether it is the name of an extended resource, as `IsExtendedResourceName` of Kubernetes does.

    Source: https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/helper/helpers.go
    """
    if "/" not in name or "kubernetes.io/" in name or name.startswith((_REQUESTS, ANNOTATION)):
        return False
    return is_label_key(_REQUESTS + name)  # as in a quota


def is_object_name(name: str) -> bool:
    """Return whether it is a valid name of an object such as a ConfigMap."""
    return _OBJECT.fullmatch(name) is not None


def namespace_labels(documents: Iterable[object]) -> dict[str, Mapping[str, str]]:
    """Return the labels of the Namespaces among documents, by name; other documents are skipped."""
    labels: dict[str, Mapping[str, str]] = {}
    for document in documents:
        if not isinstance(document, Mapping) or document.get("kind") != "Namespace":
            continue
        metadata = document.get("metadata")
        if document.get("apiVersion") != "v1" or not isinstance(metadata, Mapping):
            continue
        written = metadata.get("labels")
        texts = written.items() if isinstance(written, Mapping) else ()
        name = metadata.get("name")
        if isinstance(name, str):
            # The API server sets it: https://kubernetes.io/docs/reference/labels-annotations-taints/
            own = {"kubernetes.io/metadata.name": name}
            labels[name] = {key: text for key, text in texts if isinstance(text, str)} | own
    return labels
