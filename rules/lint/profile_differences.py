"""Node profiles that contradict themselves, the product, another profile or their present nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rules.cuda.tables import capability_of, cuda_of_branch, gpu_model
from rules.model.rule import NodeProfile, RuleSet
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, driver_of, without_slice
from rules.schema.errors import Code
from rules.text.i18n import Text

if TYPE_CHECKING:
    from rules.text.paths import Path


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


def profile_warnings(profile: NodeProfile) -> Iterator[tuple[Path, Code, Text]]:
    """Yield (path, code, message) for a profile alone."""
    found = profile.capabilities
    if found.product is None and found.cuda is None:
        message = Text(
            "neither product nor cuda is stated, so it is unknown which images run on these nodes; "
            "set offers.product and offers.cuda",
            "未填写 product 和 cuda，因此无法判断哪些镜像能在这些节点上运行；"
            "请设置 offers.product 和 offers.cuda",
        )
        yield ("offers",), Code.NOTHING_KNOWN, message
    of_product = capability_of(found.product) if found.product else None
    if of_product and found.compute_capability and of_product != found.compute_capability:
        stated = _dotted(found.compute_capability)
        message = Text(
            f"{found.product} has compute capability {of_product}, not {stated}; "
            f'write "{of_product}", or correct the product',
            f"{found.product} 的计算能力为 {of_product}，而不是 {stated}；"
            f'请改为 "{of_product}"，或更正产品名',
        )
        yield ("offers", "computeCapability"), Code.CONTRADICTION, message
    driver = driver_of(found)
    of_driver = cuda_of_branch(driver.branch) if driver else None
    if of_driver and of_driver.certain and found.cuda and of_driver.value != found.cuda:
        stated = _dotted(found.cuda)
        message = Text(
            f"driver {driver} has CUDA {of_driver.value}, not {stated}; "
            f'write "{of_driver.value}", or correct the driver',
            f"驱动 {driver} 对应 CUDA {of_driver.value}，而不是 {stated}；"
            f'请改为 "{of_driver.value}"，或更正驱动版本',
        )
        yield ("offers", "cuda"), Code.CONTRADICTION, message


def contradicting_profiles(profiles: Iterable[NodeProfile]) -> Iterator[tuple[NodeProfile, Text]]:
    """Yield each enabled profile, with the message, that has the labels of another but offers something else.

    Linear in the number of profiles.
    """
    by_labels: dict[frozenset[tuple[str, str]], list[NodeProfile]] = defaultdict(list)
    for profile in profiles:
        if profile.enabled and profile.labels:
            by_labels[frozenset(profile.labels)].append(profile)
    for first, *rest in by_labels.values():
        differing = [profile for profile in rest if _offers(profile) != _offers(first)]
        for profile, other in (
            *((first, each) for each in differing[:1]),
            *((each, first) for each in differing),
        ):
            message = Text(
                f"{other.name} ({other.location}) has the same labelsAtCreation, but offers something else: "
                "a pod cannot choose between them; add a label that differs",
                f"{other.name}（{other.location}）的 labelsAtCreation 相同，但 offers 不同："
                "Pod 无法在两者之间选择；请添加一个不同的标签",
            )
            yield profile, message


def _offers(profile: NodeProfile) -> tuple[object, ...]:
    return profile.capabilities, frozenset(profile.resources)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
