"""The container runtime of a node: what a RuntimeClass or a rule changes of it."""

from __future__ import annotations

import pytest

from rules.nodes.runtime_modes import ContainerRuntime, RuntimeMode, mode_of_class
from rules.text.i18n import Text

LEGACY = ContainerRuntime(RuntimeMode.LEGACY, loads_compat=True, toolkit=(1, 17, 8), source=Text("a test"))


@pytest.mark.parametrize(
    ("name", "mode"),
    [("nvidia-legacy", RuntimeMode.UNKNOWN), ("nvidia-cdi", RuntimeMode.CDI), ("nvidia", None), ("", None)],
)
def test_a_runtime_class_of_the_gpu_operator_sets_the_mode(name: str, mode: RuntimeMode | None) -> None:
    """`nvidia` is the runtime with the mode of the node; with `nvidia-legacy` the device plugin decides."""
    assert mode is mode_of_class(name)


def test_how_libraries_are_loaded_is_known_of_the_nodes_own_mode_only() -> None:
    """In another mode, other programs arrange them."""
    by_pod = Text("a pod")

    assert LEGACY._replace(source=by_pod) == LEGACY.in_mode(RuntimeMode.LEGACY, by_pod)
    assert LEGACY._replace(mode=RuntimeMode.CDI, loads_compat=None, source=by_pod) == LEGACY.in_mode(
        RuntimeMode.CDI, by_pod
    )
