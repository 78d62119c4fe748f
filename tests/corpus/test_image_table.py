"""What the catalogue makes of images in manifests that other people published; skipped where there are none.

`pytest -s tests/corpus` prints the table: how many references each row knows, and which are known by no row
although something in them looks like CUDA.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.cuda.image_catalog import ImageFacts, built_in_catalog
from rules.cuda.requirements import ContainerFacts, GpuRequirements, requirements_of
from rules.kube.container_env import environment
from rules.kube.image_reference import parse_image

HERE = Path(__file__).resolve().parents[2]
MANIFESTS = Path(os.environ.get("GPUGATE_MANIFESTS", HERE.parent / "shared" / "data" / "manifests"))
# A number after cu or cuda that can be one of CUDA 8 to 19, with nothing before that makes it another word.
LOOKS_LIKE_CUDA = re.compile(r"(?<![a-z])cu(?:da[-_.]?)?(?:[89]|1\d)(?:\.?\d)?(?!\d)")
OTHER_PLATFORMS = re.compile(r"rocm|ascend|xpu|neuron|habana|gaudi|tpu|mthreads|dtk|iluvatar|cambricon")

pytestmark = pytest.mark.skipif(not MANIFESTS.is_dir(), reason=f"no manifests at {MANIFESTS}")


def containers(node: Any, annotations: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Find everything that has a name and an image, with the annotations of the object around it."""
    if isinstance(node, dict):
        metadata = node.get("metadata")
        annotations = (metadata.get("annotations") if isinstance(metadata, dict) else None) or annotations
        if isinstance(node.get("image"), str) and isinstance(node.get("name"), str):
            yield node, annotations
        for member in node.values():
            yield from containers(member, annotations)
    elif isinstance(node, list):
        for item in node:
            yield from containers(item, annotations)


@pytest.fixture(scope="module")
def found() -> list[tuple[str, GpuRequirements]]:
    """Ask for the needs of every container of every manifest; with its image."""
    answers = []
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        for document in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
            for raw, noted in containers(document, {}):
                words = [
                    word
                    for field in ("command", "args")
                    for word in raw.get(field) or []
                    if isinstance(word, str)
                ]
                facts = ContainerFacts(raw["name"], raw["image"], environment(raw.get("env") or []), words)
                answers.append((raw["image"], requirements_of(facts, noted, built_in_catalog())))
    return answers


@pytest.fixture(scope="module")
def images(found: list[tuple[str, GpuRequirements]]) -> dict[str, ImageFacts]:
    """Look up each image that is one; templates such as `${IMAGE}` are none."""
    return {image: built_in_catalog().find(image) for image, _ in found if parse_image(image)}


def test_the_table_of_rows_can_be_read(images: dict[str, ImageFacts]) -> None:
    """A row each, with the number of references that it knows."""
    known = Counter(facts.row or "(nothing known)" for facts in images.values())
    for row, count in known.most_common():
        print(f"{count:5} of {len(images)}  {row}")  # noqa: T201

    assert len(images) == known.total() > 300


def test_an_image_that_says_cuda_is_known(images: dict[str, ImageFacts]) -> None:
    """Whatever looks like a CUDA version is one, in the published names."""
    missed = [
        image
        for image, facts in images.items()
        if LOOKS_LIKE_CUDA.search(image.partition("/")[2] or image) and facts.cuda is None
    ]

    assert missed == []


def test_a_version_is_found_only_where_something_says_so(images: dict[str, ImageFacts]) -> None:
    """Each stands in the reference, or the reference is of a family whose versions are known."""
    families = re.compile(
        r"nvidia/cuda:\d|-py3|vllm-openai|sglang|text-generation-inference|tensorflow:\d\S+-gpu"
    )
    unexplained = [
        image
        for image, facts in images.items()
        if facts.cuda and not (LOOKS_LIKE_CUDA.search(image) or families.search(image))
    ]

    assert unexplained == []


def test_images_for_other_platforms_need_no_cuda(found: list[tuple[str, GpuRequirements]]) -> None:
    """Nor any compute capability."""
    wrong = [
        image for image, needs in found if OTHER_PLATFORMS.search(image) and (needs.cuda or needs.compute)
    ]

    assert wrong == []


def test_nothing_that_people_wrote_is_a_problem(found: list[tuple[str, GpuRequirements]]) -> None:
    """Annotations and requirements in the published manifests can be read."""
    assert [image for image, needs in found if needs.problems] == []


def test_every_need_has_an_origin(found: list[tuple[str, GpuRequirements]]) -> None:
    """In both languages."""
    origins = [need.origin for _, needs in found for need in needs.compute]
    origins += [needs.cuda.origin for _, needs in found if needs.cuda]

    assert origins
    assert all(origin.en and origin.zh for origin in origins)
