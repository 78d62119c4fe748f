"""Pods with resource claims, against the devices that the claims may be given."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from rules.compatibility import node_evaluation
from rules.compatibility.checks import check_on_node
from rules.cuda.requirements import GpuRequirements
from rules.decision.policy import Policy, compile_policy
from rules.kube.tolerations import Taint
from rules.model.check_result import CheckResult
from rules.model.decision import Decision
from rules.model.rule import Action
from rules.model.sharing import SharingPolicy
from rules.nodes.devices import claims
from rules.nodes.devices.device_classes import Selectors, match_all
from rules.nodes.devices.devices import DeviceKind
from rules.nodes.devices.selectors import Match
from rules.nodes.inventory_document import inventory_of
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools.document import DeclaredPools, NodePool
from tests.support.builders import pod, warning_texts
from tests.support.dra_builders import taint_rule
from tests.support.dra_clusters import (
    A100_NAME,
    DRIVER,
    H100_NAME,
    T4_NAME,
    bare_node,
    claim_template,
    device_class,
    gpu_device,
    gpus_of,
    resource_slice,
)
from tests.support.node_builders import judged, shipped, shipped_rules

CUDA = f'device.attributes["{DRIVER}"].cudaDriverVersion'
NEWER = f'{CUDA}.compareTo(semver("12.4.0")) >= 0'
OLDER = f'{CUDA}.compareTo(semver("12.4.0")) < 0'
NEEDS_12_4 = "team/app:cuda12.4"
OLD_T4 = gpus_of("t4", T4_NAME, "12.2")
NEW_H100 = gpus_of("h100", H100_NAME, "13.0")
OLD = NodeCapabilities(product="Tesla-T4", cuda=(12, 2), driver="535.104.05")
NODES = bare_node("t4", pool="t4"), bare_node("h100", pool="h100")


def claiming(template: str = "gpu", image: str = NEEDS_12_4, **spec: Any) -> Any:
    """Return a pod whose container uses a claim of a template."""
    main = {"name": "main", "image": image, "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return pod(main, resourceClaims=claims, **spec)


def decided(document: Any, *cluster: dict[str, Any], policy: Policy | None = None) -> Decision:
    """Return the decision in a cluster with these objects, and NVIDIA's device class."""
    return judged(policy or shipped(), inventory_of([*NODES, device_class(), *cluster]), document)


def test_a_claim_that_can_only_be_given_devices_that_do_not_run_the_image_is_denied() -> None:
    """With the devices, and the CEL line to add."""
    decision = decided(claiming(), OLD_T4, claim_template("gpu"))

    assert not decision.allowed
    assert "no device that claim 'gpu' may be given is compatible with container 'main'" in decision.denial.en
    assert "Tesla-T4" in decision.denial.en
    assert f"add to its selectors: {NEWER}" in decision.denial.en
    assert ("spec.containers[0].resources.claims",) == tuple(
        violation.path for violation in decision.violations
    )


def test_the_fix_works_with_the_suggested_selector_the_pod_is_admitted() -> None:
    """And waits for a device that runs it."""
    waiting = decided(claiming(), OLD_T4, claim_template("gpu", NEWER))
    served = decided(claiming(), OLD_T4, NEW_H100, claim_template("gpu", NEWER))

    assert (True, True) == (waiting.allowed, "no device that it selects" in warning_texts(waiting)[0])
    assert (True, ()) == (served.allowed, warning_texts(served))


def test_a_claim_whose_selector_admits_only_older_drivers_is_denied_where_newer_ones_exist() -> None:
    """The claim decides, not the cluster."""
    decision = decided(claiming(), OLD_T4, NEW_H100, claim_template("gpu", OLDER))

    assert (False, True) == (decision.allowed, NEWER in decision.denial.en)


def test_a_claim_that_may_be_given_a_device_that_does_not_fit_is_told_the_selector() -> None:
    """The scheduler may choose either."""
    decision = decided(claiming(), OLD_T4, NEW_H100, claim_template("gpu"))

    assert (True, ()) == (decision.allowed, decision.patch)
    (warning,) = warning_texts(decision)
    assert "claim 'gpu' may be given a device that is not compatible" in warning
    assert NEWER in warning


def test_a_claim_that_can_only_be_given_devices_that_fit_passes_without_a_word() -> None:
    """Claims and templates are never changed."""
    decision = decided(claiming(), NEW_H100, claim_template("gpu"))

    assert (True, (), ()) == (decision.allowed, decision.patch, warning_texts(decision))


def test_a_claim_is_not_given_devices_without_its_capacity_or_with_an_untolerated_taint() -> None:
    """One that does not fit counts no more, and one that fits does not keep the pod from being denied."""
    tainted = taint_rule({"pool": "t4"})
    wide = claim_template("gpu", capacity={"requests": {"memory": "80Gi"}})
    fits = decided(claiming(), OLD_T4, NEW_H100, tainted, claim_template("gpu"))
    denied = decided(claiming(), OLD_T4, NEW_H100, taint_rule({"pool": "h100"}), wide)
    tolerated = decided(
        claiming(), OLD_T4, NEW_H100, tainted, claim_template("gpu", tolerations=[{"operator": "Exists"}])
    )

    assert (True, ()) == (fits.allowed, warning_texts(fits))
    assert (False, True) == (denied.allowed, bool(warning_texts(tolerated)))


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        (taint_rule({"driver": DRIVER}), f"devices of {DRIVER} have the taint broken:NoSchedule"),
        (
            claim_template("gpu", capacity={"requests": {"memory": "81Gi"}}),
            f"the claim requests 81Gi of the capacity memory; a device of {DRIVER} gives 80Gi at most",
        ),
    ],
)
def test_a_claim_that_no_device_is_given_is_told_why(cluster: dict[str, Any], reason: str) -> None:
    """If the devices are on nodes that the pod can use."""
    decision = decided(claiming(), NEW_H100, claim_template("gpu"), cluster)
    elsewhere = decided(claiming(nodeSelector={"pool": "t4"}), NEW_H100, claim_template("gpu"), cluster)

    assert (True, 1) == (decision.allowed, len(warning_texts(decision)))
    assert f"claim 'gpu' not checked: {reason}" in warning_texts(decision)[0]
    assert "no device that it selects is on a node" in warning_texts(elsewhere)[0]


MIG = {"name": "mig-0", "attributes": {"type": {"string": "mig"}}}
BY_PRODUCT = f"device.attributes['{DRIVER}'].productName.contains('H100')"
FAILS = (
    "gpugate: container 'main': claim 'gpu': a selector fails on devices of gpu.nvidia.com: no such key:"
    " 'productName'; the scheduler may keep the pod Pending; guard it: `'NAME' in"
    " device.attributes['DOMAIN'] && …` or `has(…) && …` [rule compatibility-pgpu]"
)


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param([MIG, gpu_device("gpu-0")], id="of a node with one that matches"),
        pytest.param([MIG], id="of a node without any that matches"),
    ],
)
def test_a_claim_whose_selector_fails_on_devices_is_told_the_error(devices: list[Any]) -> None:
    """The scheduler ends the allocation there, but devices before may be allocated: it is not certain."""
    decision = decided(claiming(), resource_slice("h100", *devices), claim_template("gpu", BY_PRODUCT))

    assert decision.allowed
    assert (FAILS,) == warning_texts(decision)


@pytest.mark.parametrize(
    ("selectors", "spec"),
    [
        (["'productName' in device.attributes['gpu.nvidia.com'] && " + BY_PRODUCT], {}),
        (["has(device.attributes['gpu.nvidia.com'].productName) && " + BY_PRODUCT], {}),
        (["device.attributes['gpu.nvidia.com'].type == 'gpu'", BY_PRODUCT], {}),
        ([BY_PRODUCT], {"nodeSelector": {"pool": "t4"}}),
    ],
)
def test_a_selector_that_fails_on_no_device_that_is_tried_passes_without_a_word(
    selectors: list[str], spec: dict[str, Any]
) -> None:
    """Guarded as the fix says, after a selector that leaves the devices out, and on other nodes only."""
    cluster = resource_slice("h100", MIG, gpu_device("gpu-0")), resource_slice("t4", gpu_device("gpu-0"))

    assert () == warning_texts(decided(claiming(**spec), *cluster, claim_template("gpu", *selectors)))


def test_only_devices_on_nodes_that_the_pod_can_use_count() -> None:
    """Its nodeSelector excludes the others."""
    cluster = OLD_T4, NEW_H100, claim_template("gpu")

    assert not decided(claiming(nodeSelector={"pool": "t4"}), *cluster).allowed
    assert () == warning_texts(decided(claiming(nodeSelector={"pool": "h100"}), *cluster))


@pytest.mark.parametrize("missing", ["template", "class"])
def test_a_claim_that_is_not_known_is_said_to_be_unchecked(missing: str) -> None:
    """It may be created in the same moment."""
    template = claim_template("gpu", of_class="other" if missing == "class" else DRIVER)
    cluster = [OLD_T4] if missing == "template" else [OLD_T4, template]
    decision = decided(claiming(), *cluster)

    assert (True, True) == (decision.allowed, "claim 'gpu' not checked: " in warning_texts(decision)[0])


def test_administrative_access_is_given_no_device_and_is_not_judged() -> None:
    """Monitoring looks at devices of others."""
    decision = decided(claiming(), OLD_T4, claim_template("gpu", adminAccess=True))

    assert (True, ()) == (decision.allowed, warning_texts(decision))


def allocated(*pools: str) -> dict[str, Any]:
    """Return a claim that has the first device of each of these nodes."""
    template = claim_template("gpu")
    results = [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": "gpu-0"} for pool in pools]
    return {
        "kind": "ResourceClaim",
        "metadata": template["metadata"],
        "spec": template["spec"]["spec"],
        "status": {"allocation": {"devices": {"results": results}}},
    }


@pytest.mark.parametrize(("pools", "allowed"), [(["t4"], False), (["h100"], True), (["h100", "t4"], False)])
def test_an_allocated_claim_is_judged_by_all_of_its_devices(pools: list[str], *, allowed: bool) -> None:
    """Whatever else would match; there is nothing to select any more."""
    document = claiming()
    document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    decision = decided(document, OLD_T4, NEW_H100, allocated(*pools))

    assert (allowed, False, ()) == (
        decision.allowed,
        "selectors" in decision.denial.en,
        warning_texts(decision),
    )


def test_the_first_available_alternative_that_fits_is_enough() -> None:
    """Another one may be used, so the claim is told."""
    template = claim_template("gpu")
    alternatives = [
        {"name": "new", "deviceClassName": DRIVER, "selectors": [{"cel": {"expression": NEWER}}]},
        {"name": "old", "deviceClassName": DRIVER, "selectors": [{"cel": {"expression": OLDER}}]},
    ]
    template["spec"]["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": alternatives}]
    both = decided(claiming(), OLD_T4, NEW_H100, template)

    assert (True, True) == (both.allowed, bool(warning_texts(both)))
    assert not decided(claiming(), OLD_T4, template).allowed


def test_a_channel_of_a_compute_domain_of_the_same_file_is_no_gpu_and_not_said_to_be_unknown() -> None:
    """NVIDIA's controller creates its template; the DeviceClass of the driver's chart need not be given."""
    domain = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "imex"},
        "spec": {"channel": {"resourceClaimTemplate": {"name": "channel"}}},
    }
    others = domain | {"apiVersion": "example.com/v1"}, domain | {"spec": {"channel": []}}
    inventory = inventory_of([*NODES, OLD_T4])

    def warned(*documents: object) -> tuple[str, ...]:
        dra = inventory.dra.with_claims_in(documents, "team")
        return warning_texts(judged(shipped(), inventory.with_dra(dra), claiming("channel")))

    (unknown,) = warned(*others)

    assert () == warned(domain)
    assert "ResourceClaimTemplate channel is not known" in unknown


def test_devices_that_are_no_gpus_are_not_judged() -> None:
    """As of a network."""
    cards = resource_slice("t4", {"name": "nic-0"}, driver="nic.example.com")
    of_cards = device_class("nic", 'device.driver == "nic.example.com"', None)
    decision = decided(claiming(), OLD_T4, cards, of_cards, claim_template("gpu", of_class="nic"))

    assert (True, ()) == (decision.allowed, warning_texts(decision))


@pytest.mark.parametrize(
    "doubt", ["a pool that is not complete", "a node that is not ready", "a selector that is not evaluated"]
)
def test_doubt_about_devices_is_no_reason_to_deny(doubt: str) -> None:
    """Unlike certainty."""
    slices, nodes, selectors = [OLD_T4], list[Any](), list[str]()
    if doubt == "a pool that is not complete":
        part = gpus_of("h100")
        part["spec"]["pool"]["resourceSliceCount"] = 2
        slices.append(part)
    elif doubt == "a node that is not ready":
        nodes = [bare_node("t4") | {"spec": {"unschedulable": True}}]
    else:
        selectors = ["device.attributes.map(x, x).size() > 0"]
    decision = decided(claiming(), *nodes, *slices, claim_template("gpu", *selectors))

    assert (True, True) == (decision.allowed, bool(warning_texts(decision)))


@pytest.mark.parametrize(
    ("declared", "allowed"),
    [
        (DeclaredPools((NodePool("h100", "NodePool"),)), True),
        (DeclaredPools((NodePool("t4", "NodePool", capabilities=OLD),)), False),
        (DeclaredPools((NodePool("h100", "NodePool", taints=(Taint("gpu"),)),)), True),
        (DeclaredPools(signs=frozenset({"cluster-autoscaler-status"})), True),
    ],
)
def test_a_pool_that_may_bring_devices_keeps_a_claim_from_being_denied(
    declared: DeclaredPools, *, allowed: bool
) -> None:
    """As with extended resources."""
    cluster = inventory_of([*NODES, device_class(), OLD_T4, claim_template("gpu", OLDER)])

    assert allowed == judged(shipped(), cluster.with_pools(declared), claiming()).allowed


def test_the_action_of_the_rule_decides_what_becomes_of_a_claim() -> None:
    """A dry run says nothing."""
    rules = shipped_rules()
    seen = []
    for action in Action:
        changed = tuple(replace(rule, action=action) for rule in rules.compatibility)
        policy = compile_policy(replace(rules, compatibility=changed))
        denied = decided(claiming(), OLD_T4, claim_template("gpu"), policy=policy)
        wide = decided(claiming(), OLD_T4, NEW_H100, claim_template("gpu"), policy=policy)
        seen.append((denied.allowed, len(warning_texts(denied)), len(warning_texts(wide))))

    assert [(False, 0, 1), (True, 1, 1), (True, 0, 0)] == seen


def test_a_gpu_that_is_too_old_is_denied_with_a_selector_for_newer_ones() -> None:
    """The compute capability is an attribute, too."""
    document = claiming()
    document["metadata"]["annotations"] = {"gpugate.dev/min-compute-capability": "9.0"}
    decision = decided(document, gpus_of("h100", A100_NAME, "13.0"), claim_template("gpu"))

    assert not decision.allowed
    assert (
        f'attributes["{DRIVER}"].cudaComputeCapability.compareTo(semver("9.0.0")) >= 0' in decision.denial.en
    )


def test_a_gpu_with_too_little_memory_is_denied_with_a_selector_for_larger_ones() -> None:
    """The memory of a device is a capacity."""
    document = claiming()
    document["metadata"]["annotations"] = {"gpugate.dev/min-gpu-memory": "200Gi"}
    decision = decided(document, NEW_H100, claim_template("gpu"))

    assert not decision.allowed
    assert f'device.capacity["{DRIVER}"].memory.compareTo(quantity("200Gi")) >= 0' in decision.denial.en


@pytest.mark.parametrize(
    ("requested", "policy", "part"),
    [
        ({"memory": "40Gi"}, None, None),
        ({"memory": "15Gi"}, {"default": "10Gi", "validValues": ["10Gi", "40Gi"]}, None),  # it has 40Gi
        ({"memory": "20Gi"}, None, "20Gi"),
        ({}, {"default": "10Gi"}, "10Gi"),
        ({}, None, None),  # all of it
    ],
)
def test_a_part_of_a_gpus_memory_that_is_less_than_a_container_needs_is_a_warning(
    requested: dict[str, str], policy: dict[str, Any] | None, part: str | None
) -> None:
    """Whether the part limits the container is up to the driver."""
    document = claiming()
    document["metadata"]["annotations"] = {"gpugate.dev/min-gpu-memory": "30Gi"}
    device = gpu_device("gpu-0") | {"allowMultipleAllocations": True}
    device["capacity"]["memory"] |= {"requestPolicy": policy} if policy else {}
    template = claim_template("gpu", capacity={"requests": requested})
    decision = decided(document, resource_slice("h100", device), template)
    expected = f"not checked: the claim has {part} of the memory of a device, and the container needs 30Gi"

    assert decision.allowed
    assert [expected in text for text in warning_texts(decision)] == [True] * (part is not None)


def test_a_claim_of_another_namespace_is_not_known() -> None:
    """Claims are looked up where the pod is."""
    decision = decided(claiming(), OLD_T4, claim_template("gpu", namespace="other"))

    assert (True, True) == (decision.allowed, "not checked" in warning_texts(decision)[0])


@pytest.mark.parametrize("broken", [None, 1, "gpu", [1], [{"name": 1}], [{}], {"name": "gpu"}])
def test_claims_of_any_shape_are_read(broken: Any) -> None:
    """The API server rejects them."""
    document = claiming()
    document["spec"]["resourceClaims"] = broken
    assert decided(document, OLD_T4, claim_template("gpu")).allowed
    document = claiming()
    document["spec"]["containers"][0]["resources"]["claims"] = broken
    assert decided(document, OLD_T4, claim_template("gpu")).allowed


def test_a_gpu_for_another_driver_version_is_found_among_many_kinds() -> None:
    """One kind that fits is enough not to be denied."""
    devices = [gpu_device(f"gpu-{at}", T4_NAME, "12.2", index={"int": at}) for at in range(100)]
    decision = decided(claiming(), resource_slice("t4", *devices, gpu_device("new")), claim_template("gpu"))

    assert (True, 1) == (decision.allowed, len(warning_texts(decision)))


def test_devices_that_several_alternatives_select_are_counted_once() -> None:
    """In messages."""
    template = claim_template("gpu")
    alternatives = [{"name": name, "deviceClassName": DRIVER} for name in ("a", "b", "c")]
    template["spec"]["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": alternatives}]
    wide = decided(claiming(), OLD_T4, NEW_H100, template)
    denied = decided(claiming(), OLD_T4, template)

    assert "(1 × Tesla-T4" in wide.notices[0].reason.en
    assert "\n    1      Tesla-T4" in denied.denial.en


def test_evaluations_of_the_claims_of_a_pod_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all its containers together; it is told which claim is the first that is not checked."""
    evaluated = Counter[str]()

    def counted(selectors: Selectors, kind: DeviceKind) -> Match:
        evaluated["kinds"] += 1
        return match_all(selectors, kind)

    monkeypatch.setattr(claims, "match_all", counted)
    template = claim_template("gpu")
    alternatives = [{"name": f"a{at}", "deviceClassName": DRIVER} for at in range(8)]
    requests = [{"name": f"r{at}", "firstAvailable": alternatives} for at in range(32)]
    template["spec"]["spec"]["devices"]["requests"] = requests
    names = [f"claim-{at}" for at in range(32)]
    used = {"claims": [{"name": name} for name in names]}
    many = pod(
        *[{"name": f"c{at}", "image": NEEDS_12_4, "resources": used} for at in range(100)],
        resourceClaims=[{"name": name, "resourceClaimTemplateName": "gpu"} for name in names],
    )
    decision = decided(many, OLD_T4, NEW_H100, template)

    assert decision.allowed
    assert 0 < evaluated["kinds"] <= 2048
    assert "claim 'claim-3' not checked: too many requests" in warning_texts(decision)[-1]


def test_equal_requirements_are_checked_once_on_each_kind_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many containers and claims of an object have them: to read them is counted once, too."""
    checked = Counter[str | None]()

    def counted(
        policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> tuple[CheckResult, ...]:
        checked[node.product] += 1
        return check_on_node(policy, requirements, node)

    node_evaluation.results_on.__self__.clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(node_evaluation, "check_on_node", counted)
    names = [f"claim-{at}" for at in range(4)]
    used = {"claims": [{"name": name} for name in names]}
    many = pod(
        *[{"name": f"c{at}", "image": NEEDS_12_4, "resources": used} for at in range(3)],
        resourceClaims=[{"name": name, "resourceClaimTemplateName": "gpu"} for name in names],
    )
    decision = decided(many, OLD_T4, claim_template("gpu"))

    assert 12 == len(decision.violations)
    assert {"Tesla-T4": 1} == checked


@pytest.mark.parametrize(("driver", "count"), [("gpu.nvidia.com", 1), ("nic.example.com", 0)])
def test_visible_devices_by_hand_have_no_effect_beside_a_claim_of_gpus(driver: str, count: int) -> None:
    """The driver sets the variable to void; a claim of other devices leaves it."""
    document = claiming(image="busybox")
    document["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]

    decision = decided(document, NEW_H100, device_class(driver), claim_template("gpu", of_class=driver))

    warnings = [warning.en for warning in decision.warning_lines if "NVIDIA_VISIBLE_DEVICES" in warning.en]
    assert (True, count) == (decision.allowed, len(warnings))
    assert all(
        "has no effect: the driver of the claim replaces it; remove" in warning for warning in warnings
    )


@pytest.mark.parametrize(
    ("value", "request_of", "warns"),
    [
        ("0,1", {"count": 2}, False),
        ("1", {"count": 2}, False),
        ("0,2", {"count": 2}, True),
        ("1", {}, True),
        ("7", {"allocationMode": "All"}, False),
        ("1", {"adminAccess": True}, False),
        ("GPU-0123", {}, False),
        ("", {}, False),
    ],
)
def test_mission_2_an_index_beyond_the_gpus_of_a_claim_is_a_warning(
    value: str, request_of: dict[str, Any], warns: bool
) -> None:
    """As beyond those of a request for nvidia.com/gpu."""
    document = claiming(image="busybox")
    document["spec"]["containers"][0]["env"] = [{"name": "CUDA_VISIBLE_DEVICES", "value": value}]
    decision = decided(document, NEW_H100, device_class(), claim_template("gpu", **request_of))
    warnings = [warning.en for warning in decision.warning_lines if "CUDA_VISIBLE_DEVICES" in warning.en]

    assert (True, int(warns)) == (decision.allowed, len(warnings))
    assert all(
        "names GPU" in warning and "remove CUDA_VISIBLE_DEVICES from env" in warning for warning in warnings
    )


@pytest.mark.parametrize(
    "other",
    [
        {"limits": {"nvidia.com/gpu": "2"}},
        {"claims": [{"name": "gpu"}, {"name": "absent"}]},
    ],
)
def test_mission_2_beside_gpus_whose_number_is_unknown_no_index_is_beyond_them(other: dict[str, Any]) -> None:
    """A request for nvidia.com/gpu in addition, or a claim that is not known."""
    document = claiming(image="busybox")
    main = document["spec"]["containers"][0]
    main["env"] = [{"name": "CUDA_VISIBLE_DEVICES", "value": "2"}]
    main["resources"] |= other
    absent = {"name": "absent", "resourceClaimTemplateName": "absent"}
    document["spec"]["resourceClaims"].append(absent)
    decision = decided(document, NEW_H100, device_class(), claim_template("gpu"))

    assert [] == [warning.en for warning in decision.warning_lines if "names GPU" in warning.en]
