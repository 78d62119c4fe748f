"""GPU Operator: the container runtime of the nodes on which it installs NVIDIA Container Toolkit.

Source: `facts/runtime_modes.yaml`, operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from rules.nodes.runtime_modes import (
    AUTO,
    UNKNOWN_RUNTIME,
    ContainerRuntime,
    HostRuntime,
    RuntimeMode,
    mode_of,
    operator_names,
    runtime_of,
    toolkit_version,
)
from rules.text.i18n import Joined, Message, Text
from rules.text.paths import object_at

# The kind of the objects that configure GPU Operator. versions: newest first.
GROUP: Final = "nvidia.com"
CLUSTER_POLICY: Final = "ClusterPolicy"
PLURAL: Final = "clusterpolicies"
VERSIONS: Final = ("v1",)
DAEMON_SET: Final = "DaemonSet"
# GPU Operator uses one ClusterPolicy, and ignores others.
_MOST: Final = 8
_CONTAINERS: Final = ("spec", "template", "spec", "containers")


class OperatorSettings(NamedTuple):
    """The settings for container runtimes in a ClusterPolicy, or in the toolkit's DaemonSet."""

    source: str  # kind and name
    installs: bool = True  # GPU Operator installs the toolkit; otherwise the host's is used
    cdi: bool | None = None  # containers get GPUs by CDI; None: the release's default, which is unknown
    cdi_default: bool = False  # releases before 25.10 use CDI only if this is set
    mode: str = AUTO  # the configured mode of the toolkit
    by_plugin: bool = False  # the device plugin is configured for CDI, which takes precedence
    toolkit: tuple[int, ...] = ()  # its version; empty: unknown
    compat: bool = True  # its defaults for compatibility libraries are unchanged

    def runtime(self, host: HostRuntime) -> ContainerRuntime:
        """Return the runtime of a node. host: its own."""
        if not self.installs:
            own = host.runtime
            if self.cdi is False and not self.by_plugin:
                return own
            is_cdi = own.mode is RuntimeMode.CDI
            return own._replace(loads_compat=None) if is_cdi else UNKNOWN_RUNTIME
        mode, *others = set(self._modes(by_hook=host.by_hook))
        if others or mode is RuntimeMode.UNKNOWN:
            return UNKNOWN_RUNTIME
        hook = host.by_hook and mode is RuntimeMode.LEGACY
        runtime = runtime_of(mode, self.toolkit, Text(self.source), by_hook=hook)
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


class GpuOperator(NamedTuple):
    """The settings of GPU Operator: its ClusterPolicies, and the DaemonSets that it creates from them."""

    policies: tuple[OperatorSettings, ...] = ()
    daemon_sets: tuple[OperatorSettings, ...] = ()


def read_operator(
    policies: Iterable[Mapping[str, Any]], daemon_sets: Iterable[Mapping[str, Any]] = ()
) -> GpuOperator:
    """Return the settings of these objects; unreadable values are unknown. Never raises."""
    read = (map(_of_policy, policies), map(_of_daemon_set, daemon_sets))
    return GpuOperator(*(tuple(sorted(settings, key=attrgetter("source"))[:_MOST]) for settings in read))


def runtime_on(labels: Mapping[str, str], host: HostRuntime, operator: GpuOperator) -> ContainerRuntime:
    """Return the container runtime of a node. host: its own.

    If GPU Operator manages the node, only its settings are used; if they are unknown or contradict each
    other, the runtime is unknown.
    """
    if not is_managed(labels):
        return host.runtime
    # If a kind has several objects, it is unknown here which one is used.
    runtimes = [
        _common([settings.runtime(host) for settings in of_kind])
        for of_kind in (operator.daemon_sets, operator.policies)
    ]
    return _common([runtime for runtime in runtimes if runtime != UNKNOWN_RUNTIME])


def _common(runtimes: list[ContainerRuntime]) -> ContainerRuntime:
    """Return the common facts of runtimes; an unknown runtime with a reason if their modes differ."""
    if not runtimes or UNKNOWN_RUNTIME in runtimes:
        return UNKNOWN_RUNTIME
    first, *others = runtimes
    if any(runtime.mode is not first.mode for runtime in others):
        sources = Joined(" and ", sorted({runtime.source for runtime in runtimes if runtime.source}))
        return ContainerRuntime(source=Message("{sources} contradict each other", sources=sources))
    same = all(runtime.loads_compat is first.loads_compat for runtime in others)
    return first if same else first._replace(loads_compat=None)


def read_variables() -> frozenset[str]:
    """Return the variables that are read in GPU Operator's settings."""
    names = operator_names()
    return frozenset({names["mode"], names["strategy"], *names["compatVariables"]})


def toolkit_daemon_set() -> str:
    """Return the name of the DaemonSet that installs the toolkit."""
    return str(operator_names()["daemonSet"])


def managed_label() -> str:
    """Return the label that GPU Operator sets on the nodes that it manages."""
    return str(operator_names()["managed"])


def is_managed(labels: Mapping[str, str]) -> bool:
    """Return whether GPU Operator manages a node."""
    return labels.get(managed_label(), "false") != "false"


def _of_policy(document: Mapping[str, Any]) -> OperatorSettings:
    metadata, spec = object_at(document, "metadata"), object_at(document, "spec")
    cdi, toolkit, plugin = (object_at(spec, name) for name in ("cdi", "toolkit", "devicePlugin"))
    names, variables = operator_names(), _variables(toolkit)
    enabled, version, of_plugin = cdi.get("enabled"), toolkit.get("version"), _variables(plugin)
    return OperatorSettings(
        f"{CLUSTER_POLICY} {metadata.get('name', '')}",
        toolkit.get("enabled") is not False,
        enabled if isinstance(enabled, bool) else None,
        cdi.get("default") is True,
        variables.get(names["mode"], AUTO),
        "cdi" in of_plugin.get(names["strategy"], ""),
        toolkit_version(version) if isinstance(version, str) else (),
        (variables | of_plugin).keys().isdisjoint(names["compatVariables"]),
    )


def _of_daemon_set(document: Mapping[str, Any]) -> OperatorSettings:
    """Return the settings of the DaemonSet that installs the toolkit: if CDI is on, its mode is `cdi`."""
    value: Any = document
    for name in _CONTAINERS:
        value = value.get(name) if isinstance(value, Mapping) else None
    container = value[0] if isinstance(value, list) and value and isinstance(value[0], Mapping) else {}
    names, variables = operator_names(), _variables(container)
    tag = str(container.get("image", "")).partition("@")[0].rpartition(":")[2]
    return OperatorSettings(
        f"{DAEMON_SET} {toolkit_daemon_set()}",
        cdi=False,
        mode=variables.get(names["mode"], AUTO) if container else "",
        toolkit=toolkit_version(tag),
        compat=variables.keys().isdisjoint(names["compatVariables"]),
    )


def _variables(parent: Mapping[str, Any]) -> dict[str, str]:
    env = parent.get("env")
    given = [entry for entry in env if isinstance(entry, Mapping)] if isinstance(env, list | tuple) else []
    return {str(entry.get("name")): str(entry.get("value", "")) for entry in given}
