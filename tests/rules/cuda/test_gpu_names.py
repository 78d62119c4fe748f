"""GPU names that NVIDIA lists, as NVML prints them: each has a model with its compute capability."""

from __future__ import annotations

import pytest

from rules.cuda.tables import BUILT_IN, gpu_model

# https://developer.nvidia.com/cuda/gpus and https://developer.nvidia.com/cuda-legacy-gpus from 5.0 on, in the
# form of NVML (Ada GPUs of workstations end with `Generation`), and other names of NVML.
LISTED = {
    "12.1": "GB10",
    "12.0": """
        RTX PRO 6000 Blackwell Server Edition, RTX PRO 4500 Blackwell Server Edition,
        RTX PRO 6000 Blackwell Workstation Edition, RTX PRO 6000 Blackwell Max-Q Workstation Edition,
        RTX PRO 5000 Blackwell, RTX PRO 5000 72GB Blackwell, RTX PRO 4500 Blackwell, RTX PRO 4000 Blackwell,
        RTX PRO 4000 Blackwell SFF Edition, RTX PRO 2000 Blackwell, GeForce RTX 5090, GeForce RTX 5080,
        GeForce RTX 5070 Ti, GeForce RTX 5070, GeForce RTX 5060 Ti, GeForce RTX 5060, GeForce RTX 5050
    """,
    "11.0": "Thor, Jetson T5000, Jetson T4000",
    "10.3": "GB300, B300, B300 SXM6 AC",
    "10.0": "GB200, B200",
    "9.0": "GH200, GH200 480GB, H200, H100, H100 80GB HBM3, H100 PCIe, H100 NVL",
    "8.9": """
        L4, L40, L40S, RTX 6000 Ada Generation, RTX 5000 Ada Generation, RTX 4500 Ada Generation,
        RTX 4000 Ada Generation, RTX 4000 SFF Ada Generation, RTX 2000 Ada Generation, GeForce RTX 4090,
        GeForce RTX 4080, GeForce RTX 4070 Ti, GeForce RTX 4070, GeForce RTX 4060 Ti, GeForce RTX 4060,
        GeForce RTX 4050
    """,
    "8.7": "Orin, Jetson AGX Orin, Jetson Orin NX, Jetson Orin Nano",
    "8.6": """
        A40, A10, A16, A2, RTX A6000, RTX A5500, RTX A5000, RTX A4500, RTX A4000, RTX A3000, RTX A2000,
        RTX A2000 12GB, RTX A1000, RTX A400, GeForce RTX 3090 Ti, GeForce RTX 3090, GeForce RTX 3080 Ti,
        GeForce RTX 3080, GeForce RTX 3070 Ti, GeForce RTX 3070, GeForce RTX 3060 Ti, GeForce RTX 3060,
        GeForce RTX 3050 Ti, GeForce RTX 3050
    """,
    "8.0": "A100-SXM4-40GB, A100-SXM4-80GB, A100-PCIE-40GB, A100 80GB PCIe, A30",
    "7.5": """
        T4, Quadro RTX 8000, Quadro RTX 6000, Quadro RTX 5000, Quadro RTX 4000, Quadro RTX 3000, T2000, T1200,
        T1000, T1000 8GB, T600, T500, T400, T400 4GB, GeForce GTX 1650 Ti, TITAN RTX, GeForce RTX 2080 Ti,
        GeForce RTX 2080, GeForce RTX 2070, GeForce RTX 2060
    """,
    "7.2": "Xavier, Jetson AGX Xavier, Jetson Xavier NX",
    "7.0": "Tesla V100-SXM2-16GB, Tesla V100-SXM2-32GB, Tesla V100-PCIE-16GB, Quadro GV100, TITAN V",
    "6.2": "Jetson TX2",
    "6.1": """
        Tesla P40, Tesla P4, Quadro P6000, Quadro P5200, Quadro P5000, Quadro P4200, Quadro P4000,
        Quadro P3200, Quadro P3000, Quadro P2200, Quadro P2000, Quadro P1000, Quadro P620, Quadro P600,
        Quadro P500, Quadro P400, P620, P520, TITAN Xp, TITAN X, GeForce GTX 1080 Ti, GeForce GTX 1080,
        GeForce GTX 1070 Ti, GeForce GTX 1070, GeForce GTX 1060, GeForce GTX 1050
    """,
    "6.0": "Tesla P100-PCIE-16GB, Tesla P100-SXM2-16GB, Quadro GP100",
    "5.3": "Jetson Nano",
    "5.2": """
        Tesla M60, Tesla M40, Quadro M6000 24GB, Quadro M6000, Quadro M5000, Quadro M4000, Quadro M2000,
        Quadro M5500M, Quadro M2200, Quadro M620, GeForce GTX TITAN X, GeForce GTX 980 Ti, GeForce GTX 980,
        GeForce GTX 970, GeForce GTX 960, GeForce GTX 950, GeForce GTX 980M, GeForce GTX 970M,
        GeForce GTX 965M, GeForce 910M
    """,
    "5.0": """
        Quadro K2200, Quadro K1200, Quadro K620, Quadro M1200, Quadro M520, Quadro M5000M, Quadro M4000M,
        Quadro M3000M, Quadro M2000M, Quadro M1000M, Quadro K620M, Quadro M600M, Quadro M500M, NVS 810,
        GeForce GTX 750 Ti, GeForce GTX 750, GeForce GTX 960M, GeForce GTX 950M, GeForce 940M, GeForce 930M,
        GeForce GTX 850M, GeForce 840M, GeForce 830M
    """,
    "3.7": "Tesla K80",
}
# NVIDIA/k8s-test-infra@3b2b865d deployments/nvml-mock/helm/nvml-mock/profiles: name, compute capability, GiB.
# The profile of GB300 has 10.0, which NVIDIA's list contradicts.
PROFILES = [
    ("NVIDIA A100-SXM4-40GB", "8.0", 40),
    ("NVIDIA B200", "10.0", 192),
    ("NVIDIA GB200", "10.0", 192),
    ("NVIDIA GB300 NVL", "10.3", 288),
    ("NVIDIA H100 80GB HBM3", "9.0", 80),
    ("NVIDIA L40S", "8.9", 48),
    ("NVIDIA T4", "7.5", 16),
]


def label(name: str) -> str:
    """Return the value of nvidia.com/gpu.product for a name, as GPU Feature Discovery writes it."""
    return name.replace(" ", "-")


@pytest.mark.parametrize("prefix", ["", "NVIDIA "])
@pytest.mark.parametrize("compute", LISTED)
def test_every_gpu_that_nvidia_lists_is_known_with_its_compute_capability(compute: str, prefix: str) -> None:
    """All of the list, with and without the prefix that drivers add."""
    names = [" ".join(name.split()) for name in LISTED[compute].split(",")]
    known = {name: gpu_model(BUILT_IN, label(prefix + name)) for name in names}

    assert dict.fromkeys(names, compute) == {
        name: str(model.compute) if model else None for name, model in known.items()
    }


def test_the_list_has_the_gpus_of_both_pages() -> None:
    """A shorter list would show less."""
    assert sum(len(names.split(",")) for names in LISTED.values()) >= 165


@pytest.mark.parametrize(("name", "compute", "gib"), PROFILES)
def test_a_gpu_of_the_mock_of_nvml_is_known(name: str, compute: str, gib: int) -> None:
    """Memory differs by at most 7 %: some rows have what NVML prints, the profiles the data sheet."""
    model = gpu_model(BUILT_IN, label(name))

    assert model is not None
    assert compute == str(model.compute)
    assert model.memory_mib is None or abs(model.memory_mib - gib * 1024) <= 0.07 * gib * 1024


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("NVIDIA RTX PRO 4500 Blackwell Server Edition", "datacenter"),
        ("NVIDIA RTX PRO 4500 Blackwell", "workstation"),
        ("NVIDIA RTX 5000 Ada Generation Laptop GPU", "workstation"),
        ("NVIDIA RTX PRO 1000 Blackwell Generation Laptop GPU", "workstation"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "consumer"),
        ("NVIDIA RTX A3000 Laptop GPU", "workstation"),
    ],
)
def test_cards_of_servers_are_apart_from_those_of_workstations(name: str, segment: str) -> None:
    """Forward compatibility is for data centre GPUs only."""
    model = gpu_model(BUILT_IN, label(name))

    assert model is not None
    assert segment == model.segment


def test_a_rubin_gpu_has_a_capability_that_denies_nothing() -> None:
    """Its product name was not seen on a machine."""
    model = gpu_model(BUILT_IN, "NVIDIA-VR200")

    assert model is not None
    assert ("10.7", False) == (str(model.compute), model.status.certain)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("NVIDIA RTX A6000", 48),
        ("NVIDIA RTX 6000 Ada Generation", 48),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", 72),
        ("NVIDIA GeForce RTX 5090", 32),
        ("NVIDIA GeForce RTX 4090", 24),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3080", None),
    ],
)
def test_memory_is_known_where_all_cards_of_a_name_have_the_same(name: str, gib: int | None) -> None:
    """A laptop has less, and RTX 3080 was sold with 10 and with 12 GB."""
    model = gpu_model(BUILT_IN, label(name))

    assert model is not None
    assert gib == (model.memory_mib and model.memory_mib // 1024)
