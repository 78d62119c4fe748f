"""The loaded built-in rules in one JSON text: `built_in_rules.json`, which `make chart` writes.

A command reads it in a tenth of the time of the rule files, and without pydantic. It is for the files that it
was made of: after a change to one of them, the files are read until it is made again.

A value of a class is `{"$Class": arguments}`, with a list of positional arguments, or an object of those that
differ from their default values. Other objects are mappings; lists are tuples except within mappings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from rules.cel.expression import Expression
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.pod import AnnotationRequest
from rules.model.check_result import Level
from rules.model.match import Match, ResourceIndex, SelectorTerm
from rules.model.rule import (
    Action,
    CompatibilityRule,
    EnvFromResource,
    FailurePolicy,
    Injection,
    InjectionAction,
    InjectionRule,
    LimitsPolicy,
    NewNodes,
    RequestsPolicy,
    ResourceRule,
    Rule,
    RuleSet,
    Validation,
)
from rules.model.sharing import Checks, SharingPolicy
from rules.nodes.label_families import DriverFamily, LabelFamily, LabelNames
from rules.nodes.runtime_modes import RuntimeMode
from rules.text.glob import glob
from rules.text.i18n import Text
from rules.text.yaml_document import Location

FILE: Final = Path(__file__).with_name("built_in_rules.json")
CLASS: Final = "$"
_CLASSES: Final[tuple[type, ...]] = (
    *(
        ResourceRule,
        AnnotationRequest,
        Validation,
        InjectionRule,
        Injection,
        EnvFromResource,
        CompatibilityRule,
        Match,
        SelectorTerm,
    ),
    *(SharingPolicy, Checks, LabelNames, LabelFamily, DriverFamily, CudaVersion, ComputeCapability, Text),
    *(Action, FailurePolicy, InjectionAction, Level, LimitsPolicy, NewNodes, RequestsPolicy, RuntimeMode),
)


def built_in_rules(files: Iterable[tuple[str, str]], folder: str) -> RuleSet | None:
    """Return the rules in the built-in rule files, or None if FILE was made of other files.

    files: names and texts.
    folder: the start of all names.
    """
    text = FILE.read_text("utf-8")
    return _read(text, folder) if text.startswith(stored_head(files, folder)) else None


def stored_head(files: Iterable[tuple[str, str]], folder: str) -> str:
    """Return the start of FILE: a list whose first item is a digest of the rule files."""
    digest = sha256()
    for name, text in files:
        digest.update(f"{name.removeprefix(folder)}\n{text}\n".encode("utf-8", "surrogateescape"))
    return f'["{digest.hexdigest()}"'


def _read(text: str, folder: str) -> RuleSet:
    of_class: dict[str, Callable[..., Any]] = {cls.__name__: cls for cls in _CLASSES} | {
        "Expression": cache(Expression),  # many rules have the same
        "Location": lambda file, line, column: Location(folder + file, line, column),
        "Pattern": glob,
        "ResourceIndex": lambda *names: ResourceIndex((name, name) for name in names),
        "frozenset": lambda *items: frozenset(items),
    }

    def value(members: dict[str, Any]) -> Any:
        for name, arguments in members.items():
            if name[:1] != CLASS:
                break
            build = of_class[name[1:]]
            if isinstance(arguments, dict):
                return build(**{key: _tuples(item) for key, item in arguments.items()})
            return build(*map(_tuples, arguments))
        return members

    rules: list[Rule]
    _, *rules = json.loads(text, object_hook=value)
    return RuleSet.of(rules)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
