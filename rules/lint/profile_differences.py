"""Differences between what node profiles state and what their present nodes report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rules.cuda.tables import gpu_model
from rules.model.rule import NodeProfile, RuleSet
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, without_slice
from rules.text.i18n import Text


class ProfileDifference(NamedTuple):
    """A fact that nodes report otherwise than their profile states it.

    fact: the key in `offers`. nodes: the set of the nodes in the inventory.
    """

    profile: str
    fact: str
    stated: str
    reported: str
    nodes: int

    def message(self, inventory: Inventory) -> Text:
        """Return what differs, with the first of the nodes and their number."""
        node, count = min(inventory.names(self.nodes)), self.nodes.bit_count()
        return Text(
            f"{self.fact} is {self.stated} here, but {self.reported} on present nodes "
            f"({node!r}, {count} in all); correct the profile, or the labels in its match",
            f"此处 {self.fact} 为 {self.stated}，现有节点上为 {self.reported}"
            f"（例如 {node!r}，共 {count} 个）；请更正该配置，或其 match 中的标签",
        )


def differences_of_rules(rules: RuleSet, inventory: Inventory) -> Iterator[ProfileDifference]:
    """Yield the differences of all profiles, with the labels that the compatibility rules read."""
    if not rules.profiles:
        return
    meanings = dict.fromkeys(rule.sharing.labels for rule in rules.compatibility if rule.enabled)
    found = {
        each[:-1]: each
        for labels in meanings or (LabelNames(),)
        for each in profile_differences(rules.profiles, inventory, labels)
    }
    yield from found.values()


def profile_differences(
    profiles: Iterable[NodeProfile], inventory: Inventory, labels: LabelNames
) -> Iterator[ProfileDifference]:
    """Yield the differences of each enabled profile, in its order.

    A fact that one side does not state is no difference. Linear in profiles times classes of nodes.
    """
    for profile in profiles:
        found: dict[tuple[str, str, str], int] = defaultdict(int)
        for each in inventory.classes(members(profile, inventory), labels) if profile.enabled else ():
            for difference in _differences(profile.capabilities, each.capabilities):
                found[difference] |= each.members
        for difference, nodes in found.items():
            yield ProfileDifference(profile.name, *difference, nodes)


def members(profile: NodeProfile, inventory: Inventory) -> int:
    """Return the set of the present nodes that belong to a profile."""
    found = inventory.everything
    for key, value in profile.match:
        found &= inventory.labels.equal(key, value)
    return found


def _differences(stated: NodeCapabilities, reported: NodeCapabilities) -> Iterator[tuple[str, str, str]]:
    """Yield (fact, stated, reported) for each fact that differs."""
    if stated.product and reported.product and not _same_product(stated.product, reported.product):
        yield "product", stated.product, reported.product
    versions = (
        ("cuda", stated.cuda, reported.cuda),
        ("computeCapability", stated.compute_capability, reported.gpu_capability),
    )
    for fact, one, other in versions:
        if one and other and one != other:
            yield fact, f"{one[0]}.{one[1]}", f"{other[0]}.{other[1]}"


def _same_product(one: str, other: str) -> bool:
    """Return whether two labels name the same model: with MIG or time slicing, a label has a suffix."""
    models = gpu_model(without_slice(one)), gpu_model(without_slice(other))
    return one == other or (models[0] is not None and models[0] == models[1])
