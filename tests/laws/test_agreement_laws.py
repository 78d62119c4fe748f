"""Laws of agreement: the commands say the same of one pod, whatever its node and its state are."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from rules import RuleSet
from rules.cuda.versions import CudaVersion, DriverVersion
from rules.decision.pipeline import Snapshot, decide
from rules.model.decision import Decision
from rules.model.finding import Certainty
from rules.text.i18n import Text
from tests.laws.test_inventory_laws import (
    READY,
    clusters,
    facts,
    inventory_of_cluster,
    pod_of,
    policy_of,
    rules,
    selecting,
    wishes,
)
from tests.laws.test_inventory_laws import node as node_of
from tests.support.builders import request
from tests.support.laws import EXAMPLES
from tests.support.node_builders import inventory
from tests.support.reference_verdict import Cluster
from tests.webhook.agent.test_labels import probes
from webhook.agent.diagnosis import Diagnosis, diagnose
from webhook.agent.nvml_probe import Probe
from webhook.cli.audit.findings import evaluate
from webhook.cli.audit.workloads import WorkloadObject, workloads_in
from webhook.cli.inputs.session import Session
from webhook.cli.report.model import RenderedFinding
from webhook.cli.ui.evaluation import evaluate as shown_by_ui
from webhook.cli.ui.page import GIVEN, Nodes, Page, Question, Rules
from webhook.cli.whatif.compare import ClusterState, WorkloadRequest
from webhook.cli.why.failures import Cause, Source, Statement, causes
from webhook.cli.why.unscheduled import Unscheduled
from webhook.yaml_output import dump_yaml

bound_to = st.sampled_from(["n0", "n1", "n2", "n9"])
selecting_pods = st.builds(pod_of, selecting, st.lists(wishes, min_size=1, max_size=2))


def session_of(cluster: Cluster, rule: int) -> Session:
    """Return rules and nodes as a command has them."""
    session = Session(node_paths=("nodes.yaml",))
    session.policy, session.inventory = policy_of(rule)[0], inventory_of_cluster(cluster)
    return session


def audited(session: Session, document: dict[str, Any]) -> list[RenderedFinding]:
    """Return the findings of `audit` on a pod that a cluster has."""
    workloads = workloads_in([WorkloadObject("", "Pod", document)])
    return [finding for workload in evaluate(session, workloads) for finding, _ in workload.findings()]


@settings(max_examples=7 * EXAMPLES)
@given(clusters, selecting_pods, bound_to, rules)
def test_selectors_and_affinity_of_a_bound_pod_change_nothing(
    cluster: Cluster, document: dict[str, Any], node: str, rule: int
) -> None:
    """They are ignored during execution: the pod stays on its node, whatever labels that has now."""
    spec = document["spec"] | {"nodeName": node}
    free = {key: value for key, value in spec.items() if key not in ("nodeSelector", "affinity")}
    session = session_of(cluster, rule)

    assert audited(session, document | {"spec": free}) == audited(session, document | {"spec": spec})


# What status and events may say of a pod, whatever a decision says of it.
STATEMENTS = (
    Statement(
        Source.EVENT,
        Text("event"),
        "FailedScheduling: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    ),
    Statement(Source.EVENT, Text("event"), "FailedScheduling: 3 node(s) had untolerated taint(s)."),
    Statement(Source.STATUS, Text("status"), "OOMKilled"),
    Statement(Source.LOG, Text("log"), "CUDA_ERROR_ILLEGAL_ADDRESS"),
)


def certainties(decision: Decision) -> set[Certainty]:
    """Return how sure preview, and admission, are of each thing that they say of nodes."""
    violations = {violation.certainty for violation in decision.violations}
    return violations | {notice.certainty for notice in decision.notices}


def said_by_rules(explained: list[Cause]) -> set[Certainty]:
    """Return how sure `why` is of each violation that is a cause."""
    return {cause.certainty for cause in explained if cause.name.startswith("compatibility")}


@settings(max_examples=7 * EXAMPLES)
@given(
    clusters,
    selecting_pods,
    st.one_of(st.none(), bound_to),
    rules,
    st.lists(st.sampled_from(STATEMENTS), unique=True),
)
def test_no_command_is_certain_of_what_another_does_not_know(
    cluster: Cluster, document: dict[str, Any], node: str | None, rule: int, statements: list[Statement]
) -> None:
    """Certain are the violations by facts, in each of them; policy is likely, and a missing fact unknown."""
    spec = document["spec"] | ({"nodeName": node} if node else {})
    pod = document | {"spec": spec}
    session = session_of(cluster, rule)
    created = request(pod, mutating=False)
    decision = decide(session.snapshot, created)
    whatif = ClusterState(session.snapshot, 0).runs(WorkloadRequest("default", "Pod/train", created))
    explained = causes(decision, statements, Unscheduled(session.inventory, spec))
    facts = Certainty.CERTAIN in certainties(decision)

    assert facts is any(violation.basis.value == "fact" for violation in decision.violations)
    assert facts is (Certainty.CERTAIN in {violation.certainty for violation in audited(session, pod)})
    assert facts is (Certainty.CERTAIN in said_by_rules(explained))
    assert not (facts and not decision.allowed and whatif.certainty is not Certainty.CERTAIN)
    if node is None or session.inventory.named(node):  # that a node is gone is a fact of its own
        assert facts or whatif.certainty is not Certainty.CERTAIN


@settings(max_examples=7 * EXAMPLES)
@given(clusters, selecting_pods, st.one_of(st.none(), bound_to), rules)
def test_the_page_is_as_certain_as_the_admission_whose_decision_it_shows(
    cluster: Cluster, document: dict[str, Any], node: str | None, rule: int
) -> None:
    """From the same pod as a text."""
    pod = document | {"spec": document["spec"] | ({"nodeName": node} if node else {})}
    policy, nodes = policy_of(rule)[0], inventory_of_cluster(cluster)
    decision = decide(Snapshot(policy, nodes), request(pod, mutating=False))
    rule_set = RuleSet(compatibility=(policy_of(rule)[1],))
    page = Page({GIVEN: Rules("rules", rule_set)}, policy.workloads, Nodes("nodes", nodes))
    answer = shown_by_ui(page, Question(dump_yaml(pod), rules=GIVEN, nodes=GIVEN, namespace="default"))
    (shown,) = answer["objects"]
    shown_certainties = [
        violation["certainty"]
        for container in shown["explanation"]
        for rule in container["rules"]
        for violation in rule["violations"]
    ]

    assert decision.allowed is shown["allowed"]
    assert {violation.certainty for violation in decision.violations} == {*shown_certainties}


# Drivers after an upgrade, with their CUDA versions: the last one ignores Volta and older GPUs.
DRIVERS = (("535.129.03", "12.2"), ("580.65.06", "13.0"), ("595.71.05", "13.2"))
problems_of_labels = st.dictionaries(
    st.sampled_from(["cuda-major-version", "cuda-minor-version", "nvidia.com/gpu.compute.major"]),
    st.sampled_from(["7", "8", "12", "x"]),
)


def certain_of(problems: tuple[Diagnosis, ...]) -> list[str]:
    """Return the names of the CUDA errors of which `node check` is certain."""
    return [problem.cuda_name for problem in problems if problem.certainty is Certainty.CERTAIN]


@settings(max_examples=7 * EXAMPLES)
@given(probes, st.one_of(facts, problems_of_labels))
def test_a_node_check_is_certain_by_its_probe_alone(probe: Probe, labels: dict[str, str]) -> None:
    """What labels say is of an earlier moment: that they differ is likely to matter at most."""
    assert certain_of(diagnose(probe, None)) == certain_of(diagnose(probe, None, labels))


@settings(max_examples=7 * EXAMPLES)
@given(facts, st.sampled_from(DRIVERS), st.lists(wishes, min_size=1, max_size=2), rules)
def test_a_node_check_says_that_a_driver_ignores_its_gpu_where_admission_is_certain_of_it(
    labels: dict[str, str], driver: tuple[str, str], wished: list[dict[str, str]], rule: int
) -> None:
    """The labels are of before the upgrade of the driver, whose own ones admission has."""
    version, cuda = driver
    probe = Probe(DriverVersion.parse(version), CudaVersion.parse(cuda), ())
    major, minor = cuda.split(".")
    upgraded = labels | {
        "nvidia.com/cuda.driver-version.full": version,
        "nvidia.com/cuda.runtime-version.major": major,
        "nvidia.com/cuda.runtime-version.minor": minor,
    }
    node = node_of(upgraded, READY, [])
    node["metadata"]["name"] = "n0"
    pod = pod_of({"nodeName": "n0"}, wished)
    decision = decide(Snapshot(policy_of(rule)[0], inventory(node)), request(pod, mutating=False))
    first, *_ = diagnose(probe, None, labels)
    ignored = "does not support the" in first.problem.en
    event(f"ignored: {ignored}")

    assert first.certainty is Certainty.CERTAIN
    assert ignored is any(
        violation.certainty is Certainty.CERTAIN and "does not support the" in violation.message.en
        for violation in decision.violations
    )
