"""The platforms of the image against the CPU architecture of the node.

Of an image without a platform of the node, nothing is pulled, or it ends in "exec format error". Source:
https://github.com/opencontainers/image-spec/blob/main/image-index.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import OFF, CheckResult, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import DEFAULT_PLATFORM, NodeCapabilities
from rules.text.i18n import Message


class ArchitectureCheck(Check):
    """Whether the image has a platform of the node."""

    is_optional: ClassVar[bool] = True

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result if the image has no platform of the node; none if either is unknown."""
        image_platforms, setting = requirements.platforms, policy.checks.architecture
        if image_platforms is None or setting is OFF:
            return
        architecture = node.architecture or _by_product(node)
        if architecture is None or architecture in image_platforms.architectures:
            return
        level = capped(setting, certain=image_platforms.certain and node.architecture is not None)
        platforms = ", ".join(
            f"linux/{architecture}" for architecture in sorted(image_platforms.architectures)
        )
        reason = Message(
            "the image is for {platforms}, the node for linux/{architecture}",
            platforms=platforms,
            architecture=architecture,
        )
        names = "/".join(sorted(image_platforms.architectures))
        remedy = Message(
            "use an image for linux/{architecture}, or nodes with {names}",
            architecture=architecture,
            names=names,
        )
        yield CheckResult(level, reason, remedy, origin=image_platforms.origin)


def _by_product(node: NodeCapabilities) -> str | None:
    """Return the architecture that only machines with this GPU have, as Grace; None: it may be any."""
    model = node.model
    return model.host if model and model.host != DEFAULT_PLATFORM else None
