"""Settings of compatibility rules, ways of sharing, NVIDIA_REQUIRE_*, and image catalogues."""

from __future__ import annotations

from typing import Any

import pytest

from rules.model.decision import Decision
from rules.model.rule import Action
from tests.support.builders import patched, pod, policy, warning_texts
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
    RUNTIME_MODE,
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
    legacy,
    matched,
    node,
    nodes,
    of_class_legacy,
    plain,
    preferred,
    refused,
    requiring,
    targets,
)

# Shares of GPUs


def test_shares_of_an_image_of_another_major_than_the_baseline_are_denied_on_every_node() -> None:
    """GPU-Manager intercepts calls of CUDA 12, not those of an image with 11.8."""
    document = gpu_pod(cuda_image("11.8"), limits=SHARE)

    for cluster in ([], nodes(2, "vgpu", gfd("12.4"), **VGPU)):
        decision = decided(cluster, document)
        assert [("compatibility-gpu-manager-shares", Action.DENY, "spec.containers[0].image")] == refused(
            decision
        )
        assert (
            "container 'main': the virtual GPUs are of CUDA 12.4, the container is of another major, 11.8 "
            "(image tag `cuda11.8`, base unknown, says CUDA 11.8); "
            "use an image with CUDA 12.x up to 12.4, or whole GPUs; "
            "policy: the owner of the rule can change majorVersionMismatch"
        ) == decision.violations[0].message.en


def test_whole_gpus_of_gpu_manager_are_not_virtual() -> None:
    """With a multiple of 100 the same image runs on the same node."""
    cluster = nodes(1, "vgpu", gfd("12.4"), **VGPU)

    assert ["vgpu-0"] == admitted_to(cluster, gpu_pod(cuda_image("11.8"), limits={VCUDA_CORE: "200"}))


def test_hami_has_no_baseline_and_warns_about_another_major() -> None:
    """Its memory and cores are offered by no node and exclude none."""
    cluster = nodes(1, "twelve", gfd("12.4")) + nodes(1, "thirteen", gfd("13.0"))
    old, new = (gpu_pod(cuda_image(cuda), limits=HAMI) for cuda in ("11.8", "12.4"))

    assert decided([], old).allowed
    assert ["twelve-0", "thirteen-0"] == admitted_to(cluster, old) == admitted_to(cluster, new)
    assert [True, False] == [bool(warning_texts(decided(cluster, document))) for document in (old, new)]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (gfd("12.4", P40), "compute capability 6.1, below 7.0"),
        (gfd("11.4", T4), "driver CUDA 11.4, below 11.5"),
    ],
)
def test_mps_needs_volta_and_a_driver_of_11_5(labels: dict[str, str], reason: str) -> None:
    """With any image; affinity admits the nodes that have both."""
    poor, good = nodes(1, "poor", labels, **MPS), nodes(1, "good", gfd("12.4", V100), **MPS)
    document = gpu_pod("team/app:v1", limits=MPS)

    assert reason in decided(poor, document).denial.en
    assert "this way of sharing needs " in decided(poor, document).denial.en
    assert ["good-0"] == admitted_to(poor + good, document)


CUT = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-1g.5gb.count": "7"}


@pytest.mark.parametrize("limits", [MPS, SHARE])
@pytest.mark.parametrize(
    "labels", [gfd("12.4", A100) | CUT, gfd("12.4", ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "8.0"))]
)
def test_shares_and_mps_do_not_run_on_mig_slices(limits: dict[str, str], labels: dict[str, str]) -> None:
    """Labels of slices exclude a node; the label of the strategy alone does not."""
    cut = nodes(1, "cut", labels, **limits)
    whole = nodes(1, "whole", gfd("12.4", A100) | {"nvidia.com/mig.strategy": "mixed"}, **limits)
    document = gpu_pod(cuda_image("12.4"), limits=limits)

    assert "its GPUs are partitioned with MIG" in decided(cut, document).denial.en
    assert "this way of sharing does not support MIG" in decided(cut, document).denial.en
    assert ["whole-0"] == admitted_to(cut + whole, document)


@pytest.mark.parametrize("limits", [{GPU: "1"}, {"nvidia.com/mig-1g.5gb": "1"}])
def test_whole_gpus_and_slices_run_on_mig_slices(limits: dict[str, str]) -> None:
    """Under the single strategy a slice is what nvidia.com/gpu counts."""
    cut = nodes(1, "cut", gfd("12.4", ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "8.0")), **limits)

    assert ["cut-0"] == admitted_to(cut, gpu_pod(cuda_image("12.4"), limits=limits))


@pytest.mark.parametrize(
    ("limits", "mode"), [({GPU: "1"}, "pgpu"), (MPS, "mps"), (SHARE, "vgpu"), ({VCUDA_CORE: "100"}, "vgpu")]
)
def test_a_node_that_is_set_up_for_another_mode_is_incompatible(limits: dict[str, str], mode: str) -> None:
    """Also if it offers resources of both. A missing or unknown mode excludes no node."""
    cluster = [
        node(
            value or "unlabelled", gfd("12.4") | ({"nvidia-device-enable": value} if value else {}), **limits
        )
        for value in ("pgpu", "vgpu", "mps", "pgpu-dra", None)
    ]
    others = [
        document
        for document in cluster
        if document["metadata"]["name"] not in (mode, "unlabelled", "pgpu-dra")
    ]
    document = gpu_pod(cuda_image("12.4"), limits=limits)

    assert [mode, "pgpu-dra", "unlabelled"] == admitted_to(cluster, document)
    assert f"the node is set up for {others[0]['metadata']['name']}, not for {mode}" in (
        decided(others, document).denial.en
    )
    assert f"({len(others)} nodes checked): the requested resource is offered by {mode} nodes; " in (
        decided(others, document).denial.en
    )
    assert (
        f"suggested fixes: use a node that is set up for {mode} [rule" in decided(others, document).denial.en
    )


# Labels of nodes


def test_a_rule_reads_the_labels_that_it_lists() -> None:
    """In their order, and no others; affinity uses them too."""
    labels = {
        "cuda": ["example.com/cuda.major example.com/cuda.minor", "example.com/cuda"],
        "product": ["example.com/gpu"],
    }
    rules = policy(compatibility_rule(labels=labels))
    cluster = [
        node("parts", gfd("11.4") | {"example.com/cuda.major": "12", "example.com/cuda.minor": "4"}),
        node("whole", {"example.com/cuda": "12.6"}),
        node("old", gfd("13.0") | {"example.com/cuda": "11.8", "example.com/gpu": "X1"}),
        node("unlabelled", plain("13.0")),
    ]
    document = gpu_pod(cuda_image("12.4"))
    decision = judged(rules, inventory(cluster), document)

    assert ["parts", "whole"] == targets(cluster, document, decision)
    assert "X1" in judged(rules, inventory(cluster[2]), document).denial.en
    assert "compatibility unknown" in warning_texts(judged(rules, inventory(cluster[3]), document))[0]


def test_an_edited_rule_reads_other_labels_of_the_same_nodes() -> None:
    """A fact without labels is unknown."""
    cluster = inventory(node("one", plain("11.4") | {"example.com/cuda": "12.4"}))
    document = gpu_pod(cuda_image("12.4"))
    edits: list[dict[str, Any]] = [{}, {"labels": {"cuda": ["example.com/cuda"]}}, {"labels": {"cuda": []}}]
    decisions = [judged(policy(compatibility_rule(**edit)), cluster, document) for edit in edits]

    assert [False, True, True] == [decision.allowed for decision in decisions]
    assert [True, False] == [warning_texts(decision) == () for decision in decisions[1:]]


def test_each_rule_reads_its_own_labels() -> None:
    """Also if containers of one pod have different rules: they run on one node."""
    rules = policy(
        compatibility_rule(name="usual"),
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


# Settings


def test_minor_version_compatibility_is_denied_warned_or_allowed_as_set() -> None:
    """A driver of the same major, whose minor is lower."""
    cluster = inventory(nodes(1, "old", gfd("12.0")))
    answers = {}
    for setting in ("deny", "warn", "allow"):
        rules = policy(compatibility_rule(minorVersionCompatibility=setting))
        decision = judged(rules, cluster, gpu_pod(cuda_image("12.4")))
        answers[setting] = (decision.allowed, warning_texts(decision))

    warning = (
        "gpugate: container 'main': the driver has CUDA 12.0, below 12.4, which NVIDIA supports with limits "
        "(no newer features, no PTX) (1 × Tesla-T4, CUDA 12.0); use an image with CUDA 12.0 or older, or a "
        "driver with CUDA 12.4 or newer [rule compatibility]"
    )
    assert {"deny": (False, ()), "warn": (True, (warning,)), "allow": (True, ())} == answers


def test_affinity_for_minor_version_compatibility_requires_the_major() -> None:
    """Any 12 runs 12.4, an 11 does not; if the rule warns, nodes that do not need it are preferred."""
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


def test_forward_compatibility_can_be_declared_for_data_center_gpus() -> None:
    """cuda-compat 13.0 on driver 535 runs on a T4, not on a consumer card; affinity admits the T4."""
    t4, card = nodes(1, "t4", gfd("12.2", T4)), nodes(1, "card", gfd("12.2", RTX4090))
    new = nodes(1, "new", gfd("13.0", RTX4090))
    declared = annotated({CUDA: "13.0", COMPAT: "true"})

    assert not decided(t4, annotated({CUDA: "13.0"})).allowed
    assert ["t4-0"] == admitted_to(t4, declared)
    assert (
        "cuda-compat does not support consumer GPUs: CUDA_ERROR_COMPAT" in decided(card, declared).denial.en
    )
    assert ["the driver has CUDA 12.2, below 13.0: it runs by forward compatibility (cuda-compat)"] == [
        note.en for note in decided(t4, declared).notes
    ]
    assert ["t4-0", "new-0"] == admitted_to(t4 + card + new, declared)


def test_forward_compatibility_on_a_branch_that_nvidia_does_not_list_is_unknown() -> None:
    """NVIDIA does not support driver 550 any more: a warning."""
    decision = decided(nodes(1, "t4", gfd("12.4", T4)), annotated({CUDA: "12.8", COMPAT: "true"}))
    (warning,) = warning_texts(decision)

    assert decision.allowed
    assert "it may fail: cuda-compat may not support this GPU and driver" in warning
    assert "or a driver with CUDA 12.8 or newer" in warning
    assert "label these nodes" not in warning


def test_a_driver_more_than_one_major_newer_is_a_warning_only_by_a_setting() -> None:
    """CUDA 11 on a driver with 13: NVIDIA's drivers are backward compatible."""
    cluster, document = inventory(nodes(1, "new", gfd("13.0"))), gpu_pod(cuda_image("11.8"))
    silent = judged(policy(compatibility_rule()), cluster, document)
    decision = judged(policy(compatibility_rule(newerMajorVersions="warn")), cluster, document)

    assert (True, ()) == (silent.allowed, warning_texts(silent))
    assert decision.allowed
    assert [] == preferred(gpu_pod(cuda_image("11.8")), decision)
    assert (
        (
            "gpugate: container 'main': the driver's CUDA 13.0 is more than one major version newer "
            "(1 × Tesla-T4, CUDA 13.0) [rule compatibility]"
        ),
    ) == warning_texts(decision)


def test_nodes_that_are_not_too_far_ahead_are_preferred() -> None:
    """A new enough driver is required; one that is not too new is preferred, by one term."""
    cluster = nodes(1, "new", gfd("13.0")) + nodes(1, "near", gfd("12.4"))
    document = gpu_pod(cuda_image("11.8"))
    first = decided(cluster, document)
    terms = preferred(document, first)

    assert ["new-0", "near-0"] == admitted_to(cluster, document)
    assert ["near-0"] == [name for term in terms for name in matched(cluster, term)]
    assert terms == preferred(document, decided(cluster, document))
    assert () == decided(cluster, patched(document, first)).patch
    assert () == warning_texts(first)


@pytest.mark.parametrize("setting", [{"noFittingNode": "warn"}, {"enforcementAction": "warn"}])
def test_a_pod_without_a_compatible_node_can_be_a_warning(setting: dict[str, Any]) -> None:
    """For clusters with an autoscaler. The reason is cut, the fix is not: a warning has 256 characters."""
    rules = policy(compatibility_rule(**setting))
    decision = judged(rules, inventory(nodes(2, "old", gfd("11.4"))), gpu_pod(PYTORCH_11_7))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert (
        (
            "gpugate: no schedulable node is compatible with container 'main' (2 nodes checked): "
            "image tag `2.0.0-cuda11.7-cudnn8-runtime` says CUDA 11.7; …; "
            "suggested fixes: use an image with CUDA 11.4 or older, or a driver with CUDA 11.7 or newer "
            "[rule compatibility]"
        ),
    ) == warning_texts(decision)


def test_no_fitting_node_has_no_effect_if_a_node_is_compatible() -> None:
    """Affinity is injected as usual."""
    cluster = nodes(1, "old", gfd("11.4")) + nodes(1, "new", gfd("12.4"))
    document = gpu_pod(PYTORCH_11_7)
    decision = judged(policy(compatibility_rule(noFittingNode="warn")), inventory(cluster), document)

    assert ["new-0"] == targets(cluster, document, decision)


def test_no_fitting_node_does_not_weaken_the_baseline() -> None:
    """No node that an autoscaler adds changes what the virtualisation supports."""
    rules = policy(compatibility_rule(sharing="virtual", baseline="12.4", noFittingNode="warn"))

    assert not judged(rules, inventory(), gpu_pod(cuda_image("12.6"))).allowed


def test_a_rule_that_warns_does_not_change_the_pod() -> None:
    """It denies nothing and excludes no node; a warning says what it would deny."""
    old, new = nodes(1, "old", gfd("11.4")), nodes(1, "new", gfd("12.4"))
    rules = policy(compatibility_rule(enforcementAction="warn"))
    free, bound = gpu_pod(PYTORCH_11_7), gpu_pod(PYTORCH_11_7, nodeName="old-0")

    assert (True, (), ()) == tuple(
        getattr(judged(rules, inventory(old + new), free), field)
        for field in ("allowed", "patch", "warning_lines")
    )
    assert "node old-0 is not compatible" in warning_texts(judged(rules, inventory(old + new), bound))[0]


@pytest.mark.parametrize("limits", [None, SHARE])
def test_a_dry_run_appears_in_the_audit_log_only(limits: dict[str, str] | None) -> None:
    """No denial, no warning, no affinity."""
    rule = compatibility_rule(
        match={"resources": [GPU, VCUDA_CORE]}, sharing="virtual", baseline="12.4", enforcementAction="dryrun"
    )
    odd = [{"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=="}]
    for cuda in ("11.8", "12.2"):
        cluster = nodes(1, "old", gfd("12.0")) + nodes(1, "new", gfd("13.0"))
        cluster += nodes(1, "unlabelled", {}) if cuda == "12.2" else []
        decision = judged(
            policy(rule), inventory(cluster), pod(gpu_container(cuda_image(cuda), limits=limits, env=odd))
        )
        assert (True, (), ()) == (decision.allowed, decision.patch, warning_texts(decision))
        expected = "compatibility (policy): spec.containers[0].image" if cuda == "11.8" else None
        assert expected == decision.audit.get("dryrun")


def test_a_weaker_rule_never_weakens_a_stricter_one() -> None:
    """Dry runs with a violation do not change the denial of another rule."""
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
        assert ["trial"] == [violation.rule for violation in decision.violations]


def test_if_no_node_satisfies_both_rules_the_stricter_decides_and_the_other_warns() -> None:
    """One denies old GPUs, the other warns of old drivers; no node has both."""
    strict = compatibility_rule(name="strict", minComputeCapability="8.0")
    mild = compatibility_rule(name="a-mild", minDriverCuda="12.6", enforcementAction="warn")
    cluster = nodes(1, "gpu", gfd("12.4", A100)) + nodes(1, "driver", gfd("12.6", T4))
    document = gpu_pod("team/app:v1")
    decision = judged(policy(strict, mild), inventory(cluster), document)

    assert [("a-mild", Action.WARN, "spec.containers[0].image")] == refused(decision)
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
def test_affinity_admits_the_nodes_that_satisfy_nvidia_require(expression: str, expected: list[str]) -> None:
    """A blank is OR, a comma is AND; a driver can also be too new."""
    cluster = legacy(
        node("c114", gfd("11.4", T4)),
        node("c122", gfd("12.2", T4)),
        node("c124", gfd("12.4", T4)),
        node("c126", gfd("12.6", A100)),
        node("c130", gfd("13.0", A100)),
    )
    others = [document for document in cluster if document["metadata"]["name"] not in expected]
    document = requiring(NVIDIA_REQUIRE_CUDA=expression)
    disabled = requiring(NVIDIA_REQUIRE_CUDA=expression, NVIDIA_DISABLE_REQUIRE="1")

    assert expected == admitted_to(cluster, document)
    assert f"variable NVIDIA_REQUIRE_CUDA is `{expression}`" in decided(others, document).denial.en
    assert decided(others, disabled).allowed


def test_a_driver_without_a_revision_is_a_version_too() -> None:
    """570.26 is 570.26.0, below 570.26.1."""
    keys = [f"nvidia.com/cuda.driver-version.{part}" for part in ("major", "minor", "revision")]
    cluster = [
        node("empty", dict(zip(keys, ("570", "26", ""), strict=True))),
        node("absent", dict(zip(keys, ("570", "26"), strict=False))),
        node("later", dict(zip(keys, ("570", "26", "02"), strict=True))),
    ]

    assert ["empty", "absent"] == admitted_to(cluster, requiring(NVIDIA_REQUIRE_CUDA="driver<570.26.01"))
    assert ["empty", "absent"] == admitted_to(cluster, requiring(NVIDIA_REQUIRE_CUDA="driver=570.26"))


def test_affinity_has_the_outermost_bounds_of_too_many_alternatives() -> None:
    """A malicious pod must not make affinity large. Nodes between the bounds are checked all the same."""
    cluster = [node(f"c{cuda}", gfd(cuda)) for cuda in ("11.4", "12.2", "13.0")]
    every_other = " ".join(f"cuda={major}.{minor}" for major in range(12, 40) for minor in range(0, 9, 2))
    variables = {f"NVIDIA_REQUIRE_{at}": f"cuda>=11.{at},cuda<14.{at}" for at in range(100)}
    three = {f"NVIDIA_REQUIRE_{at}": every_other.replace("12.", f"12.{at}") for at in range(3)}

    assert ["c12.2", "c13.0"] == admitted_to(cluster, requiring(NVIDIA_REQUIRE_CUDA=every_other))
    assert not decided(cluster[:1], requiring(NVIDIA_REQUIRE_CUDA=every_other)).allowed
    for many in ({"NVIDIA_REQUIRE_CUDA": every_other}, variables, three):
        patch = decided([*cluster, node("c13.3", plain("13.3"))], requiring(**many)).patch
        assert 0 < str(patch).count("matchExpressions") <= 8


def test_an_alternative_that_depends_on_a_brand_is_unknown() -> None:
    """NVIDIA's images list older drivers for their cuda-compat by brand; a T4's depends on the driver."""
    document = requiring(NVIDIA_REQUIRE_CUDA="cuda>=12.4 brand=tesla,driver>=535,driver<536")
    may, never = nodes(1, "may", gfd("12.2")), nodes(1, "never", gfd("11.4"))
    old = decided(may, document)

    assert (True, ()) == (old.allowed, old.patch)
    assert "cannot determine whether NVIDIA_REQUIRE_CUDA is satisfied" in warning_texts(old)[0]
    assert not decided(never, document).allowed
    assert ["may-0"] == admitted_to(may + never, document)
    assert ["new-0"] == admitted_to(may + never + nodes(1, "new", gfd("12.4")), document)


@pytest.mark.parametrize(
    ("of_node", "allowed"),
    [({}, True), ({RUNTIME_MODE: "cdi"}, True), ({RUNTIME_MODE: "legacy"}, False)],
    ids=["unknown", "cdi", "legacy"],
)
def test_a_requirement_with_runtime_class_nvidia_legacy_warns_because_with_cdi_devices_it_is_not_evaluated(
    of_node: dict[str, str], allowed: bool
) -> None:
    """It is denied where the node's own mode is legacy, too: there the device plugin does not use CDI."""
    document = of_class_legacy(requiring(NVIDIA_REQUIRE_CUDA="arch>=8.0"))
    decision = decided([node("t4", gfd("12.4", T4) | of_node)], document)

    assert allowed is decision.allowed
    if allowed:
        (warning,) = warning_texts(decision)
        assert "NVIDIA's legacy container runtime does not start it" in warning
        assert "; in CDI mode it starts" in warning


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["legacy", "cdi", "unknown", "new"], ["cdi", "new"]),
        (["legacy", "cdi"], ["cdi"]),
        (["legacy", "unknown"], ["unknown"]),
        (["legacy", "new"], ["new"]),
    ],
)
def test_affinity_follows_the_mode_of_each_node(names: list[str], expected: list[str]) -> None:
    """Where the variable is not evaluated it excludes no node; where it may be, only if others are better."""
    mode = RUNTIME_MODE
    known = {
        "legacy": node("legacy", gfd("12.4", T4) | {mode: "legacy"}),
        "cdi": node("cdi", gfd("12.4", V100) | {mode: "cdi"}),
        "unknown": node("unknown", gfd("12.4", P40)),
        "new": node("new", gfd("12.4", A100)),
    }
    cluster = [known[name] for name in names]

    assert expected == admitted_to(cluster, requiring(NVIDIA_REQUIRE_ARCH="arch>=8.0"))


@pytest.mark.parametrize("expression", ["cuda>==", "cuda>=", "gpu>=1", "cuda>=12.x"])
def test_a_malformed_nvidia_require_is_a_warning_and_requires_nothing(expression: str) -> None:
    """It never denies a pod."""
    decision = decided(nodes(1, "old", gfd("11.4")), requiring(NVIDIA_REQUIRE_CUDA=expression))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert 1 == len(warning_texts(decision))
    assert f"NVIDIA_REQUIRE_CUDA: `{expression}` is not an expression" in warning_texts(decision)[0]


# Image catalogues of the cluster


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
def test_a_row_of_the_cluster_takes_precedence_over_the_built_in_ones(
    row: dict[str, Any], reference: str
) -> None:
    """With a glob, a port and a digest, or with a regex that has a group `cuda`."""
    cluster = nodes(1, "old", gfd("12.2")) + nodes(1, "new", gfd("12.4"))
    document = gpu_pod(reference)
    decision = catalogued(cluster, document, row)

    assert ["new-0"] == targets(cluster, document, decision)
    assert "CUDA 12.4" in catalogued(cluster[:1], document, row).denial.en


@pytest.mark.parametrize(
    ("ptx", "expected"),
    [({"ptx": False}, ["t4", "a100"]), ({"ptx": True}, ["t4", "a100", "h100"]), ({}, ["t4", "a100", "h100"])],
)
def test_a_row_can_declare_the_gpus_that_an_image_is_built_for(
    ptx: dict[str, bool], expected: list[str]
) -> None:
    """Older GPUs do not run it, newer ones only with PTX; affinity excludes them."""
    every = {"v100": V100, "t4": T4, "a100": A100, "h100": H100}
    cluster = [node(name, gfd("12.4", gpu)) for name, gpu in every.items()]
    row = {"image": "team/*", "computeCapabilities": ["7.5", "8.0"], **ptx}
    document = gpu_pod("team/app:v1")
    others = [document for document in cluster if document["metadata"]["name"] not in expected]

    assert expected == targets(cluster, document, catalogued(cluster, document, row))
    assert "the image holds no code for compute capability" in catalogued(others, document, row).denial.en


def test_nodes_of_unknown_capabilities_are_not_suggested() -> None:
    """They may be incompatible."""
    cluster = [*nodes(1, "t4", gfd("12.4", T4)), node("controller", {}, cpu="8")]
    row = {"image": "team/*", "computeCapabilities": ["8.0"]}
    message = catalogued(cluster, gpu_pod("team/app:v1"), row).denial.en

    assert "use an image built for 7.5" in message
    assert "compatible but excluded" not in message
