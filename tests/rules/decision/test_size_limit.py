"""The size limit: an oversized object is denied at once, and a large one is decided in bounded time."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from rules.cuda.image_catalog import built_in_catalog
from rules.cuda.nvidia_require import REQUIRE_CUDA, STEPS_OF_CONDITION
from rules.cuda.requirements import ContainerFacts, requirements_of, requirements_reader
from rules.cuda.tables import read_table
from rules.decision.size_limit import (
    CLAIM,
    CONTAINER,
    DEBUGGING,
    EXPRESSION,
    MOST_COST,
    MOST_EVALUATIONS,
    MOST_NAMES,
    MOST_READ,
    RESOURCE,
    RULE,
    TEMPLATE,
    TERM,
    TOLERATION,
)
from rules.kube.names import MAX_QUALIFIED_NAME
from rules.nodes.inventory_document import inventory_of
from rules.text.bounded_cache import MOST_STEPS
from tests.bench.cases import node_of
from tests.support.cpu_time import loops
from tests.support.webhooks import body, builtin_handler, pod
from webhook.admission.handler import AdmissionHandler
from webhook.cli.inputs.session import Session

GPU = {"limits": {"nvidia.com/gpu": "1"}}
_MATRIX = 64  # images that a CI matrix has in one object


def affinity(count: int, operator: str = "Exists") -> dict[str, Any]:
    """Return required node affinity with this number of terms."""
    term = {"matchExpressions": [{"key": "zone", "operator": operator}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * count}
        }
    }


def spec(**fields: Any) -> dict[str, Any]:
    """Return a pod whose spec has these fields."""
    document = pod({"nvidia.com/gpu": "1"})
    document["spec"] |= fields
    return document


def deployment_like(count: int) -> dict[str, Any]:
    """Return an object with this number of pod templates."""
    containers = [{"name": "main", "resources": GPU}]
    groups: list[dict[str, Any]] = [{"template": {"spec": {"containers": containers}}} for _ in range(count)]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {"workerGroupSpecs": groups}}


def containers(count: int) -> list[dict[str, Any]]:
    """Return this number of containers with a GPU."""
    return [{"name": f"c{at}", "resources": GPU} for at in range(count)]


def claims(count: int) -> dict[str, Any]:
    """Return a pod with this number of claims."""
    document = spec(resourceClaims=[{"name": f"c{at}"} for at in range(count)])
    document["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c0"}]
    return document


def expressions(count: int) -> dict[str, Any]:
    """Return required node affinity with one term of this number of expressions."""
    node_affinity = affinity(1)
    (term,) = node_affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    term["matchExpressions"] *= count
    return node_affinity


# Each object with its violation, after the kind or path.
OVERSIZED = {
    "containers": (
        spec(containers=containers(CONTAINER.most)),
        f": {CONTAINER.most:,} containers that request accelerators (at most {CONTAINER.most:,})",
    ),
    "terms": (
        spec(affinity=affinity(TERM.most)),
        f": {TERM.most:,} node selector terms (at most {TERM.most:,})",
    ),
    "expressions": (
        spec(affinity=expressions(EXPRESSION.most)),
        f": {EXPRESSION.most:,} {EXPRESSION.what.en} (at most {EXPRESSION.most:,})",
    ),
    "selectors": (
        spec(nodeSelector={f"k{at}": "v" for at in range(EXPRESSION.most)}),
        f": {EXPRESSION.most:,} {EXPRESSION.what.en} (at most {EXPRESSION.most:,})",
    ),
    "tolerations": (
        spec(tolerations=[{"key": f"k{at}"} for at in range(TOLERATION.most)]),
        f": {TOLERATION.most:,} tolerations (at most {TOLERATION.most:,})",
    ),
    "claims": (claims(CLAIM.most), f": {CLAIM.most:,} resource claims (at most {CLAIM.most:,})"),
    "templates": (
        deployment_like(TEMPLATE.most + 1),
        f": {TEMPLATE.most + 1:,} pods or pod templates (at most {TEMPLATE.most:,})",
    ),
    "debugging containers": (
        spec(ephemeralContainers=[{"name": f"d{at}"} for at in range(DEBUGGING.most)]),
        f": {DEBUGGING.most:,} debugging containers (at most {DEBUGGING.most:,})",
    ),
    "names": (
        pod({f"nvidia.com/mig-{at}g": "1" for at in range(MOST_NAMES + 1)}),
        f" has too many resources: {MOST_NAMES + 1} names (at most {MOST_NAMES} of one container)",
    ),
    "a long name": (
        pod({f"nvidia.com/{'g' * MAX_QUALIFIED_NAME}": "1"}),
        f" a name of {MAX_QUALIFIED_NAME + 11} characters (at most {MAX_QUALIFIED_NAME})",
    ),
    "templates without resources": (
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "spec": {"workerGroupSpecs": [{"template": {}}] * (MOST_READ + 1)},
        },
        f": {MOST_READ + 1:,} pod templates (at most {MOST_READ:,})",
    ),
    "containers without resources": (
        spec(containers=[{}] * (MOST_READ + 1)),
        f": {MOST_READ + 1:,} containers (at most {MOST_READ:,})",
    ),
}


@pytest.mark.parametrize("endpoint", ["mutate", "validate"])
@pytest.mark.parametrize("what", list(OVERSIZED))
def test_an_oversized_object_is_denied(what: str, endpoint: Any) -> None:
    """With a violation that names the limit and the number found, in less time than a decision would take."""
    debugging = {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
    document, violation = OVERSIZED[what]
    content = body(document, **(debugging if what == "debugging containers" else {}))
    answers = list[bytes]()
    took = loops(lambda: answers.append(builtin_handler().answer(endpoint, content)))
    response = json.loads(answers[0])["response"]

    assert (False, 403) == (response["allowed"], response["status"]["code"])
    assert violation in response["status"]["message"]
    assert f"[rule {RULE}]" in response["status"]["message"]
    assert 100 > took


def test_what_is_counted_shares_one_limit() -> None:
    """The message names what takes most of it, and how much of it all takes."""
    document = deployment_like(TEMPLATE.most // 2)
    for group in document["spec"]["workerGroupSpecs"]:
        group["template"]["spec"] |= {"affinity": affinity(20)}
    content = body(document)
    message = json.loads(builtin_handler().answer("validate", content))["response"]["status"]["message"]
    templates, terms = TEMPLATE.most // 2, 20 * (TEMPLATE.most // 2)
    cost = templates * (TEMPLATE.cost + CONTAINER.cost + RESOURCE.cost) + terms * (
        TERM.cost + EXPRESSION.cost
    )
    items = (
        f"{terms:,} node selector terms (at most {TERM.most:,})"
        f" and {templates:,} pods or pod templates (at most {TEMPLATE.most:,})"
        f" and {terms:,} nodeSelector labels and node affinity expressions (at most {EXPRESSION.most:,})"
    )

    assert (
        f"RayCluster denied by gpugate: RayCluster is too large to check: {items},"
        f" {-(-100 * cost // MOST_COST)}% of what gpugate checks of one object. Split it [rule {RULE}]"
    ) == message


def test_combinations_of_node_selector_terms_are_limited() -> None:
    """A few terms and a few alternatives would otherwise make millions."""
    document = spec(affinity=affinity(1800, "DoesNotExist"))
    (container,) = document["spec"]["containers"]
    alternatives = {
        "CUDA": "cuda=11.4 cuda=12.2 cuda=12.4 cuda=12.8",
        "DRIVER": " ".join(f"driver>={number},driver<{number + 1}" for number in (470, 535, 550, 570)),
        "ARCH": "arch=7.0 arch=7.5 arch=8.0 arch=9.0",
    }
    variables = [{"name": f"NVIDIA_REQUIRE_{name}", "value": text} for name, text in alternatives.items()]
    other = container | {"name": "other", "env": [*variables[:1], *variables[2:]]}
    document["spec"]["containers"] = [container | {"env": variables}, other]
    handler = AdmissionHandler(
        Session().read_rules([]), inventory=inventory_of([node_of(at) for at in range(60)])
    )
    response = json.loads(handler.answer("mutate", body(document)))["response"]

    assert not response["allowed"]
    assert "nodeSelectorTerms make more than 10,240 combinations" in response["status"]["message"]


def test_what_an_update_leaves_as_it_is_does_not_count() -> None:
    """An object that was there before gpugate can be changed, and its templates moved."""
    before = deployment_like(TEMPLATE.most + 1)
    for at, group in enumerate(before["spec"]["workerGroupSpecs"]):
        group["template"] = {"metadata": {"labels": {"group": f"{at}"}}, **group["template"]}
    after = copy.deepcopy(before)
    after["spec"]["workerGroupSpecs"].reverse()
    content = body(after, operation="UPDATE", oldObject=before)

    assert json.loads(builtin_handler().answer("validate", content))["response"]["allowed"]


HUGE = {
    "the most containers": spec(
        containers=containers((MOST_COST - TEMPLATE.cost) // (CONTAINER.cost + RESOURCE.cost))
    ),
    "containers without resources": spec(containers=[{"name": f"c{at}"} for at in range(MOST_READ)]),
    "the most terms": spec(affinity=affinity(MOST_COST // (TERM.cost + EXPRESSION.cost) - 100)),
    "variables": pod(
        {"nvidia.com/mps-core": "50"}, env=[{"name": f"V{at}", "value": "v" * 30} for at in range(100_000)]
    ),
    "references": pod(
        {"nvidia.com/gpu": "1"},
        env=[{"name": "V0", "value": "x" * 100}]
        + [{"name": f"V{at}", "value": f"$(V{at - 1})" * 2} for at in range(1, 60)],
        args=["vllm", "serve", *["--dtype=$(V9)"] * 10_000],
    ),
    "names of a megabyte": pod(
        {"nvidia.com/gpu": "1" * 2**20, f"nvidia.com/{'g' * 2**20}": "1"}, name="n" * 2**20, image="i" * 2**20
    ),
    "arguments": pod({"nvidia.com/gpu": "1"}, args=["vllm serve --dtype=bfloat16 # $(\n" * 200_000]),
    "selectors": spec(nodeSelector={f"k{at}": "v" for at in range(EXPRESSION.most - 100)}),
    "odd quantities": pod({"nvidia.com/gpu": "1e999999", "tencent.com/vcuda-core": "-1e-999999"}),
    "control characters": pod({"nvidia.com/gpu\x00": "1\x1b"}, name="\u202e\n", image="\ud83d\ude00\x7f"),
}


@pytest.mark.parametrize("what", list(HUGE))
def test_the_time_of_a_large_object_is_bounded_by_its_length(what: str) -> None:
    """At most a thousand times that of parsing its JSON, plus 25 loops."""
    content = body(HUGE[what])
    reading = loops(lambda: json.loads(content))

    assert 25 + 1000 * reading > loops(lambda: builtin_handler().answer("mutate", content))


def test_variables_without_requirements_are_not_counted() -> None:
    """Even if there are more of them than the limit."""
    env = [{"name": f"V{at}", "value": "v"} for at in range(4096)]
    content = body(pod({"nvidia.com/gpu": "1"}, env=env))

    assert json.loads(builtin_handler().answer("validate", content))["response"]["allowed"]


def test_a_matrix_of_sixty_four_official_cuda_images_is_reviewed() -> None:
    """Each in a template of one Workflow; its conditions on drivers count once, not for each brand of GPU."""
    versions = {part for row in read_table("requirements")["expressions"] for part in row["images"].split()}
    newest = sorted(versions, key=lambda version: [int(part) for part in version.split(".")])[-_MATRIX:]
    images = [f"nvidia/cuda:{version}-base-ubuntu22.04" for version in newest]
    images += [f"nvidia/cuda:{version}-devel-ubi9" for version in newest[: _MATRIX - len(newest)]]
    templates = [
        {"name": f"t{at}", "container": {"image": image, "resources": GPU}} for at, image in enumerate(images)
    ]
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {"templates": templates}}
    response = json.loads(builtin_handler().answer("validate", body(workflow)))["response"]

    assert (_MATRIX, True) == (len({*images}), response["allowed"])


@pytest.mark.parametrize("version", ["11.6.0", "12.8.1", "13.0.1"])
def test_sixty_four_tags_of_the_longest_requirements_are_within_the_limit(version: str) -> None:
    """Those with the most conditions, builds, and architectures."""
    read = requirements_reader(built_in_catalog())
    images = [f"nvidia/cuda:{version}-cudnn{at}-devel-ubuntu22.04" for at in range(_MATRIX)]
    requirements = [read(ContainerFacts(image)) for image in images]

    assert len({of_image.cuda for of_image in requirements}) == _MATRIX
    assert sum(of_image.evaluation_steps for of_image in requirements) <= MOST_EVALUATIONS
    assert sum(of_image.steps for of_image in requirements) <= MOST_STEPS


def test_conditions_of_a_pod_count_more_than_those_of_an_image() -> None:
    """Each of them, as no other pod may have the same."""
    text = built_in_catalog().find("nvidia/cuda:12.8.1-base-ubuntu22.04").constraints[0].text
    written = requirements_of(ContainerFacts("own:1", known=((REQUIRE_CUDA, text),)), built_in_catalog())
    conditions = text.count(" ") + text.count(",") + 1

    assert written.evaluation_steps >= conditions * STEPS_OF_CONDITION


def test_requirements_times_rules_are_limited() -> None:
    """Containers that differ ask for the resources of several vendors, each of which has a rule."""
    resources = {
        "limits": {"nvidia.com/gpumem": "1", "nvidia.com/mps-core": "1", "nvidia.com/mig-1g.5gb": "1"}
    }
    different = [
        {"name": f"c{at}", "resources": resources, "env": [{"name": "CUDA_VERSION", "value": f"12.{at}"}]}
        for at in range(60)
    ]
    response = json.loads(builtin_handler().answer("validate", body(spec(containers=different))))["response"]

    assert f"more than {MOST_EVALUATIONS:,} steps to evaluate on nodes" in response["status"]["message"]
