"""Whether a pod fits the nodes, by the rules that ship: refusals, warnings, and where pods are sent."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rules.model.decision import Decision
from rules.model.rule import Action
from rules.text.i18n import Language
from tests.support.builders import patched, pod, policy
from tests.support.node_builders import (
    A100,
    GPU,
    H100,
    HAMI,
    MPS,
    PYTORCH_11_7,
    SHARE,
    T4,
    V100,
    VCUDA_CORE,
    VCUDA_MEMORY,
    VGPU,
    VLLM,
    Node,
    admitted_to,
    among,
    compatibility_rule,
    cuda_image,
    decided,
    gfd,
    gpu_container,
    gpu_pod,
    inventory,
    judged,
    node,
    nodes,
    plain,
    refused,
    required,
    requiring,
    shipped,
)

# The driver's CUDA version


def test_an_image_newer_than_every_driver_is_refused_with_the_table_of_nodes() -> None:
    """Product, driver, CUDA, why with the error's name and number, how many nodes, and what would fit."""
    cluster = nodes(2, "older", gfd("11.2", T4)) + nodes(3, "old", gfd("11.4", V100))
    decision = decided(cluster, gpu_pod(PYTORCH_11_7))

    assert not decision.allowed
    assert () == decision.patch
    assert [("compatibility-pgpu", Action.DENY, "spec.containers[0].image")] == refused(decision)
    assert decision.message.splitlines() == [
        "gpugate refuses this Pod: 1 thing to change",
        (
            "  1. no node that could take the pod fits container 'main' (5 looked at); "
            "image tag `2.0.0-cuda11.7-cudnn8-runtime` says CUDA 11.7"
        ),
        "    nodes  GPU                   driver     CUDA  compute  why not",
        (
            "    3      Tesla-V100-SXM2-32GB  470.82.01  11.4  7.0      "
            "the driver has CUDA 11.4, below 11.7: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"
        ),
        (
            "    2      Tesla-T4              460.32.03  11.2  7.5      "
            "the driver has CUDA 11.2, below 11.7: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"
        ),
        (
            "    what would fit: use an image with CUDA 11.4 or older, or a driver with CUDA 11.7 or newer "
            "[rule compatibility-pgpu]"
        ),
    ]


def test_where_some_nodes_fit_the_pod_is_sent_to_exactly_those() -> None:
    """CUDA 11.7 on 11.4 and 12.2: only 12.2."""
    cluster = nodes(3, "old", gfd("11.4")) + nodes(2, "new", gfd("12.2"))
    decision = decided(cluster, gpu_pod(PYTORCH_11_7))

    assert ((), "node affinity") == (decision.warnings, decision.audit["steered"])
    assert ["new-0", "new-1"] == admitted_to(cluster, gpu_pod(PYTORCH_11_7))


def test_a_driver_of_an_older_major_is_told_as_an_insufficient_driver() -> None:
    """Error 35, not the one of PTX."""
    decision = decided(nodes(1, "old", gfd("11.8")), gpu_pod(cuda_image("12.4")))

    assert "cudaErrorInsufficientDriver (35)" in decision.message


def test_nodes_that_differ_in_nothing_shown_are_one_row() -> None:
    """Memory and sharing strategy have no column."""
    cluster = nodes(1, "a", gfd("11.4") | {"nvidia.com/gpu.memory": "15360"})
    cluster += nodes(2, "b", gfd("11.4") | {"nvidia.com/gpu.memory": "16384"})
    lines = decided(cluster, gpu_pod(PYTORCH_11_7)).message.splitlines()

    assert ["nodes", "3"] == [line.split()[0] for line in lines[2:4]]
    assert lines[4].startswith("    what would fit")


def test_a_table_has_eight_rows_and_counts_the_rest() -> None:
    """The API server cuts what is much longer."""
    cluster = [node(f"n{at}", gfd("11.4") | {"nvidia.com/gpu.product": f"Card-{at}"}) for at in range(11)]
    lines = decided(cluster, gpu_pod(PYTORCH_11_7)).message.splitlines()

    assert (2 + 1 + 8 + 2, "    … and 3 more") == (len(lines), lines[-2])


# Compute capability


def test_bfloat16_of_vllm_is_refused_on_turing_and_half_is_named() -> None:
    """And the flag is, as it was written."""
    decision = decided(nodes(3, "t4", gfd("12.4", T4)), gpu_pod(VLLM, "--model=m", "--dtype=bfloat16"))

    assert not decision.allowed
    assert "`--dtype=bfloat16` of vLLM 0.8.4 needs compute capability 8.0 or higher" in decision.message
    assert "compute capability 7.5, below 8.0\n" in decision.message  # vLLM says so itself; CUDA does not
    assert "set --dtype=half" in decision.message


@pytest.mark.parametrize(
    "words",
    [
        {"args": ["--dtype=bfloat16"]},
        {"args": ["--dtype", "bfloat16"]},
        {"command": ["sh", "-c", "exec vllm serve m --dtype=bfloat16 --port 80"]},
        {"command": ["bash", "-c"], "args": ["vllm serve m \\\n  --dtype bfloat16"]},
    ],
)
def test_bfloat16_of_vllm_goes_to_ampere_however_it_is_written(words: dict[str, Any]) -> None:
    """Also inside a script for a shell."""
    cluster = nodes(2, "t4", gfd("12.4", T4)) + nodes(2, "a100", gfd("12.4", A100))
    document = pod(gpu_container(VLLM, **words))

    assert ["a100-0", "a100-1"] == admitted_to(cluster, document)


def test_dtype_auto_is_no_need() -> None:
    """vLLM picks one that the GPU has."""
    cluster = nodes(1, "t4", gfd("12.4", T4)) + nodes(1, "a100", gfd("12.4", A100))

    assert ["t4-0", "a100-0"] == admitted_to(cluster, gpu_pod(VLLM, "--dtype=auto"))


def test_cuda_13_is_refused_on_volta_whatever_the_driver() -> None:
    """Its toolkit compiles for 7.5 and higher."""
    decision = decided(nodes(2, "v100", gfd("13.0", V100)), gpu_pod(cuda_image("13.0")))

    assert not decision.allowed
    assert (
        "(2 looked at); image tag `13.0.0-base-ubuntu22.04` says CUDA 13.0, "
        "which compiles for compute capability 7.5 and higher\n"
    ) in decision.message
    assert "use an image with an older CUDA" in decision.message


def test_a_gpu_newer_than_the_toolkit_is_a_warning_where_nobody_knows_of_ptx() -> None:
    """CUDA 11.7 on Hopper: not a refusal."""
    decision = decided(nodes(1, "h100", gfd("12.4", H100)), gpu_pod(PYTORCH_11_7))

    assert decision.allowed
    assert (
        (
            "container 'main': the image may hold no code for compute capability 9.0: "
            "CUDA_ERROR_NO_BINARY_FOR_GPU (209) (1 × NVIDIA-H100-80GB-HBM3, CUDA 12.4)"
        ),
    ) == decision.warnings


def test_two_ways_out_of_one_error_are_both_named() -> None:
    """A flag and the toolkit: each asks for a newer GPU."""
    decision = decided(
        nodes(1, "v100", gfd("13.0", V100)), gpu_pod("vllm/vllm-openai:v0.20.1", "--dtype=bfloat16")
    )

    assert "set --dtype=half" in decision.message
    assert "use an image with an older CUDA" in decision.message


# Labels that are missing or cannot be read


def test_without_labels_a_pod_is_allowed_with_a_warning_and_no_affinity() -> None:
    """Unknown stays unknown."""
    decision = decided(nodes(2, "silent", {}), gpu_pod(PYTORCH_11_7))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert (
        (
            "container 'main': nobody knows whether it runs: no label tells the driver's CUDA version "
            "(2 × GPU, CUDA ?)"
        ),
    ) == decision.warnings


def test_a_node_is_counted_once_whatever_misses_its_label() -> None:
    """MPS needs a CUDA version of its own, and the image another."""
    decision = decided(nodes(1, "silent", {}, **dict.fromkeys(MPS, "100")), gpu_pod(PYTORCH_11_7, limits=MPS))

    assert (
        "container 'main': nobody knows whether it runs: no label tells the driver's CUDA version "
        "(1 × GPU, CUDA ?)"
    ) == decision.warnings[0]


def test_the_two_plain_labels_are_enough_to_judge_and_to_steer() -> None:
    """Clusters without GPU Feature Discovery tell no compute capability; this image asks for none."""
    old, new = nodes(1, "old", plain("11.4")), nodes(1, "new", plain("12.4"))

    assert not decided(old, gpu_pod(PYTORCH_11_7)).allowed
    assert ["new-0"] == admitted_to(old + new, gpu_pod(PYTORCH_11_7))
    assert () == decided(old + new, gpu_pod(PYTORCH_11_7)).warnings


def test_a_need_that_no_label_answers_does_not_stop_the_steering_by_cuda() -> None:
    """A flag asks for a capability that nobody tells: a warning, and still away from old drivers."""
    cluster = nodes(1, "old", plain("11.4")) + nodes(1, "new", plain("12.4"))
    document = gpu_pod(VLLM, "--dtype=bfloat16")

    assert ["new-0"] == admitted_to(cluster, document)
    assert (
        (
            "container 'main': nobody knows whether it runs: no label tells the compute capability "
            "(1 × GPU, CUDA 12.4)"
        ),
    ) == decided(cluster, document).warnings


def test_a_floor_of_the_image_never_shuts_out_the_only_nodes_that_may_fit() -> None:
    """CUDA 13 on V100s, and on a node that tells only its driver: the pod has to have somewhere to go."""
    cluster = nodes(1, "v100", gfd("13.0", V100)) + nodes(1, "quiet", plain("13.0"))

    assert "quiet-0" in admitted_to(cluster, gpu_pod(cuda_image("13.0")))


@pytest.mark.parametrize(
    "labels",
    [
        {"cuda-major-version": "twelve"},
        {"cuda-minor-version": "4"},
        plain("12.4", **{"cuda-minor-version": "x"}),
    ],
)
def test_labels_that_cannot_be_read_are_no_labels(labels: dict[str, str]) -> None:
    """Told, and never a refusal: nobody knows what the node has."""
    decision = decided(nodes(1, "odd", labels), gpu_pod(cuda_image("13.0")))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert "nobody knows whether it runs" in decision.warnings[0]


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"cuda-major-version": "twelve"},
        {"cuda-major-version": "11"},
        plain("11.8") | {"cuda-minor-version": "x"},
    ],
)
def test_a_node_that_may_fit_keeps_a_pod_from_refusal_but_not_from_fitting_nodes(
    labels: dict[str, str],
) -> None:
    """Allowed with a warning, and kept from nodes that do not fit; with one that fits, it goes there."""
    may = nodes(1, "may", labels)
    old, new = nodes(1, "old", plain("11.4")), nodes(1, "new", plain("12.4"))

    assert ["may-0"] == admitted_to(old + may, gpu_pod(PYTORCH_11_7))
    assert "nobody knows" in decided(old + may, gpu_pod(PYTORCH_11_7)).warnings[0]
    assert ["new-0"] == admitted_to(old + may + new, gpu_pod(PYTORCH_11_7))


def test_an_empty_cluster_says_nothing() -> None:
    """A gate without nodes, as in a preview, has nothing to judge by."""
    decision = decided([], gpu_pod(PYTORCH_11_7))

    assert (True, (), ()) == (decision.allowed, decision.patch, decision.warnings)


# Which nodes are candidates


def test_the_node_that_a_pod_names_is_judged_and_no_affinity_is_added() -> None:
    """Nothing schedules it any more."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))
    bound = decided(cluster, gpu_pod(PYTORCH_11_7, nodeName="new-0"))

    assert (True, (), ()) == (bound.allowed, bound.patch, bound.warnings)
    assert "(1 looked at)" in decided(cluster, gpu_pod(PYTORCH_11_7, nodeName="old-0")).message
    assert "leaves out each" in decided(cluster, gpu_pod(PYTORCH_11_7, nodeName="nobody")).warnings[0]


@pytest.mark.parametrize(
    "selection",
    [
        {"nodeSelector": {"pool": "batch"}},
        {"affinity": required(among("pool", "batch"), among("pool", "none"))},
    ],
)
def test_nodes_that_would_fit_and_are_left_out_by_the_pod_itself_are_named(selection: dict[str, Any]) -> None:
    """What the pod asks for restricts the candidates; the way out is in the message."""
    cluster = [
        *nodes(2, "old", gfd("11.4", pool="batch")),
        *nodes(3, "new", gfd("12.4", A100, pool="web")),
        *nodes(1, "other", gfd("12.4", A100), **VGPU),
        node("controller", {}),
    ]
    decision = decided(cluster, gpu_pod(PYTORCH_11_7, **selection))

    assert "(2 looked at)" in decision.message
    assert decision.message.splitlines()[-1] == (
        "    what would fit: use an image with CUDA 11.4 or older, or a driver with CUDA 11.7 or newer; "
        "4 × NVIDIA-A100-SXM4-80GB, CUDA 12.4, left out by the pod's own nodeSelector, affinity or resources "
        "[rule compatibility-pgpu]"
    )


def test_the_users_own_terms_stay_and_each_is_narrowed() -> None:
    """The cross product: where the pod could go before, and the driver is new enough."""
    cluster = [
        node("a-old", gfd("11.4", pool="a")),
        node("a-new", gfd("12.4", pool="a")),
        node("b-new", gfd("13.0", pool="b")),
        node("c-new", gfd("12.4", pool="c")),
    ]
    document = gpu_pod(PYTORCH_11_7, affinity=required(among("pool", "a"), among("pool", "b")))

    assert ["a-new", "b-new"] == admitted_to(cluster, document)


def test_a_resource_that_no_node_offers_does_not_empty_the_candidates() -> None:
    """HAMi's memory is its scheduler's own."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))

    assert ["new-0"] == admitted_to(cluster, gpu_pod(cuda_image("12.2"), limits=HAMI))


def test_where_no_node_offers_anything_that_is_asked_for_it_is_a_warning() -> None:
    """An autoscaler may bring one."""
    decision = decided([node("cpu", gfd("11.4"), cpu="4")], gpu_pod(PYTORCH_11_7))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert ("container 'main': no node offers nvidia.com/gpu; compatibility was not judged",) == (
        decision.warnings
    )


@pytest.mark.parametrize(
    ("names", "near"),
    [
        ([GPU], "nvidia.com/gpu.shared"),
        (["example.com/none", "nvidia.com/mig-1g.5gb"], "nvidia.com/mig-1g.10gb"),
        ([*(f"example.com/{at}" for at in range(2)), "nvidia.com/mig-1g.5gb"], ""),
    ],
)
def test_after_a_resource_that_no_node_offers_a_like_one_is_named_that_some_do(
    names: list[str], near: str
) -> None:
    """As where GPUs are parted otherwise, or shared; of many resources the first two are compared."""
    cluster = nodes(1, "gpu", {}, **{"nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpu.shared": "4"})
    rule = compatibility_rule(match={"resources": [GPU, "nvidia.com/mig-*"]})
    document = gpu_pod(PYTORCH_11_7, limits=dict.fromkeys(names, "1"))
    (warning,) = judged(policy(rule), inventory(cluster), document).warnings

    assert near == warning.partition("some offer ")[2].partition(";")[0]


LEFT_OUT = "the pod's own nodeSelector, affinity or nodeName leaves out"


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (
            gpu_pod(PYTORCH_11_7, limits=dict.fromkeys(MPS, "1")),
            "'main': no node offers nvidia.com/mps-core, nvidia.com/mps-memory",
        ),
        (
            gpu_pod(PYTORCH_11_7, limits={GPU: "1", "rdma/hca": "1", "example.com/none": "1"}),
            "'main': no node offers nvidia.com/gpu, rdma/hca together",
        ),
        (
            pod(gpu_container(PYTORCH_11_7), gpu_container(PYTORCH_11_7, name="side", limits=MPS)),
            "'side': no node offers nvidia.com/mps-core, nvidia.com/mps-memory",
        ),
        (
            pod(gpu_container(PYTORCH_11_7), gpu_container(cuda_image("12.4"), name="side", limits=SHARE)),
            f"'side': no node offers {GPU}, {VCUDA_CORE}, {VCUDA_MEMORY} together",
        ),
        (
            gpu_pod(PYTORCH_11_7, nodeSelector={"pool": "none"}),
            f"'main': {LEFT_OUT} each of the 2 that offer nvidia.com/gpu",
        ),
        (
            gpu_pod(PYTORCH_11_7, nodeName="cpu-0"),
            f"'main': {LEFT_OUT} each of the 2 that offer nvidia.com/gpu",
        ),
    ],
)
def test_it_is_told_why_no_node_is_a_candidate(document: Any, why: str) -> None:
    """Which resources no node offers, or that the pod leaves out those that do."""
    cluster = [
        *nodes(2, "gpu", gfd("12.4")),
        *nodes(1, "cpu", {}, **{"rdma/hca": "1"}),
        *nodes(1, "vgpu", gfd("12.4"), **VGPU),
    ]
    assert (f"container {why}; compatibility was not judged",) == decided(cluster, document).warnings


def test_of_equal_needs_each_pod_is_told_its_own_reason() -> None:
    """What is remembered of one is not said of another that is no candidate's for another reason."""
    cluster = nodes(2, "gpu", gfd("12.4"))
    elsewhere, absent = (
        decided(cluster, gpu_pod(PYTORCH_11_7, **asked)).warnings[0]
        for asked in ({"nodeSelector": {"pool": "none"}}, {"limits": MPS})
    )

    assert ["leaves out each", "no node offers"] == [
        words
        for words in ("leaves out each", "no node offers")
        for told in (elsewhere, absent)
        if words in told
    ]


def test_what_keeps_nodes_from_a_pod_may_be_a_container_of_which_a_dry_run_says_nothing() -> None:
    """The pod's selectors are not blamed for it."""
    rules = [
        compatibility_rule(),
        compatibility_rule(
            name="trial", match={"resources": ["example.com/npu"]}, enforcementAction="dryrun"
        ),
    ]
    side = gpu_container(cuda_image("12.4"), name="side", limits={"example.com/npu": "1"})
    document, cluster = pod(gpu_container(PYTORCH_11_7), side), inventory(nodes(1, "gpu", gfd("12.4")))

    assert [("container 'side': no node offers example.com/npu; compatibility was not judged",), ()] == [
        judged(policy(*some), cluster, document).warnings for some in (rules, rules[1:])
    ]


def test_of_a_multitude_of_resources_that_no_node_offers_eight_are_named() -> None:
    """A pod may ask for thousands."""
    limits = dict.fromkeys([GPU, *(f"example.com/r{at}" for at in range(20))], "1")
    (warning,) = decided([node("cpu", {}, cpu="4")], gpu_pod(PYTORCH_11_7, limits=limits)).warnings

    assert warning.endswith("example.com/r6, … and 13 more; compatibility was not judged")


@pytest.mark.parametrize("quantity", ["0", 0, "0Gi"])
def test_none_of_a_resource_is_not_asked_for(quantity: str | int) -> None:
    """Charts write `nvidia.com/gpu: 0` where they mean a pod without GPUs."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))

    for found in (cluster, cluster[:1]):
        decision = decided(found, gpu_pod(PYTORCH_11_7, limits={GPU: quantity}))
        assert (True, (), ()) == (decision.allowed, decision.patch, decision.warnings)


# Facts that nobody has verified


def test_an_unverified_fact_only_warns() -> None:
    """What TensorFlow 2.15 carries was not read in its image: nobody is refused for it, or sent elsewhere."""
    document = gpu_pod("tensorflow/tensorflow:2.15.0-gpu")
    old, new = nodes(1, "old", gfd("11.4")), nodes(1, "new", gfd("12.4"))
    decision = decided(old, document)

    assert (True, ()) == (decision.allowed, decision.patch)
    assert "the driver has CUDA 11.4, below 12.2" in decision.warnings[0]
    assert ["old-0", "new-0"] == admitted_to(old + new, document)
    share = decided([], gpu_pod("tensorflow/tensorflow:2.14.0-gpu", limits=SHARE))
    assert (True, 1) == (share.allowed, len(share.warnings))


def test_an_unverified_compute_capability_only_warns() -> None:
    """NGC's images of months to come are likely to need 7.5."""
    cluster = nodes(1, "v100", gfd("13.0", V100)) + nodes(1, "t4", gfd("13.0", T4))
    document = gpu_pod("nvcr.io/nvidia/pytorch:26.10-py3")
    warnings = "\n".join(decided(cluster[:1], document).warnings)

    assert ["v100-0", "t4-0"] == admitted_to(cluster, document)
    assert "compute capability 7.0, below 7.5" in warnings


# Workloads, other stages, other containers


def deployment(template: Any) -> dict[str, Any]:
    """Return a Deployment of pods like this one."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"template": {"metadata": template["metadata"], "spec": template["spec"]}},
    }


def test_a_workload_is_judged_by_its_template_and_never_patched() -> None:
    """With the message that its pods would have, and its own path."""
    old, new = nodes(1, "old", gfd("11.4")), nodes(1, "new", gfd("12.4"))
    incompatible = decided(old, deployment(gpu_pod(PYTORCH_11_7)))

    assert [("compatibility-pgpu", Action.DENY, "spec.template.spec.containers[0].image")] == refused(
        incompatible
    )
    assert decided(old, gpu_pod(PYTORCH_11_7)).violations[0].message == incompatible.violations[0].message
    assert (True, ()) == (
        decided(old + new, deployment(gpu_pod(PYTORCH_11_7))).allowed,
        decided(old + new, deployment(gpu_pod(PYTORCH_11_7))).patch,
    )


def test_the_validating_endpoint_judges_what_other_webhooks_left() -> None:
    """No patch, and a refusal where nothing fits."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))
    document = gpu_pod(PYTORCH_11_7)
    moved = gpu_pod(PYTORCH_11_7, nodeSelector={"cuda": "old"})
    cluster[0]["metadata"]["labels"]["cuda"] = "old"

    assert (True, ()) == (
        decided(cluster, document, mutating=False).allowed,
        decided(cluster, document, mutating=False).patch,
    )
    assert not decided(cluster, moved, mutating=False).allowed


def test_all_containers_of_a_pod_go_to_one_node() -> None:
    """One needs a new driver, the other a new GPU; init containers count."""
    cluster = [
        node("driver", gfd("12.4", T4)),
        node("gpu", gfd("12.0", A100)),
        node("both", gfd("12.6", A100)),
    ]
    new_driver = gpu_container(cuda_image("12.4"), name="driver")
    new_gpu = gpu_container("team/vllm:v1", "--dtype=bfloat16", name="gpu")
    document = pod(new_driver, new_gpu)
    warming = pod(new_driver, initContainers=[new_gpu])
    incompatible = decided(cluster[:2], document)

    assert ["both"] == admitted_to(cluster, document) == admitted_to(cluster, warming)
    assert "no node that could take the pod fits containers 'driver', 'gpu' together (2 looked at)" in (
        incompatible.message
    )
    assert "gpu: compute capability 7.5, below 8.0" in incompatible.message
    assert "driver: the driver has CUDA 12.0, below 12.4" in incompatible.message


def test_what_one_version_implies_is_not_written_again() -> None:
    """Containers with CUDA 11.8, 12.4 and 12.2 need what the newest needs."""
    cluster = nodes(1, "new", gfd("12.4"))
    containers = [
        gpu_container(cuda_image(cuda), name=f"c{at}") for at, cuda in enumerate(["11.8", "12.4", "12.2"])
    ]
    document = pod(*containers)

    assert (
        patched(pod(containers[1]), decided(cluster, pod(containers[1])))["spec"]["affinity"]
        == (patched(document, decided(cluster, document))["spec"]["affinity"])
    )


def test_every_container_that_fits_nowhere_is_told() -> None:
    """All mistakes at once: a baseline that is exceeded, and nodes that do not fit."""
    cluster = nodes(1, "old", gfd("11.4"), **VGPU, **{GPU: "8"})
    share = gpu_container(cuda_image("12.6"), limits=SHARE, name="share")
    decision = decided(cluster, pod(gpu_container(PYTORCH_11_7), share))

    assert ["compatibility-gpu-manager-shares", "compatibility-pgpu"] == sorted(
        found.rule for found in decision.violations
    )


def test_a_container_that_fits_nowhere_is_named_alone() -> None:
    """Another, which fits on some nodes, is not at fault."""
    cluster = nodes(1, "t4", gfd("12.4", T4)) + nodes(1, "a100", gfd("12.4", A100))
    never = gpu_container(cuda_image("12.6"), name="never")
    some = gpu_container("team/vllm:v1", "--dtype=bfloat16", name="some")
    message = decided(cluster, pod(some, never)).message

    assert "fits container 'never' (2 looked at)" in message
    assert "bfloat16" not in message


def test_containers_that_each_fit_nowhere_are_named_together() -> None:
    """Each with its reason."""
    cluster = nodes(1, "old", gfd("11.4", T4))
    one = gpu_container(PYTORCH_11_7, name="one")
    two = gpu_container("team/vllm:v1", "--dtype=bfloat16", name="two")
    message = decided(cluster, pod(one, two)).message

    assert "containers 'one', 'two' together" in message
    assert "what would fit: set --dtype=half" in message or "; set --dtype=half" in message


def test_a_pod_is_never_changed_by_being_judged() -> None:
    """The input is read only."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("13.0")) + nodes(1, "near", gfd("12.4"))
    document = gpu_pod(PYTORCH_11_7, affinity=required(among(GPU, "x"), {}))
    before = deepcopy(document)
    decided(cluster, document)

    assert before == document


def test_a_pod_without_accelerators_is_not_judged() -> None:
    """Whatever its image says."""
    decision = decided(nodes(1, "old", gfd("11.4")), gpu_pod(cuda_image("12.4"), limits={"cpu": "1"}))

    assert Decision() == decision


# Chinese


def test_refusals_speak_chinese() -> None:
    """The whole message, with its table."""
    cluster = inventory(nodes(3, "old", gfd("11.4", pool="a")), nodes(2, "new", gfd("12.4", A100, pool="b")))
    decision = judged(
        shipped(Language.ZH),
        cluster,
        gpu_pod(VLLM, "--dtype=bfloat16", nodeSelector={"pool": "a"}),
    )

    assert decision.message.splitlines() == [
        "gpugate 拒绝该 Pod：有 1 处需要修改",
        (
            "  1. 可调度该 Pod 的节点都不适合容器 'main'（共检查 3 个）；"
            "镜像 `vllm/vllm-openai:v0.8.4` 自带 CUDA 12.4；"
            "vLLM 0.8.4 的 `--dtype=bfloat16` 要求计算能力 8.0 及以上"
        ),
        "    节点数  GPU       驱动       CUDA  计算能力  原因",
        (
            "    3       Tesla-T4  470.82.01  11.4  7.5       驱动为 CUDA 11.4，低于 12.4："
            "cudaErrorInsufficientDriver (35)；计算能力 7.5，低于 8.0"
        ),
        (
            "    可行的办法：改用 CUDA 11.4 或更旧的镜像，或使用支持 CUDA 12.4 及以上的驱动；"
            "改用 --dtype=half，或改用 AWQ 或 GPTQ 模型，或使用计算能力 8.0 及以上的 GPU；"
            "2 × NVIDIA-A100-SXM4-80GB, CUDA 12.4（被该 Pod 自身的 nodeSelector、亲和性或资源请求排除） "
            "[规则 compatibility-pgpu]"
        ),
    ]


@pytest.mark.parametrize(
    ("cluster", "document", "words"),
    [
        (nodes(1, "silent", {}), gpu_pod(PYTORCH_11_7), "无法判断能否运行：没有标签说明驱动的 CUDA 版本"),
        (nodes(1, "new", gfd("13.0")), gpu_pod(PYTORCH_11_7), "驱动的 CUDA 13.0 超前一个以上主版本"),
        (nodes(1, "cpu", {}, cpu="1"), gpu_pod(PYTORCH_11_7), "'main'：没有节点提供 nvidia.com/gpu，未做"),
        (
            nodes(1, "gpu", {}),
            gpu_pod(PYTORCH_11_7, nodeName="none"),
            "'main'：提供 nvidia.com/gpu 的节点（1 个）均被该 Pod 自身的 nodeSelector、亲和性或",
        ),
        (
            nodes(1, "any", {}),
            requiring(NVIDIA_REQUIRE_CUDA="cuda>=="),
            "不是 NVIDIA 容器运行时可以识别的表达式",
        ),
    ],
)
def test_warnings_speak_chinese(cluster: list[Node], document: Any, words: str) -> None:
    """Each kind of them."""
    decision = judged(shipped(Language.ZH), inventory(cluster), document)

    assert words in "\n".join(decision.warnings)
