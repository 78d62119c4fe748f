"""The gist of a pod: all that rules read of it, so that it is decided as the pod is, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from rules.cuda.facts import telling
from rules.decision.gist import from_gist, gist_of, without_names
from rules.decision.pipeline import decide
from rules.decision.policy import Policy
from rules.decision.precedent import Precedents
from rules.decision.reads import reads_of
from rules.decision.recorder import DecisionRecorder
from rules.kube.pod import Pod
from rules.model.decision import ALLOWED, Decision
from rules.model.request import AdmissionRequest
from tests.support.builders import (
    DEVICE,
    NO_NODES,
    container,
    exemption,
    injection_rule,
    pod,
    policy,
    request,
    resource_rule,
)
from tests.support.node_builders import (
    CUDA,
    GPU,
    VLLM,
    compatibility_rule,
    cuda_image,
    gpu_container,
    gpu_pod,
)

VOLUME = {"name": "models", "emptyDir": {}}
MOUNT = {"name": "models", "mountPath": "/models"}
# Conditions of a match on the image, and on all labels at once.
PADDLE = "container.image.contains('paddle') || pod.labels.exists(key, pod.labels[key].contains('paddle'))"


def _gist(rules: Policy, document: Any, now: float = math.inf, **fields: Any) -> bytes | None:
    return gist_of(rules, request(document, **fields), Pod(document, document), now)


def _gists(texts: Iterable[str], documents: Iterable[Any]) -> int:
    """Return the number of different gists that pods have under the same rules."""
    rules = policy(*texts)
    return len({_gist(rules, document) for document in documents})


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
        (
            "an image",
            pod(container({DEVICE: "1"}, image=cuda_image("12.2"))),
            pod(container({DEVICE: "1"}, image=cuda_image("12.4"))),
        ),
        ("a name", pod(container({DEVICE: "1"})), pod(container({DEVICE: "1"}, name="b"))),
        (
            "a server that a flag is for",
            pod(container({DEVICE: "1"}, image=VLLM, args=["--dtype=half"])),
            pod(container({DEVICE: "1"}, image=f"{VLLM}1", args=["--dtype=half"])),
        ),
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
        ("'a' + 'b' in pod.labels || pod.namespace == 'a'", (), (), True),
        ("'a' + 'b' in pod.labels == (pod.namespace == 'a')", None, (), True),
        ("pod.labels['a' + 'b'] == 'c'", (), (), False),
        ("'a' in pod.labels == true", (), (), False),
        ("'a' + 'b' in pod.annotations", (), None, False),
        ("'(' + pod.namespace + ' in pod.labels && ' == ''", (" + pod.namespace + ",), (), True),
        ("pod.labels.exists(name, name == 'a')", (), (), False),
        ("pod.labels.exists(name, name in limits)", None, (), False),
        ("'pod' in limits || pod.labels['a'] == 'b'", ("a",), (), False),
        ("('pod' in limits || pod.labels['a'] == 'b')", None, None, True),
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
    """Or all of it, where that is not plain to see; but for what it makes of all labels at once."""
    rules = policy(injection_rule({"hostIPC": True}, match={"conditions": [condition]}))
    reads = reads_of((DEVICE,), (), rules.injections_of((DEVICE,)), (), ())

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
        gpu_pod(VLLM, "--dtype", "x" * 4096),
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
    found = {"1": ALLOWED, "2": Decision(warnings=("x" * 5000,)), "3": endless}
    asked: list[str] = []

    def decide(_: AdmissionRequest, pod: Pod, __: float) -> Decision:
        asked.append(pod.containers[0].limits[DEVICE])
        return found[asked[-1]]

    rules, precedents = policy(resource_rule()), Precedents(decide)
    gists = [_gist(rules, pod(container({DEVICE: each}))) for each in found]

    assert [ALLOWED, None, None] * 2 == [precedents(gist) for gist in [*gists, *gists] if gist]
    assert [*found] == asked


def _counted(rules: Policy, *documents: Any) -> tuple[list[Decision], int]:
    """Return the decisions on pods, by their gists, and how many of them had to be found."""
    asked: list[Pod] = []

    def find(request: AdmissionRequest, pod: Pod, _: float) -> Decision:
        asked.append(pod)
        return decide(rules, NO_NODES, request)

    precedents = Precedents(find)
    gists = [_gist(rules, document) for document in documents]
    found = [precedents(gist) for gist in gists if gist]
    return [each for each in found if each], len(asked)


def test_pods_whose_images_tell_the_same_are_of_one_gist() -> None:
    """A tag for each build is as good as another, as far as no rule reads it."""
    tags = [pod(container({DEVICE: "1"}, image=f"team/train:v{number}")) for number in range(3)]
    rules = [resource_rule(), compatibility_rule(match={"resources": [DEVICE]})]
    matching = injection_rule({"hostIPC": True}, match={"images": ["*:v1"]})
    asking = injection_rule({"hostIPC": True}, match={"conditions": ["container.image.endsWith('v1')"]})
    reading = injection_rule({"hostIPC": True}, match={"conditions": ["container.image == pod.namespace"]})
    checking = resource_rule(validations=[{"expression": "container.image != 'a'"}])

    assert [1, 2, 2, 3, 3] == [
        _gists(texts, tags)
        for texts in (rules, [*rules, matching], [*rules, asking], [*rules, reading], [checking])
    ]


def test_pods_whose_labels_come_to_the_same_are_of_one_gist() -> None:
    """As the names of jobs do, for a rule that looks for a word in any label."""
    looking = injection_rule({"hostIPC": True}, match={"conditions": [PADDLE]})
    putting = injection_rule({"labels": {"a": "in"}}, match={"conditions": [PADDLE]})
    selecting = injection_rule(
        {"hostIPC": True}, name="other", match={"podSelector": {"matchLabels": {"app": "a"}}}
    )
    labels = [{"job": "a"}, {"job": "b"}, {"app": "a"}, {"app": "a", "job": "b"}, {"app": "paddle"}]
    jobs = [pod(metadata={"labels": each}) for each in labels]

    assert [2, 5, 3] == [
        _gists([resource_rule(), *texts], jobs) for texts in ([looking], [putting], [looking, selecting])
    ]
    rules = policy(resource_rule(), looking)
    assert [decide(rules, NO_NODES, request(job)).patch != () for job in jobs] == [False] * 4 + [True]


def test_arguments_that_ask_nothing_of_a_gpu_are_in_no_gist() -> None:
    """Each job has its own."""
    rules = policy(resource_rule(), compatibility_rule(match={"resources": [DEVICE]}))
    seeds, shell, flags, references = (
        {_gist(rules, pod(container({DEVICE: "1"}, args=[f"{text}{number}"]))) for number in range(3)}
        for text in ("--seed=", "$HOME/", "--dtype=", "$(A)")
    )

    assert [1, 1, 3, 3] == [len(seeds), len(shell), len(flags), len(references)]


def test_what_a_rule_puts_in_for_a_server_leaves_its_image_and_arguments_in_the_gist() -> None:
    """They tell which server it is."""
    needing = compatibility_rule(match={"resources": [DEVICE]})
    variables = [name for name in telling() if "ARGS" in name]
    put = injection_rule({"env": [{"name": variables[0], "value": "--dtype=bfloat16"}]})
    pods = [pod(container({DEVICE: "1"}, image="team/a", args=[word])) for word in ("vllm", "train")]

    assert [2, 1] == [_gists([put, needing], pods), _gists([needing], pods)]


def test_pods_that_differ_in_the_names_of_containers_are_decided_once_and_each_is_told_its_own() -> None:
    """In the message of the refusal, in warnings, and in the audit event."""
    rules = policy(
        resource_rule(defaultValue="2", validations=[{"expression": "value < 3"}]),
        resource_rule(
            "vendor.com/other", enforcementAction="warn", validations=[{"expression": "value < 1"}]
        ),
    )

    def document(*names: str) -> Any:
        limits = {DEVICE: "3", "vendor.com/other": "1"}
        return pod(*(container(limits, name=name) for name in names))

    asked = [document("main"), document("a", "b"), document("other"), document("b", "a")]
    decisions, found = _counted(rules, *asked)

    assert found == 2
    assert decisions == [decide(rules, NO_NODES, request(each), notes=DecisionRecorder) for each in asked]
    assert "'other'" in decisions[2].message
    assert "'b'" in decisions[3].warnings[0]


@pytest.mark.parametrize(
    ("text", "names", "annotations", "texts"),
    [
        ("that is none", ["Main_1", "m a"], {}, []),
        ("of two containers", ["a", "a"], {}, []),
        ("for which an annotation is", ["a"], {f"{CUDA}.a": "12.4"}, []),
        ("that a condition reads", ["a"], {}, ["container.name == 'a'"]),
        ("that an expression may read", ["a"], {}, ["container['name'] == 'a'"]),
        ("beside what stands for one", ["a"], {"gpugate.dev/x": "⟪0⟫"}, []),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_name_stays_in_the_gist(
    text: str, names: list[str], annotations: dict[str, str], texts: list[str]
) -> None:
    """Where nothing can stand for it."""
    rules = policy(
        resource_rule(), *(injection_rule({"hostIPC": True}, match={"conditions": texts}),) * bool(texts)
    )
    document = pod(
        *(container({DEVICE: "1"}, name=name) for name in names), metadata={"annotations": annotations}
    )
    gist = _gist(rules, document)
    del text

    assert gist is not None
    assert without_names(gist) == (gist, {})
