"""The variables of CEL expressions: each field with its type, declared once.

A field always has a value. If the pod does not set it, that is an empty text, list or map, false or 0; for a
user, a group and a time it is -1, because 0 has a meaning there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from rules.text.i18n import Message


class Type(Struct, frozen=True):
    """A type of CEL."""

    name: str  # as in CEL; `quantity` is an int, or a double for a fraction
    item: Type | None = None  # the type of the entries of a list, or of the values of a map
    fields: Mapping[str, Type] = field(default_factory=dict)  # the only members of an object


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
QUANTITY: Final = Type("quantity")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")


def list_of(item: Type) -> Type:
    """Return the type of lists."""
    return Type("list", item)


def map_of(item: Type) -> Type:
    """Return the type of maps with any keys."""
    return Type("map", item)


def _object(**fields: Type) -> Type:
    return Type("object", None, fields)


_STRINGS: Final = list_of(STRING)
_TEXTS: Final = map_of(STRING)
_TOLERATION: Final = _object(key=STRING, operator=STRING, value=STRING, effect=STRING, tolerationSeconds=INT)
_POD_SECURITY: Final = _object(runAsUser=INT, runAsGroup=INT, runAsNonRoot=BOOL, fsGroup=INT)
_CONTAINER_SECURITY: Final = _object(
    runAsUser=INT,
    runAsGroup=INT,
    runAsNonRoot=BOOL,
    privileged=BOOL,
    allowPrivilegeEscalation=BOOL,
    readOnlyRootFilesystem=BOOL,
    capabilities=_object(add=_STRINGS, drop=_STRINGS),
)
# Every variable that an expression may name, except those that its own macros bind.
VARIABLES: Final[Mapping[str, Type]] = {
    "value": QUANTITY,
    "limits": map_of(QUANTITY),
    "requests": map_of(QUANTITY),
    "container": _object(
        name=STRING,
        image=STRING,
        command=_STRINGS,
        args=_STRINGS,
        env=_TEXTS,
        envNames=_STRINGS,
        cpu=INT,
        memory=INT,
        gpus=INT,
        memoryMounts=_STRINGS,
        securityContext=_CONTAINER_SECURITY,
        framework=STRING,
    ),
    "pod": _object(
        labels=_TEXTS,
        annotations=_TEXTS,
        namespace=STRING,
        namespaceLabels=_TEXTS,
        nodeName=STRING,
        nodeSelector=_TEXTS,
        requiredNodeLabels=_STRINGS,
        tolerations=list_of(_TOLERATION),
        priorityClassName=STRING,
        serviceAccountName=STRING,
        schedulerName=STRING,
        runtimeClassName=STRING,
        hostNetwork=BOOL,
        hostIPC=BOOL,
        restartPolicy=STRING,
        activeDeadlineSeconds=INT,
        gpus=INT,
        securityContext=_POD_SECURITY,
    ),
}
# The value of an absent number for which 0 has a meaning, such as the user root.
UNSET: Final = -1
VALIDATION_VARIABLES: Final = ("value", "limits", "requests", "container", "pod")
CONDITION_VARIABLES: Final = ("limits", "requests", "container", "pod")
# The inputs of an expression: variables, and members of those that are objects, such as `pod.labels`.
INPUTS: Final[Mapping[str, Type]] = {
    f"{variable}.{member}".rstrip("."): kind
    for variable, whole in VARIABLES.items()
    for member, kind in (whole.fields or {"": whole}).items()
}
_NAMES: Final = {
    "bool": Message("true or false"),
    "quantity": Message("a number"),
    "int": Message("a number"),
    "uint": Message("a number"),
    "double": Message("a number"),
    "string": Message("a text"),
    "list": Message("a list"),
    "map": Message("a map"),
    "object": Message("an object"),
}


def type_name(kind: Type) -> Message:
    """Return a type as a message names it."""
    return _NAMES.get(kind.name) or Message("{word}", word=kind.name)


def described(variables: Iterable[str]) -> str:
    """Return variables with their members, for descriptions: `value, pod (labels, …)`."""
    return ", ".join(
        f"{name} ({', '.join(fields)})" if (fields := VARIABLES[name].fields) else name for name in variables
    )
