"""Node profiles that contradict themselves, the product, another profile or their present nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rules.cuda.tables import Facts, capability_of, gpu_model, least_cuda
from rules.model.rule import NodeProfile, RuleSet
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, driver_of, without_slice
from rules.schema.errors import Code
from rules.text.i18n import Message

if TYPE_CHECKING:
    from rules.text.paths import Path


class ProfileDifference(NamedTuple):
    """A fact for which nodes report another value than their profile."""

    profile: str
    fact: str  # the key in `offers`
    stated: str
    reported: str
    nodes: int  # as a bit set of the inventory

    def message(self, inventory: Inventory) -> Message:
        """Return what differs, with the first of the nodes and their number."""
        node, count = min(inventory.names(self.nodes)), self.nodes.bit_count()
        return Message(
            "{fact} is {stated} here, but {reported} on present nodes "
            "({node!r}, {count} in all); correct the profile, or the labels in its match",
            fact=self.fact,
            stated=self.stated,
            reported=self.reported,
            node=node,
            count=count,
        )


def differences_of_rules(rules: RuleSet, inventory: Inventory) -> Iterator[ProfileDifference]:
    """Yield the differences of all profiles, with the labels that the compatibility rules read."""
    if not rules.profiles:
        return
    distinct = {
        difference[:-1]: difference
        for labels in rules.label_names
        for difference in profile_differences(rules.profiles, inventory, labels)
    }
    yield from distinct.values()


def profile_differences(
    profiles: Iterable[NodeProfile], inventory: Inventory, labels: LabelNames
) -> Iterator[ProfileDifference]:
    """Yield the differences of each enabled profile, in order, for facts that both sides state.

    Linear in profiles times classes of nodes.
    """
    for profile in profiles:
        nodes_of: dict[tuple[str, str, str], int] = defaultdict(int)
        for node_class in inventory.classes(members(profile, inventory), labels) if profile.enabled else ():
            for difference in _differences(profile.capabilities, node_class.capabilities):
                nodes_of[difference] |= node_class.members
        for difference, nodes in nodes_of.items():
            yield ProfileDifference(profile.name, *difference, nodes)


def members(profile: NodeProfile, inventory: Inventory) -> int:
    """Return the present nodes that belong to a profile, as a bit set."""
    nodes = inventory.everything
    for key, value in profile.match:
        nodes &= inventory.labels.equal(key, value)
    return nodes


def _differences(stated: NodeCapabilities, reported: NodeCapabilities) -> Iterator[tuple[str, str, str]]:
    """Yield (fact, stated, reported) for each fact that differs."""
    of_node = reported.product
    if stated.product and of_node and not _same_product(reported.facts, stated.product, of_node):
        yield "product", stated.product, of_node
    versions = (
        ("cuda", stated.cuda, reported.cuda),
        ("computeCapability", stated.compute_capability, reported.gpu_capability),
    )
    for fact, one, other in versions:
        if one and other and one != other:
            yield fact, f"{one[0]}.{one[1]}", f"{other[0]}.{other[1]}"


def _same_product(facts: Facts, one: str, other: str) -> bool:
    """Return whether two labels name the same model: with MIG or time slicing, a label has a suffix."""
    models = gpu_model(facts, without_slice(one)), gpu_model(facts, without_slice(other))
    return one == other or (models[0] is not None and models[0] == models[1])


def profile_warnings(profile: NodeProfile, facts: Facts) -> Iterator[tuple[Path, Code, Message]]:
    """Yield (path, code, message) for contradictions within a profile."""
    capabilities = profile.capabilities
    if capabilities.product is None and capabilities.cuda is None:
        message = Message(
            "neither product nor cuda is stated, so it is unknown which images run on these nodes; "
            "set offers.product and offers.cuda"
        )
        yield ("offers",), Code.NOTHING_KNOWN, message
    of_product = capability_of(facts, capabilities.product) if capabilities.product else None
    if of_product and capabilities.compute_capability and of_product != capabilities.compute_capability:
        stated = _dotted(capabilities.compute_capability)
        message = Message(
            "{product} has compute capability {of_product}, not {stated}; "
            'write "{of_product}", or correct the product',
            product=capabilities.product,
            of_product=of_product,
            stated=stated,
        )
        yield ("offers", "computeCapability"), Code.CONTRADICTION, message
    driver, cuda = driver_of(capabilities), capabilities.cuda
    least = least_cuda(facts, driver.branch) if driver else None
    if driver is None or cuda is None or least is None or cuda == least.cuda:
        return
    values = {"driver": driver, "cuda": least.cuda, "stated": _dotted(cuda)}
    if least.by == driver.branch:
        text = Message('driver {driver} has CUDA {cuda}, not {stated}; write "{cuda}", or correct the driver')
        yield ("offers", "cuda"), Code.CONTRADICTION, text.having(**values)
    elif cuda < least.cuda:
        text = Message("driver {driver} has at least CUDA {cuda}, not {stated}; correct the one or the other")
        yield ("offers", "cuda"), Code.CONTRADICTION, text.having(**values)


def contradicting_profiles(profiles: Iterable[NodeProfile]) -> Iterator[tuple[NodeProfile, Message]]:
    """Yield each enabled profile that has the labels of another but other offers, with the message.

    Linear in the number of profiles.
    """
    by_labels: dict[frozenset[tuple[str, str]], list[NodeProfile]] = defaultdict(list)
    for profile in profiles:
        if profile.enabled and profile.labels:
            by_labels[frozenset(profile.labels)].append(profile)
    for first, *rest in by_labels.values():
        differing = [profile for profile in rest if _offers(profile) != _offers(first)]
        for profile, other in (
            *((first, profile) for profile in differing[:1]),
            *((profile, first) for profile in differing),
        ):
            message = Message(
                "{name} ({location}) has the same labelsAtCreation, but offers something else: "
                "a pod cannot choose between them; add a label that differs",
                name=other.name,
                location=other.location,
            )
            yield profile, message


def _offers(profile: NodeProfile) -> tuple[object, ...]:
    return profile.capabilities, frozenset(profile.resources)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
