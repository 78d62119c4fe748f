"""Text to a CEL expression: rejected, or evaluated to true, false or an error, in bounded time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rules.cel.expression import Expression, Inputs
from rules.cel.syntax_errors import ExpressionError
from rules.cel.variables import CONDITION_VARIABLES, VALIDATION_VARIABLES
from tests.fuzz.targets import TESTS

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLES = tuple(dict.fromkeys((*VALIDATION_VARIABLES, *CONDITION_VARIABLES)))
_VALUES = {
    "value": 2**63 - 1,
    "limits": {"a.com/x": 0, "b": -0.5},
    "requests": {},
    "container.name": "",
    "container.image": "\x00" * 100,
    "container.command": [],
    "container.args": ["x", ""],
    "container.env": {"A": "1"},
    "container.envNames": ["A"],
    "container.cpu": 0,
    "container.memory": 2**63 - 1,
    "container.securityContext": {"runAsUser": -1, "capabilities": {"add": [], "drop": ["ALL"]}},
    "container.framework": "paddle",
    "pod.labels": {"app": "x" * 63},
    "pod.annotations": {"": "1"},
    "pod.namespace": "",
    "pod.nodeName": "",
    "pod.nodeSelector": {},
    "pod.tolerations": [{"key": "", "tolerationSeconds": -1}],
    "pod.priorityClassName": "",
    "pod.serviceAccountName": "default",
    "pod.schedulerName": "x",
    "pod.runtimeClassName": "",
    "pod.hostNetwork": False,
    "pod.hostIPC": True,
    "pod.activeDeadlineSeconds": 0,
    "pod.securityContext": {"runAsUser": 0},
}


def seeds() -> Iterator[bytes]:
    """Yield the expressions of the built-in rules."""
    for path in sorted((TESTS.parent / "rules" / "catalog").glob("*/*.yaml")):
        for text in re.findall(r'expression: "?(.*?)"?$', path.read_text("utf-8"), re.MULTILINE):
            yield str(text).encode()
    yield b"limits.exists(name, name.startsWith('a')) ? value in [1, 2.5] : pod.labels['a'].matches('b+')"


def words() -> Iterator[str]:
    """Yield the words of the language."""
    yield from ("value", "limits", "requests", "container", "pod", "true", "null", "1u", "0.5", "'a'", "b'a'")
    yield from (
        "=",
        "===",
        "<>",
        " and ",
        " or ",
        "not ",
        "8Gi",
        "quantity('8Gi')",
        "limits.a.com/b",
        "in (1, 2)",
    )
    yield from ("pod.tolerations", "container.args", "container.securityContext", "pod.labels", "name", "key")
    yield from ("[]", "{}", "&&", "||", "?", ":", "!", "-", "==", " in ", "%")
    yield from (
        "all(x, ",
        "exists(x, ",
        "map(x, ",
        "size(",
        "int(",
        "matches('",
        "duration('1s')",
        ".",
        "[",
        "//\n",
    )


def check(data: bytes) -> None:
    """Nothing but ExpressionError is raised."""
    try:
        expression = Expression(data.decode("utf-8", "replace"), _VARIABLES)
        expression.evaluate(Inputs(_VALUES))
    except ExpressionError:
        return
