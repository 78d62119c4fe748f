"""Claims of a pod, and the devices that they may be given."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.nodes.devices.claims import (
    AllocatedDevice,
    Candidate,
    Candidates,
    ClaimRequest,
    DeviceRequest,
    PodClaim,
    candidates,
    pod_claims,
    used_claims,
)
from rules.nodes.devices.device_classes import DeviceClasses, read_device_class
from rules.nodes.devices.devices import KindPool, facts_of
from rules.nodes.devices.slices import DeviceInventory, read_slice
from tests.support.broken_json import JSON, broken
from tests.support.dra_builders import (
    GPU_DRIVER,
    T4,
    claim,
    claim_template,
    device,
    device_class,
    exactly,
    resource_slice,
)

CUDA: Final = f'device.attributes["{GPU_DRIVER}"].cudaDriverVersion'
POD: Final = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "template"}]}
SUB: Final = [
    {"name": name, **exactly("", f"{CUDA}.major() {comparison}")["exactly"]}
    for name, comparison in (("new", "> 12"), ("old", "== 12"))
]


def inventory(*documents: dict[str, Any]) -> DeviceInventory:
    """Return the devices of slices; by default an H100 on node `h` and two T4 on node `t`."""
    given = documents or (
        resource_slice("h"),
        resource_slice("t", [device("gpu-0", **T4), device("gpu-1", **T4)]),
    )
    read = [read_slice(document, KindPool())[0] for document in given]
    return DeviceInventory(parsed for parsed in read if parsed is not None)


def classes(*documents: dict[str, Any]) -> DeviceClasses:
    """Return classes; by default the one that the driver's chart installs."""
    read = [read_device_class(document)[0] for document in documents or (device_class(),)]
    return DeviceClasses(parsed for parsed in read if parsed is not None)


def request_of(document: dict[str, Any]) -> ClaimRequest:
    """Return the only request of a ResourceClaim."""
    spec = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "claim"}]}
    ((request,),) = (pod_claim.requests for pod_claim in pod_claims(spec, lambda *_: document))
    return request


def products(of_request: Candidates) -> list[tuple[str | None, dict[str, int] | None]]:
    """Return the product and the nodes of each candidate."""
    facts = [(facts_of(known_device.kind), known_device.nodes) for known_device in of_request.devices]
    return [(fact.product if fact else None, None if nodes is None else dict(nodes)) for fact, nodes in facts]


def test_a_claim_of_a_pod_has_the_requests_of_its_template() -> None:
    documents = {("ResourceClaimTemplate", "template"): claim_template(exactly("gpu", "true", count=2))}
    request = ClaimRequest("gpu", (DeviceRequest("", GPU_DRIVER, ("true",), 2),))
    source = "ResourceClaimTemplate", ""
    assert (PodClaim("gpus", (request,), source=source),) == pod_claims(POD, lambda *key: documents.get(key))


def test_a_claim_of_a_pod_has_the_requests_of_a_resource_claim() -> None:
    assert ClaimRequest("gpu", (DeviceRequest("", GPU_DRIVER),)) == request_of(claim(exactly()))


def test_a_request_of_v1beta1_has_its_fields_inline() -> None:
    exact = exactly("gpu", "true", allocationMode="All")
    assert request_of(claim({"name": "gpu", **exact["exactly"]})) == request_of(claim(exact))


def test_all_devices_that_match_have_the_number_0() -> None:
    assert 0 == request_of(claim(exactly(allocationMode="All"))).alternatives[0].number


def test_first_available_has_alternatives_in_their_order() -> None:
    request = request_of(claim({"name": "gpu", "firstAvailable": SUB}))
    assert ["new", "old"] == [alternative.name for alternative in request.alternatives]


@pytest.mark.parametrize("kind", ["resourceClaimName", "resourceClaimTemplateName"])
def test_a_claim_that_does_not_exist_is_unknown(kind: str) -> None:
    (known_claim,) = pod_claims({"resourceClaims": [{"name": "gpus", kind: "absent"}]}, lambda *_: None)
    assert known_claim.unknown is not None
    assert "absent is not known" in known_claim.unknown.en


def test_a_claim_without_a_name_of_an_object_is_unknown() -> None:
    (known_claim,) = pod_claims({"resourceClaims": [{"name": "gpus"}]}, lambda *_: None)
    assert known_claim.unknown is not None


@pytest.mark.parametrize(
    "request_document",
    [
        {"name": "gpu"},
        {"name": "gpu", "exactly": {}},
        {"name": "gpu", "exactly": {"deviceClassName": 7}},
        {"name": "gpu", "exactly": {"deviceClassName": "x", "allocationMode": "Future"}},
        {"name": "gpu", "firstAvailable": [*SUB, {"name": "third"}]},
        {"name": "gpu", "firstAvailable": [SUB[0]] * 9},
        "gpu",
    ],
)
def test_a_request_that_is_not_readable_is_unknown(request_document: Any) -> None:
    assert request_of(claim(request_document)).unknown is not None


def test_further_requests_than_kubernetes_allows_are_unknown() -> None:
    (known_claim,) = pod_claims(POD, lambda *_: claim_template(*[exactly()] * 40))
    assert 33 == len(known_claim.requests)
    assert known_claim.requests[-1].unknown is not None


def test_the_selectors_of_a_pod_have_a_budget_of_characters() -> None:
    long = "true" + " " * 10_000
    (known_claim,) = pod_claims(POD, lambda *_: claim_template(exactly("gpu", *[long] * 5)))
    assert [long] * 3 + [None] * 2 == list(known_claim.requests[0].alternatives[0].selectors)


def test_further_claims_than_the_limit_are_unknown() -> None:
    spec = {"resourceClaims": POD["resourceClaims"] * 40}
    claims = pod_claims(spec, lambda *_: claim_template(exactly()))
    assert [True] * 8 == [known_claim.unknown is not None for known_claim in claims[32:]]
    assert {None} == {known_claim.unknown for known_claim in claims[:32]}


def test_a_container_uses_the_requests_that_it_names_or_all() -> None:
    claims = pod_claims(POD, lambda *_: claim_template(exactly("one"), exactly("two")))

    def used(*entries: dict[str, Any]) -> list[list[str]]:
        container = {"resources": {"claims": list(entries)}}
        return [
            [request.name for request in used_claim.requests] for used_claim in used_claims(container, claims)
        ]

    assert [["one", "two"]] == used({"name": "gpus"})
    assert [["two"]] == used({"name": "gpus", "request": "two"})
    assert [["one", "two"]] == used({"name": "gpus", "request": "two"}, {"name": "gpus", "request": "one"})
    assert [] == used({"name": "other"})
    assert [] == used()


def test_a_request_that_the_claim_does_not_have_is_unknown() -> None:
    claims = pod_claims(POD, lambda *_: claim_template(exactly("one")))
    container = {"resources": {"claims": [{"name": "gpus", "request": "absent"}]}}
    (used_claim,) = used_claims(container, claims)
    assert used_claim.unknown is not None


def test_candidates_are_the_devices_that_class_and_request_select() -> None:
    request = request_of(claim(exactly("gpu", f'{CUDA}.isGreaterThan(semver("12.9.0"))')))
    images = candidates(request, classes(), inventory())
    assert ([("NVIDIA-H100-80GB-HBM3", {"h": 1})], ()) == (products(images), images.unknown)


def test_a_request_without_selectors_has_all_devices_of_its_class() -> None:
    images = candidates(request_of(claim(exactly())), classes(), inventory())
    assert [("NVIDIA-H100-80GB-HBM3", {"h": 1}), ("Tesla-T4", {"t": 2})] == products(images)


def test_candidates_of_first_available_are_those_of_each_alternative() -> None:
    images = candidates(request_of(claim({"name": "gpu", "firstAvailable": SUB})), classes(), inventory())
    assert ["new", "old"] == [known_device.alternative for known_device in images.devices]


def test_no_device_matches_a_selector_that_is_false_or_fails() -> None:
    for expression in ("false", f"{CUDA}.absent", f"device.attributes['{GPU_DRIVER}'].absent == 1"):
        request = request_of(claim(exactly("gpu", expression)))
        assert ((), ()) == candidates(request, classes(), inventory())[:2]


def test_a_device_for_which_a_selector_fails_is_told_with_the_error() -> None:
    """For those that the selectors before it match, as the scheduler evaluates them in their order."""
    fails = f"device.attributes['{GPU_DRIVER}'].absent == 1"
    new = f'{CUDA}.isGreaterThan(semver("12.9.0"))'
    images = candidates(request_of(claim(exactly("gpu", new, fails))), classes(), inventory())
    assert [({"h": 1}, "no such key: 'absent'")] == [failure[1:] for failure in images.failed]
    for before in ("false", f"device.attributes['{GPU_DRIVER}'].uuid == 'GPU-gpu-0'"):
        images = candidates(request_of(claim(exactly("gpu", before, fails))), classes(), inventory())
        assert ((), ()) == (images.devices, images.failed)


def test_a_selector_that_cannot_be_evaluated_leaves_uncertain_candidates() -> None:
    request = request_of(claim(exactly("gpu", f"device.attributes['{GPU_DRIVER}'].uuid == 'GPU-gpu-0'")))
    images = candidates(request, classes(), inventory())
    assert {False} == {known_device.certain for known_device in images.devices}
    assert ["devices of gpu.nvidia.com may match: unknown value: gpu.nvidia.com/uuid"] == [
        text.en for text in images.unknown
    ]


def test_a_class_that_does_not_exist_is_unknown() -> None:
    images = candidates(request_of(claim(exactly(device_class="absent"))), classes(), inventory())
    assert ((), ["DeviceClass absent is not known"]) == (images.devices, [text.en for text in images.unknown])


def test_a_pool_that_is_not_complete_may_have_candidates() -> None:
    incomplete = inventory(resource_slice("h", resourceSliceCount=2))
    (candidate,), unknown, *_ = candidates(request_of(claim(exactly())), classes(), incomplete)
    assert ({"h": 0}, False, 1) == (candidate.nodes, candidate.certain, len(unknown))


def test_devices_of_which_nothing_is_known_are_uncertain_also_where_the_driver_is_all_that_is_selected() -> (
    None
):
    """It is unknown which of them there are."""
    by_driver = classes(device_class(GPU_DRIVER, f"device.driver == '{GPU_DRIVER}'"))
    incomplete = inventory(resource_slice("h", resourceSliceCount=2))
    (candidate,), unknown, *_ = candidates(request_of(claim(exactly())), by_driver, incomplete)
    assert (False, ["devices of gpu.nvidia.com may match: not all ResourceSlices of its pool are there"]) == (
        candidate.certain,
        [text.en for text in unknown],
    )


def test_devices_that_are_not_of_one_node_are_candidates_of_unknown_nodes() -> None:
    images = candidates(request_of(claim(exactly())), classes(), inventory(resource_slice(None)))
    assert [("NVIDIA-H100-80GB-HBM3", None)] == products(images)


@pytest.mark.parametrize(
    ("tolerations", "number"),
    [
        ([], 0),
        ([{"key": "example.com/slow", "operator": "Exists"}], 1),
        ([{"operator": "Exists"}], 1),
        ([{"key": "example.com/slow", "value": "no"}], 0),
        (["x", None], 0),
    ],
)
def test_a_tainted_device_is_a_candidate_if_it_is_tolerated(tolerations: list[Any], number: int) -> None:
    tainted = device() | {"taints": [{"key": "example.com/slow", "value": "yes", "effect": "NoSchedule"}]}
    request = request_of(claim(exactly(tolerations=tolerations)))
    assert number == len(candidates(request, classes(), inventory(resource_slice("h", [tainted]))).devices)


def shared(name: str = "gpu-0", **policy: Any) -> dict[str, Any]:
    """Return an H100 of which several claims may have a part of 80Gi of memory, by a request policy."""
    memory = {"value": "80Gi"} | ({"requestPolicy": policy} if policy else {})
    return device(name) | {"allowMultipleAllocations": True, "capacity": {"memory": memory}}


@pytest.mark.parametrize(
    ("requests", "number", "reason"),
    [
        ({}, 2, ""),
        (
            {"memory": "40Gi"},
            1,
            "the claim requests 40Gi of the capacity memory; a device of {} gives 30Gi at most",
        ),
        ({"memory": "30Gi"}, 2, ""),
        ({"memory": "1"}, 2, ""),
        (
            {f"{GPU_DRIVER}/memory": "1"},
            0,
            "the claim requests the capacity {0}/memory, which devices of {0} do not have",
        ),
        (
            {"memory": "1", "cores": "1"},
            0,
            "the claim requests the capacity cores, which devices of {} do not have",
        ),
    ],
)
def test_candidates_are_devices_that_give_the_requested_capacity(
    requests: dict[str, str], number: int, reason: str
) -> None:
    """As the scheduler allocates them: the name of a capacity is the one that the device writes."""
    devices = [shared(), shared("gpu-1", default="10Gi", validValues=["10Gi", "30Gi"])]
    request = request_of(claim(exactly(capacity={"requests": requests})))
    images = candidates(request, classes(), inventory(resource_slice("h", devices)))
    reasons = [excluded.reason.en for excluded in images.excluded]
    assert (number, True) == (
        len(images.devices),
        all(known_device.certain for known_device in images.devices),
    )
    assert [reason.format(GPU_DRIVER)] * (2 - number) == reasons


def test_a_device_that_is_not_shared_must_have_the_requested_capacity() -> None:
    for amount, number in (("80Gi", 1), ("81Gi", 0)):
        request = request_of(claim(exactly(capacity={"requests": {"memory": amount}})))
        assert number == len(candidates(request, classes(), inventory(resource_slice("h"))).devices)


@pytest.mark.parametrize("amount", ["much", "20Gi"])
def test_devices_whose_capacity_or_policy_is_unknown_may_match(amount: str) -> None:
    odd = shared(validRange={"min": "1Gi", "step": "-1"})
    request = request_of(claim(exactly(capacity={"requests": {"memory": amount}})))
    images = candidates(request, classes(), inventory(resource_slice("h", [odd])))
    assert [False] == [known_device.certain for known_device in images.devices]
    assert [
        "devices of gpu.nvidia.com may match: it is unknown whether they give the requested capacity"
    ] == [text.en for text in images.unknown]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"clusterResourceClaimTemplateName": "gpu"}, "clusterResourceClaimTemplateName"),
        ({"source": {"resourceClaimName": "gpu"}}, "source"),
        ({}, None),
    ],
)
def test_a_pods_claim_that_names_its_object_in_another_way_is_said_to_be_unknown(
    entry: dict[str, Any], expected: str | None
) -> None:
    """As Kubernetes 1.30 did, and as newer versions may."""
    (known_claim,) = pod_claims({"resourceClaims": [{"name": "gpus", **entry}]}, lambda *_: claim(exactly()))
    by = f"its object by {expected}, which gpugate does not read" if expected else "no object"
    assert known_claim.unknown
    assert f"the pod's claim names {by}" == known_claim.unknown.en


def test_a_capacity_that_is_not_readable_makes_the_request_unknown() -> None:
    assert request_of(claim(exactly(capacity={"requests": ["memory"]}))).unknown


def test_a_selector_is_evaluated_before_taints_as_by_the_scheduler() -> None:
    """So that it fails on a device whose taint is not tolerated."""
    tainted = device() | {"taints": [{"key": "broken", "effect": "NoExecute"}]}
    inventories = inventory(resource_slice("h", [tainted]))
    fails = f"device.attributes['{GPU_DRIVER}'].absent == 1"
    images = candidates(request_of(claim(exactly("gpu", fails))), classes(), inventories)
    assert (1, 0) == (len(images.failed), len(images.excluded))
    images = candidates(request_of(claim(exactly())), classes(), inventories)
    assert [
        "devices of gpu.nvidia.com have the taint broken:NoExecute, which the claim does not tolerate"
    ] == [excluded.reason.en for excluded in images.excluded]


def test_administrative_access_is_not_judged() -> None:
    assert request_of(claim(exactly(adminAccess=True))).admin


def test_administrative_access_has_no_devices_that_count_as_allocated() -> None:
    """It uses devices that other claims have."""
    result = {"request": "gpu", "driver": GPU_DRIVER, "pool": "t", "device": "gpu-1", "adminAccess": True}
    request = request_of(claim(exactly(adminAccess=True), allocated=[result]))
    assert (True, None, None) == (request.admin, request.allocated, request.unknown)


def test_an_allocated_claim_has_its_devices_only() -> None:
    result = {"request": "gpu", "driver": GPU_DRIVER, "pool": "t", "device": "gpu-1"}
    request = request_of(claim(exactly(), allocated=[result, {**result, "request": "other"}]))
    assert (AllocatedDevice(GPU_DRIVER, "t", "gpu-1"),) == request.allocated
    assert [("Tesla-T4", {"t": 1})] == products(candidates(request, classes(), inventory()))


def test_an_allocated_alternative_is_named_after_its_request() -> None:
    result = {"request": "gpu/old", "driver": GPU_DRIVER, "pool": "h", "device": "gpu-0"}
    request = request_of(claim({"name": "gpu", "firstAvailable": SUB}, allocated=[result]))
    assert [("NVIDIA-H100-80GB-HBM3", {"h": 1})] == products(candidates(request, classes(), inventory()))


@pytest.mark.parametrize(
    "results",
    [
        [{"request": "gpu", "driver": GPU_DRIVER, "pool": "gone", "device": "gpu-0"}],
        [{"request": "gpu", "driver": GPU_DRIVER}],
        [],
        ["x"],
    ],
)
def test_allocated_devices_that_are_not_known_are_told(results: list[Any]) -> None:
    request = request_of(claim(exactly(), allocated=results))
    images = candidates(request, classes(), inventory())
    assert ((), 1) == (images.devices, len(images.unknown))


def test_a_candidate_is_certain_and_has_no_alternative_by_default() -> None:
    (kind,) = inventory(resource_slice("h")).by_kind
    images = candidates(request_of(claim(exactly())), classes(), inventory(resource_slice("h")))
    assert (Candidate(kind, {"h": 1}),) == images.devices


TAINTED: Final = exactly("gpu", "true", tolerations=[{"operator": "Exists"}], count=2)
RESULT: Final = {"request": "gpu", "driver": GPU_DRIVER, "pool": "t", "device": "gpu-1"}


@given(
    broken(claim(TAINTED, {"name": "x", "firstAvailable": SUB}, allocated=[RESULT]))
    | broken(claim_template(TAINTED, {"name": "x", "firstAvailable": SUB}))
    | JSON,
    broken({"resourceClaims": [{"name": "a", "resourceClaimName": "b"}, *POD["resourceClaims"]]}),
    st.booleans(),
)
def test_any_json_is_read(document: Any, spec: Any, missing: bool) -> None:
    claims = pod_claims(spec if isinstance(spec, dict) else {}, lambda *_: None if missing else document)
    used_claims({"resources": {"claims": [{"name": "a"}]}}, claims)
    for known_claim in claims:
        for request in known_claim.requests:
            candidates(request, classes(), inventory())
