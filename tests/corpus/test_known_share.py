"""The share of GPU containers whose CUDA version is known, on published manifests of others.

`pytest -s tests/corpus/test_known_share.py` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from rules import load_rules
from rules.cuda.image_catalog import ImageCatalog, built_in_catalog
from rules.kube.image_reference import parse_image
from tests.corpus.test_image_table import containers
from tests.support.node_builders import image_catalog
from tests.support.paths import MANIFESTS, needs_manifests
from webhook.images.inspection import InspectedImage, PlatformConfig

pytestmark = needs_manifests

# Resources of NVIDIA GPUs, whole or shared; other vendors' images hold no CUDA.
GPUS: Final = (
    "aliyun.com/gpu",
    "elasticgpu.io/",
    "koordinator.sh/gpu",
    "nvidia.com/",
    "tencent.com/vcuda",
    "volcano.sh/gpu",
    "volcano.sh/vgpu",
)
# Images of operating systems, and others without CUDA: their configs have no CUDA_VERSION either.
WITHOUT_CUDA: Final = ("alpine", "amazonlinux", "busybox", "nginx-slim", "pause", "perl", "sleep", "ubuntu")
DIGEST: Final = f"sha256:{'0' * 64}"


def gpu_images() -> Iterator[str]:
    """Yield the image of every container that requests GPUs; placeholders such as `${IMAGE}` are left out."""
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        for document in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
            for raw, _ in containers(document, {}):
                if any(str(name).startswith(GPUS) for name in _resources(raw)) and parse_image(raw["image"]):
                    yield raw["image"]


def _resources(raw: dict[str, Any]) -> set[object]:
    resources = raw.get("resources")
    amounts = [resources.get(key) for key in ("limits", "requests")] if isinstance(resources, dict) else []
    return {name for quantities in amounts if isinstance(quantities, dict) for name in quantities}


def known(catalog: ImageCatalog, images: list[str]) -> float:
    """Return the share of images with a known CUDA version."""
    return sum(catalog.find(image).cuda is not None for image in images) / len(images)


def with_configs(images: set[str]) -> ImageCatalog:
    """Return the catalogue with the rows that `image inspect` writes of configs of CUDA images."""
    env = {"CUDA_VERSION": "12.4.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}
    config = PlatformConfig("linux", "amd64", DIGEST, env, {})
    rows = [row for image in sorted(images) for row in InspectedImage(image, "", (config,)).rows()]
    loaded = load_rules([("rows.yaml", image_catalog(*rows))])
    assert [] == [error.message for error in loaded.errors]
    (rule,) = loaded.rules.images
    return built_in_catalog().preceded_by(rule.rows)


def test_the_share_of_gpu_containers_with_known_cuda() -> None:
    """From names alone, and as if the configs of all images with CUDA could be read."""
    images = list(gpu_images())
    cuda = [
        image
        for image in images
        if not built_in_catalog().find(image).no_cuda
        and not any(part in Path(image.partition("@")[0]).name for part in WITHOUT_CUDA)
    ]
    names, among_cuda = known(built_in_catalog(), images), known(built_in_catalog(), cuda)
    unread = {image for image in cuda if built_in_catalog().find(image).cuda is None}
    configs = known(with_configs(unread), cuda)
    for row in (
        f"{len(images)} GPU containers, {len(cuda)} of them with CUDA",
        "from names, before the catalogue of families    28.0%",
        f"from names, of all GPU containers               {names:.1%}",
        f"from names, of those with CUDA                  {among_cuda:.1%}",
        f"with the configs of all images, of those        {configs:.1%}",
    ):
        print(row)  # noqa: T201

    assert len(images) > 200
    assert names >= 0.45
    assert configs >= 0.95
