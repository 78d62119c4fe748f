"""Law of injection: a value that the user set survives every rule without `override`.

It runs over the model: a new field of `Injection` needs a sample here, a new entry of `POD_FIELDS` is
covered by its type.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.model.rule import POD_FIELDS, Injection
from tests.support.builders import DEVICE, admitted, container, injection_rule, pod, policy


class Sample(NamedTuple):
    """A value that a rule injects, and another one of the user in the same place.

    inject: a part of a rule file. user: what the user wrote in the pod's `spec`, in its `metadata`, in its
    container `main`. read: the values in that place, the first of them the user's.
    """

    inject: dict[str, Any]
    user: dict[str, Any]
    read: Callable[[Any], list[Any]]


def _main(document: Any) -> Any:
    return document["spec"]["containers"][0]


def _named(entries: list[Any], key: str, name: str) -> list[Any]:
    return [entry for entry in entries if entry[key] == name]


def _term(key: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": ["yes"]}]}


def _required(key: str) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_term(key)]}}


def _preferred(key: str) -> dict[str, Any]:
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _term(key)}]}


def _of_terms(document: Any) -> list[Any]:
    (required,) = document["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    expressions: list[Any] = required["matchExpressions"]
    return expressions


# By the names of the fields of Injection. With one of EXCLUSIVE there is one value in that place, the user's
# own; to the others a rule adds its own.
SAMPLES: Final = {
    "env": Sample(
        {"env": [{"name": "A", "value": "rule"}]},
        {"main": {"env": [{"name": "A", "value": "user"}]}},
        lambda document: _named(_main(document)["env"], "name", "A"),
    ),
    "volumes": Sample(
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/user"}}]}},
        lambda document: _named(document["spec"]["volumes"], "name", "v"),
    ),
    "volume_mounts": Sample(
        {"volumeMounts": [{"name": "w", "mountPath": "/v"}]},
        {"main": {"volumeMounts": [{"name": "u", "mountPath": "/v", "readOnly": True}]}},
        lambda document: _named(_main(document)["volumeMounts"], "mountPath", "/v"),
    ),
    "capabilities": Sample(
        {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}},
        {"main": {"securityContext": {"capabilities": {"add": ["SYS_NICE"], "drop": ["ALL"]}}}},
        lambda document: _main(document)["securityContext"]["capabilities"]["add"],
    ),
    "tolerations": Sample(
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"spec": {"tolerations": [{"key": "gpu", "operator": "Equal", "value": "user"}]}},
        lambda document: document["spec"]["tolerations"],
    ),
    "required_terms": Sample(
        {"nodeAffinity": _required("rule")},
        {"spec": {"affinity": {"nodeAffinity": _required("user")}}},
        _of_terms,
    ),
    "preferred_terms": Sample(
        {"nodeAffinity": _preferred("rule")},
        {"spec": {"affinity": {"nodeAffinity": _preferred("user")}}},
        lambda document: document["spec"]["affinity"]["nodeAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ],
    ),
    "labels": Sample(
        {"labels": {"team/a": "rule"}},
        {"metadata": {"labels": {"team/a": "user"}}},
        lambda document: [document["metadata"]["labels"]["team/a"]],
    ),
    "annotations": Sample(
        {"annotations": {"team/a": "rule"}},
        {"metadata": {"annotations": {"team/a": "user"}}},
        lambda document: [document["metadata"]["annotations"]["team/a"]],
    ),
}
VALUES: Final[dict[type, tuple[Any, Any]]] = {str: ("rule", "user"), bool: (True, False), int: (60, 30)}
POD_SAMPLES: Final = {
    field.name: Sample(
        {field.name: VALUES[field.kind][0]},
        {"spec": {field.name: VALUES[field.kind][1]}},
        lambda document, name=field.name: [document["spec"][name]],  # type: ignore[misc]
    )
    for field in POD_FIELDS
}
ALL: Final = {**SAMPLES, **POD_SAMPLES}
EXCLUSIVE: Final = {"env", "volumes", "volume_mounts", "labels", "annotations", *POD_SAMPLES}


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return nested objects as one."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = _merged([result[key], value]) if both else value
    return result


def _rule(names: list[str], **rule: Any) -> str:
    return injection_rule(deepcopy(_merged([ALL[name].inject for name in names])), **rule)


def _pod(names: list[str]) -> Any:
    """Return a pod in which the user has set these places."""
    samples = [ALL[name] for name in names]
    written = _merged([sample.user for sample in samples])
    main = container({DEVICE: "1"}, **written.get("main", {}))
    return deepcopy(pod(main, metadata=written.get("metadata"), **written.get("spec", {})))


def test_every_field_of_an_injection_has_a_sample() -> None:
    """Add one for a new field: what a rule injects, and what a user has in the same place."""
    assert {*Injection.__struct_fields__} == {*SAMPLES, "pod_fields"}


@pytest.mark.parametrize("name", ALL)
def test_a_rule_injects_what_the_user_has_not_set(name: str) -> None:
    """So each sample is of a value that would otherwise be injected in that place."""
    (injected,) = ALL[name].read(admitted(policy(_rule([name])), _pod([])))
    (own,) = ALL[name].read(_pod([name]))

    assert own != injected


@pytest.mark.parametrize("name", ALL)
def test_a_value_of_the_user_survives_a_rule_without_override(name: str) -> None:
    """As the first one in its place, or as the only one."""
    document = _pod([name])
    own = ALL[name].read(document)
    patched_value = ALL[name].read(admitted(policy(_rule([name])), document))

    assert own == (patched_value if name in EXCLUSIVE else patched_value[: len(own)])


@given(st.data())
def test_values_of_the_user_survive_any_rules_without_override(data: st.DataObject) -> None:
    """Several rules that inject some of the samples, into pods in which the user has set some of them."""
    names = st.lists(st.sampled_from([*ALL]), unique=True)
    injected = data.draw(st.lists(names.filter(bool), min_size=1, max_size=3))
    own = data.draw(names)
    rules = policy(*(_rule(names_of_rule, name=f"rule-{at}") for at, names_of_rule in enumerate(injected)))
    document = _pod(own)
    stored = admitted(rules, document)
    for name in own:
        before, after = ALL[name].read(document), ALL[name].read(stored)
        assert before == (after if name in EXCLUSIVE else after[: len(before)])
