"""Names as the API server takes them, and the types of those that stand in rule documents."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, WithJsonSchema

from rules.nodes.label_families import SUBDOMAIN, is_label_key, is_label_value

# Extended resources carry a domain, and have 63 characters at most after it; here each part may be a glob.
# https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
_RESOURCE: Final = re.compile(
    r"[a-z0-9*?](?:[-a-z0-9.*?]*[a-z0-9*?])?/[A-Za-z0-9*?](?:[-A-Za-z0-9_.*?]{0,61}[A-Za-z0-9*?])?"
)
_OBJECT: Final = re.compile(rf"(?=.{{1,253}}$){SUBDOMAIN}", re.DOTALL)
_NATIVE: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-\w+")


def is_resource_pattern(name: str) -> bool:
    """Tell whether it is the name of an extended resource, or a glob of such names."""
    return _RESOURCE.fullmatch(name) is not None


def is_resource(name: str) -> bool:
    """Tell whether a container may have a resource of this name; globs of extended resources too."""
    return is_resource_pattern(name) or _NATIVE.fullmatch(name) is not None


def is_object_name(name: str) -> bool:
    """Tell whether an object such as a ConfigMap may have this name."""
    return _OBJECT.fullmatch(name) is not None


def _resource_pattern(name: str) -> str:
    if not is_resource_pattern(name):
        raise ValueError(f"expected a resource name with its domain, such as vendor.com/device, got {name!r}")
    return name


def _object_name(name: str) -> str:
    if name and not is_object_name(name):
        raise ValueError(f"expected a name of a-z, 0-9, - and ., at most 253 of them, got {name!r}")
    return name


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for value in _annotations(labels).values():
        if not is_label_value(value):
            wanted = "at most 63 of A-Z, a-z, 0-9, -, _ and ., a letter or digit first and last"
            raise ValueError(f"expected {wanted}, got {value!r}")
    return labels


def _annotations(annotations: dict[str, str]) -> dict[str, str]:
    for key in annotations:
        if not is_label_key(key):
            raise ValueError(f"expected keys such as example.com/team or team, got {key!r}")
    return annotations


ResourcePattern = Annotated[
    str,
    AfterValidator(_resource_pattern),
    WithJsonSchema({"type": "string", "pattern": f"^{_RESOURCE.pattern}$"}),
]
ObjectName = Annotated[str, AfterValidator(_object_name)]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]
Annotations = Annotated[dict[str, str], AfterValidator(_annotations)]
