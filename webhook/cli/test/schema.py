"""Document model of rule tests (`kind: RuleTest`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rules.schema.errors import kind_of, suggested
from rules.schema.exemption import instant
from rules.schema.field_types import WORD, NonEmpty, RuleDocument
from rules.text.i18n import Joined, Language, Message

KIND: Final = "RuleTest"
# Keys of the metadata that the short form of a pod can contain, besides `metadata`; all others are its spec.
SHORT_METADATA: Final = ("labels", "annotations")
_COMPLETE: Final = "for a complete object, as in the Kubernetes API"
_NODE: Final = "Node"
_NAMES: Final = ("name", "labels", "allocatable", "count")
_NO_POINTER: Final = Message("expected a JSON Pointer such as /spec/hostIPC, got {actual!r}")
_FILE_ALONE: Final = Message("`file` allows no other key")
_COMPLETE_NODE: Final = Message("a node with `metadata` is complete; move {key!r} into it")
_NO_SHORT_FORM: Final = Message("a {kind} has no short form; write it as in the Kubernetes API")
_NO_NODE: Final = Message("expected a node as {short}, a complete object, or {file}")
_NO_POD: Final = Message("expected `containers`, an object with its `kind`, or `file`{keys}{hint}")


class ViolationDocument(RuleDocument):
    """The expectation for one violation; absent keys match anything."""

    rule: str = Field("", description="the ConfigMap's name")
    path: str = Field("", description="the path as in the message, or a parent path")
    message: str = Field("", description="a part of the message")
    action: Literal["", "deny", "warn", "dryrun"] = Field("", description="the enforcement action")


def _pointer(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(_NO_POINTER.having(actual=text))
    return text


Pointer = Annotated[str, AfterValidator(_pointer)]


class OperationDocument(RuleDocument):
    """One operation of an expected patch."""

    op: Literal["add", "replace"] = Field(description="as in RFC 6902")
    path: Pointer = Field(description="a JSON Pointer")
    value: Any = Field(description="the new value")


class ExpectDocument(RuleDocument):
    """The expected result of a case. Absent lists are not checked, except `violations`."""

    allowed: bool = Field(description="whether the object is allowed")
    violations: list[ViolationDocument] = Field([], description="all violations; default: none")
    warnings: list[NonEmpty] = Field([], description="a part of each warning")
    patch: list[OperationDocument] = Field([], description="exactly these operations")
    fields: dict[str, Any] = Field({}, description="values in the patched object by JSON Pointer")

    @model_validator(mode="after")
    def _fields_of_an_allowed_object(self) -> Self:
        for place in self.fields:
            _pointer(place)
        if self.fields and not self.allowed:
            raise ValueError(Message("a denied object is not patched; remove `fields`"))
        return self


def _list(value: Any) -> Any:
    return [{"file": value}] if isinstance(value, str) else value


class NodeDocument(RuleDocument):
    """A node in short form, a complete object such as a Node or a NodePool, or a file of such objects."""

    file: str = Field("", description="a file with the output of `kubectl get nodes -o yaml`")
    name: str = Field("", description="short form")
    labels: dict[str, str] = Field({}, description="short form")
    allocatable: dict[str, Any] = Field({}, description="resources and their quantities")
    count: int = Field(1, ge=1, le=10_000, description="number of equal nodes: NAME-1, NAME-2, …")
    api_version: str = Field("", alias="apiVersion", description=_COMPLETE)
    kind: str = Field("", description=_COMPLETE)
    metadata: dict[str, Any] = Field({}, description=_COMPLETE)
    spec: dict[str, Any] = Field({}, description=_COMPLETE)
    status: dict[str, Any] = Field({}, description=_COMPLETE)

    @model_validator(mode="after")
    def _in_one_way(self) -> Self:
        set_keys = self.model_fields_set
        short = [name for name in _NAMES if name in set_keys]
        if self.file and len(set_keys) > 1:
            raise ValueError(_FILE_ALONE)
        if short and "metadata" in set_keys:
            raise ValueError(_COMPLETE_NODE.having(key=short[0]))
        if short and self.kind not in ("", _NODE):
            raise ValueError(_NO_SHORT_FORM.having(kind=self.kind))
        if not self.file and not self.name and "metadata" not in set_keys:
            raise ValueError(_NO_NODE.having(short=f"{{{', '.join(_NAMES)}}}", file="{file}"))
        return self

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the Node objects; nothing for a file."""
        if "metadata" in self.model_fields_set:
            yield self.model_dump(by_alias=True, exclude_unset=True)
        elif self.name:
            many = "count" in self.model_fields_set
            for number in range(1, self.count + 1):
                name = f"{self.name}-{number}" if many else self.name
                metadata = {"name": name, "labels": self.labels}
                yield {"kind": _NODE, "metadata": metadata, "status": {"allocatable": self.allocatable}}


Nodes = Annotated[list[NodeDocument], BeforeValidator(_list)]


def _pod(value: dict[str, Any]) -> dict[str, Any]:
    if "file" in value and len(value) > 1:
        raise ValueError(_FILE_ALONE)
    if not {"file", "kind", "containers", "initContainers"} & set(value):
        hint = next(filter(None, (suggested(key, ("containers", "kind")) for key in value)), Message())
        keys = Message("; got {keys}", keys=Joined(", ", value)) if value else Message()
        raise ValueError(_NO_POD.having(keys=keys, hint=hint))
    if "kind" not in value:
        for name in ("metadata", *SHORT_METADATA):
            if not isinstance(value.get(name, {}), dict):
                message = Message("{name}: expected an object, got {actual}").having(
                    name=name, actual=kind_of(value[name])
                )
                raise ValueError(message)  # noqa: TRY004 - pydantic reports it as an error of the document
    return value


class CaseDocument(RuleDocument):
    """One case: an object, the nodes of its cluster, and the expected decision."""

    name: NonEmpty = Field(description="a sentence, for readers and for `--run`")
    namespace: str = Field("", description="for an object without namespace; default: `default`")
    namespace_labels: dict[str, str] | None = Field(
        None, alias="namespaceLabels", description="of the namespace; default: they are unknown"
    )
    nodes: Nodes = Field([], description="replaces the nodes of the document")
    now: Annotated[str, AfterValidator(_time)] = Field(
        "", description="RFC 3339; default: all exemptions have expired"
    )
    pod: Annotated[dict[str, Any], AfterValidator(_pod)] = Field(
        description="a pod's spec with its metadata, a complete object with its kind, or a file"
    )
    expect: ExpectDocument = Field(description="the expected decision")


def _time(text: str) -> str:
    if len(text) == len("2026-12-31"):
        raise ValueError(Message("expected a time with zone, such as {text}T12:00:00Z", text=text))
    instant(text)
    return text


def _at_least_one(cases: list[CaseDocument]) -> list[CaseDocument]:
    if not cases:
        raise ValueError(Message("no cases; write at least one"))
    return cases


class RuleTestDocument(RuleDocument):
    """A document of rule tests."""

    api_version: Literal["gpugate.dev/v1"] = Field(alias="apiVersion", description="of the format")
    kind: Literal["RuleTest"] = Field(description="of the document")
    rules: list[NonEmpty] = Field(
        ["."], min_length=1, description="files and folders, relative to the file's folder"
    )
    enable: list[NonEmpty] = Field([], description="names or globs of rules to enable")
    disable: list[NonEmpty] = Field([], description="names or globs of rules to disable")
    lang: Annotated[Language, WORD] = Field(Language.EN, description="the language of messages")
    nodes: Nodes = Field([], description="for all cases")
    cases: Annotated[list[CaseDocument], AfterValidator(_at_least_one)] = Field(description="at least one")
