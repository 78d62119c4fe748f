"""What gpugate writes survives tools that apply the manifests again and again, as Argo CD and Flux do."""

from __future__ import annotations

import copy
import json
import os
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from certs.kubernetes_api import KubernetesError
from rules.cuda.requirements import CUDA_VERSION_ANNOTATION
from rules.model.workload_kinds import built_in_workloads
from tests.e2e.installed import CUDA, GPU, TEAM, Installed
from tests.e2e.load import CLIENTS, PODS, Load
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import pod
from tests.support.builders import resource_rule
from tests.support.memory import CONFIGURATIONS
from webhook.cluster.client import ClusterApi
from webhook.cluster.match_conditions import CONDITION, STATIC_CONDITION, expression, resources_in
from webhook.cluster.rule_snapshot import RuleSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.manifests import Object

# Seconds of each way to apply, once a second; GITOPS_SECONDS=60 for the figures of docs/adr/0012-gitops.md.
SECONDS: Final = float(os.environ.get("GITOPS_SECONDS", "15"))
# Creations a second.
RATE: Final = 20.0
DENIAL: Final = "four at most"
# No built-in rule names these resources. A pod that requests a device gets a core; more than four are denied.
DEVICE, CORE = "gitops.example.com/device", "gitops.example.com/core"
AT_MOST: Final = {"expression": "value <= 4", "messageEn": DENIAL, "messageZh": "至多四个"}
RULES: Final = (
    resource_rule(DEVICE, group="gitops", validations=[AT_MOST]),
    resource_rule(CORE, group="gitops", defaultValue="7"),
)
# The options of each tool. Argo CD applies on the client side by default, and on the server side on request.
SERVER_SIDE: Final = "--server-side"
WAYS: Final = {
    "Flux": (SERVER_SIDE, "--force-conflicts", "--field-manager=kustomize-controller"),
    "Argo CD": (),
    "Argo CD, server-side": (SERVER_SIDE, "--force-conflicts", "--field-manager=argocd-controller"),
    "kubectl, server-side": (SERVER_SIDE,),
}


class Creations(Load):
    """Creates pods, until its block ends: the custom rules deny every second one, and complete the others.

    unseen: those that the rules did not deny or complete. failures: all other errors.
    """

    def __init__(self, installed: Installed) -> None:
        super().__init__(installed.cluster, RATE)
        self.unseen: list[Object] = []

    def create(self, api: ClusterApi, number: int) -> None:
        """Create a pod, as a dry run."""
        denied = number // CLIENTS % 2 == 1
        document = json.loads(pod(f"gitops-{number}", {DEVICE: "5" if denied else "1"}))
        try:
            created = api._request("POST", f"{PODS}?dryRun=All", document)
        except KubernetesError as error:
            if not denied or DENIAL not in str(error):
                self.failures.append(str(error))
        else:
            (container,) = created["spec"]["containers"]
            if denied or container["resources"]["limits"].get(CORE) != "7":
                self.unseen.append(created)


@pytest.fixture
def api(installed: Installed) -> Iterator[ClusterApi]:
    """Yield a client of the administrator."""
    client = ClusterApi.of_kubeconfig(str(installed.cluster.kubeconfig))
    yield client
    client.close()


@pytest.fixture
def seen(installed: Installed, api: ClusterApi) -> Iterator[Installed]:
    """Yield the installation with the custom rules in force, and stored for a restart."""
    rules = "\n---\n".join(RULES)
    installed.cluster.kubectl("apply", "-f", "-", input=rules)
    eventually(lambda: sees(installed))
    eventually(lambda: all({DEVICE, CORE} < name for name in named(api)))
    eventually(lambda: CORE in str(RuleSnapshot(api, "gpugate").load()))
    yield installed
    installed.cluster.kubectl("delete", "-f", "-", input=rules)


def sees(installed: Installed) -> bool:
    """Return whether the custom rules are in force."""
    return DENIAL in installed.refusal(pod("asks", {DEVICE: "5"}))


def conditions(api: ClusterApi) -> list[dict[str, str]]:
    """Return the conditions of both webhooks, by name."""
    of_webhooks = [api.get(path)["webhooks"][0]["matchConditions"] for path in CONFIGURATIONS]
    return [{condition["name"]: condition["expression"] for condition in one} for one in of_webhooks]


def named(api: ClusterApi) -> list[frozenset[str]]:
    """Return the resources that both conditions of gpugate name; none where it has not written any."""
    return [resources_in(condition.get(CONDITION, "")) for condition in conditions(api)]


def manifests(installed: Installed) -> list[Object]:
    """Return the objects of the overlay, except its many rules."""
    return [
        document for document in installed.objects if document["metadata"].get("namespace") != "kube-public"
    ]


def webhooks_in(objects: list[Object]) -> list[Any]:
    """Return the webhooks in objects."""
    return [webhook for document in objects for webhook in document.get("webhooks", ())]


def apply(installed: Installed, objects: list[Object], *options: str) -> None:
    """Apply objects."""
    installed.cluster.kubectl("apply", *options, "-f", "-", input=yaml.safe_dump_all(objects))


def written(api: ClusterApi) -> list[Any]:
    """Return what gpugate writes, with the number of changes of the webhooks."""
    configurations = [api.get(path) for path in CONFIGURATIONS]
    secret = api.get("/api/v1/namespaces/gpugate/secrets/gpugate-certs")
    snapshot = api.get("/api/v1/namespaces/gpugate/configmaps/gpugate-last-good")
    webhooks = [(webhook["metadata"]["generation"], webhook["webhooks"]) for webhook in configurations]
    return [*webhooks, secret["data"], snapshot["binaryData"]]


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("way", WAYS)
def test_applying_the_manifests_each_second_takes_nothing_back(
    seen: Installed, api: ClusterApi, way: str
) -> None:
    """No pod is created unseen by the custom rules, none fails, and no webhook ever changes."""
    objects = manifests(seen)
    apply(seen, objects, *WAYS[way])
    before, deadline = written(api), time.monotonic() + SECONDS
    with Creations(seen) as creations:
        for _ in creations.turns(1):
            apply(seen, objects, *WAYS[way])
            if time.monotonic() > deadline:
                break

    assert ([], []) == (creations.unseen, creations.failures)
    assert creations.calls >= 0.5 * RATE * SECONDS
    assert before == written(api)


def former(objects: list[Object]) -> list[Object]:
    """Return the manifests as they were while they contained the condition of gpugate."""
    changed = copy.deepcopy(objects)
    for condition in (one for webhook in webhooks_in(changed) for one in webhook.get("matchConditions", ())):
        if condition["name"] == STATIC_CONDITION:
            condition |= {"name": CONDITION, "expression": expression([GPU], built_in_workloads())}
    return changed


@pytest.mark.parametrize("way", ["Flux", "Argo CD"])
def test_an_upgrade_from_manifests_that_contained_the_condition_of_gpugate_loses_no_pod(
    seen: Installed, api: ClusterApi, way: str
) -> None:
    """The tool deletes that condition, and gpugate adds it again; until then, more pods are reviewed."""
    objects = manifests(seen)
    apply(seen, former(objects), *WAYS[way])
    text = expression([GPU], built_in_workloads())
    eventually(lambda: all(condition[CONDITION] != text for condition in conditions(api)))
    eventually(lambda: sees(seen))
    with Creations(seen) as creations:
        creations.go_on()
        apply(seen, objects, *WAYS[way])
        creations.go_on()
        eventually(
            lambda: all({STATIC_CONDITION, CONDITION} < condition.keys() for condition in conditions(api))
        )
        creations.go_on()

    assert ([], []) == (creations.unseen, creations.failures)


def test_a_deleted_condition_loses_no_pod_and_is_restored(seen: Installed, api: ClusterApi) -> None:
    """More pods are reviewed for a moment, never fewer."""
    with Creations(seen) as creations:
        creations.go_on()
        for path in CONFIGURATIONS:
            present = api.get(path)["webhooks"][0]["matchConditions"]
            kept = [condition for condition in present if condition["name"] != CONDITION]
            api.patch(path, [{"op": "replace", "path": "/webhooks/0/matchConditions", "value": kept}])
        creations.go_on()
        eventually(
            lambda: all({STATIC_CONDITION, CONDITION} < condition.keys() for condition in conditions(api))
        )
        creations.go_on()

    assert ([], []) == (creations.unseen, creations.failures)


def test_server_side_apply_of_a_new_version_has_no_conflict(seen: Installed, api: ClusterApi) -> None:
    """Without --force-conflicts: no manifest contains what gpugate sets."""
    objects = manifests(seen)
    changed = copy.deepcopy(objects)
    for webhook in webhooks_in(changed):
        webhook["timeoutSeconds"] = 7
    apply(seen, objects, SERVER_SIDE, "--force-conflicts")  # what other managers set in the tests above
    apply(seen, changed, SERVER_SIDE)
    timeouts = {webhook["timeoutSeconds"] for path in CONFIGURATIONS for webhook in api.get(path)["webhooks"]}
    apply(seen, objects, SERVER_SIDE)

    assert {7} == timeouts
    assert sees(seen)


@pytest.mark.parametrize("field", ["nodeSelector", "affinity"])
def test_a_bare_pod_can_be_applied_again_unless_it_has_node_affinity_of_its_own(
    installed: Installed, field: str
) -> None:
    """Its list gets more terms, and a pod cannot change."""
    key, value = next(iter(CUDA.items()))
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    own: Any = {"nodeSelector": {key: value}, "affinity": {"nodeAffinity": required}}
    document = json.loads(pod(f"applied-{field.lower()}", {GPU: "1"}))
    document["metadata"]["annotations"] = {CUDA_VERSION_ANNOTATION: "12.1"}
    document["spec"][field] = own[field]
    text, kubectl = json.dumps(document), installed.cluster.kubectl
    kubectl("apply", "-n", TEAM, "-f", "-", input=text)
    again = kubectl("apply", "-n", TEAM, "-f", "-", input=text, check=False)
    changed = kubectl("get", "pod", "-n", TEAM, document["metadata"]["name"], "-o", "json").stdout

    assert "nodeSelectorTerms" in json.dumps(json.loads(changed)["spec"]["affinity"])
    assert (field == "nodeSelector") == (again.returncode == 0)
    assert field == "nodeSelector" or "pod updates may not change fields" in again.stderr
    kubectl("delete", "pod", "-n", TEAM, document["metadata"]["name"], "--force", "--wait=false")
