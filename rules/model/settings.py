"""Single-valued settings that rules inject: two rules can set one differently, and one value is used.

Tolerations and node affinity are not among them: those of several rules are added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import normpath
from typing import TYPE_CHECKING, Any, NamedTuple

from rules.model.rule import InjectionRule, ResourceRule

if TYPE_CHECKING:
    from rules.text.paths import Path

_RUNTIME_CLASS = "runtimeClassName"


class Setting(NamedTuple):
    """One value that a rule sets in a pod or, if of_container, in each container.

    name: as in the audit annotations, such as `env A` or `runtimeClassName`. path: in the rule's document.
    """

    name: str
    value: Any
    path: Path
    of_container: bool = False


def settings_of(rule: InjectionRule | ResourceRule) -> Iterator[Setting]:
    """Yield the single-valued settings of a rule."""
    if isinstance(rule, ResourceRule):
        if rule.runtime_class:
            yield Setting(_RUNTIME_CLASS, rule.runtime_class, ("data", _RUNTIME_CLASS))
        return
    inject = rule.inject
    for index, (name, value) in enumerate(inject.env):
        yield Setting(f"env {name}", value, ("inject", "env", index, "name"), of_container=True)
    for index, mount in enumerate(inject.volume_mounts):
        name = directory(mount["mountPath"])
        yield Setting(
            f"volumeMount {name}", mount, ("inject", "volumeMounts", index, "mountPath"), of_container=True
        )
    for index, volume in enumerate(inject.volumes):
        yield Setting(f"volume {volume['name']}", volume, ("inject", "volumes", index, "name"))
    for field in inject.pod_fields:
        yield Setting(field, inject.pod_fields[field], ("inject", field))
    for kind, entries in (("labels", inject.labels), ("annotations", inject.annotations)):
        for key, text in entries.items():
            yield Setting(f"{kind.removesuffix('s')} {key}", text, ("inject", kind, key))


def directory(path: str) -> str:
    """Return a mount path in the spelling that all spellings of it share: `/dev/shm/` is `/dev/shm`."""
    return normpath(f"/{path.lstrip('/')}")
