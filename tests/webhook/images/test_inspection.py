"""Facts of an image's config, and ImageCatalog rows of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rules import load_rules
from tests.support.image_builders import CUDA_ENV, REQUIRE
from tests.support.node_builders import image_catalog
from webhook.images.inspection import InspectedImage, PlatformConfig

DIGEST = f"sha256:{'1' * 64}"
NAMED = {"image": "docker.io/library/app:1", "digest": DIGEST}


def platform(env: Mapping[str, str], architecture: str = "amd64") -> PlatformConfig:
    """Return a config."""
    return PlatformConfig("linux", architecture, f"sha256:{'2' * 64}", env, {})


@pytest.mark.parametrize(
    ("env", "facts"),
    [
        (CUDA_ENV, {"cuda": "12.4", "require": {"NVIDIA_REQUIRE_CUDA": REQUIRE}}),
        ({}, {"require": {}}),
        ({"CUDA_VERSION": "latest"}, {"require": {}}),
        ({"NVIDIA_REQUIRE_CUDA": "cuda~12"}, {"require": {}}),
        (CUDA_ENV | {"NVIDIA_DISABLE_REQUIRE": "true"}, {"cuda": "12.4", "require": {}}),
        (
            {"NVIDIA_REQUIRE_DRIVER": "driver>=535", "NVIDIA_REQUIRE_JETPACK": "x"},
            {"require": {"NVIDIA_REQUIRE_DRIVER": "driver>=535"}},
        ),
        (
            {"CUDA_VERSION": "12.2", "LD_LIBRARY_PATH": "/opt/x:/usr/local/cuda/compat/lib:/usr/lib"},
            {"cuda": "12.2", "require": {}, "cudaCompat": "loader-path"},
        ),
        ({"LD_LIBRARY_PATH": "/usr/local/cuda-12.4/compat"}, {"require": {}, "cudaCompat": "loader-path"}),
        ({"LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/usr/local/cuda/compatible"}, {"require": {}}),
        ({"LD_LIBRARY_PATH": "relative/usr/local/cuda/compat"}, {"require": {}}),
    ],
)
def test_the_facts_of_a_config(env: Mapping[str, str], facts: dict[str, object]) -> None:
    """What it does not show is absent, not false; requirements are known to be none."""
    assert facts == platform(env).facts


def test_platforms_with_equal_facts_share_a_row() -> None:
    """The gate selects rows by the architecture of a node."""
    configs = (platform(CUDA_ENV), platform({}, "riscv64"), platform(CUDA_ENV, "arm64"))
    image = InspectedImage("docker.io/library/app:1", DIGEST, configs)

    assert [
        {
            **NAMED,
            "cuda": "12.4",
            "require": {"NVIDIA_REQUIRE_CUDA": REQUIRE},
            "platforms": ["linux/amd64", "linux/arm64"],
        },
        {**NAMED, "require": {}, "platforms": ["linux/riscv64"]},
    ] == image.rows()


def test_platforms_that_were_not_read_have_a_row_without_facts() -> None:
    """If it is unknown which others there are, no row names a platform."""
    named = InspectedImage("app:1", DIGEST, (platform({}),), unread=("linux/arm64", "linux/s390x"))
    unknown = InspectedImage("app:1", DIGEST, (platform({}),), unread=None)

    assert [
        {"require": {}, "platforms": ["linux/amd64"]},
        {"platforms": ["linux/arm64", "linux/s390x"]},
    ] == named.facts()
    assert [{"require": {}}] == unknown.facts()


@pytest.mark.parametrize(
    ("reference", "digest", "named"),
    [
        ("docker.io/library/app:1", DIGEST, {"image": "docker.io/library/app:1", "digest": DIGEST}),
        ("docker.io/library/app:1", "", {"image": "docker.io/library/app:1"}),
        (f"docker.io/library/app@{DIGEST}", DIGEST, {"digest": DIGEST}),
        ("/tmp/Image.tar", DIGEST, {"digest": DIGEST}),
    ],
)
def test_a_row_is_by_reference_and_digest(reference: str, digest: str, named: dict[str, str]) -> None:
    """As far as there are both: an archive may lack one."""
    row = {**named, "require": {}, "platforms": ["linux/amd64"]}

    assert [row] == InspectedImage(reference, digest, (platform({}),)).rows()


def test_an_image_without_name_and_digest_has_no_row() -> None:
    """Nothing could match it."""
    assert [] == InspectedImage("/tmp/Image.tar", "", (platform({}),)).rows()


@pytest.mark.parametrize(
    "env",
    [
        CUDA_ENV,
        {},
        {"NVIDIA_REQUIRE_CUDA": "cuda~12"},
        {"NVIDIA_REQUIRE_CUDA": ""},
        {"NVIDIA_REQUIRE_": "cuda>=12", "NVIDIA_REQUIRE_X": "x" * 20_000},
        {"CUDA_VERSION": "999"},
    ],
)
def test_rows_are_valid_whatever_the_config_says(env: Mapping[str, str]) -> None:
    """One image must not make a whole catalogue invalid."""
    rows = InspectedImage("docker.io/library/app:1", DIGEST, (platform(env),)).rows()

    assert () == tuple(load_rules([("images", image_catalog(*rows))]).errors)
