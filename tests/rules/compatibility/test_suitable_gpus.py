"""What a container needs of driver and GPU, and which GPUs of the facts have it, where no nodes are known."""

from __future__ import annotations

import pytest

from rules.compatibility.result import RuleRequirement
from rules.compatibility.suitable_gpus import gpus_for, needs_of
from rules.cuda.image_catalog import built_in_catalog
from rules.cuda.requirements import container_facts, requirements_of
from rules.cuda.tables import BUILT_IN
from rules.kube.pod import Pod
from tests.support.builders import container, pod
from tests.support.node_builders import GPU, shipped_rules
from tests.support.requirement_builders import requirements

# Of whole GPUs.
_RULE = next(rule for rule in shipped_rules().compatibility if rule.name == "compatibility-pgpu")


def needs(image: str, *words: str, resource: str = GPU, **annotations: str) -> str:
    """Return the text on a container `main`; annotations: without their domain, with `_`."""
    declared = {f"gpugate.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    document = pod(container({resource: "1"}, image=image, args=[*words]))
    (user,) = Pod(document, document).users
    needed = requirements_of(container_facts(user, declared), built_in_catalog())
    required = RuleRequirement(_RULE, needed)
    return needs_of(user, required, BUILT_IN).en


@pytest.mark.parametrize(
    ("image", "words", "needed", "gpus"),
    [
        (
            "vllm/vllm-openai:v0.20.0",
            (),
            "CUDA 13.0 (drivers from 580 on have it), compute capability 7.5",
            "Turing to Blackwell, perhaps Rubin",
        ),
        (
            "vllm/vllm-openai:v0.8.4",
            ("--dtype=bfloat16",),
            "CUDA 12.4 (drivers from 550 on have it), compute capability 8.0",
            "Ampere to Hopper",
        ),
        (
            "tensorflow/tensorflow:2.16.1-gpu",
            (),
            "CUDA 12.3 (drivers from 545 on have it), compute capability 5.0",
            "Maxwell to Hopper, perhaps Kepler, Blackwell (drivers from 570 or 580 on), Rubin",
        ),
    ],
)
def test_a_container_needs_what_its_image_and_flags_do(
    image: str, words: tuple[str, ...], needed: str, gpus: str
) -> None:
    """GPUs are named by architecture, those of which facts are uncertain after `perhaps`."""
    assert f"container 'main' needs {needed}; suitable GPUs: {gpus}" == needs(image, *words)


@pytest.mark.parametrize(
    ("version", "model", "needed", "gpus", "too_small"),
    [
        (
            "v0.9.2",
            "meta-llama/Llama-3.1-70B-Instruct",
            "131.4 GiB of GPU memory for meta-llama/Llama-3.1-70B-Instruct, and more to serve it",
            "B200",
            "T4",
        ),
        (
            "v0.9.2",
            "acme/Support-70B",
            "by its name 116.0 GiB of GPU memory for acme/Support-70B, and more to serve it",
            "B200",
            "T4",
        ),
        (
            "v0.6.3",
            "Qwen/Qwen2.5-7B-Instruct",
            "compute capability 8.0, 14.2 GiB of GPU memory for Qwen/Qwen2.5-7B-Instruct",
            "A30",
            "V100",
        ),
    ],
)
def test_a_model_needs_gpus_with_its_memory_and_data_type(
    version: str, model: str, needed: str, gpus: str, too_small: str
) -> None:
    """A product of which there are several sizes is named after `perhaps`."""
    text = needs(f"vllm/vllm-openai:{version}", f"--model={model}")

    assert needed in text
    assert gpus in text.partition("suitable GPUs: ")[2].partition("perhaps")[0]
    assert too_small not in text.partition("suitable GPUs: ")[2]


def test_gpus_of_which_not_all_have_it_are_named_one_by_one() -> None:
    """By their data sheets: an A100 has 40 or 80 GB."""
    small, medium, large = (
        needs("team/app:1", cuda_version="13.0", min_gpu_memory=least) for least in ("30Gi", "60Gi", "150Gi")
    )

    assert "A100" in small.partition("perhaps")[0]
    assert "A100" in medium.partition("perhaps")[2]
    assert "150Gi of GPU memory; suitable GPUs: B200, GB200, B300, perhaps " in large
    assert "A100" not in large


@pytest.mark.parametrize(
    ("image", "annotations", "text"),
    [
        ("team/app:1", {}, "what container 'main' needs of driver and GPU is unknown; set annotation "),
        ("nginx:1.27", {}, "container 'main' needs no CUDA"),
        ("team/app:1", {"min_compute_capability": "13.0"}, "; no known GPU has it"),
        ("team/app:1", {"cuda_version": "99.0"}, "container 'main' needs CUDA 99.0; no known driver has it"),
    ],
)
def test_what_is_unknown_is_said_to_be(image: str, annotations: dict[str, str], text: str) -> None:
    """And no driver is named for a CUDA version that none is known to have."""
    assert text in needs(image, **annotations)


def test_gpus_have_the_driver_that_is_needed_not_the_newest() -> None:
    """Of which the rule would warn, because it is more than one major version newer."""
    required = RuleRequirement(_RULE, requirements("pytorch/pytorch:2.2.0-cuda11.8-cudnn8-runtime"))

    assert gpus_for(required, BUILT_IN).en.startswith("suitable GPUs: Maxwell to Hopper")


def test_a_gpu_whose_first_driver_is_not_known_is_never_certain() -> None:
    """Its driver is as new as those of older GPUs: none has CUDA 11, which a share of that major needs."""
    share = next(
        rule for rule in shipped_rules().compatibility if rule.name == "compatibility-gpu-manager-shares"
    )
    older = RuleRequirement(share, requirements("nvidia/cuda:11.8.0-base-ubuntu22.04"))

    assert needs("team/app:1", cuda_version="13.0").endswith(", perhaps Rubin")
    assert "Rubin" not in gpus_for(older, BUILT_IN).en


def test_gpus_that_need_a_newer_driver_than_the_cuda_version_are_named_with_its_branch() -> None:
    """An H100 has no driver of CUDA 11.4."""
    text = needs("team/app:1", cuda_version="11.4")

    assert "CUDA 11.4 (drivers from 470 on have it)" in text
    assert "Ampere, Ada Lovelace (drivers from 520 on), perhaps Hopper (drivers from 520 on), " in text
    assert "Blackwell (drivers from 570 or 580 on)" in text


def test_of_mig_devices_the_gpus_that_have_the_profile_are_said() -> None:
    """Volta has what else the container needs, but no MIG devices."""
    text = needs("nvidia/cuda:12.4.1-base-ubuntu22.04", resource="nvidia.com/mig-1g.5gb")

    assert (
        "container 'main' needs CUDA 12.4 (drivers from 550 on have it), MIG profile 1g.5gb (A100 40GB)"
    ) == text
