"""Unit tests of rules as people write them: the schema of `kind: RuleTest`, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rules.schema.base import NonEmpty, RuleDocument
from rules.schema.errors import describe, suggestion
from rules.schema.exemption import instant

KIND: Final = "RuleTest"
# What may stand beside `containers` where a pod is written short, with `metadata`; all else is its spec.
BESIDE: Final = ("labels", "annotations")
_WHOLE: Final = "of a whole Node, as in the Kubernetes API"
_NAMES: Final = ("name", "labels", "allocatable", "count")


class ViolationDocument(RuleDocument):
    """What is expected of one violation; what is not given may be anything."""

    rule: str = Field("", description="the ConfigMap's name")
    path: str = Field("", description="the place as the message has it, or one above it")
    message: str = Field("", description="a part of the message")
    action: Literal["", "deny", "warn", "dryrun"] = Field("", description="what follows from it")


def _pointer(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(f"expected a JSON Pointer such as /spec/hostIPC, got {text!r}")
    return text


Pointer = Annotated[str, AfterValidator(_pointer)]


class OperationDocument(RuleDocument):
    """One operation of an expected patch."""

    op: Literal["add", "replace"] = Field(description="as in RFC 6902")
    path: Pointer = Field(description="the place, a JSON Pointer")
    value: Any = Field(description="what is to stand there")


class ExpectDocument(RuleDocument):
    """What is expected of a case. Lists that are not given are not looked at, but for `violations`."""

    allowed: bool = Field(description="the verdict")
    violations: list[ViolationDocument] = Field([], description="all of them; none where not given")
    warnings: list[NonEmpty] = Field([], description="a part of each")
    patch: list[OperationDocument] = Field([], description="exactly these operations")
    fields: dict[str, Any] = Field({}, description="JSON Pointer into the patched object: the value there")

    @model_validator(mode="after")
    def _fields_of_an_admitted_object(self) -> Self:
        for place in self.fields:
            _pointer(place)
        if self.fields and not self.allowed:
            raise ValueError("a refused object is not patched; leave `fields` out")
        return self


def _list(value: Any) -> Any:
    return [{"file": value}] if isinstance(value, str) else value


class NodeDocument(RuleDocument):
    """A node: in short, whole as in the Kubernetes API, or a file of them."""

    file: str = Field("", description="nodes as `kubectl get nodes -o yaml` has them")
    name: str = Field("", description="of a node in short")
    labels: dict[str, str] = Field({}, description="of a node in short")
    allocatable: dict[str, Any] = Field({}, description="resources and their quantities")
    count: int = Field(1, ge=1, le=10_000, description="so many alike: NAME-1, NAME-2, …")
    api_version: str = Field("", alias="apiVersion", description=_WHOLE)
    kind: Literal["", "Node"] = Field("", description=_WHOLE)
    metadata: dict[str, Any] = Field({}, description=_WHOLE)
    spec: dict[str, Any] = Field({}, description=_WHOLE)
    status: dict[str, Any] = Field({}, description=_WHOLE)

    @model_validator(mode="after")
    def _in_one_way(self) -> Self:
        given = self.model_fields_set
        short = [name for name in _NAMES if name in given]
        if self.file and len(given) > 1:
            raise ValueError("`file` stands alone")
        if short and "metadata" in given:
            raise ValueError(f"a node with `metadata` is a whole one; put {short[0]!r} into it")
        if not self.file and not self.name and "metadata" not in given:
            raise ValueError(f"expected a node as {{{', '.join(_NAMES)}}}, a whole one, or {{file}}")
        return self

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the Node objects that it stands for; none for a file."""
        if "metadata" in self.model_fields_set:
            yield self.model_dump(by_alias=True, exclude_unset=True)
        elif self.name:
            many = "count" in self.model_fields_set
            for number in range(1, self.count + 1):
                name = f"{self.name}-{number}" if many else self.name
                metadata = {"name": name, "labels": self.labels}
                yield {"kind": "Node", "metadata": metadata, "status": {"allocatable": self.allocatable}}


Nodes = Annotated[list[NodeDocument], BeforeValidator(_list)]


def _pod(value: dict[str, Any]) -> dict[str, Any]:
    if "file" in value and len(value) > 1:
        raise ValueError("`file` stands alone")
    if not {"file", "kind", "containers", "initContainers"} & set(value):
        hint = next(filter(None, (suggestion(key, ("containers", "kind")) for key in value)), "")
        found = f"; got {', '.join(value)}" if value else ""
        raise ValueError(f"expected `containers`, an object with its `kind`, or `file`{found}{hint}")
    if "kind" not in value:
        for name in ("metadata", *BESIDE):
            if not isinstance(value.get(name, {}), dict):
                message = f"{name}: expected an object, got {describe(value[name])}"
                raise ValueError(message)  # noqa: TRY004 - pydantic takes it for a mistake of the document
    return value


class CaseDocument(RuleDocument):
    """One case: an object, the nodes of its cluster, and what is expected."""

    name: NonEmpty = Field(description="a sentence, for people and for `--run`")
    namespace: str = Field("", description="for an object that names none; `default`")
    nodes: Nodes = Field([], description="instead of those of the document")
    now: Annotated[str, AfterValidator(_time)] = Field(
        "", description="RFC 3339; without it all exemptions have expired"
    )
    pod: Annotated[dict[str, Any], AfterValidator(_pod)] = Field(
        description="a pod's spec with its metadata, a whole object with its kind, or a file"
    )
    expect: ExpectDocument = Field(description="what the decision is to be")


def _time(text: str) -> str:
    if len(text) == len("2026-12-31"):
        raise ValueError(f"expected a time with its zone, such as {text}T12:00:00Z")
    instant(text)
    return text


def _some(cases: list[CaseDocument]) -> list[CaseDocument]:
    if not cases:
        raise ValueError("no cases: a test that tests nothing passes for nothing; write one")
    return cases


class RuleTestDocument(RuleDocument):
    """A document of rule tests."""

    api_version: Literal["gpugate.dev/v1"] = Field(alias="apiVersion", description="of the format")
    kind: Literal["RuleTest"] = Field(description="of the document")
    rules: list[NonEmpty] = Field(["."], min_length=1, description="files and folders, from the file's own")
    enable: list[NonEmpty] = Field([], description="names or globs of rules to switch on")
    disable: list[NonEmpty] = Field([], description="names or globs of rules to switch off")
    lang: Literal["en", "zh"] = Field("en", description="the language of messages")
    nodes: Nodes = Field([], description="for all cases")
    cases: Annotated[list[CaseDocument], AfterValidator(_some)] = Field(description="one at least")
