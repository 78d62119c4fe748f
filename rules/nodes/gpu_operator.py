"""GPU Operator: the container runtime of the nodes on which it installs NVIDIA Container Toolkit.

Source: `data/runtime_modes.yaml`, operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from rules.nodes.container_runtime import UNKNOWN_RUNTIME, ContainerRuntime, RuntimeMode
from rules.nodes.runtime_modes import AUTO, HostRuntime, mode_of, operator_names, runtime_of, toolkit_version
from rules.text.i18n import Text

# The kind of the objects that configure GPU Operator. versions: newest first.
GROUP: Final = "nvidia.com"
CLUSTER_POLICY: Final = "ClusterPolicy"
PLURAL: Final = "clusterpolicies"
VERSIONS: Final = ("v1",)
# GPU Operator uses one ClusterPolicy, and ignores others.
_MOST: Final = 8


class OperatorSettings(NamedTuple):
    """What a ClusterPolicy says of container runtimes.

    installs: GPU Operator installs the toolkit; otherwise the host's is used. cdi: containers get GPUs by
    CDI; None: by the default of the release, which is unknown. cdi_default: releases before 25.10 use CDI
    only then. mode: of the toolkit, as configured. by_plugin: its device plugin is configured for CDI,
    whatever else is set. toolkit: its version, empty if unknown. compat: no setting leaves compatibility
    libraries out.
    """

    name: str
    installs: bool = True
    cdi: bool | None = None
    cdi_default: bool = False
    mode: str = AUTO
    by_plugin: bool = False
    toolkit: tuple[int, ...] = ()
    compat: bool = True

    def runtime(self, host: HostRuntime) -> ContainerRuntime:
        """Return the runtime of a node. host: its own."""
        source = Text(f"{CLUSTER_POLICY} {self.name}")
        if not self.installs:
            own = host.runtime
            if self.cdi is False and not self.by_plugin:
                return own
            is_cdi = own.mode is RuntimeMode.CDI
            return own._replace(loads_compat=None) if is_cdi else UNKNOWN_RUNTIME
        mode, *others = set(self._modes(by_hook=host.by_hook))
        if others or mode is RuntimeMode.UNKNOWN:
            return UNKNOWN_RUNTIME
        runtime = runtime_of(mode, self.toolkit, source, by_hook=host.by_hook and self.cdi is False)
        if self.compat and not (self.cdi_default and runtime.mode is RuntimeMode.CDI):
            return runtime
        return runtime._replace(loads_compat=None)

    def _modes(self, *, by_hook: bool) -> Iterable[RuntimeMode]:
        """Yield the modes that the toolkit may have."""
        if self.by_plugin or self.cdi is not False:
            yield RuntimeMode.CDI
        if self.cdi and self.cdi_default and self.mode == AUTO:
            return
        # Releases before 25.10 offer CDI besides the mode of the toolkit, which is CDI for newer toolkits.
        yield mode_of(self.mode, self.toolkit, by_hook=by_hook and not self.cdi)


def read_settings(documents: Iterable[Mapping[str, Any]]) -> tuple[OperatorSettings, ...]:
    """Return the settings of ClusterPolicies by their names. What cannot be read is unknown. Never raises."""
    found = sorted(map(_settings, documents), key=lambda each: each.name)
    return tuple(found[:_MOST])


def runtime_on(
    labels: Mapping[str, str], host: HostRuntime, operator: tuple[OperatorSettings, ...]
) -> ContainerRuntime:
    """Return the container runtime of a node. host: its own. operator: the settings of GPU Operator.

    Where GPU Operator manages the node, only its settings count; if these contradict each other, or are
    unknown, so is the runtime.
    """
    if not is_managed(labels):
        return host.runtime
    found = dict.fromkeys(each.runtime(host) for each in operator)
    if len({(each.mode, each.loads_compat) for each in found}) == 1:
        return next(iter(found))
    if not found:
        return UNKNOWN_RUNTIME
    names = ", ".join(each.name for each in operator)
    return ContainerRuntime(
        source=Text(f"contradicting ClusterPolicies {names}", f"ClusterPolicy {names} 相互矛盾")
    )


def read_variables() -> frozenset[str]:
    """Return the variables of a ClusterPolicy that are read."""
    names = operator_names()
    return frozenset({names["mode"], names["strategy"], *names["compatVariables"]})


def managed_label() -> str:
    """Return the label that GPU Operator sets on the nodes that it manages."""
    return str(operator_names()["managed"])


def is_managed(labels: Mapping[str, str]) -> bool:
    """Return whether GPU Operator installs the toolkit on a node, unless its settings say otherwise."""
    return labels.get(managed_label(), "false") != "false"


def _settings(document: Mapping[str, Any]) -> OperatorSettings:
    metadata, spec = _object(document, "metadata"), _object(document, "spec")
    cdi, toolkit, plugin = (_object(spec, name) for name in ("cdi", "toolkit", "devicePlugin"))
    names, variables = operator_names(), _variables(toolkit)
    enabled, version, of_plugin = cdi.get("enabled"), toolkit.get("version"), _variables(plugin)
    return OperatorSettings(
        str(metadata.get("name", "")),
        toolkit.get("enabled") is not False,
        enabled if isinstance(enabled, bool) else None,
        cdi.get("default") is True,
        variables.get(names["mode"], AUTO),
        "cdi" in of_plugin.get(names["strategy"], ""),
        toolkit_version(version) if isinstance(version, str) else (),
        of_plugin.keys().isdisjoint(names["compatVariables"]),
    )


def _variables(parent: Mapping[str, Any]) -> dict[str, str]:
    found = parent.get("env")
    given = [each for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else []
    return {str(each.get("name")): str(each.get("value", "")) for each in given}


def _object(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, Mapping) else {}
