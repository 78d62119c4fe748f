"""Devices of a node by Dynamic Resource Allocation: the resources that they offer, and the facts of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from rules.nodes.devices.device_classes import DeviceClasses
from rules.nodes.devices.devices import DeviceFacts, DeviceKind, common_facts, facts_of
from rules.nodes.devices.slices import DeviceInventory
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.runtime_modes import UNKNOWN_RUNTIME, ContainerRuntime, RuntimeMode, dra_runtime


class NodeDevices(NamedTuple):
    """The devices of one node."""

    # Extended resources that DeviceClasses make of the devices: certainly, and perhaps.
    resources: frozenset[str] = frozenset()
    may_offer: frozenset[str] = frozenset()
    facts: DeviceFacts | None = None  # common facts of all GPUs; None without a GPU
    mixed: bool = False  # its GPUs differ
    alone: bool = False  # no device plugin also offers GPUs of the node

    def capabilities(self, labelled: NodeCapabilities) -> NodeCapabilities:
        """Return the capabilities of the node: devices take precedence. labelled: by its labels."""
        facts = self.facts
        if facts is None:
            return labelled
        known: DeviceFacts | NodeCapabilities = facts if facts.product or self.mixed else labelled
        return replace(
            labelled,
            cuda=facts.cuda or labelled.cuda,
            driver=facts.driver or labelled.driver,
            mig_devices=labelled.mig_devices or facts.type == "mig",
            runtime=self._runtime(labelled.runtime),
            product=known.product,
            compute_capability=known.compute_capability,
            memory_mib=known.memory_mib,
        )

    def _runtime(self, of_plugin: ContainerRuntime) -> ContainerRuntime:
        """Return the container runtime. of_plugin: the runtime for the device plugin."""
        if self.alone:
            return dra_runtime()
        return of_plugin if of_plugin.mode is RuntimeMode.CDI else UNKNOWN_RUNTIME


def _of_node(kinds: Mapping[DeviceKind, int], classes: DeviceClasses) -> NodeDevices:
    offered = classes.offered(kinds)
    known = frozenset(name for name, offer in offered.items() if offer.number)
    gpus = {facts for facts in map(facts_of, kinds) if facts is not None}
    return NodeDevices(known, frozenset(offered) - known, common_facts(kinds), mixed=len(gpus) > 1)


def devices_by_node(devices: DeviceInventory, classes: DeviceClasses) -> Mapping[str, NodeDevices]:
    """Return the devices by node. Linear in nodes, whose devices are counted by kind."""
    return {name: _of_node(kinds, classes) for name, kinds in devices.by_node.items()}
