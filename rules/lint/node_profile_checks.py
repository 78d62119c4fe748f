"""Lint checks of node profiles: facts that contradict each other, the product or another profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rules.cuda.tables import capability_of, cuda_of_branch
from rules.model.rule import NodeProfile
from rules.nodes.node_capabilities import driver_of
from rules.schema.errors import Code
from rules.text.i18n import Text

if TYPE_CHECKING:
    from rules.text.paths import Path


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
