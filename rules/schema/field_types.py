"""Field types of rule documents: names, labels and versions."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import AfterValidator, WithJsonSchema

from rules.cel.expression import Expression
from rules.cel.variables import CONDITION_VARIABLES, VALIDATION_VARIABLES
from rules.cuda.image_pattern import ImageRegex
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.names import (
    RESOURCE_PATTERN,
    is_label_key,
    is_label_value,
    is_object_name,
    is_resource_pattern,
)
from rules.schema.base import MAX_EXPRESSIONS, NonEmpty
from rules.schema.errors import expected
from rules.text.i18n import Text

OBJECT_NAME: Final = Text(
    "at most 253 characters of a-z, 0-9, - and .", "最多 253 个字符，由 a-z、0-9、- 和 . 组成"
)
LABEL_VALUE: Final = Text(
    "at most 63 characters of A-Z, a-z, 0-9, -, _ and .", "最多 63 个字符，由 A-Z、a-z、0-9、-、_ 和 . 组成"
)
_RESOURCE: Final = Text(
    "a resource name with its domain, such as vendor.com/device", "带域名的资源名，例如 vendor.com/device"
)
_BOUNDED: Final = Text(", a letter or digit first and last", "，首尾为字母或数字")
_KEYS: Final = Text("keys such as example.com/team or team", "例如 example.com/team 或 team 的键")
_CUDA: Final = Text("a CUDA version such as '12.4'", "CUDA 版本，例如 '12.4'")
_COMPUTE: Final = Text("a compute capability such as '8.0'", "计算能力，例如 '8.0'")


def _resource_pattern(name: str) -> str:
    if not is_resource_pattern(name):
        raise ValueError(expected(_RESOURCE, repr(name)))
    return name


def _object_name(name: str) -> str:
    if name and not is_object_name(name):
        raise ValueError(expected(OBJECT_NAME, repr(name)))
    return name


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for value in _annotations(labels).values():
        if not is_label_value(value):
            what = Text(LABEL_VALUE.en + _BOUNDED.en, LABEL_VALUE.zh + _BOUNDED.zh)
            raise ValueError(expected(what, repr(value)))
    return labels


def _annotations(annotations: dict[str, str]) -> dict[str, str]:
    for key in annotations:
        if not is_label_key(key):
            raise ValueError(expected(_KEYS, repr(key)))
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
        raise ValueError(expected(_CUDA, repr(text)))
    return text


def _capability(text: str) -> str:
    if ComputeCapability.parse(text) is None:
        raise ValueError(expected(_COMPUTE, repr(text)))
    return text


def _image_regex(text: str) -> str:
    groups = ImageRegex(text).groups
    if set(groups) - {CUDA_GROUP}:
        names = ", ".join(groups)
        raise ValueError(
            Text(
                f"the only named group allowed is {CUDA_GROUP}, got {names}",
                f"只允许命名组 {CUDA_GROUP}，当前为 {names}",
            )
        )
    return text


# The last expressions are shared: a document is read once more for each setting in its ConfigMap.
compile_expression = lru_cache(maxsize=MAX_EXPRESSIONS)(Expression)


def _compiles(variables: tuple[str, ...]) -> AfterValidator:
    def compiled(source: str) -> str:
        compile_expression(source, variables)
        return source

    return AfterValidator(compiled)


# CEL expressions: a text that `compile_expression` accepts.
ConditionText = Annotated[NonEmpty, _compiles(CONDITION_VARIABLES)]
ValidationText = Annotated[NonEmpty, _compiles(VALIDATION_VARIABLES)]
CudaText = Annotated[str, AfterValidator(_cuda)]
CapabilityText = Annotated[str, AfterValidator(_capability)]
RegexText = Annotated[NonEmpty, AfterValidator(_image_regex)]


def parse_optional_version(kind: Any, text: str | None) -> Any:
    """Return `kind.parse(text)`, or None if there is no text."""
    return kind.parse(text) if text else None
