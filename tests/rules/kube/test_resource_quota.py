"""What pods use of quotas, and which pods a quota counts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from rules.kube.resource_quota import ResourceQuota, limit_defaults, quantity_text, usage_of

GPU = "nvidia.com/gpu"


def container(name: str = "main", **resources: Any) -> dict[str, Any]:
    """Return a container with these limits and requests."""
    return {"name": name, "resources": resources}


def quota(hard: dict[str, Any], used: dict[str, Any] | None = None, **spec: Any) -> ResourceQuota:
    """Return a quota of namespace ml."""
    document = {"metadata": {"name": "q", "namespace": "ml"}, "spec": {"hard": hard, **spec}}
    return ResourceQuota.of(document | ({"status": {"hard": hard, "used": used}} if used else {}), "default")


def amounts(**spec: Any) -> dict[str, Any]:
    """Return what a pod of this spec uses, except the pod itself."""
    return {name: amount for name, amount in usage_of(spec).amounts.items() if "pods" not in name}


def test_gpus_count_as_requests_also_if_only_the_limit_is_written() -> None:
    """Extended resources have no other name in a quota, and no overcommitment."""
    assert {"requests.nvidia.com/gpu": 3} == amounts(
        containers=[container(limits={GPU: "1"}), container("b", requests={GPU: 2}, limits={GPU: 2})]
    )


def test_cpu_and_memory_have_two_names_and_limits_of_their_own() -> None:
    """A missing request is the limit."""
    resource_amounts = amounts(
        containers=[container(limits={"cpu": "1500m", "memory": "1Gi"}, requests={"cpu": 1})]
    )

    assert {
        "cpu": 1,
        "requests.cpu": 1,
        "limits.cpu": Decimal("1.5"),
        "memory": 2**30,
        "requests.memory": 2**30,
        "limits.memory": 2**30,
    } == resource_amounts


def test_init_containers_count_if_they_need_more_and_sidecars_run_beside_all() -> None:
    """As the scheduler counts."""
    main, init = container(limits={GPU: 1}), container("init", limits={GPU: 4})
    sidecar = container("sidecar", limits={GPU: 2}) | {"restartPolicy": "Always"}

    assert {"requests.nvidia.com/gpu": 4} == amounts(containers=[main], initContainers=[init])
    assert {"requests.nvidia.com/gpu": 6} == amounts(containers=[main], initContainers=[sidecar, init])
    assert {"requests.nvidia.com/gpu": 4} == amounts(containers=[main], initContainers=[init, sidecar])
    assert {"requests.nvidia.com/gpu": 3} == amounts(containers=[main], initContainers=[sidecar])


def test_resources_of_the_whole_pod_replace_those_of_its_containers_and_the_overhead_is_added() -> None:
    """Overhead is no limit where there is none."""
    resource_amounts = amounts(
        containers=[container(requests={"cpu": 1})],
        resources={"requests": {"cpu": 4}},
        overhead={"cpu": "250m"},
    )

    assert {"cpu": Decimal("4.25"), "requests.cpu": Decimal("4.25")} == resource_amounts


def test_a_container_without_cpu_is_named_unless_a_limit_range_or_the_pod_sets_it() -> None:
    """A quota of cpu or memory requires them; one of GPUs does not."""
    spec = {"containers": [container(limits={GPU: 1}), container("b", requests={"cpu": 1})]}
    defaults = limit_defaults({"spec": {"limits": [{"type": "Container", "default": {"cpu": 2}}]}})
    usage, filled = usage_of(spec), usage_of(spec, [defaults])

    assert (("main",), ("main", "b")) == (usage.unset["requests.cpu"], usage.unset["limits.cpu"])
    assert not any("gpu" in resource for resource in usage.unset)
    assert ((), ()) == (filled.unset["cpu"], filled.unset["limits.cpu"])
    assert (3, 4) == (filled.amounts["requests.cpu"], filled.amounts["limits.cpu"])
    assert {} == usage_of({**spec, "resources": {"requests": {"cpu": 3}}}).unset


def test_a_limit_range_without_default_request_uses_its_default_and_without_that_its_max() -> None:
    """As the API server stores it. Other types than containers give nothing."""
    item = {"type": "Container", "max": {"cpu": 4}, "min": {"cpu": 1, "memory": "1Gi"}}
    pod = {"type": "Pod", "max": {"cpu": 64}}

    assert ({"cpu": 4}, {"cpu": 4, "memory": "1Gi"}) == limit_defaults({"spec": {"limits": [pod, item]}})


def test_what_is_left_is_never_below_zero() -> None:
    """A quota may be lowered below its use; without a status nothing is used."""
    hard = {"requests.nvidia.com/gpu": "4"}

    assert [4, 3, 0] == [
        quota(hard, used).left("requests.nvidia.com/gpu")
        for used in (None, {"requests.nvidia.com/gpu": "1"}, {"requests.nvidia.com/gpu": "5"})
    ]


PRIORITY = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}


@pytest.mark.parametrize(
    ("scopes", "spec", "counted"),
    [
        ({}, {}, True),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, True),
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, {"containers": [container(limits={GPU: 1})]}, True),
        ({"scopes": ["BestEffort"]}, {"containers": [container(requests={"cpu": 1})]}, False),
        ({"scopes": ["NotBestEffort"]}, {"containers": [container(requests={"cpu": 1})]}, True),
        ({"scopeSelector": {"matchExpressions": [PRIORITY]}}, {"priorityClassName": "high"}, True),
        ({"scopeSelector": {"matchExpressions": [PRIORITY]}}, {"priorityClassName": "low"}, False),
        ({"scopeSelector": {"matchExpressions": [PRIORITY]}}, {}, None),
        (
            {"scopeSelector": {"matchExpressions": [PRIORITY | {"operator": "NotIn"}]}},
            {"priorityClassName": "low"},
            True,
        ),
        ({"scopes": ["PriorityClass"]}, {"priorityClassName": "low"}, True),
        (
            {"scopeSelector": {"matchExpressions": [PRIORITY | {"operator": "DoesNotExist"}]}},
            {"priorityClassName": "low"},
            False,
        ),
        (
            {"scopeSelector": {"matchExpressions": [PRIORITY | {"operator": "Near"}]}},
            {"priorityClassName": "low"},
            None,
        ),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {}, False),
        ({"scopes": ["SomethingNew"]}, {}, None),
        ({"scopes": ["SomethingNew", "Terminating"]}, {}, False),
    ],
)
def test_a_quota_counts_the_pods_of_its_scopes(
    scopes: dict[str, Any], spec: dict[str, Any], *, counted: bool | None
) -> None:
    """It is unknown for a scope that is not known, and if a default priority class may decide."""
    assert counted is quota({}, **scopes).counts(spec)


def test_affinity_to_pods_of_other_namespaces_is_a_scope() -> None:
    """Required and preferred."""
    term = {"topologyKey": "zone", "namespaceSelector": {}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]}

    for rules in (required, preferred):
        spec = {"affinity": {"podAntiAffinity": rules}}
        assert quota({}, scopes=["CrossNamespacePodAffinity"]).counts(spec) is True


def test_malformed_objects_limit_and_use_nothing() -> None:
    """The API server rejects them."""
    broken = ResourceQuota.of({"metadata": 1, "spec": {"hard": {"pods": "many"}, "scopes": "x"}}, "ml")

    assert ({}, (), "ml") == (broken.hard, broken.scopes, broken.namespace)
    assert {} == amounts(
        containers=[{"resources": {"limits": {GPU: "some", "cpu": []}}}, 1], initContainers={}
    )


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (4, "4"),
        (0, "0"),
        (Decimal("1.5"), "1500m"),
        (8 * 2**30, "8Gi"),
        (1536 * 2**20, "1536Mi"),
        (1000, "1000"),
    ],
)
def test_amounts_are_written_as_quantities(amount: Any, text: str) -> None:
    """As short as they are exact."""
    assert text == quantity_text(amount)
