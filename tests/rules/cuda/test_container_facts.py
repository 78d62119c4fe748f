"""What tells a container's needs: nothing of it is lost, and those that tell the same need the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.facts import Facts, facts_of, reader
from rules.cuda.image_catalog import built_in_catalog
from rules.cuda.requirements import ContainerFacts, requirements_of
from rules.kube.container_env import environment
from rules.kube.pod import Container, Pod
from tests.support.builders import pod as pod_of
from tests.support.builders import policy
from tests.support.node_builders import VLLM, gpu_container, gpu_pod, image_catalog

NAMES = (
    "A",
    "B",
    "CUDA_VERSION",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_DISABLE_REQUIRE",
    "VLLM_ADDITIONAL_ARGS",
    "DTYPE",
)
TEXTS = (
    "12.4",
    "cuda>=12.4",
    "true",
    "--dtype=bfloat16",
    "$(A)",
    "$(B) $(A)",
    "$$(A)",
    "--dtype",
    "bfloat16",
    "",
)
ANNOTATIONS = {
    "gpugate.dev/cuda-version": "12.1",
    "gpugate.dev/min-compute-capability.main": "8.0",
    "gpugate.dev/cuda-compat": "maybe",
    "example.com/cuda-version": "11.0",
}


def _main(**fields: Any) -> Container:
    """Return the container of a pod."""
    document = pod_of(gpu_container(VLLM, **fields))
    (found,) = Pod(document, document).containers
    return found


def _variables(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


@given(
    st.lists(
        st.fixed_dictionaries({"name": st.sampled_from(NAMES)}, optional={"value": st.sampled_from(TEXTS)}),
        max_size=6,
    ),
    st.lists(st.sampled_from(TEXTS), max_size=4),
    st.sets(st.sampled_from([*ANNOTATIONS])),
)
def test_facts_tell_all_that_the_container_does(
    env: list[dict[str, str]], words: list[str], said: set[str]
) -> None:
    """What is left out of them would tell nothing."""
    entries: list[dict[str, Any]] = [
        entry if "value" in entry else entry | {"valueFrom": {"fieldRef": {}}} for entry in env
    ]
    annotations = {name: ANNOTATIONS[name] for name in said}
    whole = ContainerFacts("main", VLLM, environment(entries), words)
    facts = facts_of(_main(env=entries, args=words), annotations)

    assert requirements_of(whole, annotations, built_in_catalog()) == reader(built_in_catalog())(facts)


def test_what_tells_nothing_is_no_fact() -> None:
    """Neither a variable's value, which may be a token, nor an annotation of somebody else."""
    facts = facts_of(_main(env=_variables(OTHER="mine", A="1")), {"example.com/a": "b"})

    assert Facts("main", VLLM) == facts


def test_of_variables_only_those_are_facts_that_tell_or_are_referred_to() -> None:
    """By the command line, or by another that tells."""
    env = _variables(OTHER="mine", A="12", B="4", CUDA_VERSION="$(A).$(B)")
    facts = facts_of(_main(env=env, args=["--port=$(B)"]), {})

    assert (("B", "4"), ("CUDA_VERSION", "12.4")) == facts.known


def test_containers_that_tell_the_same_have_the_same_needs() -> None:
    """The very same, found once; those of one whose facts are long are found again and not kept."""
    compiled = policy()
    found = [compiled.requirements_of(facts_of(_main(env=_variables(A=text)), {})) for text in ("1", "2")]
    long = facts_of(_main(args=["x" * 5000]), {})

    assert found[0] is found[1]
    assert compiled.requirements_of(long) == compiled.requirements_of(long)
    assert compiled.requirements_of(long) is not compiled.requirements_of(long)


def test_an_edited_image_catalogue_tells_other_needs() -> None:
    """A policy remembers by its own catalogue."""
    facts = Facts("main", "team/app:v1")
    found = [
        policy(image_catalog({"image": "*team/app:*", "cuda": cuda})).requirements_of(facts).cuda
        for cuda in ("12.1", "11.8")
    ]

    assert ["12.1", "11.8"] == [str(each.version) for each in found if each]


def test_the_pod_is_looked_up_with_the_values_that_it_has() -> None:
    """Two pods that differ in one word need different things."""
    compiled = policy()
    compute = []
    for word in ("--dtype=bfloat16", "--dtype=half", "--dtype=bfloat16"):
        document = gpu_pod(VLLM, word)
        (main,) = Pod(document, document).containers
        needs = compiled.requirements_of(facts_of(main, {}))
        compute.append([need.asked for need in needs.compute if need.asked])

    assert [[True], [], [True]] == compute
