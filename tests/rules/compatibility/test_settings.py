"""What rules, ways of sharing, variables and catalogues change in whether a pod fits the nodes."""

from __future__ import annotations

from typing import Any

import pytest

from rules.model.decision import Decision
from rules.model.rule import Action
from tests.support.builders import patched, pod, policy
from tests.support.node_builders import (
    A100,
    COMPAT,
    CUDA,
    GPU,
    H100,
    HAMI,
    MPS,
    P40,
    PYTORCH_11_7,
    RTX4090,
    SHARE,
    T4,
    V100,
    VCUDA_CORE,
    VGPU,
    Node,
    admitted_to,
    annotated,
    compatibility_rule,
    cuda_image,
    decided,
    gfd,
    gpu_container,
    gpu_pod,
    image_catalog,
    inventory,
    judged,
    matched,
    node,
    nodes,
    plain,
    preferred,
    refused,
    requiring,
    targets,
)

# Shares of GPUs


def test_shares_of_an_image_of_another_major_than_the_baseline_are_refused_without_any_node() -> None:
    """GPU-Manager intercepts CUDA 12 calls; an 11.8 image makes others."""
    document = gpu_pod(cuda_image("11.8"), limits=SHARE)

    for cluster in ([], nodes(2, "vgpu", gfd("12.4"), **VGPU)):
        decision = decided(cluster, document)
        assert [("compatibility-gpu-manager-shares", Action.DENY, "spec.containers[0].image")] == refused(
            decision
        )
        assert (
            "container 'main': virtual GPUs of CUDA 12.4 need a runtime of the same major version, not 11.8: "
            "CUDA_ERROR_UNKNOWN (999) (image tag `11.8.0-base-ubuntu22.04` says CUDA 11.8); "
            "use an image with CUDA 12.x up to 12.4, or whole GPUs"
        ) == decision.violations[0].message


def test_whole_cards_of_gpu_manager_are_native() -> None:
    """A multiple of 100: the same image on the same node runs."""
    cluster = nodes(1, "vgpu", gfd("12.4"), **VGPU)

    assert ["vgpu-0"] == admitted_to(cluster, gpu_pod(cuda_image("11.8"), limits={VCUDA_CORE: "200"}))


def test_an_image_above_the_baseline_is_refused() -> None:
    """12.6 on virtual GPUs up to 12.4, whatever the driver."""
    decision = decided(nodes(1, "vgpu", gfd("12.8"), **VGPU), gpu_pod(cuda_image("12.6"), limits=SHARE))

    assert "the virtual GPUs support CUDA up to 12.4, the container needs 12.6" in decision.message


def test_shares_need_a_driver_of_the_same_major() -> None:
    """A 12.2 image: not on 13.0, and not on 12.0, which is older."""
    cluster = [
        *nodes(1, "old", gfd("12.0"), **VGPU),
        *nodes(1, "same", gfd("12.4"), **VGPU),
        *nodes(1, "next", gfd("13.0"), **VGPU),
    ]

    assert ["same-0"] == admitted_to(cluster, gpu_pod(cuda_image("12.2"), limits=SHARE))
    assert not decided(cluster[2:], gpu_pod(cuda_image("12.2"), limits=SHARE)).allowed


def test_a_lower_bound_says_nothing_of_the_major_inside() -> None:
    """`cuda>=11.8` may be a CUDA 12 image: no refusal, but a driver of the baseline's major."""
    env = [{"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=11.8"}]
    document = pod(gpu_container("team/app:v1", limits=SHARE, env=env))
    cluster = nodes(1, "new", gfd("12.4"), **VGPU) + nodes(1, "next", gfd("13.0"), **VGPU)

    assert decided([], document).allowed
    assert ["new-0"] == admitted_to(cluster, document)


def test_hami_has_no_baseline_and_needs_equal_majors() -> None:
    """Its release decides; its memory and cores are offered by no node, and sort out none."""
    cluster = nodes(1, "twelve", gfd("12.4")) + nodes(1, "thirteen", gfd("13.0"))

    assert decided([], gpu_pod(cuda_image("11.8"), limits=HAMI)).allowed
    assert ["twelve-0"] == admitted_to(cluster, gpu_pod(cuda_image("12.4"), limits=HAMI))
    assert not decided(cluster, gpu_pod(cuda_image("11.8"), limits=HAMI)).allowed


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (gfd("12.4", P40), "compute capability 6.1, below 7.0"),
        (gfd("11.4", T4), "driver CUDA 11.4, below 11.5"),
    ],
)
def test_mps_needs_volta_and_a_driver_of_11_5(labels: dict[str, str], reason: str) -> None:
    """Whatever the image; and where others fit, the pod goes there."""
    poor, good = nodes(1, "poor", labels, **MPS), nodes(1, "good", gfd("12.4", V100), **MPS)
    document = gpu_pod("team/app:v1", limits=MPS)

    assert reason in decided(poor, document).message
    assert "this way of sharing needs " in decided(poor, document).message
    assert ["good-0"] == admitted_to(poor + good, document)


def test_mps_on_nodes_without_labels_is_a_warning() -> None:
    """Nobody knows whether the GPU limits clients at all."""
    decision = decided(nodes(1, "silent", {}, **MPS), gpu_pod("team/app:v1", limits=MPS))

    assert decision.allowed
    assert 2 == sum("nobody knows whether it runs" in warning for warning in decision.warnings)


CUT = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-1g.5gb.count": "7"}


@pytest.mark.parametrize("limits", [MPS, SHARE])
@pytest.mark.parametrize(
    "labels", [gfd("12.4", A100) | CUT, gfd("12.4", ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "8.0"))]
)
def test_shares_and_mps_do_not_go_to_slices(limits: dict[str, str], labels: dict[str, str]) -> None:
    """Refused where labels tell of slices, and steered past them; the strategy alone tells of none."""
    cut = nodes(1, "cut", labels, **limits)
    whole = nodes(1, "whole", gfd("12.4", A100) | {"nvidia.com/mig.strategy": "mixed"}, **limits)
    document = gpu_pod(cuda_image("12.4"), limits=limits)

    assert "its GPUs are cut into MIG slices" in decided(cut, document).message
    assert "this way of sharing does not go with MIG" in decided(cut, document).message
    assert ["whole-0"] == admitted_to(cut + whole, document)


@pytest.mark.parametrize("limits", [{GPU: "1"}, {"nvidia.com/mig-1g.5gb": "1"}])
def test_whole_gpus_and_slices_go_to_slices(limits: dict[str, str]) -> None:
    """Under the single strategy a slice is what nvidia.com/gpu counts."""
    cut = nodes(1, "cut", gfd("12.4", ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "8.0")), **limits)

    assert ["cut-0"] == admitted_to(cut, gpu_pod(cuda_image("12.4"), limits=limits))


@pytest.mark.parametrize(
    ("limits", "mode"), [({GPU: "1"}, "pgpu"), (MPS, "mps"), (SHARE, "vgpu"), ({VCUDA_CORE: "100"}, "vgpu")]
)
def test_a_node_that_is_set_up_for_another_mode_does_not_fit(limits: dict[str, str], mode: str) -> None:
    """Also where resources of both are offered. What is not said, or not known, keeps nobody away."""
    cluster = [
        node(value or "silent", gfd("12.4") | ({"nvidia-device-enable": value} if value else {}), **limits)
        for value in ("pgpu", "vgpu", "mps", "pgpu-dra", None)
    ]
    others = [each for each in cluster if each["metadata"]["name"] not in (mode, "silent", "pgpu-dra")]
    document = gpu_pod(cuda_image("12.4"), limits=limits)

    assert [mode, "pgpu-dra", "silent"] == admitted_to(cluster, document)
    assert f"the node is set up for {others[0]['metadata']['name']}, not for {mode}" in (
        decided(others, document).message
    )
    assert f"({len(others)} looked at); what it asks for is offered on {mode} nodes\n" in (
        decided(others, document).message
    )
    assert f"what would fit: a node that is set up for {mode}" in decided(others, document).message


# Which labels tell what


def test_a_rule_says_which_labels_it_reads() -> None:
    """In order; the affinity is written in them. A node's other labels say nothing to it."""
    labels = {
        "cuda": ["example.com/cuda.major example.com/cuda.minor", "example.com/cuda"],
        "product": ["example.com/gpu"],
    }
    rules = policy(compatibility_rule(labels=labels))
    cluster = [
        node("parts", gfd("11.4") | {"example.com/cuda.major": "12", "example.com/cuda.minor": "4"}),
        node("whole", {"example.com/cuda": "12.6"}),
        node("old", gfd("13.0") | {"example.com/cuda": "11.8", "example.com/gpu": "X1"}),
        node("silent", gfd("13.0")),
    ]
    document = gpu_pod(cuda_image("12.4"))
    decision = judged(rules, inventory(cluster), document)

    assert ["parts", "whole"] == targets(cluster, document, decision)
    assert "X1" in judged(rules, inventory(cluster[2]), document).message
    assert "nobody knows" in judged(rules, inventory(cluster[3]), document).warnings[0]


def test_an_edited_rule_reads_the_same_nodes_anew() -> None:
    """They need not be fetched again; a fact that lists no label is unknown."""
    cluster = inventory(node("one", plain("11.4") | {"example.com/cuda": "12.4"}))
    document = gpu_pod(cuda_image("12.4"))
    edits: list[dict[str, Any]] = [{}, {"labels": {"cuda": ["example.com/cuda"]}}, {"labels": {"cuda": []}}]
    decisions = [judged(policy(compatibility_rule(**edit)), cluster, document) for edit in edits]

    assert [False, True, True] == [decision.allowed for decision in decisions]
    assert [True, False] == [decision.warnings == () for decision in decisions[1:]]


def test_rules_that_read_other_labels_are_each_judged_by_their_own() -> None:
    """Of one pod too: its containers go to one node."""
    rules = policy(
        compatibility_rule(name="shipped"),
        compatibility_rule(
            name="own", match={"resources": ["example.com/gpu"]}, labels={"cuda": ["example.com/cuda"]}
        ),
    )
    both = {GPU: "8", "example.com/gpu": "8"}
    cluster = [
        node("neither", plain("11.8") | {"example.com/cuda": "11.8"}, **both),
        node("first", plain("12.4") | {"example.com/cuda": "11.8"}, **both),
        node("second", plain("11.8") | {"example.com/cuda": "12.4"}, **both),
        node("both", plain("12.4") | {"example.com/cuda": "12.4"}, **both),
    ]
    image = cuda_image("12.4")
    document = pod(
        gpu_container(image, name="a"), gpu_container(image, name="b", limits={"example.com/gpu": "1"})
    )
    decision = judged(rules, inventory(cluster), document)

    assert ["both"] == targets(cluster, document, decision)
    assert () == judged(rules, inventory(cluster), patched(document, decision)).patch
    assert not judged(rules, inventory(cluster[:3]), document).allowed


# What may be set


def test_minor_version_compatibility_is_refused_warned_or_allowed_as_set() -> None:
    """A driver of the same major, whose minor is lower."""
    cluster = inventory(nodes(1, "old", gfd("12.0")))
    found = {}
    for setting in ("deny", "warn", "allow"):
        rules = policy(compatibility_rule(minorVersionCompatibility=setting))
        decision = judged(rules, cluster, gpu_pod(cuda_image("12.4")))
        found[setting] = (decision.allowed, decision.warnings)

    warning = (
        "container 'main': the driver has CUDA 12.0, below 12.4, by minor version compatibility "
        "(1 × Tesla-T4, CUDA 12.0)"
    )
    assert {"deny": (False, ()), "warn": (True, (warning,)), "allow": (True, ())} == found


@pytest.mark.parametrize(("driver", "allowed"), [("450.51.06", False), ("450.80.02", True)])
def test_minor_version_compatibility_starts_at_the_driver_floor(driver: str, allowed: bool) -> None:
    """450.80.02 for CUDA 11."""
    labels = gfd("11.2") | {
        "nvidia.com/cuda.runtime-version.minor": "0",
        "nvidia.com/cuda.driver-version.full": driver,
    }
    rules = policy(compatibility_rule(minorVersionCompatibility="allow"))

    assert allowed is judged(rules, inventory(node("old", labels)), gpu_pod(cuda_image("11.8"))).allowed


def test_there_is_no_minor_version_compatibility_before_cuda_11() -> None:
    """Even where it is allowed."""
    rules = policy(compatibility_rule(minorVersionCompatibility="allow"))
    cluster = inventory(node("old", plain("10.1")))

    assert not judged(rules, cluster, annotated({CUDA: "10.2"})).allowed


def test_minor_version_compatibility_steers_by_the_driver_floor_too() -> None:
    """450.36 to 450.80.01 have CUDA 11.0, and run no newer 11; what tells no driver may be above."""
    low = {"nvidia.com/cuda.runtime-version.minor": "0"}
    full = "nvidia.com/cuda.driver-version.full"
    cluster = [
        node("below", gfd("11.2") | low | {full: "450.51.06"}),
        node("floor", gfd("11.2") | low | {full: "450.80.02"}),
        node("silent", plain("11.0")),
        node("newer", gfd("11.8") | {full: "450.51.06"}),
    ]
    document = gpu_pod(cuda_image("11.8"))
    decision = judged(
        policy(compatibility_rule(minorVersionCompatibility="allow")), inventory(cluster), document
    )

    assert ["floor", "silent", "newer"] == targets(cluster, document, decision)


def test_minor_version_compatibility_steers_to_the_major() -> None:
    """Any 12 will do for 12.4, an 11 will not; where it only warns, nodes without it are preferred."""
    cluster = [node("eleven", gfd("11.8")), node("low", gfd("12.0")), node("high", gfd("12.4"))]
    allow, warn = (
        policy(compatibility_rule(minorVersionCompatibility=setting)) for setting in ("allow", "warn")
    )
    document = gpu_pod(cuda_image("12.4"))
    allowed = judged(allow, inventory(cluster), document)
    warned = judged(warn, inventory(cluster), document)

    assert ["low", "high"] == targets(cluster, document, allowed) == targets(cluster, document, warned)
    assert [] == preferred(document, allowed)
    assert ["high"] == [name for term in preferred(document, warned) for name in matched(cluster, term)]


def test_forward_compatibility_can_be_declared_for_data_centre_gpus() -> None:
    """cuda-compat 12.8 on driver 535: it runs on a T4, not on a consumer card, and is steered."""
    t4, card = nodes(1, "t4", gfd("12.2", T4)), nodes(1, "card", gfd("12.2", RTX4090))
    new = nodes(1, "new", gfd("12.8", RTX4090))
    declared = annotated({CUDA: "12.8", COMPAT: "true"})

    assert not decided(t4, annotated({CUDA: "12.8"})).allowed
    assert ["t4-0"] == admitted_to(t4, declared)
    assert "cuda-compat does not help there" in decided(card, declared).message
    assert ["t4-0", "new-0"] == admitted_to(t4 + card + new, declared)


def test_forward_compatibility_on_a_branch_that_nobody_lists_is_unknown() -> None:
    """Driver 550 is out of NVIDIA's support: a warning."""
    decision = decided(nodes(1, "t4", gfd("12.4", T4)), annotated({CUDA: "12.8", COMPAT: "true"}))

    assert decision.allowed
    assert "nobody knows whether cuda-compat helps" in decision.warnings[0]


def test_forward_compatibility_is_of_no_use_to_virtual_gpus() -> None:
    """They intercept the driver."""
    document = annotated({CUDA: "12.4", COMPAT: "true"}, limits=SHARE)

    assert not decided(nodes(1, "t4", gfd("12.2", T4), **VGPU), document).allowed


def test_a_driver_more_than_one_major_ahead_is_a_warning_where_there_is_no_other() -> None:
    """CUDA 11 on a driver with 13."""
    decision = decided(nodes(1, "new", gfd("13.0")), gpu_pod(cuda_image("11.8")))

    assert decision.allowed
    assert [] == preferred(gpu_pod(cuda_image("11.8")), decision)
    assert (
        (
            "container 'main': the driver's CUDA 13.0 is more than one major version ahead, which is "
            "unstable (1 × Tesla-T4, CUDA 13.0)"
        ),
    ) == decision.warnings


def test_nodes_that_are_not_too_far_ahead_are_preferred() -> None:
    """Required: a driver that is new enough. Preferred, once: one that is not too new."""
    cluster = nodes(1, "new", gfd("13.0")) + nodes(1, "near", gfd("12.4"))
    document = gpu_pod(cuda_image("11.8"))
    first = decided(cluster, document)
    terms = preferred(document, first)

    assert ["new-0", "near-0"] == admitted_to(cluster, document)
    assert ["near-0"] == [name for term in terms for name in matched(cluster, term)]
    assert terms == preferred(document, decided(cluster, document))
    assert () == decided(cluster, patched(document, first)).patch
    assert () == first.warnings


@pytest.mark.parametrize("setting", [{"noFittingNode": "warn"}, {"enforcementAction": "warn"}])
def test_no_fitting_node_can_be_a_warning(setting: dict[str, Any]) -> None:
    """Where an autoscaler may bring one. In one line: API servers drop a warning with line breaks."""
    rules = policy(compatibility_rule(**setting))
    decision = judged(rules, inventory(nodes(2, "old", gfd("11.4"))), gpu_pod(PYTORCH_11_7))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert (
        (
            "no node that could take the pod fits container 'main' (2 looked at); "
            "image tag `2.0.0-cuda11.7-cudnn8-runtime` says CUDA 11.7; "
            "the driver has CUDA 11.4, below 11.7: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222); "
            "what would fit: use an image with CUDA 11.4 or older, or a driver with CUDA 11.7 or newer "
            "[compatibility]"
        ),
    ) == decision.warnings


def test_where_a_node_fits_no_fitting_node_changes_nothing() -> None:
    """The pod is steered as ever."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))
    document = gpu_pod(PYTORCH_11_7)
    decision = judged(policy(compatibility_rule(noFittingNode="warn")), inventory(cluster), document)

    assert ["new-0"] == targets(cluster, document, decision)


def test_no_fitting_node_does_not_weaken_the_baseline() -> None:
    """No node that an autoscaler brings changes what the virtualisation supports."""
    rules = policy(compatibility_rule(sharing="virtual", baseline="12.4", noFittingNode="warn"))

    assert not judged(rules, inventory(), gpu_pod(cuda_image("12.6"))).allowed


def test_a_rule_that_warns_leaves_the_pod_as_it_is() -> None:
    """It is tried out: it refuses nothing, and keeps no pod from a node. What it would refuse, it says."""
    old, new = nodes(1, "old", gfd("11.4")), nodes(1, "new", gfd("12.4"))
    rules = policy(compatibility_rule(enforcementAction="warn"))
    free, bound = gpu_pod(PYTORCH_11_7), gpu_pod(PYTORCH_11_7, nodeName="old-0")

    assert (True, (), ()) == tuple(
        getattr(judged(rules, inventory(old + new), free), field)
        for field in ("allowed", "patch", "warnings")
    )
    assert "below 11.7" in judged(rules, inventory(old + new), bound).warnings[0]


@pytest.mark.parametrize("limits", [None, SHARE])
def test_a_dry_run_is_seen_in_the_audit_only(limits: dict[str, str] | None) -> None:
    """No refusal, no warning, no affinity."""
    rule = compatibility_rule(
        match={"resources": [GPU, VCUDA_CORE]},
        sharing="virtual",
        baseline="12.4",
        enforcementAction="dryrun",
    )
    odd = [{"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=="}]
    for cuda in ("11.8", "12.2"):
        cluster = nodes(1, "old", gfd("12.0")) + nodes(1, "new", gfd("13.0"))
        cluster += nodes(1, "silent", {}) if cuda == "12.2" else []
        decision = judged(
            policy(rule), inventory(cluster), pod(gpu_container(cuda_image(cuda), limits=limits, env=odd))
        )
        assert (True, (), ()) == (decision.allowed, decision.patch, decision.warnings)
        expected = "compatibility: spec.containers[0].image" if cuda == "11.8" else None
        assert expected == decision.audit.get("dryrun")


def test_a_weaker_rule_never_weakens_a_stricter_one() -> None:
    """A dry run that finds a baseline exceeded, and one that no node meets, leave the refusal as it is."""
    strict = compatibility_rule(name="strict")
    trials = [
        compatibility_rule(name="trial", sharing="virtual", baseline="11.0", enforcementAction="dryrun"),
        compatibility_rule(name="trial", minDriverCuda="13.4", enforcementAction="dryrun"),
        compatibility_rule(name="trial", minDriverCuda="13.4", enforcementAction="warn"),
    ]
    old, new = nodes(1, "old", gfd("11.4")), nodes(1, "new", gfd("12.4"))
    for trial in trials:
        rules = policy(strict, trial)
        document = gpu_pod(PYTORCH_11_7)
        decision = judged(rules, inventory(old + new), document)

        assert not judged(rules, inventory(old), document).allowed
        assert (True, ["new-0"]) == (decision.allowed, targets(old + new, document, decision))
        assert ["trial"] == [found.rule for found in decision.violations]


def test_where_no_node_meets_both_the_stricter_rule_decides_and_the_weaker_is_told() -> None:
    """New GPUs are a must, new drivers a wish; no node has both."""
    must = compatibility_rule(name="must", minComputeCapability="8.0")
    wish = compatibility_rule(name="a-wish", minDriverCuda="12.6", enforcementAction="warn")
    cluster = nodes(1, "gpu", gfd("12.4", A100)) + nodes(1, "driver", gfd("12.6", T4))
    document = gpu_pod("team/app:v1")
    decision = judged(policy(must, wish), inventory(cluster), document)

    assert [("a-wish", Action.WARN, "spec.containers[0].image")] == refused(decision)
    assert (True, ["gpu-0"]) == (decision.allowed, targets(cluster, document, decision))


# NVIDIA_REQUIRE_*


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cuda>=12.4", ["c124", "c126", "c130"]),
        ("cuda>12.4", ["c126", "c130"]),
        ("cuda>=12.0,cuda<12.6", ["c122", "c124"]),
        ("cuda<=12.2", ["c114", "c122"]),
        ("cuda=12.4", ["c124"]),
        ("cuda>=12.4,cuda<12.6 cuda>=12.6", ["c124", "c126", "c130"]),
        ("cuda>=12.4,cuda<12.6 cuda>=12.6,cuda<13", ["c124", "c126"]),
        ("driver>=560", ["c126", "c130"]),
        ("driver>=550.54.14,driver<580", ["c124", "c126"]),
        ("arch>=8.0", ["c126", "c130"]),
        ("arch>=8.0,cuda<13", ["c126"]),
    ],
)
def test_nvidia_require_is_judged_and_steered_by(expression: str, expected: list[str]) -> None:
    """Blank is OR, comma is AND; a driver that is too new is refused as well."""
    cluster = [
        node("c114", gfd("11.4", T4)),
        node("c122", gfd("12.2", T4)),
        node("c124", gfd("12.4", T4)),
        node("c126", gfd("12.6", A100)),
        node("c130", gfd("13.0", A100)),
    ]
    unfit = [each for each in cluster if each["metadata"]["name"] not in expected]
    document = requiring(NVIDIA_REQUIRE_CUDA=expression)

    assert expected == admitted_to(cluster, document)
    assert f"variable NVIDIA_REQUIRE_CUDA is `{expression}`" in decided(unfit, document).message
    assert decided(unfit, requiring(NVIDIA_REQUIRE_CUDA=expression, NVIDIA_DISABLE_REQUIRE="1")).allowed


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cuda=12.6 cuda=12.2", ["c12.2", "c12.6"]),
        ("cuda!=12.4", ["c11.4", "c12.2", "c12.6", "c13.0"]),
        ("cuda>=12.6 driver>=470,driver<471", ["c11.4", "c12.6", "c13.0"]),
        ("driver>=535.104.06,driver<=560.35.05", ["c12.4", "c12.6"]),
        ("driver=535.104.05 driver>550.54.14,driver<=550.54.15", ["c12.2", "c12.4"]),
        ("driver!=550.54.15,cuda>=12.2,cuda<=12.6", ["c12.2", "c12.6"]),
    ],
)
@pytest.mark.parametrize("parts", [False, True])
def test_alternatives_and_gaps_are_steered_by_as_they_are_written(
    expression: str, expected: list[str], parts: bool
) -> None:
    """Down to the third part of a driver's version, in whichever labels it is told."""
    cluster = [node(f"c{cuda}", gfd(cuda)) for cuda in ("11.4", "12.2", "12.4", "12.6", "13.0")]
    if parts:
        for each in cluster:
            driver = each["metadata"]["labels"].pop("nvidia.com/cuda.driver-version.full").split(".")
            keys = (f"nvidia.com/cuda.driver-version.{part}" for part in ("major", "minor", "revision"))
            each["metadata"]["labels"] |= dict(zip(keys, driver, strict=True))

    assert expected == admitted_to(cluster, requiring(NVIDIA_REQUIRE_CUDA=expression))


def test_a_driver_without_a_revision_is_a_version_too() -> None:
    """570.26 is below 570.26.1, and is 570.26.0."""
    keys = [f"nvidia.com/cuda.driver-version.{part}" for part in ("major", "minor", "revision")]
    cluster = [
        node("empty", dict(zip(keys, ("570", "26", ""), strict=True))),
        node("absent", dict(zip(keys, ("570", "26"), strict=False))),
        node("later", dict(zip(keys, ("570", "26", "02"), strict=True))),
    ]

    assert ["empty", "absent"] == admitted_to(cluster, requiring(NVIDIA_REQUIRE_CUDA="driver<570.26.01"))
    assert ["empty", "absent"] == admitted_to(cluster, requiring(NVIDIA_REQUIRE_CUDA="driver=570.26"))


def test_of_too_many_alternatives_the_outermost_bounds_steer() -> None:
    """A hostile pod must not grow the affinity. What is between them is judged all the same."""
    cluster = [node(f"c{cuda}", gfd(cuda)) for cuda in ("11.4", "12.2", "13.0")]
    every_other = " ".join(f"cuda={major}.{minor}" for major in range(12, 40) for minor in range(0, 9, 2))
    variables = {f"NVIDIA_REQUIRE_{at}": f"cuda>=11.{at},cuda<14.{at}" for at in range(200)}
    three = {f"NVIDIA_REQUIRE_{at}": every_other.replace("12.", f"12.{at}") for at in range(3)}

    assert ["c12.2", "c13.0"] == admitted_to(cluster, requiring(NVIDIA_REQUIRE_CUDA=every_other))
    assert not decided(cluster[:1], requiring(NVIDIA_REQUIRE_CUDA=every_other)).allowed
    for many in ({"NVIDIA_REQUIRE_CUDA": every_other}, variables, three):
        patch = decided([*cluster, node("c13.3", plain("13.3"))], requiring(**many)).patch
        assert 0 < str(patch).count("matchExpressions") <= 6


def test_a_driver_that_is_too_new_for_nvidia_require_is_not_to_be_upgraded() -> None:
    """Nor is it an insufficient driver."""
    document = requiring(NVIDIA_REQUIRE_CUDA="cuda>=12.0,cuda<12.4")

    assert "newer" not in decided(nodes(1, "new", gfd("12.6")), document).message
    assert "a driver with CUDA 12.0 or newer" in decided(nodes(1, "old", gfd("11.4")), document).message


def test_an_alternative_that_hangs_on_a_brand_is_unknown() -> None:
    """NVIDIA's images name the older drivers on which their cuda-compat makes do; no label tells a brand."""
    document = requiring(NVIDIA_REQUIRE_CUDA="cuda>=12.4 brand=tesla,driver>=535,driver<536")
    may, never = nodes(1, "may", gfd("12.2")), nodes(1, "never", gfd("11.4"))
    old = decided(may, document)

    assert (True, ()) == (old.allowed, old.patch)
    assert "nobody knows whether NVIDIA_REQUIRE_CUDA holds" in old.warnings[0]
    assert not decided(never, document).allowed
    assert ["may-0"] == admitted_to(may + never, document)
    assert ["new-0"] == admitted_to(may + never + nodes(1, "new", gfd("12.4")), document)


@pytest.mark.parametrize("expression", ["cuda>==", "cuda>=", "gpu>=1", "cuda>=12.x"])
def test_a_malformed_nvidia_require_is_told_and_asks_for_nothing(expression: str) -> None:
    """A warning, never a refusal."""
    decision = decided(nodes(1, "old", gfd("11.4")), requiring(NVIDIA_REQUIRE_CUDA=expression))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert 1 == len(decision.warnings)
    assert f"NVIDIA_REQUIRE_CUDA: `{expression}` is not an expression" in decision.warnings[0]


# The cluster's own catalogue of images


def catalogued(cluster: list[Node], document: Any, *rows: dict[str, Any]) -> Decision:
    """Return the decision for whole GPUs with a catalogue of these rows."""
    return judged(policy(compatibility_rule(), image_catalog(*rows)), inventory(cluster), document)


@pytest.mark.parametrize(
    ("row", "reference"),
    [
        (
            {"image": "registry.example.com:5000/team/*", "cuda": "12.4"},
            "registry.example.com:5000/team/train:1",
        ),
        (
            {"image": "registry.example.com:5000/team/*", "cuda": "12.4"},
            f"registry.example.com:5000/team/train:1@sha256:{'a' * 64}",
        ),
        ({"image": "pytorch/pytorch:2.0.0-*", "cuda": "12.4"}, PYTORCH_11_7),
        ({"regex": r"team/app:v\d+-toolkit-(?P<cuda>\d+\.\d+)"}, "team/app:v3-toolkit-12.4"),
    ],
)
def test_a_row_of_the_cluster_goes_before_those_that_ship(row: dict[str, Any], reference: str) -> None:
    """By glob, with a port and a digest, and by a regex with a group `cuda`."""
    cluster = nodes(1, "old", gfd("12.2")) + nodes(1, "new", gfd("12.4"))
    document = gpu_pod(reference)
    decision = catalogued(cluster, document, row)

    assert ["new-0"] == targets(cluster, document, decision)
    assert "CUDA 12.4" in catalogued(cluster[:1], document, row).message


def test_a_row_can_say_that_cuda_compat_is_inside() -> None:
    """As the annotation does."""
    cluster = nodes(1, "t4", gfd("12.2", T4))
    row = {"image": "team/*", "cuda": "12.8"}

    assert not catalogued(cluster, gpu_pod("team/app:v1"), row).allowed
    assert catalogued(cluster, gpu_pod("team/app:v1"), row | {"cudaCompat": True}).allowed


@pytest.mark.parametrize(
    ("ptx", "expected"),
    [({"ptx": False}, ["t4", "a100"]), ({"ptx": True}, ["t4", "a100", "h100"]), ({}, ["t4", "a100", "h100"])],
)
def test_a_row_can_say_for_which_gpus_an_image_is_built(ptx: dict[str, bool], expected: list[str]) -> None:
    """Older GPUs never run it; newer ones do not without PTX. The pod is kept from those that do not."""
    every = {"v100": V100, "t4": T4, "a100": A100, "h100": H100}
    cluster = [node(name, gfd("12.4", gpu)) for name, gpu in every.items()]
    row = {"image": "team/*", "computeCapabilities": ["7.5", "8.0"], **ptx}
    document = gpu_pod("team/app:v1")
    unfit = [each for each in cluster if each["metadata"]["name"] not in expected]

    assert expected == targets(cluster, document, catalogued(cluster, document, row))
    assert "the image holds no code for compute capability" in catalogued(unfit, document, row).message


def test_nodes_that_tell_nothing_are_no_way_out() -> None:
    """What is not known to misfit is not known to fit."""
    cluster = [*nodes(1, "t4", gfd("12.4", T4)), node("controller", {}, cpu="8")]
    row = {"image": "team/*", "computeCapabilities": ["8.0"]}
    message = catalogued(cluster, gpu_pod("team/app:v1"), row).message

    assert "use an image built for 7.5" in message
    assert "left out" not in message
