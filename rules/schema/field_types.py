"""Field types of rule documents: names, labels and versions."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, WithJsonSchema

from rules.cuda.image_pattern import ImageRegex
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.names import (
    RESOURCE_PATTERN,
    is_label_key,
    is_label_value,
    is_object_name,
    is_resource_pattern,
)
from rules.schema.base import NonEmpty


def _resource_pattern(name: str) -> str:
    if not is_resource_pattern(name):
        raise ValueError(f"expected a resource name with its domain, such as vendor.com/device, got {name!r}")
    return name


def _object_name(name: str) -> str:
    if name and not is_object_name(name):
        raise ValueError(f"expected at most 253 characters of a-z, 0-9, - and ., got {name!r}")
    return name


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for value in _annotations(labels).values():
        if not is_label_value(value):
            expected = "at most 63 characters of A-Z, a-z, 0-9, -, _ and ., a letter or digit first and last"
            raise ValueError(f"expected {expected}, got {value!r}")
    return labels


def _annotations(annotations: dict[str, str]) -> dict[str, str]:
    for key in annotations:
        if not is_label_key(key):
            raise ValueError(f"expected keys such as example.com/team or team, got {key!r}")
    return annotations


ResourcePattern = Annotated[
    str,
    AfterValidator(_resource_pattern),
    WithJsonSchema({"type": "string", "pattern": f"^{RESOURCE_PATTERN.pattern}$"}),
]
ObjectName = Annotated[str, AfterValidator(_object_name)]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]
Annotations = Annotated[dict[str, str], AfterValidator(_annotations)]
CUDA_GROUP: Final = "cuda"


def _cuda(text: str) -> str:
    if CudaVersion.parse(text) is None:
        raise ValueError(f"expected a CUDA version such as '12.4', got {text!r}")
    return text


def _capability(text: str) -> str:
    if ComputeCapability.parse(text) is None:
        raise ValueError(f"expected a compute capability such as '8.0', got {text!r}")
    return text


def _image_regex(text: str) -> str:
    groups = ImageRegex(text).groups
    if set(groups) - {CUDA_GROUP}:
        raise ValueError(f"the only named group allowed is {CUDA_GROUP}, got {', '.join(groups)}")
    return text


CudaText = Annotated[str, AfterValidator(_cuda)]
CapabilityText = Annotated[str, AfterValidator(_capability)]
RegexText = Annotated[NonEmpty, AfterValidator(_image_regex)]


def parse_optional_version(kind: Any, text: str | None) -> Any:
    """Return `kind.parse(text)`, or None if there is no text."""
    return kind.parse(text) if text else None
