"""Driver branches and CUDA toolkits: one section a source, with the form of its documents."""

from __future__ import annotations

import json
import re
from io import BytesIO
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

from packaging.version import Version

from rules.cuda.versions import CudaVersion, DriverVersion
from webhook.cli.facts.extractors.base import Document, Extractor, Get, Row
from webhook.cli.facts.extractors.github import newest_releases

# Kind and newest driver of each data-centre driver branch, from NVIDIA's release information: one JSON
# object, by branch its `type`, and in `driver_info` its releases, each with `release_version` and
# `release_date`. See
# https://docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html.
RELEASES: Final = "https://docs.nvidia.com/datacenter/tesla/drivers/releases.json"
_KINDS: Final = {
    "lts branch": "lts",
    "production branch": "production",
    "new feature branch": "new-feature",
}


def _branch_rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each branch. A kind without a word in the tables is an error."""
    del name
    rows: list[Row] = []
    for branch, entry in sorted(json.loads(data).items(), key=lambda item: int(item[0])):
        kind = _KINDS[entry["type"]]
        newest = max(entry["driver_info"], key=lambda release: _driver(release["release_version"]))
        version, date = newest["release_version"], newest["release_date"]
        rows.append({"branch": int(branch), "kind": kind, "newest": version, "released": date})
    return rows


def _driver(text: str) -> DriverVersion:
    """Return the driver version of a text. Raises ValueError."""
    version = DriverVersion.parse(text)
    if version is None:
        raise ValueError(f"{text!r} is not a driver version")
    return version


# CUDA of each driver branch, from the manifests of NVIDIA's redistributable drivers. The folder lists
# `redistrib_VERSION.json`. A manifest has `release_date`, and in `cuda_compat` the CUDA of the driver as
# `cuda_variant`, alone or as a list.
_REDIST: Final = "https://developer.download.nvidia.com/compute/nvidia-driver/redist/"
_MANIFEST: Final = re.compile(r"\bredistrib_(\d+(?:\.\d+)+)\.json\b", re.ASCII)
# With a minor version: 13 alone is a major version, not 13.0.
_CUDA: Final = re.compile(r"\d+\.\d+", re.ASCII)


def _find_redist(get: Get) -> list[Document]:
    """Return the manifest of the newest driver of each branch."""
    names = _MANIFEST.findall(get(_REDIST).decode("utf-8"))
    newest: dict[int, DriverVersion] = {}
    for version in sorted(filter(None, map(DriverVersion.parse, names))):
        newest[version.branch] = version
    return [
        Document(version.text, f"{_REDIST}redistrib_{version}.json", fixed=True)
        for version in newest.values()
    ]


def _redist_rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a driver. name: its version."""
    manifest = json.loads(data)
    cuda = _highest_cuda(manifest["cuda_compat"]["cuda_variant"])
    date = str(manifest["release_date"])
    return [{"branch": int(name.partition(".")[0]), "cuda": cuda, "driver": name, "released": date}]


def _highest_cuda(variant: Any) -> str:
    """Return the highest CUDA version of a text or a list. Raises ValueError."""
    variants = [variant] if isinstance(variant, str) else variant
    versions = [
        version for text in variants if _CUDA.fullmatch(text) and (version := CudaVersion.parse(text))
    ]
    if not versions:
        raise ValueError(f"cuda_variant has no CUDA version: {variant!r}")
    return str(max(versions))


# Default mode of NVIDIA Container Toolkit on nodes with NVML, from the source of its newest releases.
# internal/info/auto.go has a constant for each mode, such as `JitCDIRuntimeMode = RuntimeMode("jit-cdi")`,
# and returns `defaultMode`, one of them, or a text in `case info.PlatformNVML`:
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/info/auto.go.
_CONSTANT: Final = re.compile(r'\b(\w+) = RuntimeMode\(("[a-z-]+")\)')
_DEFAULT: Final = re.compile(r"\bdefaultMode: +(\w+),")
_NVML: Final = re.compile(r"\bcase info\.PlatformNVML\b[^:]*:\s+return (\S+)")
_FIELD: Final = "m.defaultMode"


def _mode_rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release. name: its tag and the name of the file."""
    text = data.decode("utf-8")
    (value,) = _NVML.findall(text)
    if value == _FIELD:
        (value,) = _DEFAULT.findall(text)
    mode = dict(_CONSTANT.findall(text)).get(value, value)
    if not re.fullmatch('"[a-z-]+"', mode):
        raise ValueError(f"{value} is not a mode")
    return [{"toolkit": name.split(maxsplit=1)[0].removeprefix("v"), "mode": mode.strip('"')}]


# Architectures of CUDA toolkits, from the compiler `ptxas` in NVIDIA's wheels. The program has the list of
# its --help as words between NUL bytes, `compute_90` and `lto_90`. It is read, not run. Form of
# https://pypi.org/pypi/NAME/json: https://docs.pypi.org/api/json/.
_PACKAGES: Final = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")
_RELEASE: Final = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
# Without the variants of a capability, such as 100a and 100f.
_TARGET: Final = re.compile(rb"\0(?:compute|lto)_(\d{2,3})(?=\0)")
# Bytes of ptxas; that of CUDA 13.5 has 51 MB.
_MAX_PROGRAM: Final = 256 * 2**20


def _find_wheels(get: Get) -> list[Document]:
    """Return the wheel for x86-64 of the newest release of each CUDA version."""
    newest: dict[CudaVersion, tuple[Version, Document]] = {}
    for package in _PACKAGES:
        releases = json.loads(get(f"https://pypi.org/pypi/{package}/json"))["releases"]
        for release, files in releases.items():
            cuda = CudaVersion.parse(release)
            for file in files if _RELEASE.fullmatch(release) else ():
                if cuda and not file["yanked"] and file["filename"].endswith("x86_64.whl"):
                    document = Document(release, file["url"], fixed=True, sha256=file["digests"]["sha256"])
                    candidate = (Version(release), document)
                    newest[cuda] = max(newest.get(cuda, candidate), candidate, key=lambda item: item[0])
    return [newest[cuda][1] for cuda in sorted(newest)]


def _wheel_rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a wheel. name: its release."""
    try:
        with ZipFile(BytesIO(data)) as wheel:
            (program,) = [member for member in wheel.infolist() if member.filename.endswith("/bin/ptxas")]
            if program.file_size > _MAX_PROGRAM:
                raise ValueError(f"{program.filename} is larger than {_MAX_PROGRAM:,} bytes")
            content = wheel.read(program)
    except BadZipFile as error:
        raise ValueError(str(error)) from None
    numbers = sorted({int(match[1]) for match in _TARGET.finditer(content)})
    if not numbers:
        raise ValueError("ptxas contains no list of architectures")
    built_for = " ".join(f"{number // 10}.{number % 10}" for number in numbers)
    return [{"cuda": str(CudaVersion.parse(name)), "built_for": built_for}]


DRIVER_EXTRACTORS: Final = (
    Extractor(
        "driver_branches",
        "driver-releases",
        "verified",
        "Support of data-centre driver branches. A row of drivers.yaml, lifecycle, takes precedence.",
        lambda _: [Document("releases.json", RELEASES)],
        _branch_rows,
    ),
    Extractor(
        "driver_redist",
        "nvidia-driver-redist",
        "verified",
        "CUDA of driver branches. A row of drivers.yaml, branches, takes precedence.",
        _find_redist,
        _redist_rows,
    ),
    Extractor(
        "toolkit_modes",
        "toolkit-auto-mode",
        "verified",
        "Modes of NVIDIA Container Toolkit. A test compares runtime_modes.yaml, which is by hand, with it.",
        newest_releases("NVIDIA/nvidia-container-toolkit", "internal/info/auto.go"),
        _mode_rows,
    ),
    Extractor(
        "toolkit_wheels",
        "ptxas",
        "verified",
        "Compute capabilities that CUDA toolkits compile for. A row of toolkits.yaml takes precedence.",
        _find_wheels,
        _wheel_rows,
    ),
)
