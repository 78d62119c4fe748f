"""Pods whose claims configure devices, and these claims themselves."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.claim_configs import evaluate_configs
from rules.compatibility.result import ClaimAllowance
from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy
from rules.model.decision import AdmissionRequest, Decision
from rules.nodes.devices.claims import claim_of
from rules.nodes.inventory_document import inventory_of
from tests.support.builders import pod, policy, warning_texts
from tests.support.dra_clusters import (
    DRIVER,
    bare_node,
    claim_template,
    device_class,
    gpu_device,
    gpus_of,
    resource_slice,
)
from tests.support.node_builders import compatibility_rule, judged, shipped

VERSION = "resource.nvidia.com/v1beta1"
WRONG = {"strategy": "TimeSlice"}
RIGHT = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
PLACE = "spec.spec.devices.config[0].opaque.parameters.sharing.strategy"
SAYS = (
    "config[0], sharing.strategy: found TimeSlice, expected TimeSlicing or MPS; driver gpu.nvidia.com "
    "refuses it, and the pod does not start"
)
NODES = bare_node("h100"), bare_node("mig")
MIG = resource_slice("mig", gpu_device("mig-0", type={"string": "mig"}))


def config(
    sharing: dict[str, Any] | None = None, *requests: str, kind: str = "GpuConfig", driver: str = DRIVER
) -> dict[str, Any]:
    """Return an entry of a list of configurations."""
    parameters = {"apiVersion": VERSION, "kind": kind, **({"sharing": sharing} if sharing else {})}
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def template(*configs: dict[str, Any], of_class: str = DRIVER, name: str = "gpu") -> dict[str, Any]:
    """Return a ResourceClaimTemplate with configurations."""
    document = claim_template(name, of_class=of_class)
    document["spec"]["spec"]["devices"]["config"] = list(configs)
    return document


def with_configs(of_class: dict[str, Any], *configs: dict[str, Any]) -> dict[str, Any]:
    """Return a DeviceClass with configurations, which name no requests."""
    of_class["spec"]["config"] = [{"opaque": class_config["opaque"]} for class_config in configs]
    return of_class


def decided(*cluster: dict[str, Any], rules: Policy | None = None) -> Decision:
    """Return the decision on a pod of two containers that use a claim of the template `gpu`."""
    containers = [
        {"name": name, "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}} for name in ("a", "b")
    ]
    document = pod(*containers, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])
    return judged(
        rules or shipped(), inventory_of([*NODES, gpus_of("h100"), device_class(), *cluster]), document
    )


def decided_itself(document: dict[str, Any], *cluster: dict[str, Any]) -> Decision:
    """Return the decision on a claim, a template or a class."""
    metadata = document["metadata"]
    request = AdmissionRequest(
        operation="CREATE",
        group="resource.k8s.io",
        kind=document["kind"],
        namespace=metadata.get("namespace", ""),
        object=document,
        mutating=False,
    )
    return decide(Snapshot(shipped(), inventory_of([*cluster])), request)


def test_a_pod_whose_claim_has_a_configuration_that_the_driver_refuses_is_denied_once() -> None:
    """At its claim, however many containers use it."""
    decision = decided(template(config(WRONG, "gpu")))

    assert not decision.allowed
    (violation,) = decision.violations
    assert ("spec.resourceClaims", f"ResourceClaimTemplate gpu: {SAYS}") == (
        violation.path,
        violation.reason.en,
    )
    assert "write TimeSlicing" == violation.fix.en


OWN: dict[str, Any] = {"resources": ["deviceclass.resource.kubernetes.io/*"]}


@pytest.mark.parametrize("cluster", [(), (MIG,)])
def test_the_fix_works(cluster: tuple[dict[str, Any], ...]) -> None:
    """And the rule can say that the feature gate is on, of which nothing else tells."""
    gates = policy(compatibility_rule(match=OWN, featureGates=["TimeSlicingSettings"]))
    decision = decided(template(config(RIGHT, "gpu")), *cluster)

    assert decision.allowed
    (warning,) = warning_texts(decision)
    assert "TimeSlicing needs the driver's feature gate TimeSlicingSettings, perhaps off" in warning
    assert () == warning_texts(decided(template(config(RIGHT, "gpu")), *cluster, rules=gates))


@pytest.mark.parametrize("document", [template(config(WRONG)), template(config(WRONG, "gpu"))])
def test_a_template_is_denied_itself(document: dict[str, Any]) -> None:
    """In preview, before there is a pod; also if no cluster is known."""
    for decision in (decided_itself(document), decided_itself(document, gpus_of("h100"), device_class())):
        (violation,) = decision.violations

        assert (False, PLACE, SAYS) == (decision.allowed, violation.path, violation.reason.en)


def test_a_claim_with_a_strategy_is_told_that_its_feature_gate_is_unknown() -> None:
    """It is off by default."""
    (warning,) = warning_texts(decided_itself(template(config(RIGHT))))

    assert "TimeSlicing needs the driver's feature gate TimeSlicingSettings, perhaps off" in warning
    assert "list it in featureGates of the rule" in warning


@pytest.mark.parametrize("document", [claim_template("gpu"), template(config(WRONG, driver="example.com"))])
def test_a_claim_without_a_configuration_that_is_known_is_not_looked_at(document: dict[str, Any]) -> None:
    """Nothing is said to be right."""
    if document["spec"]["spec"]["devices"].get("config"):
        document["spec"]["spec"]["devices"]["config"][0]["opaque"]["parameters"]["apiVersion"] = (
            "example.com/v1"
        )
    decision = decided_itself(document)

    assert (True, (), ()) == (decision.allowed, warning_texts(decision), decision.rules)


def test_a_configuration_that_a_later_one_replaces_is_a_warning() -> None:
    """The driver applies the last one of a request, and validates no other."""
    decision = decided(template(config(WRONG, "gpu"), config(RIGHT, "gpu")))

    assert decision.allowed
    assert "refuses it if it is applied" in warning_texts(decision)[0]


def test_what_the_driver_cannot_decode_is_denied_though_a_later_one_replaces_it() -> None:
    """It decodes all of them."""
    wrong = {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10GB"}}

    assert not decided(template(config(wrong, "gpu"), config(RIGHT, "gpu"))).allowed


def test_a_configuration_of_a_device_class_is_checked_for_each_claim_of_it() -> None:
    """And one of the claim takes precedence."""
    of_class = with_configs(device_class("shared", resource=None), config(WRONG))
    decision = decided(of_class, template(of_class="shared"))
    replaced = decided(of_class, template(config(RIGHT, "gpu"), of_class="shared"))

    assert [False, True] == [decision.allowed, replaced.allowed]
    assert decision.violations[0].reason.en.startswith(
        "DeviceClass shared: config[0], sharing.strategy: found "
    )
    assert "refuses it if it is applied" in warning_texts(replaced)[0]


def test_a_device_class_itself_is_denied_if_its_devices_are_the_drivers() -> None:
    """Of a class with another name, only the devices of a cluster tell."""
    own = with_configs(device_class(), config(WRONG))
    other = with_configs(device_class("shared"), config(WRONG))

    assert [False, True, False] == [
        decided_itself(own).allowed,
        decided_itself(other).allowed,
        decided_itself(other, gpus_of("h100"), other).allowed,
    ]


def test_a_configuration_for_devices_of_another_type_is_refused_if_it_names_the_request() -> None:
    """Without a name, the driver skips it."""
    of_class = device_class("mig.nvidia.com", f"device.attributes['{DRIVER}'].type == 'mig'", resource=None)
    named = decided(MIG, of_class, template(config(RIGHT, "gpu"), of_class="mig.nvidia.com"))
    unnamed = decided(MIG, of_class, template(config(RIGHT), of_class="mig.nvidia.com"))
    own = decided(MIG, of_class, template(config(kind="MigDeviceConfig"), of_class="mig.nvidia.com"))

    assert "GpuConfig is not for devices of type mig" in named.denial.en
    assert "write MigDeviceConfig" in named.denial.en
    assert (True, True) == (unnamed.allowed, "it has no effect" in warning_texts(unnamed)[0])
    assert own.allowed


def test_a_claim_whose_devices_are_unknown_is_a_warning() -> None:
    """They may be of a driver that skips the configuration."""
    decision = decided(template(config(WRONG, "gpu"), of_class="other"))

    assert decision.allowed
    assert any("refuses it if it is applied" in warning for warning in warning_texts(decision))


def test_a_field_that_one_release_ignores_is_a_warning() -> None:
    """Releases of the driver differ."""
    (warning,) = warning_texts(decided(template(config({**RIGHT, "replicas": 4}, "gpu"))))

    assert "GpuConfig has no field replicas; most releases of driver gpu.nvidia.com up to v" in warning


@pytest.mark.parametrize(
    ("effect", "allowed", "warnings"),
    [("deny", False, 0), ("warn", True, 1), ("dryrun", True, 0), ("off", True, 0)],
)
def test_a_rule_sets_the_effect(effect: str, allowed: bool, warnings: int) -> None:
    """As of the other checks."""
    own = policy(compatibility_rule(match=OWN, checks={"claimConfigs": effect}))
    decision = decided(template(config(WRONG, "gpu")), rules=own)

    assert (allowed, warnings) == (decision.allowed, len(warning_texts(decision)))
    assert (effect == "dryrun") == any(violation.action == "dryrun" for violation in decision.violations)


def test_many_claims_with_mistakes_are_a_few_findings() -> None:
    """The time of a decision has a bound."""
    decision = decided(template(*[config(WRONG, "gpu") for _ in range(32)]))

    assert 8 == len({*decision.violations, *decision.notices})


def test_devices_of_another_type_in_a_class_with_another_name_are_a_warning() -> None:
    """Others may come."""
    of_class = device_class("sliced", f"device.attributes['{DRIVER}'].type == 'mig'", resource=None)
    decision = decided(MIG, of_class, template(config(RIGHT, "gpu"), of_class="sliced"))

    assert decision.allowed
    assert "GpuConfig is not for devices of type mig" in warning_texts(decision)[0]


def test_a_channel_of_a_compute_domain_takes_its_own_configuration() -> None:
    """Of its devices, nothing but the driver is read."""
    domain = "compute-domain.nvidia.com"
    name = "compute-domain-default-channel.nvidia.com"
    channel = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}
    entry = config(None, "gpu", kind="ComputeDomainChannelConfig", driver=domain)
    entry["opaque"]["parameters"]["domainID"] = "9b2a"
    cluster = (
        resource_slice("h100", channel, driver=domain),
        device_class(name, f"device.driver == '{domain}'", resource=None),
    )

    assert () == warning_texts(decided(*cluster, template(entry, of_class=name)))
    del entry["opaque"]["parameters"]["domainID"]
    assert "domainID: it is missing" in decided(*cluster, template(entry, of_class=name)).denial.en


def test_configurations_beyond_the_allowance_of_an_object_are_not_looked_at() -> None:
    """The time of a decision has a bound."""
    (rule,) = policy(compatibility_rule(match=OWN)).rules.compatibility
    claim = claim_of("ResourceClaimTemplate", template(config(WRONG, "gpu")))
    dra = inventory_of([device_class(), gpus_of("h100")]).dra
    spent, fresh = ClaimAllowance(), ClaimAllowance()
    spent.left = 0

    assert [] == evaluate_configs([claim], "spec.resourceClaims", [rule], dra, spent)
    assert 1 == len(evaluate_configs([claim], "spec.resourceClaims", [rule], dra, fresh))
