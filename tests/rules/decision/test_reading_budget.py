"""The time to read the containers of one object is bounded; an object past the bound is denied."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rules.decision.pipeline import Snapshot, decide
from rules.decision.size_limit import RULE
from rules.model.decision import Decision
from tests.support.builders import request, warning_texts
from tests.support.cpu_time import loops
from tests.support.node_builders import DRIVERS, GPU, T4, V100, gfd, inventory, node, shipped

# As many kinds of nodes as a large cluster has.
NODES = inventory(
    [
        node(f"{driver}-{gpu[1]}-{at}", gfd(driver, gpu), **{GPU: "8"})
        for driver in DRIVERS
        for gpu in (T4, V100)
        for at in range(3)
    ]
)
# As in an image nvidia/cuda:12.4.1.
OF_NVIDIA = "cuda>=12.4 " + " ".join(
    f"brand={brand},driver>={branch},driver<{branch + 1}"
    for branch in (470, 535)
    for brand in ("tesla", "unknown", "nvidia", "nvidiartx", "geforce", "geforcertx", "quadro", "quadrortx")
)


def main(number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a container that requests a GPU."""
    return {"name": f"c{number}", "image": "team/app:v1", "resources": {"limits": {GPU: "1"}}} | fields


def variables(**values: str) -> list[dict[str, str]]:
    """Return entries of `env`."""
    return [{"name": name, "value": value} for name, value in values.items()]


def pod(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a pod of these containers."""
    named = {"name": "train", "namespace": "team"} | metadata
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": {"containers": [*containers]}}


def decided(document: Mapping[str, Any], **fields: Any) -> Decision:
    """Return the decision by the built-in rules."""
    return decide(Snapshot(shipped(), NODES), request(document, **fields))


def groups(count: int, first: int = 0) -> str:
    """Return an expression of so many groups, none of which is as another."""
    return " ".join(f"cuda>=9.{at},driver>={400 + at},arch>={at % 9}.1" for at in range(first, first + count))


def script(text: str, number: int = 0) -> dict[str, Any]:
    """Return a container whose command is a script that starts vLLM."""
    return main(number, command=["sh", "-c", f"vllm serve --dtype=bfloat16\n{text}"])


PAST_THE_BUDGET: dict[str, Callable[[], dict[str, Any]]] = {
    "requirements of 100 KB": lambda: pod(
        main(env=variables(**{f"NVIDIA_REQUIRE_{at}": groups(300, at) for at in range(9)}))
    ),
    "requirements of 2 MB": lambda: pod(
        main(env=variables(**{f"NVIDIA_REQUIRE_{at}": groups(300, at) for at in range(190)}))
    ),
    "many requirements": lambda: pod(
        main(env=variables(**{f"NVIDIA_REQUIRE_{at}": f"cuda>=12.{at}" for at in range(1900)}))
    ),
    "requirements that refer to a variable": lambda: pod(
        *(
            main(
                at,
                env=variables(
                    A=groups(100, at), **{f"NVIDIA_REQUIRE_{number}": "$(A) $(A)" for number in range(99)}
                ),
            )
            for at in range(12)
        )
    ),
    "a requirement for each container": lambda: pod(
        *(main(at, env=variables(NVIDIA_REQUIRE_CUDA=groups(100, at))) for at in range(500))
    ),
    "scripts": lambda: pod(*(script("export AB=$XX; " * 4000, at) for at in range(48))),
    "scripts in one container": lambda: pod(
        main(args=["vllm serve", "--dtype=half", *("abcd $AB; " * 200 for _ in range(1000))])
    ),
    "variables that double each other": lambda: pod(
        *(
            main(
                at,
                env=variables(
                    A0="--dtype ", **{f"A{number}": f"$(A{number - 1})" * 2 for number in range(1, 18)}
                ),
                args=["vllm", "serve", "$(A17)"],
            )
            for at in range(500)
        )
    ),
    "references to an empty variable": lambda: pod(
        main(env=variables(A="", B="$(A)" * 700_000), args=["vllm", "serve", "--dtype=$(B)"])
    ),
    "words": lambda: pod(main(args=["vllm", "serve", *["--dtype", "half"] * 140_000])),
    "words after a script": lambda: pod(
        main(command=["sh", "-c", "vllm serve --dtype=half $@", *["a"] * 500_000])
    ),
    "images": lambda: pod(
        *(main(at, image=f"r{at}.io/vllm/vllm-openai:v0.8.{at % 9}") for at in range(1900))
    ),
    "annotations": lambda: pod(
        *(main(at) for at in range(900)),
        annotations={f"gpugate.dev/cuda-version.c{at}": f"12.{at % 99}.{at}" for at in range(900)},
    ),
}


@pytest.mark.parametrize("what", list(PAST_THE_BUDGET))
def test_an_object_that_takes_too_many_steps_to_read_is_denied_soon(what: str) -> None:
    """In less than half a second on a usual core, if it is within the 3 MiB of the API server."""
    document = PAST_THE_BUDGET[what]()
    decisions: list[Decision] = []

    assert 30 > loops(lambda: decisions.append(decided(document)))
    assert [RULE] == [violation.rule for violation in decisions[0].violations]
    assert 3 * 2**20 > len(json.dumps(document, separators=(",", ":")))


def test_the_denial_names_the_bound() -> None:
    """And says what to do."""
    document = PAST_THE_BUDGET["many requirements"]()

    assert (
        "Pod denied by gpugate: Pod: its scripts, variables, images and NVIDIA_REQUIRE_* expressions take"
        " more than 150,000 steps to read; gpugate reads no more of one object. Shorten them,"
        " or split the object [rule size-limit]"
    ) == decided(document).denial.en


def test_a_kind_that_is_never_denied_is_warned_of() -> None:
    """Kueue's PodTemplates are admitted, with a warning."""
    template = PAST_THE_BUDGET["many requirements"]()
    document = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}, "template": template}
    decision = decided(document)

    assert decision.allowed
    assert "150,000 steps" in warning_texts(decision)[0]


def test_the_decision_does_not_depend_on_what_is_cached() -> None:
    """A pod that is denied by the size limit is denied again, though its containers are known."""
    document = pod(*(main(at, env=variables(NVIDIA_REQUIRE_CUDA=groups(9, at))) for at in range(99)))
    few = [pod(*document["spec"]["containers"][at : at + 3]) for at in range(0, 99, 3)]

    first = decided(document).violations
    assert RULE not in {violation.rule for small in few for violation in decided(small).violations}
    assert first == decided(document).violations
    assert [RULE] == [violation.rule for violation in first]


def test_the_budget_is_for_all_templates_of_an_object() -> None:
    """Each of them would be within it."""
    containers = [main(at, env=variables(NVIDIA_REQUIRE_CUDA=groups(100, at))) for at in range(3)]
    specs: list[Any] = [{"template": {"spec": {"containers": [container]}}} for container in containers]
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {}}

    assert [RULE] == [
        violation.rule for violation in decided(cluster | {"spec": {"workerGroupSpecs": specs}}).violations
    ]
    for spec in specs:
        decision = decided(cluster | {"spec": {"workerGroupSpecs": [spec]}})
        assert RULE not in {violation.rule for violation in decision.violations}


USUAL: dict[str, Callable[[], dict[str, Any]]] = {
    "100 equal containers": lambda: pod(
        *(main(at, env=variables(NVIDIA_REQUIRE_CUDA=OF_NVIDIA)) for at in range(100))
    ),
    "a container with 1,000 variables": lambda: pod(
        main(env=variables(**{f"A{at}": f"$(B{at})" for at in range(1000)}), args=["vllm", "serve", "$(A1)"])
    ),
    "a script of a thousand lines": lambda: pod(script("if test -e file; then cp file /tmp/x; fi\n" * 1000)),
    "30 images that are built on nvidia/cuda": lambda: pod(
        *(main(at, image=f"r{at}.io/vllm/vllm-openai:v0.8.{at % 5}") for at in range(30))
    ),
    "six containers with requirements of their own": lambda: pod(
        *(main(at, env=variables(NVIDIA_REQUIRE_CUDA=f"{OF_NVIDIA} cuda>=12.{at}")) for at in range(6))
    ),
}


@pytest.mark.parametrize("what", list(USUAL))
def test_a_large_object_of_real_content_is_within_the_budget(what: str) -> None:
    """Whatever else is decided about it."""
    assert RULE not in {violation.rule for violation in decided(USUAL[what]()).violations}
