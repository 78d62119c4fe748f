"""The gist of a pod: all that rules read of it, so that it is decided as the pod is, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rules.gist import from_gist, gist_of
from rules.model import ALLOWED, AdmissionRequest, Decision
from rules.pod import Pod
from rules.policy import Policy
from rules.precedent import Precedents
from rules.reads import reads_of
from tests.build import DEVICE, container, exemption, injection_rule, pod, policy, request, resource_rule
from tests.nodes import CUDA, GPU, VLLM, compatibility_rule, gpu_container, gpu_pod

VOLUME = {"name": "models", "emptyDir": {}}
MOUNT = {"name": "models", "mountPath": "/models"}


def _gist(rules: Policy, document: Any, now: float = math.inf, **fields: Any) -> bytes | None:
    return gist_of(rules, request(document, **fields), Pod(document, document), now)


def _variables(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_what_no_rule_reads_is_in_no_gist() -> None:
    """Neither names nor tokens, nor what is alike in no two pods."""
    rules = policy(
        resource_rule(),
        injection_rule(
            {"env": [{"name": "PUT", "value": "in"}], "volumes": [VOLUME], "volumeMounts": [MOUNT]}
        ),
        compatibility_rule(match={"resources": [DEVICE]}),
    )

    def document(text: str) -> Any:
        mounts = [{"name": f"kube-api-access-{text}", "mountPath": f"/var/{text}"}]
        return pod(
            container(
                {DEVICE: "1"}, env=_variables(TOKEN=text, PUT=text), volumeMounts=mounts, workingDir=text
            ),
            container(name=text, image=text),
            metadata={"name": text, "labels": {"job": text}, "annotations": {"example.com/a": text}},
            volumes=[{"name": f"kube-api-access-{text}"}],
            affinity={"podAntiAffinity": {"a": text}},
            hostname=text,
        )

    first, second = (
        _gist(rules, document("a-token"), namespace="a"),
        _gist(rules, document("other"), namespace="b"),
    )

    assert first is not None
    assert first == second
    assert b"token" not in first


@pytest.mark.parametrize(
    ("text", "document", "other"),
    [
        ("an image", pod(container({DEVICE: "1"}, image="a")), pod(container({DEVICE: "1"}, image="b"))),
        ("a quantity", pod(container({DEVICE: "1"})), pod(container({DEVICE: 1}))),
        ("a request", pod(container({DEVICE: "1"})), pod(container({DEVICE: "1"}, {}))),
        (
            "the order of resources",
            pod(container({DEVICE: 1, "a/b": 1})),
            pod(container({"a/b": 1, DEVICE: 1})),
        ),
        ("a place", pod(container({DEVICE: "1"})), pod(container(), container({DEVICE: "1"}))),
        ("a variable put in", pod(), pod(container({DEVICE: "1"}, env=_variables(PUT="")))),
        ("no variables at all", pod(), pod(container({DEVICE: "1"}, env=[]))),
        ("no labels at all", pod(), pod(metadata={"labels": {}})),
        ("a volume put in", pod(), pod(volumes=[VOLUME])),
        ("a mount put in", pod(), pod(container({DEVICE: "1"}, volumeMounts=[MOUNT]))),
        ("a label selected by", pod(), pod(metadata={"labels": {"app": "a"}})),
        ("a label read", pod(), pod(metadata={"labels": {"team": "a"}})),
        ("an annotation put in", pod(), pod(metadata={"annotations": {"note": "a"}})),
        ("an annotation read", pod(), pod(metadata={"annotations": {"mode": "a"}})),
        ("an annotation of needs", pod(), pod(metadata={"annotations": {f"{CUDA}.main": "12.4"}})),
        ("a node", pod(), pod(nodeName="a")),
        ("node labels", pod(), pod(nodeSelector={"zone": "a"})),
        ("node affinity", pod(), pod(affinity={"nodeAffinity": {}})),
        ("a scheduler", pod(), pod(schedulerName="a")),
        ("an account", pod(), pod(serviceAccountName="a")),
        ("an argument", pod(), pod(container({DEVICE: "1"}, args=["--dtype=half"]))),
        (
            "a command",
            pod(container({DEVICE: "1"}, command=["--dtype=half"])),
            pod(container({DEVICE: "1"}, command=["--dtype=float"])),
        ),
        (
            "a value that nobody knows",
            pod(container({DEVICE: "1"}, env=[{"name": "CUDA_VERSION", "valueFrom": {"fieldRef": {}}}])),
            pod(container({DEVICE: "1"}, env=[{"name": "CUDA_VERSION"}])),
        ),
        ("sources of variables", pod(), pod(container({DEVICE: "1"}, envFrom=[{"prefix": "A"}]))),
        (
            "a value that tells",
            pod(container({DEVICE: "1"}, env=_variables(CUDA_VERSION="12.4"))),
            pod(container({DEVICE: "1"}, env=_variables(CUDA_VERSION="12.5"))),
        ),
        (
            "a value that the command line refers to",
            pod(container({DEVICE: "1"}, args=["$(A)"], env=_variables(A="1"))),
            pod(container({DEVICE: "1"}, args=["$(A)"], env=_variables(A="2"))),
        ),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_a_rule_reads_tells_gists_apart(text: str, document: Any, other: Any) -> None:
    """One of each kind; that there is no more of it, the laws of memories hold."""
    rules = policy(
        resource_rule(),
        injection_rule(
            {
                "env": [{"name": "PUT", "value": "in"}],
                "volumes": [VOLUME],
                "volumeMounts": [MOUNT],
                "annotations": {"note": "in"},
                "schedulerName": "s",
            },
            match={
                "podSelector": {"matchLabels": {"app": "a"}},
                "conditions": ["'team' in pod.labels", "pod.annotations['mode'] == 'a'"],
            },
        ),
        compatibility_rule(match={"resources": [DEVICE]}),
        exemption("injection", serviceAccounts=["trial"]),
    )
    del text

    assert None not in (_gist(rules, document), _gist(rules, other))
    assert _gist(rules, document) != _gist(rules, other)


@pytest.mark.parametrize(
    ("condition", "labels", "annotations", "namespace"),
    [
        ("limits['vendor.com/device'] > 1", (), (), False),
        ("'a' in pod.labels", ("a",), (), False),
        ("pod.labels['a'] == pod.labels[\"b\"]", ("a", "b"), (), False),
        ("!('a' in pod.annotations) || pod.annotations['a'] != 'b'", (), ("a",), False),
        ("pod.namespace == 'a' && ('b' in pod.labels)", ("b",), (), True),
        ("'a' + 'b' in pod.labels", None, (), False),
        ("pod.labels['a' + 'b'] == 'c'", None, (), False),
        ("'a' in pod.labels == true", None, (), False),
        ("'(' + pod.namespace + ' in pod.labels && ' == ''", (" + pod.namespace + ",), (), True),
        ("pod.labels.exists(name, name == 'a')", None, (), False),
        ("'pod' in limits || pod.labels['a'] == 'b'", None, None, True),
        ("has(pod.annotations.a)", (), None, False),
        ("pod['labels']['a'] == 'b'", None, None, True),
    ],
)
def test_of_a_pods_metadata_a_condition_reads_what_it_names(
    condition: str,
    labels: tuple[str, ...] | None,
    annotations: tuple[str, ...] | None,
    namespace: bool,
) -> None:
    """Or all of it, where that is not plain to see."""
    rules = policy(injection_rule({"hostIPC": True}, match={"conditions": [condition]}))
    reads = reads_of((), rules.injections_of((DEVICE,)), (), ())

    assert reads is not None
    assert (labels, annotations, namespace) == (reads.labels, reads.annotations, reads.namespace)


def test_rules_that_a_default_brings_in_read_the_pod_too() -> None:
    """As those of another group that its resource belongs to, whose default brings in more."""
    rules = policy(
        resource_rule(),
        resource_rule("vendor.com/other", defaultValue="1"),
        resource_rule("vendor.com/o*", group="next"),
        resource_rule(GPU, group="next", defaultValue="1"),
        compatibility_rule(),
    )
    first, second = (
        pod(container({DEVICE: "1"}, env=_variables(CUDA_VERSION=text))) for text in ("12.4", "12")
    )

    assert None is not _gist(rules, first) != _gist(rules, second)


def test_of_the_time_only_what_has_expired_is_in_a_gist() -> None:
    """Which is told of any time between two that an exemption ends at."""
    rules = policy(resource_rule(), exemption("cf-crl-*", expires="2026-12-31"))
    early, earlier, late = (_gist(rules, pod(), now) for now in (0.0, 1e9, math.inf))

    assert early == earlier
    assert early != late


@pytest.mark.parametrize(
    "document",
    [
        gpu_pod(VLLM, "x" * 4096),
        pod(*(gpu_container(VLLM, name=f"c{number}") for number in range(17))),
        pod(gpu_container(VLLM, env=_variables(PUT="may be a secret"))),
        pod(gpu_container(VLLM, env=_variables(A="12.4", CUDA_VERSION="$(A)"))),
        pod(gpu_container(VLLM, env=["A"])),
        gpu_pod(VLLM, limits={GPU: math.inf}),
        gpu_pod(VLLM, nodeSelector={"\ud800": "a"}),
    ],
    ids=[
        "long",
        "many-containers",
        "a-value-replaced",
        "a-value-that-refers",
        "a-text",
        "no-number",
        "no-text",
    ],
)
def test_a_pod_that_cannot_be_told_in_short_has_no_gist(document: Any) -> None:
    """It is decided as it is."""
    rules = policy(
        injection_rule({"env": [{"name": "PUT", "value": "in"}]}, match={"resources": [GPU]}, override=True),
        compatibility_rule(),
    )

    assert _gist(rules, document) is None
    assert _gist(rules, gpu_pod(VLLM)) is not None


def test_what_is_put_in_and_refers_to_other_variables_leaves_no_gist() -> None:
    """They may tell what the container needs, whatever their names."""
    put = injection_rule({"env": [{"name": "CUDA_VERSION", "value": "$(A)"}]}, match={"resources": [GPU]})

    assert _gist(policy(put, compatibility_rule()), gpu_pod(VLLM)) is None
    assert _gist(policy(put), gpu_pod(VLLM)) is not None


@pytest.mark.parametrize(
    "path", [(), ("spec", "template"), ("spec", "tasks", 2, "template"), ("spec", "predictor")]
)
def test_the_gist_of_a_gist_is_itself(path: tuple[str | int, ...]) -> None:
    """Wherever the pod stands in its object, with a spec or as one."""
    rules = policy(resource_rule(), compatibility_rule())
    raw: Any = gpu_pod(VLLM, "--dtype=half", nodeSelector={"zone": "a"})
    if path[-1:] == ("predictor",):
        raw = raw["spec"] | {"annotations": {CUDA: "12.4"}}
    document = raw
    for step in reversed(path):
        document = {step: document} if isinstance(step, str) else [None] * step + [document]
    asking = AdmissionRequest(
        "CREATE", "batch.volcano.sh" if path else "", "Job" if path else "Pod", "team", document
    )
    gist = gist_of(rules, asking, Pod(document, raw, path), 0.0)

    assert gist is not None
    assert gist == gist_of(rules, *from_gist(gist))


def test_a_decision_is_found_once_for_a_gist() -> None:
    """Unless it says or puts in too much, or no JSON: then none is kept, and the pod is decided as it is."""
    endless = Decision(patch=({"op": "add", "path": "/spec/x", "value": math.inf},))
    found = {"a": ALLOWED, "long": Decision(warnings=("x" * 5000,)), "endless": endless}
    asked: list[str] = []

    def decide(_: AdmissionRequest, pod: Pod, __: float) -> Decision:
        asked.append(pod.containers[0].image)
        return found[asked[-1]]

    rules, precedents = policy(resource_rule()), Precedents(decide)
    gists = [_gist(rules, pod(container({DEVICE: "1"}, image=image))) for image in found]

    assert [ALLOWED, None, None] * 2 == [precedents(gist) for gist in [*gists, *gists] if gist]
    assert [*found] == asked
