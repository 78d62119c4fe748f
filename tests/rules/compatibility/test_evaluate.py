"""Compatibility of pods with nodes, by the built-in rules: denials, warnings, required node affinity."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rules.model.decision import Decision
from rules.model.finding import Basis
from rules.model.rule import Action
from tests.support.builders import patched, pod, policy, warning_texts
from tests.support.node_builders import (
    A100,
    B200,
    GPU,
    H100,
    HAMI,
    MPS,
    PYTORCH_11_7,
    SHARE,
    T4,
    V100,
    VGPU,
    VLLM,
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
    shipped,
    targets,
)

# The driver's CUDA version


def test_an_image_newer_than_every_driver_is_denied_with_a_table_of_the_nodes() -> None:
    """The first line has reasons and fixes, each row a kind of node and its reason."""
    cluster = nodes(2, "older", gfd("11.2", T4)) + nodes(3, "old", gfd("11.4", V100))
    decision = decided(cluster, gpu_pod(PYTORCH_11_7))

    assert not decision.allowed
    assert () == decision.patch
    assert [("compatibility-pgpu", Action.DENY, "spec.containers[0].image")] == refused(decision)
    below = (
        "the driver has CUDA {}, below 11.7, which NVIDIA supports with limits (no newer features, no PTX)"
    )
    assert decision.denial.en.splitlines() == [
        (
            "Pod denied by gpugate: no schedulable node is compatible with container 'main' "
            "(5 nodes checked): image tag `2.0.0-cuda11.7-cudnn8-runtime` says CUDA 11.7; "
            f"{below.format('11.2')}; {below.format('11.4')}; "
            "suggested fixes: use an image with CUDA 11.4 or older, or a driver with CUDA 11.7 or newer; "
            "policy: the owner of the rule can change minorVersionCompatibility [rule compatibility-pgpu]"
        ),
        "    nodes  GPU                   driver     CUDA  compute  reason",
        f"    3      Tesla-V100-SXM2-32GB  470.82.01  11.4  7.0      {below.format('11.4')}",
        f"    2      Tesla-T4              460.32.03  11.2  7.5      {below.format('11.2')}",
    ]


def test_affinity_admits_exactly_the_compatible_nodes() -> None:
    """CUDA 11.7 on 11.4 and 12.2: only 12.2."""
    cluster = nodes(3, "old", gfd("11.4")) + nodes(2, "new", gfd("12.2"))
    decision = decided(cluster, gpu_pod(PYTORCH_11_7))

    assert ((), "injected") == (warning_texts(decision), decision.audit["node-affinity"])
    assert ["new-0", "new-1"] == admitted_to(cluster, gpu_pod(PYTORCH_11_7))


def test_a_denial_because_of_an_older_major_is_policy_if_nothing_is_known_of_the_image() -> None:
    """The message names the setting."""
    decision = decided(nodes(1, "old", gfd("11.4")), gpu_pod(cuda_image("12.4")))

    assert [Basis.POLICY] == [violation.basis for violation in decision.violations]
    assert "the owner of the rule can change majorVersionMismatch" in decision.denial.en


def test_nodes_that_look_equal_in_the_table_are_one_row() -> None:
    """Memory and sharing strategy have no column."""
    cluster = nodes(1, "a", gfd("11.4") | {"nvidia.com/gpu.memory": "15360"})
    cluster += nodes(2, "b", gfd("11.4") | {"nvidia.com/gpu.memory": "16384"})
    lines = decided(cluster, gpu_pod(PYTORCH_11_7)).denial.en.splitlines()

    assert ["nodes", "3"] == [line.split()[0] for line in lines[1:]]


def test_a_table_has_three_rows_and_counts_the_rest() -> None:
    """A longer message is hard to read."""
    cluster = [node(f"n{at}", gfd("11.4") | {"nvidia.com/gpu.product": f"Card-{at}"}) for at in range(11)]
    lines = decided(cluster, gpu_pod(PYTORCH_11_7)).denial.en.splitlines()

    assert (2 + 3 + 1, "    … and 8 more") == (len(lines), lines[-1])


# Compute capability


def test_bfloat16_of_vllm_is_denied_on_turing_with_half_as_a_fix() -> None:
    """The message has the flag as it was written."""
    decision = decided(nodes(3, "t4", gfd("12.4", T4)), gpu_pod(VLLM, "--model=m", "--dtype=bfloat16"))

    assert not decision.allowed
    assert "`--dtype=bfloat16` of vLLM 0.8.4 needs compute capability 8.0 or higher" in decision.denial.en
    assert "compute capability 7.5, below 8.0; " in decision.denial.en  # an error of vLLM, not of CUDA
    assert "set --dtype=half" in decision.denial.en


def test_the_fixes_of_two_requirements_are_both_suggested() -> None:
    """A flag and the toolkit: each requires a newer GPU."""
    decision = decided(
        nodes(1, "v100", gfd("13.0", V100)), gpu_pod("vllm/vllm-openai:v0.20.1", "--dtype=bfloat16")
    )

    assert "set --dtype=half" in decision.denial.en
    assert "use an image with an older CUDA" in decision.denial.en


@pytest.mark.parametrize("words", [(), ("nvidia-smi",), ("sh", "-c", "while true; do sleep 60; done")])
@pytest.mark.parametrize("flavour", ["base", "cudnn-devel"])
def test_an_image_of_nvidia_cuda_without_a_program_of_its_own_has_no_code_that_a_gpu_may_lack(
    words: tuple[str, ...], flavour: str
) -> None:
    """CUDA 13 compiles for no V100, and CUDA 11.8 for no B200; nvidia-smi runs there."""
    v100, b200 = nodes(1, "v100", gfd("13.0", V100)), nodes(1, "b200", gfd("13.0", B200))
    new = decided(v100, gpu_pod(f"nvidia/cuda:13.0.1-{flavour}-ubuntu24.04", *words))
    old = decided(b200, gpu_pod(f"nvidia/cuda:12.4.1-{flavour}-ubuntu22.04", *words))

    assert (True, ()) == (new.allowed, warning_texts(new))
    assert (True, ()) == (old.allowed, warning_texts(old))


def test_a_program_in_an_image_of_nvidia_cuda_has_the_code_of_its_toolkit() -> None:
    """As any other image."""
    decision = decided(
        nodes(1, "v100", gfd("13.0", V100)),
        gpu_pod("nvidia/cuda:13.0.1-devel-ubuntu24.04", "python3", "a.py"),
    )

    assert not decision.allowed
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU (209)" in decision.denial.en


def test_samples_of_nvidia_run_on_newer_gpus_by_their_ptx() -> None:
    """The samples' Makefiles compile PTX of the newest capability."""
    decision = decided(
        nodes(1, "b200", gfd("13.0", B200)), gpu_pod("nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0")
    )

    assert (True, ()) == (decision.allowed, warning_texts(decision))


def test_a_flag_of_another_accelerator_is_refused_by_the_program_for_cuda() -> None:
    """On whatever GPU; the build for that accelerator takes it."""
    cluster, args = nodes(1, "h100", gfd("13.0", H100)), ("--model=m", "--quantization", "ascend")
    denied = decided(cluster, gpu_pod("vllm/vllm-openai:v0.33.0", *args))

    assert not denied.allowed
    assert "vLLM 0.33.0 for CUDA refuses `--quantization ascend`; remove the flag" in denied.denial.en
    assert decided(cluster, gpu_pod("quay.io/ascend/vllm-ascend:v0.18.0", *args)).allowed


def test_each_way_out_of_a_flag_is_a_sentence_of_its_own() -> None:
    """Joined by `or`."""
    document = gpu_pod("vllm/vllm-openai:v0.33.0", "--kv-cache-dtype=fp8")
    decision = decided(nodes(1, "t4", gfd("13.0", T4)), document)

    assert (
        "leave the KV cache data type at auto, or use a GPU of compute capability 8.0 or higher"
    ) in decision.denial.en


def test_a_warning_of_an_old_gpu_names_the_flag() -> None:
    """It is uncertain what the flag needs, so the pod is admitted."""
    document = gpu_pod("vllm/vllm-openai:v0.9.0", "--kv-cache-dtype=fp8")
    (warning,) = warning_texts(decided(nodes(1, "t4", gfd("13.0", T4)), document))

    assert (
        "`--kv-cache-dtype=fp8` of vLLM 0.9.0 may need compute capability 8.0 or higher; the GPU has 7.5"
    ) in warning


# Missing and invalid labels

UNKNOWN_CUDA = "compatibility unknown: no label provides the driver's CUDA version"
LABEL_NODES = "label these nodes, for example with GPU Feature Discovery"


def test_without_labels_a_pod_is_allowed_with_a_warning_and_no_affinity() -> None:
    """Unknown stays unknown."""
    decision = decided(nodes(2, "unlabelled", {}), gpu_pod(PYTORCH_11_7))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert (
        (
            f"gpugate: container 'main': {UNKNOWN_CUDA} (2 × GPU, CUDA ?); {LABEL_NODES} "
            "[rule compatibility-pgpu]"
        ),
    ) == warning_texts(decision)


def test_a_node_without_a_label_is_counted_once() -> None:
    """Although both MPS and the image require a CUDA version."""
    cluster = nodes(1, "unlabelled", {}, **dict.fromkeys(MPS, "100"))
    decision = decided(cluster, gpu_pod(PYTORCH_11_7, limits=MPS))

    assert f"{UNKNOWN_CUDA} (1 × GPU, CUDA ?); " in warning_texts(decision)[0]


def test_affinity_excludes_old_drivers_also_if_no_label_provides_the_compute_capability() -> None:
    """The flag that requires it is a warning."""
    cluster = nodes(1, "old", plain("11.2")) + nodes(1, "new", plain("12.4"))
    document = gpu_pod(VLLM, "--dtype=bfloat16")

    assert ["new-0"] == admitted_to(cluster, document)
    assert (
        (
            "gpugate: container 'main': compatibility unknown: no label provides the compute capability "
            f"(1 × GPU, CUDA 12.4); {LABEL_NODES} [rule compatibility-pgpu]"
        ),
    ) == warning_texts(decided(cluster, document))


def test_the_compute_capability_of_an_image_does_not_exclude_nodes_without_that_label() -> None:
    """CUDA 13 on a V100, and on a node that has a label of its driver only."""
    cluster = nodes(1, "v100", gfd("13.0", V100)) + nodes(1, "driver", plain("13.0"))

    assert "driver-0" in admitted_to(cluster, gpu_pod(cuda_image("13.0")))


def test_affinity_excludes_a_node_with_an_impossible_version() -> None:
    """As Karpenter writes it on nodes for labels that it does not know."""
    random = nodes(1, "random", plain("5739317668317764624.1"))
    cluster = random + nodes(1, "old", plain("11.4")) + nodes(1, "new", plain("12.4"))

    assert ["new-0"] == admitted_to(cluster, gpu_pod(cuda_image("12.2")))


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"cuda-major-version": "twelve"},
        {"cuda-major-version": "11"},
        plain("11.8") | {"cuda-minor-version": "x"},
    ],
)
def test_a_node_of_unknown_compatibility_prevents_a_denial_and_is_excluded_if_another_is_compatible(
    labels: dict[str, str],
) -> None:
    """The pod is admitted with a warning; incompatible nodes are excluded."""
    may = nodes(1, "may", labels)
    old, new = nodes(1, "old", plain("11.4")), nodes(1, "new", plain("12.4"))

    assert ["may-0"] == admitted_to(old + may, gpu_pod(PYTORCH_11_7))
    assert UNKNOWN_CUDA in warning_texts(decided(old + may, gpu_pod(PYTORCH_11_7)))[0]
    assert ["new-0"] == admitted_to(old + may + new, gpu_pod(PYTORCH_11_7))


def test_without_nodes_compatibility_is_not_checked() -> None:
    """As in a preview of rules without a cluster."""
    decision = decided([], gpu_pod(PYTORCH_11_7))

    assert (True, (), ()) == (decision.allowed, decision.patch, warning_texts(decision))


# Which nodes are candidates


def test_a_pod_with_a_node_name_is_checked_on_that_node_and_gets_no_affinity() -> None:
    """It is scheduled already."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))
    bound = decided(cluster, gpu_pod(PYTORCH_11_7, nodeName="new-0"))
    denied = decided(cluster, gpu_pod(PYTORCH_11_7, nodeName="old-0")).denial.en

    assert (True, (), ()) == (bound.allowed, bound.patch, warning_texts(bound))
    assert "node old-0 is not compatible with container 'main': " in denied
    assert "1 × Tesla-T4, CUDA 12.4: compatible, for a new pod that is not bound to this node" in denied
    absent = warning_texts(decided(cluster, gpu_pod(PYTORCH_11_7, nodeName="absent")))[0]
    assert "excluded by the pod's nodeName absent; change or remove nodeName absent" in absent


@pytest.mark.parametrize(
    ("selection", "part"),
    [
        ({"nodeSelector": {"pool": "batch"}}, "nodeSelector pool=batch"),
        ({"nodeSelector": {"zone": "b", "pool": "batch"}}, "nodeSelector pool=batch"),
        ({"affinity": required(among("pool", "batch"), among("pool", "none"))}, "nodeAffinity"),
    ],
)
def test_compatible_nodes_that_the_pod_itself_excludes_are_named(
    selection: dict[str, Any], part: str
) -> None:
    """As a suggested fix, with what excludes those that have the resources."""
    cluster = [
        *nodes(2, "old", gfd("11.4", pool="batch", zone="b")),
        *nodes(3, "new", gfd("12.4", A100, pool="web", zone="b")),
        *nodes(1, "other", gfd("12.4", A100, pool="batch"), **VGPU),
        node("controller", {}),
    ]
    decision = decided(cluster, gpu_pod(PYTORCH_11_7, **selection))

    assert "(2 nodes checked)" in decision.denial.en
    assert decision.denial.en.splitlines()[0].endswith(
        "suggested fixes: use an image with CUDA 11.4 or older, or a driver with CUDA 11.7 or newer; "
        f"3 × NVIDIA-A100-SXM4-80GB, CUDA 12.4: compatible but excluded by the pod's {part}; "
        "1 × NVIDIA-A100-SXM4-80GB, CUDA 12.4: compatible but without the requested resources; "
        "policy: the owner of the rule can change minorVersionCompatibility "
        "[rule compatibility-pgpu]"
    )


def test_nodes_that_are_excluded_for_one_reason_are_named_together() -> None:
    """The reason once, however many kinds of nodes there are."""
    cluster = [
        *nodes(2, "old", gfd("11.4", pool="batch")),
        *nodes(3, "new", gfd("12.4", A100)),
        *nodes(1, "newer", gfd("12.8", A100)),
        *nodes(1, "other", gfd("12.4", H100)),
    ]
    message = decided(cluster, gpu_pod(PYTORCH_11_7, nodeSelector={"pool": "batch"})).denial.en

    assert (
        "3 × NVIDIA-A100-SXM4-80GB, CUDA 12.4 and 1 × NVIDIA-A100-SXM4-80GB, CUDA 12.8 and "
        "1 × NVIDIA-H100-80GB-HBM3, CUDA 12.4: compatible but excluded by the pod's nodeSelector pool=batch; "
    ) in message
    assert 1 == message.count("compatible but excluded")


def test_a_resource_that_no_node_offers_does_not_exclude_all_nodes() -> None:
    """HAMi's memory is known to its scheduler only."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))

    assert ["new-0"] == admitted_to(cluster, gpu_pod(cuda_image("12.2"), limits=HAMI))


def test_a_warning_follows_if_no_node_offers_a_requested_resource() -> None:
    """An autoscaler may add one."""
    decision = decided([node("cpu", gfd("11.4"), cpu="4")], gpu_pod(PYTORCH_11_7))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert (
        (
            "gpugate: container 'main': compatibility not checked: no ready node offers nvidia.com/gpu "
            "(1 not ready); the pod stays Pending until one of them is ready [rule compatibility-pgpu]"
        ),
    ) == warning_texts(decision)


@pytest.mark.parametrize(
    ("names", "similar"),
    [
        ([GPU], "nvidia.com/gpu.shared"),
        (["example.com/none", "nvidia.com/mig-1g.5gb"], "nvidia.com/mig-1g.10gb"),
        ([*(f"example.com/{at}" for at in range(2)), "nvidia.com/mig-1g.5gb"], ""),
    ],
)
def test_a_similar_resource_that_nodes_offer_is_named(names: list[str], similar: str) -> None:
    """As another MIG profile or a shared GPU; of many resources the first two are compared."""
    cluster = nodes(1, "gpu", {}, **{"nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpu.shared": "4"})
    rule = compatibility_rule(match={"resources": [GPU, "nvidia.com/mig-*"]})
    document = gpu_pod(PYTORCH_11_7, limits=dict.fromkeys(names, "1"))
    (warning,) = warning_texts(judged(policy(rule), inventory(cluster), document))

    assert similar == warning.partition("some offer ")[2].partition(";")[0]


EXCLUDED = "each of the 2 nodes that offer nvidia.com/gpu is excluded by the pod's"
TOGETHER = "nodeSelector rank=0, nodeAffinity"
CHECK_PLUGIN = "check that a device plugin offers them, and the resource names"


@pytest.mark.parametrize(
    ("document", "container", "why"),
    [
        (
            gpu_pod(PYTORCH_11_7, limits=dict.fromkeys(MPS, "1")),
            "main",
            f"no node offers nvidia.com/mps-core, nvidia.com/mps-memory; {CHECK_PLUGIN}",
        ),
        (
            gpu_pod(PYTORCH_11_7, limits={GPU: "1", "example.com/hca": "1", "example.com/none": "1"}),
            "main",
            "no node offers nvidia.com/gpu, example.com/hca together; request resources that one node offers",
        ),
        (
            pod(gpu_container(PYTORCH_11_7), gpu_container(PYTORCH_11_7, name="side", limits=MPS)),
            "side",
            f"no node offers nvidia.com/mps-core, nvidia.com/mps-memory; {CHECK_PLUGIN}",
        ),
        (
            pod(gpu_container(PYTORCH_11_7), gpu_container(cuda_image("12.4"), name="side", limits=SHARE)),
            "side",
            f"no node offers {GPU}, {', '.join(SHARE)} together; request resources that one node offers",
        ),
        (
            gpu_pod(PYTORCH_11_7, nodeSelector={"pool": "none"}),
            "main",
            f"{EXCLUDED} nodeSelector pool=none; change or remove nodeSelector pool=none",
        ),
        (
            gpu_pod(PYTORCH_11_7, nodeSelector={"rank": "0", "pool": "none"}),
            "main",
            f"{EXCLUDED} nodeSelector pool=none; change or remove nodeSelector pool=none",
        ),
        (
            gpu_pod(PYTORCH_11_7, nodeSelector=["pool"]),
            "main",
            f"{EXCLUDED} nodeSelector; change or remove nodeSelector",
        ),
        (
            gpu_pod(
                PYTORCH_11_7,
                nodeSelector={"rank": "0"},
                affinity=required(among("rank", "1")),
            ),
            "main",
            f"{EXCLUDED} {TOGETHER}; change or remove {TOGETHER}",
        ),
        (
            gpu_pod(PYTORCH_11_7, nodeName="cpu-0"),
            "main",
            f"{EXCLUDED} nodeName cpu-0; change or remove nodeName cpu-0",
        ),
    ],
)
def test_a_warning_says_why_no_node_is_a_candidate(document: Any, container: str, why: str) -> None:
    """Which resources no node offers, or that the pod excludes the nodes that do."""
    cluster = [
        *nodes(1, "gpu", gfd("12.4", rank="0")),
        *nodes(1, "next", gfd("12.4", rank="1")),
        *nodes(1, "cpu", {}, **{"example.com/hca": "1"}),
        *nodes(1, "vgpu", gfd("12.4"), **VGPU),
    ]
    (warning,) = warning_texts(decided(cluster, document))

    assert warning.startswith(
        f"gpugate: container '{container}': compatibility not checked: {why} [rule compatibility-"
    )


@pytest.mark.parametrize("name", ["nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"])
def test_a_share_that_only_a_scheduler_knows_is_told_the_resource_that_nodes_offer(name: str) -> None:
    """The names are right: HAMi's webhook adds nvidia.com/gpu, as the fix does, so that CUDA is checked."""
    cluster = nodes(1, "hami", gfd("12.4", T4), **{GPU: "80"})
    (warning,) = warning_texts(decided(cluster, gpu_pod(PYTORCH_11_7, limits={name: "30"})))

    assert f"not checked: no node offers {name} without nvidia.com/gpu, which they are shares of" in warning
    assert "; add nvidia.com/gpu: 1 [rule" in warning
    (warning,) = warning_texts(decided(cluster, gpu_pod(PYTORCH_11_7, limits={name: "30", GPU: "1"})))
    assert "the driver has CUDA 12.4, another major version than the container's 11.7" in warning


def test_shares_beside_another_resource_that_counts_the_gpus_are_not_told_to_add_one() -> None:
    """Some installations of HAMi count by nvidia.com/gpualloc, which excludes nvidia.com/gpu."""
    cluster = nodes(1, "whole", gfd("12.4", T4), **{GPU: "8"})
    limits = {"nvidia.com/gpualloc": "1", "nvidia.com/gpumem": "3000"}
    (warning,) = warning_texts(decided(cluster, gpu_pod(PYTORCH_11_7, limits=limits)))

    assert "no node offers nvidia.com/gpualloc, nvidia.com/gpumem" in warning
    assert "add nvidia.com/gpu: 1" not in warning


def test_nodes_of_files_are_named_where_none_of_them_offers_a_resource() -> None:
    """The file may not have all nodes; the names are the last guess."""
    files = inventory(nodes(3, "gpu", gfd("12.4"))).from_files("nodes.yaml")
    (warning,) = warning_texts(judged(shipped(), files, gpu_pod(PYTORCH_11_7, limits=MPS)))

    assert (
        "none of the 3 nodes in nodes.yaml offers nvidia.com/mps-core, nvidia.com/mps-memory; check that"
        " nodes.yaml has all nodes, and the resource names [rule" in warning
    )


def test_pods_with_equal_requirements_get_their_own_reasons() -> None:
    """One has no candidates because of its selector, the other because of its resources."""
    cluster = nodes(2, "gpu", gfd("12.4"))
    elsewhere, absent = (
        warning_texts(decided(cluster, gpu_pod(PYTORCH_11_7, **fields)))[0]
        for fields in ({"nodeSelector": {"pool": "none"}}, {"limits": MPS})
    )

    assert "excluded by the pod's nodeSelector pool=none" in elsewhere
    assert "no node offers" in absent


def test_a_container_of_a_dry_run_can_be_the_reason_that_no_node_is_a_candidate() -> None:
    """The warning does not name the pod's selectors; with the dry run alone there is none."""
    rules = [
        compatibility_rule(),
        compatibility_rule(
            name="trial", match={"resources": ["example.com/npu"]}, enforcementAction="dryrun"
        ),
    ]
    side = gpu_container(cuda_image("12.4"), name="side", limits={"example.com/npu": "1"})
    document, cluster = pod(gpu_container(PYTORCH_11_7), side), inventory(nodes(1, "gpu", gfd("12.4")))

    both, dry_run = (warning_texts(judged(policy(*some), cluster, document)) for some in (rules, rules[1:]))

    assert "container 'side': compatibility not checked: no node offers example.com/npu; " in both[0]
    assert () == dry_run


def test_of_many_resources_that_no_node_offers_three_are_named() -> None:
    """A pod may request thousands."""
    limits = dict.fromkeys([GPU, *(f"example.com/r{at}" for at in range(20))], "1")
    (warning,) = warning_texts(decided([node("cpu", {}, cpu="4")], gpu_pod(PYTORCH_11_7, limits=limits)))

    assert "no node offers nvidia.com/gpu, example.com/r0, example.com/r1, … and 18 more; " in warning


@pytest.mark.parametrize("quantity", ["0", 0, "0Gi"])
def test_a_quantity_of_zero_is_no_request(quantity: str | int) -> None:
    """Charts write `nvidia.com/gpu: 0` for a pod without GPUs."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))

    for known_nodes in (cluster, cluster[:1]):
        decision = decided(known_nodes, gpu_pod(PYTORCH_11_7, limits={GPU: quantity}))
        assert (True, (), ()) == (decision.allowed, decision.patch, warning_texts(decision))


# Unverified facts


def test_an_unverified_fact_only_warns() -> None:
    """The CUDA version of TensorFlow 2.15 was not read in its image: it denies and excludes nothing."""
    document = gpu_pod("tensorflow/tensorflow:2.15.0-gpu")
    old, new = nodes(1, "old", gfd("11.4")), nodes(1, "new", gfd("12.4"))
    decision = decided(old, document)

    assert (True, ()) == (decision.allowed, decision.patch)
    assert "the driver has CUDA 11.4, below 12.2" in warning_texts(decision)[0]
    assert ["old-0", "new-0"] == admitted_to(old + new, document)
    share = decided([], gpu_pod("tensorflow/tensorflow:2.14.0-gpu", limits=SHARE))
    assert (True, 1) == (share.allowed, len(warning_texts(share)))


# Workloads, other stages, other containers


def deployment(template: Any) -> dict[str, Any]:
    """Return a Deployment of pods like this one."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"template": {"metadata": template["metadata"], "spec": template["spec"]}},
    }


def test_a_workload_is_checked_by_its_template_and_never_patched() -> None:
    """The message is that of its pods, the path its own."""
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


def test_the_validating_endpoint_checks_the_pod_after_other_webhooks() -> None:
    """No patch, and a denial if no node is compatible."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))
    document = gpu_pod(PYTORCH_11_7)
    moved = gpu_pod(PYTORCH_11_7, nodeSelector={"cuda": "old"})
    cluster[0]["metadata"]["labels"]["cuda"] = "old"

    assert (True, ()) == (
        decided(cluster, document, mutating=False).allowed,
        decided(cluster, document, mutating=False).patch,
    )
    assert not decided(cluster, moved, mutating=False).allowed


def test_a_node_must_be_compatible_with_all_containers() -> None:
    """One requires a new driver, the other a new GPU; init containers count."""
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
    assert (
        "is compatible with containers 'driver', 'gpu' together (2 nodes checked)" in incompatible.denial.en
    )
    assert "container 'gpu': compute capability 7.5, below 8.0" in incompatible.denial.en
    assert "container 'driver': the driver has CUDA 12.0, below 12.4" in incompatible.denial.en


def test_affinity_has_no_clause_that_another_implies() -> None:
    """Containers with CUDA 11.8, 12.4 and 12.2 require what the newest requires."""
    cluster = nodes(1, "new", gfd("12.4"))
    containers = [
        gpu_container(cuda_image(cuda), name=f"c{at}") for at, cuda in enumerate(["11.8", "12.4", "12.2"])
    ]
    document = pod(*containers)

    assert (
        patched(pod(containers[1]), decided(cluster, pod(containers[1])))["spec"]["affinity"]
        == (patched(document, decided(cluster, document))["spec"]["affinity"])
    )


def test_every_container_without_a_compatible_node_has_a_violation() -> None:
    """All at once: a version above the baseline, and drivers that are too old."""
    cluster = nodes(1, "old", gfd("11.4"), **VGPU, **{GPU: "8"})
    share = gpu_container(cuda_image("12.6"), limits=SHARE, name="share")
    decision = decided(cluster, pod(gpu_container(PYTORCH_11_7), share))

    assert ["compatibility-gpu-manager-shares", "compatibility-pgpu"] == sorted(
        violation.rule for violation in decision.violations
    )


def test_only_the_container_without_a_compatible_node_is_named() -> None:
    """Another one, with which some nodes are compatible, is not the reason."""
    cluster = nodes(1, "t4", gfd("12.4", T4)) + nodes(1, "a100", gfd("12.4", A100))
    never = gpu_container(cuda_image("12.6"), name="never")
    some = gpu_container("team/vllm:v1", "--dtype=bfloat16", name="some")
    message = decided(cluster, pod(some, never)).denial.en

    assert "is compatible with container 'never' (2 nodes checked)" in message
    assert "bfloat16" not in message


def test_containers_that_are_each_without_a_compatible_node_are_named_together() -> None:
    """Each with its reason."""
    cluster = nodes(1, "old", gfd("11.4", T4))
    one = gpu_container(PYTORCH_11_7, name="one")
    two = gpu_container("team/vllm:v1", "--dtype=bfloat16", name="two")
    message = decided(cluster, pod(one, two)).denial.en

    assert "containers 'one', 'two' together" in message
    assert "suggested fixes: " in message
    assert "; set --dtype=half" in message


def test_a_decision_does_not_change_the_submitted_pod() -> None:
    """The input is read only."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("13.0")) + nodes(1, "near", gfd("12.4"))
    document = gpu_pod(PYTORCH_11_7, affinity=required(among(GPU, "x"), {}))
    before = deepcopy(document)
    decided(cluster, document)

    assert before == document


def test_a_pod_without_accelerators_is_not_checked() -> None:
    """Whatever its image is."""
    decision = decided(nodes(1, "old", gfd("11.4")), gpu_pod(cuda_image("12.4"), limits={"cpu": "1"}))

    assert Decision() == decision


# Chinese


def test_denials_are_written_in_chinese() -> None:
    """The whole message, with its table."""
    cluster = inventory(nodes(3, "old", gfd("11.2", pool="a")), nodes(2, "new", gfd("12.4", A100, pool="b")))
    decision = judged(
        shipped(),
        cluster,
        gpu_pod(VLLM, "--dtype=bfloat16", nodeSelector={"pool": "a"}),
    )

    assert decision.denial.zh.splitlines() == [
        (
            "gpugate 拒绝该 Pod：没有可调度的节点兼容容器 'main'（共检查 3 个节点）："
            "镜像 `vllm/vllm-openai:v0.8.4` 自带 CUDA 12.4；"
            "vLLM 0.8.4 的 `--dtype=bfloat16` 要求计算能力 8.0 及以上；"
            "驱动为 CUDA 11.2，低于 12.4：不满足 NVIDIA_REQUIRE_CUDA；"
            "CUDA 12.4 的 cuda-compat 不支持驱动分支 460；"
            "……以及另外 1 个；"
            "建议：改用 CUDA 11.2 或更旧的镜像，或使用支持 CUDA 12.4 及以上的驱动；"
            "改用 --dtype=half，或改用 AWQ 或 GPTQ 模型，或使用计算能力 8.0 及以上的 GPU；"
            "2 × NVIDIA-A100-SXM4-80GB, CUDA 12.4：兼容，但被该 Pod 的 nodeSelector pool=a 排除 "
            "[规则 compatibility-pgpu]"
        ),
        "    节点数  GPU       驱动       CUDA  计算能力  原因",
        (
            "    3       Tesla-T4  460.32.03  11.2  7.5       "
            "驱动为 CUDA 11.2，低于 12.4：不满足 NVIDIA_REQUIRE_CUDA；"
            "CUDA 12.4 的 cuda-compat 不支持驱动分支 460；计算能力 7.5，低于 8.0"
        ),
    ]


def test_a_pod_that_selects_no_node_now_gets_the_labels_of_those_that_fit() -> None:
    """A node that gets the selected label later takes it only if its driver suffices."""
    cluster = [node("new", gfd("12.4", A100)), node("old", gfd("12.2", A100))]
    later = [
        node("new-later", gfd("12.4", A100, team="red")),
        node("old-later", gfd("12.2", A100, team="red")),
    ]
    selecting = gpu_pod(cuda_image("12.4"), nodeSelector={"team": "red"})
    decision = decided(cluster, selecting)

    assert (True, 1) == (decision.allowed, len(warning_texts(decision)))
    assert ["new-later"] == targets([*cluster, *later], selecting, decision)


def test_a_pod_that_selects_no_node_now_gets_no_affinity_where_an_autoscaler_may_add_one() -> None:
    """It does not know the labels of drivers; nor is there any if no known node fits."""
    scaled = [
        node(name, gfd(cuda, A100, **{"karpenter.sh/nodepool": "a"}))
        for name, cuda in (("new", "12.4"), ("old", "12.2"))
    ]
    selecting = gpu_pod(cuda_image("12.4"), nodeSelector={"team": "red"})

    assert () == decided(scaled, selecting).patch
    decision = decided([node("old", gfd("12.2", A100))], selecting)
    assert (True, ()) == (decision.allowed, decision.patch)
