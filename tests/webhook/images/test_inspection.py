"""Facts of an image's config, and ImageCatalog rows of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.image_builders import CUDA_ENV, REQUIRE
from webhook.images.inspection import InspectedImage, PlatformConfig

DIGEST = f"sha256:{'1' * 64}"


def platform(env: Mapping[str, str], architecture: str = "amd64") -> PlatformConfig:
    """Return a config."""
    return PlatformConfig("linux", architecture, f"sha256:{'2' * 64}", env, {})


@pytest.mark.parametrize(
    ("env", "facts"),
    [
        (CUDA_ENV, {"cuda": "12.4", "require": {"NVIDIA_REQUIRE_CUDA": REQUIRE}}),
        ({}, {"require": {}}),
        ({"CUDA_VERSION": "latest"}, {"require": {}}),
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
            "digest": DIGEST,
            "cuda": "12.4",
            "require": {"NVIDIA_REQUIRE_CUDA": REQUIRE},
            "platforms": ["linux/amd64", "linux/arm64"],
        },
        {"digest": DIGEST, "require": {}, "platforms": ["linux/riscv64"]},
    ] == image.rows()


def test_an_image_without_digest_has_rows_by_its_reference() -> None:
    """That of an archive; or of any image, on demand."""
    rows = [{"image": "docker.io/library/app:1", "require": {}, "platforms": ["linux/amd64"]}]
    for digest, key in (("", ""), (DIGEST, "image")):
        assert rows == InspectedImage("docker.io/library/app:1", digest, (platform({}),)).rows(key)
