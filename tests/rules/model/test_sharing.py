"""The policy of a compatibility rule: which container runtime it assumes."""

from __future__ import annotations

import pytest

from rules.cuda.requirements import GpuRequirements
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.runtime_modes import ContainerRuntime, RuntimeMode
from rules.text.i18n import Text

LEGACY, CDI, UNKNOWN = RuntimeMode.LEGACY, RuntimeMode.CDI, RuntimeMode.UNKNOWN


@pytest.mark.parametrize(
    ("runtime_class", "of_rule", "of_node", "mode", "source"),
    [
        ("", None, UNKNOWN, UNKNOWN, "the node"),
        ("", None, CDI, CDI, "the node"),
        ("", LEGACY, CDI, LEGACY, "containerRuntime of the rule"),
        ("nvidia-cdi", LEGACY, LEGACY, CDI, "runtimeClassName of the pod"),
        ("nvidia-legacy", None, CDI, UNKNOWN, "runtimeClassName of the pod"),
        ("nvidia-legacy", CDI, LEGACY, UNKNOWN, "runtimeClassName of the pod"),
        ("nvidia-legacy", None, LEGACY, LEGACY, "the node"),
        ("nvidia-legacy", LEGACY, CDI, LEGACY, "containerRuntime of the rule"),
        ("nvidia", None, CDI, CDI, "the node"),
    ],
)
def test_the_pod_decides_about_the_runtime_before_the_rule_and_the_rule_before_the_node(
    runtime_class: str, of_rule: RuntimeMode | None, of_node: RuntimeMode, mode: RuntimeMode, source: str
) -> None:
    """A RuntimeClass is what starts the container; a rule is what an operator says of all nodes."""
    node = NodeCapabilities(runtime=ContainerRuntime(of_node, source=Text("the node")))
    runtime = SharingPolicy(runtime_mode=of_rule).runtime(GpuRequirements(runtime_class=runtime_class), node)

    assert (mode, source) == (runtime.mode, runtime.source.en)
