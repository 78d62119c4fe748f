"""All compatibility checks together: what is not certain denies nothing, on any node."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from rules.compatibility.checks import check_on_any_node, check_on_node
from rules.compatibility.checks.driver_support import unsupported_gpu
from rules.cuda.image_catalog import BuiltFor, CompatLibraries
from rules.cuda.requirements import ComputeRequirement, CudaRequirement, GpuRequirements
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.model.check_result import Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message, Text
from tests.support.requirement_builders import driver, needing

POLICIES = [
    SharingPolicy(),
    SharingPolicy(virtual=True),
    SharingPolicy(virtual=True, baseline=CudaVersion(12, 4)),
    SharingPolicy(minor_versions=Level.UNSTABLE),
]

st.register_type_strategy(Message, st.just(Message("a message")))
versions = st.builds(CudaVersion, st.integers(10, 14), st.integers(0, 9))
capabilities = st.builds(ComputeCapability, st.integers(5, 12), st.integers(0, 9))
uncertain = st.builds(
    GpuRequirements,
    cuda=st.none()
    | st.builds(
        CudaRequirement, versions, st.booleans(), st.just(False), st.just("row"), st.just(Text("an image"))
    ),
    compute=st.lists(
        st.builds(ComputeRequirement, capabilities, st.just(False), st.just(Text("a flag")), st.booleans()),
        max_size=2,
    ).map(tuple),
    built_for=st.none()
    | st.builds(
        BuiltFor,
        st.lists(capabilities, min_size=1, max_size=3).map(tuple),
        st.sampled_from([True, False, None]),
        st.just(False),
    ),
    cuda_compat=st.sampled_from(CompatLibraries),
)
nodes = st.builds(
    NodeCapabilities,
    cuda=st.none() | versions,
    driver=st.none() | st.sampled_from(["470.82.01", "535.104.05", "580.65.06"]),
    compute_capability=st.none() | capabilities,
    product=st.none() | st.sampled_from(["Tesla-T4", "NVIDIA-GeForce-RTX-4090"]),
)


@given(st.sampled_from(POLICIES), uncertain, nodes)
def test_an_uncertain_requirement_denies_no_pod(
    policy: SharingPolicy, required: GpuRequirements, node: NodeCapabilities
) -> None:
    """It is a warning at most; a driver that ignores the GPU is no requirement."""
    assume(unsupported_gpu(node) is None)
    results = (*check_on_any_node(policy, required), *check_on_node(policy, required, node))

    assert level_of(results) < Level.UNKNOWN


def test_the_worst_result_is_the_level() -> None:
    """Without a result a node is compatible."""
    required = needing(cuda="12.4", compute="8.0")

    assert Level.COMPATIBLE is level_of(())
    assert [Level.INCOMPATIBLE, Level.UNKNOWN] == [
        result.level for result in check_on_node(SharingPolicy(), required, driver("11.8"))
    ]
    assert Level.INCOMPATIBLE is level_of(check_on_node(SharingPolicy(), required, driver("11.8")))


def test_each_missing_label_has_a_result() -> None:
    """One for the driver, one for the GPU."""
    required = needing(cuda="12.4", compute="8.0")

    assert [Level.UNKNOWN] * 2 == [
        result.level for result in check_on_node(SharingPolicy(), required, NodeCapabilities())
    ]
