"""The built-in image catalogue on published manifests of others.

`pytest -s tests/corpus` prints the table: how many references each row matches, and which no row matches
although they seem to name a CUDA version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from rules.cuda.image_catalog import ImageFacts, built_in_catalog
from rules.cuda.requirements import GpuRequirements, container_facts, requirements_of
from rules.kube.image_reference import parse_image
from rules.kube.json_patch import Recorder
from rules.kube.pod import Container, ContainerKind
from tests.support.paths import MANIFESTS, needs_manifests

# A number after cu or cuda that can be one of CUDA 8 to 19, with nothing before that makes it another word.
CUDA_VERSION = re.compile(r"(?<![a-z])cu(?:da[-_.]?)?(?:[89]|1\d)(?:\.?\d)?(?!\d)")
OTHER_PLATFORMS = re.compile(r"rocm|ascend|xpu|neuron|habana|gaudi|tpu|mthreads|dtk|iluvatar|cambricon")

pytestmark = needs_manifests


def containers(node: Any, annotations: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield everything that has a name and an image, with the annotations of its object."""
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
    """Return image and requirements of every container of every manifest."""
    answers = []
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        for document in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
            for raw, written in containers(document, {}):
                container = Container(raw, (), ContainerKind.REGULAR, Recorder(raw))
                texts = {key: text for key, text in written.items() if isinstance(text, str)}
                requirements = requirements_of(container_facts(container, texts), built_in_catalog())
                answers.append((raw["image"], requirements))
    return answers


@pytest.fixture(scope="module")
def images(found: list[tuple[str, GpuRequirements]]) -> dict[str, ImageFacts]:
    """Return the facts of each image; templates such as `${IMAGE}` are left out."""
    return {image: built_in_catalog().find(image) for image, _ in found if parse_image(image)}


def test_the_catalogue_is_tried_on_hundreds_of_images(images: dict[str, ImageFacts]) -> None:
    """Print each row with the number of references that it matches."""
    known = Counter(facts.row or "(nothing known)" for facts in images.values())
    for row, count in known.most_common():
        print(f"{count:5} of {len(images)}  {row}")  # noqa: T201

    assert len(images) == known.total() > 300


def test_the_cuda_version_in_a_reference_is_found(images: dict[str, ImageFacts]) -> None:
    """In published names everything of that form is a CUDA version."""
    missed = [
        image
        for image, facts in images.items()
        if CUDA_VERSION.search(image.partition("/")[2] or image) and facts.cuda is None
    ]

    assert missed == []


def test_a_reference_without_a_cuda_version_needs_a_row_of_its_family(images: dict[str, ImageFacts]) -> None:
    """The general rows read nothing into other names."""
    unexplained = [
        image
        for image, facts in images.items()
        if facts.row in ("CUDA in the tag", "CUDA in the name") and not CUDA_VERSION.search(image)
    ]

    assert unexplained == []


def test_images_for_other_platforms_have_no_requirements(found: list[tuple[str, GpuRequirements]]) -> None:
    """Neither CUDA nor a compute capability."""
    wrong = [
        image for image, needs in found if OTHER_PLATFORMS.search(image) and (needs.cuda or needs.compute)
    ]

    assert wrong == []


def test_published_annotations_and_requirements_can_be_parsed(
    found: list[tuple[str, GpuRequirements]],
) -> None:
    """None is reported as a problem."""
    assert [image for image, needs in found if needs.problems] == []


def test_every_requirement_has_an_origin(found: list[tuple[str, GpuRequirements]]) -> None:
    """In both languages."""
    origins = [need.origin for _, needs in found for need in needs.compute]
    origins += [needs.cuda.origin for _, needs in found if needs.cuda]

    assert origins
    assert all(origin.en and origin.zh for origin in origins)
