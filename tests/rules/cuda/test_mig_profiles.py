"""MIG profiles: what resources stand for them, and which GPUs have them."""

from __future__ import annotations

import pytest

from rules.cuda.mig_profiles import gpu_of, gpus_with, is_known, mig_gpus, nearest, profile_of
from rules.cuda.tables import BUILT_IN, gpu_model


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        ("nvidia.com/mig-1g.5gb", "1g.5gb"),
        ("nvidia.com/mig-1g.5gb.me", "1g.5gb"),
        ("nvidia.com/mig-1g.24gb.me.all", "1g.24gb"),
        ("nvidia.com/mig-1g.24gb-me", "1g.24gb"),
        ("nvidia.com/mig-2g.48gb.gfx", "2g.48gb"),
        ("nvidia.com/mig-7g.80gb.shared", "7g.80gb"),
        ("nvidia.com/mig-small", ""),
        ("nvidia.com/mig-1c.3g.20gb", ""),
        ("nvidia.com/gpu", ""),
    ],
)
def test_a_resource_has_a_profile_without_its_attributes(resource: str, profile: str) -> None:
    """As the device plugin writes them; another name is one that an operator chose."""
    assert profile == profile_of(resource)


@pytest.mark.parametrize(
    ("profile", "known", "meant"),
    [
        ("7g.3gb", False, "7g.40gb"),
        ("1g.200gb", False, "1g.70gb"),
        ("5g.20gb", False, "4g.20gb"),
        ("3g.20gb", True, "3g.20gb"),
        ("2g.32gb", True, "2g.30gb"),  # it may be of a GPU whose profiles were not read
    ],
)
def test_a_profile_that_no_gpu_has_is_near_to_another(profile: str, known: bool, meant: str) -> None:
    """Of as many compute slices, if there is one."""
    assert (known, meant) == (is_known(profile), nearest(profile))


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA-A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100 40GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100 80GB"),
        ("NVIDIA-A800-SXM4-80GB", "A100 80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100 80GB"),
        ("NVIDIA-H100-PCIe", "H100 80GB"),
        ("NVIDIA-H100-NVL", "H100 NVL"),
        ("NVIDIA-H200-NVL", "H200"),
        ("NVIDIA-H20", "H20"),
        ("NVIDIA-H20-3e", "H20-3e"),
        ("NVIDIA-B200", "B200"),
        ("NVIDIA-A10", None),
        ("Tesla-T4", None),
    ],
)
def test_a_product_has_the_profiles_of_its_gpu(product: str, name: str | None) -> None:
    """None: they are unknown, or it has none."""
    gpu = gpu_of(product)

    assert name == (gpu.name if gpu else None)


def test_a_profile_is_of_several_gpus() -> None:
    """Those with as much memory."""
    assert ("A100 80GB", "H100 80GB") == gpus_with("7g.80gb")


def test_each_product_has_at_most_one_row_and_a_model_of_compute_capability_8_0_or_more() -> None:
    """As NVIDIA's user guide says; seven devices at most, and one of the whole GPU."""
    for product in ("NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-GB200", "NVIDIA-A30"):
        model = gpu_model(BUILT_IN, product)

        assert model
        assert model.compute
        assert model.compute >= (8, 0)
        assert 1 == sum(bool(gpu.label.fullmatch(product.removeprefix("NVIDIA-"))) for gpu in mig_gpus())
    for gpu in mig_gpus():
        assert max(gpu.profiles.values()) in (4, 7)
        assert min(gpu.profiles.values()) == 1
