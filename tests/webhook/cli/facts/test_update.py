"""`gpugate facts update` against sources on a local server with TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result

from rules.cuda.tables import GENERATED
from tests.support.command import gpugate
from tests.support.fact_sources import FactSources, fact_sources, put_wheels, wheel, wheel_url
from tests.support.fake_registry import Reply
from tests.support.paths import ROOT
from webhook.cli.facts import fetch
from webhook.cli.facts.extractors.drivers import RELEASES
from webhook.cli.facts.extractors.images import CUDA_COMMITS

FACTS = ROOT / "rules/facts"
SAMPLES = Path(__file__).parent / "samples"
WHEELS = {"13.4.92": wheel("compute_80", "compute_90"), "13.5.37": wheel("compute_90", "compute_100")}
INSTANCES = "website/content/en/preview/reference/instance-types.md"
TRITON = "docs/introduction/compatibility.md"
PROFILES = "deployments/nvml-mock/helm/nvml-mock/profiles"
REDIST = "https://developer.download.nvidia.com/compute/nvidia-driver/redist/"
# Without the family of which the GPU is unknown.
ALL_INSTANCES = (SAMPLES / "instance-types.md").read_bytes()
KNOWN_INSTANCES = ALL_INSTANCES.replace(b"|x9000|", b"|h100|")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Samples by repository and path.
RELEASES_ON_GITHUB = {
    "InternLM/lmdeploy": {"docker/Dockerfile": "lmdeploy.Dockerfile"},
    "NVIDIA/nvidia-container-toolkit": {"internal/info/auto.go": "auto.go"},
    "huggingface/text-embeddings-inference": {
        "Dockerfile-cuda": "Dockerfile-cuda",
        "Dockerfile-cuda-all": "Dockerfile-cuda",
    },
    "huggingface/text-generation-inference": {"Dockerfile": "Dockerfile-cuda", "server/uv.lock": "uv.lock"},
    "sgl-project/sglang": {"docker/Dockerfile": "sglang.Dockerfile"},
    "vllm-project/vllm": {"docker/versions.json": "versions.json"},
}
WHEEL = wheel_url("13.5.37").removeprefix("https://")


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[FactSources]:
    """Yield a server with a document of each source."""
    with fact_sources(tmp_path) as served:
        put_wheels(served, WHEELS)
        served.put(RELEASES, (SAMPLES / "releases.json").read_bytes())
        served.put(REDIST, b"<a href='redistrib_9620.70.06.json'>")
        served.put(f"{REDIST}redistrib_9620.70.06.json", (SAMPLES / "redistrib_9620.70.06.json").read_bytes())
        api = "https://api.github.com/repos/triton-inference-server/server"
        served.put(f"{api}/commits", json.dumps([{"sha": COMMIT}]).encode())
        served.put(
            f"https://raw.githubusercontent.com/triton-inference-server/server/{COMMIT}/{TRITON}",
            (SAMPLES / "compatibility.md").read_bytes(),
        )
        for repository, documents in RELEASES_ON_GITHUB.items():
            tags = json.dumps([{"name": "v9.33.0", "commit": {"sha": COMMIT}}]).encode()
            served.put(f"https://api.github.com/repos/{repository}/tags", tags)
            for path, sample in documents.items():
                url = f"https://raw.githubusercontent.com/{repository}/{COMMIT}/{path}"
                served.put(url, (SAMPLES / sample).read_bytes())
        served.put(CUDA_COMMITS, json.dumps([{"id": COMMIT}]).encode())
        served.put(
            f"https://gitlab.com/nvidia/container-images/cuda/-/raw/{COMMIT}/doc/supported-tags.md",
            (SAMPLES / "supported-tags.md").read_bytes(),
        )
        for framework in ("pytorch", "tensorflow", "jax"):
            notes = f"https://docs.nvidia.com/deeplearning/frameworks/{framework}-release-notes"
            served.put(f"{notes}/index.html", b"<a href='rel-98-03.html'>")
            served.put(f"{notes}/rel-98-03.html", (SAMPLES / "rel-98-03.html").read_bytes())
        repository = "aws/karpenter-provider-aws"
        commits = f"https://api.github.com/repos/{repository}/commits"
        served.put(commits, json.dumps([{"sha": COMMIT}]).encode())
        served.put(f"https://raw.githubusercontent.com/{repository}/{COMMIT}/{INSTANCES}", KNOWN_INSTANCES)
        api = "https://api.github.com/repos/NVIDIA/k8s-test-infra"
        served.put(f"{api}/commits", json.dumps([{"sha": COMMIT}]).encode())
        served.put(f"{api}/contents/{PROFILES}", json.dumps([{"name": "x9000.yaml"}]).encode())
        served.put(
            f"https://raw.githubusercontent.com/NVIDIA/k8s-test-infra/{COMMIT}/{PROFILES}/x9000.yaml",
            (SAMPLES / "x9000.yaml").read_bytes(),
        )
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the tables that are by hand."""
    folder = tmp_path / "facts"
    folder.mkdir()
    for path in FACTS.glob("*.yaml"):
        if path.stem not in (*GENERATED, "lock"):
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def update(folder: Path, sources: FactSources, *options: str) -> Result:
    """Run the command on a folder."""
    return gpugate("facts", "update", "--folder", folder, *sources.options, *options)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_generated_tables_and_the_lock_file_are_written_and_what_changed_is_said(
    folder: Path, sources: FactSources
) -> None:
    by_hand = content(folder)
    result = update(folder, sources)
    today = datetime.now(UTC).date().isoformat()

    assert 0 == result.exit_code, result.output
    assert [
        "aws_instances: instance family g94ad added: product -",
        "aws_instances: instance family g96f added: product NVIDIA-L4, vgpu true",
        "aws_instances: instance family g99 added: product NVIDIA-H100-80GB-HBM3",
        "aws_instances: instance family p94d added: product NVIDIA-A100-SXM4-40GB",
        "aws_instances: instance family p94x added: product NVIDIA-A100-SXM4-80GB NVIDIA-H200",
        "cuda_images: image nvidia/cuda:98.4.1-base-ubuntu22.04 added: CUDA 98.4",
        "cuda_images: image nvidia/cuda:97.3-base-rockylinux8 added: CUDA 97.3",
        "driver_branches: branch 9580 added: newest 9580.126.09, released 2026-01-13, LTS",
        "driver_branches: branch 9590 added: newest 9590.48.01, released 2025-12-22, production",
        "driver_branches: branch 9595 added: newest 9595.45.04, released 2026-03-24, new-feature",
        "driver_redist: branch 9620 added: CUDA 13.5, driver 9620.70.06, released 2026-11-04",
        "gpu_profiles: GPU X9000 80GB (SXM) added: compute capability 8.9, arch ada, segment datacenter",
        "lmdeploy_images: image openmmlab/lmdeploy:v9.33.0-cu97.0 added: CUDA 97.0, base 97.0.3",
        "lmdeploy_images: image openmmlab/lmdeploy:v9.33.0-cu96.8 added: CUDA 96.8, base 96.8.1",
        "lmdeploy_images: image openmmlab/lmdeploy:v9.33.0-cu95 added: CUDA 95.6, base 95.6.3",
        "ngc_images: image nvcr.io/nvidia/pytorch:98.03-py3 added: CUDA 13.2",
        "ngc_images: image nvcr.io/nvidia/tensorflow:98.03-tf2-py3 added: CUDA 13.2",
        "ngc_images: image nvcr.io/nvidia/jax:98.03-py3 added: CUDA 13.2",
        "sglang_images: image lmsysorg/sglang:v9.33.0 added: CUDA 97.1, base 97.1.2",
        *[
            f"tei_images: image ghcr.io/huggingface/text-embeddings-inference:{prefix}9.33.0 added: "
            "CUDA 97.9, base 97.9.1"
            for prefix in ("turing-", "", "86-", "89-", "hopper-", "cuda-")
        ],
        "tgi_images: image ghcr.io/huggingface/text-generation-inference:9.33.0 added: base 97.9.1",
        "tgi_images: image ghcr.io/huggingface/text-generation-inference:9.33.0 added: CUDA 97.8",
        "toolkit_modes: 9.33.0 added: mode jit-cdi",
        "toolkit_wheels: CUDA 13.4 added: built for 8.0 9.0",
        "toolkit_wheels: CUDA 13.5 added: built for 9.0 10.0",
        "triton_images: image nvcr.io/nvidia/tritonserver:96.07-trtllm-python-py3 added: CUDA 13.1",
        "triton_images: image nvcr.io/nvidia/tritonserver:96.08-vllm-python-py3 added: CUDA 13.4",
        "triton_images: image nvcr.io/nvidia/tritonserver:96.07-vllm-python-py3 added: CUDA 13.3",
        "vllm_images: image vllm/vllm-openai:v9.33.0 added: CUDA 13.0",
    ] == result.stdout.splitlines()
    assert (
        "# Generated by `gpugate facts update` from the documents in lock.yaml: do not edit.\n"
        "# Compute capabilities that CUDA toolkits compile for. A row of toolkits.yaml takes precedence.\n"
        "- {cuda: '13.4', built_for: 8.0 9.0, document: 13.4.92, source: ptxas, status: verified}\n"
        "- {cuda: '13.5', built_for: 9.0 10.0, document: 13.5.37, source: ptxas, status: verified}\n"
    ) == (folder / "toolkit_wheels.yaml").read_text("utf-8")
    lock = (folder / "lock.yaml").read_text("utf-8")
    assert f'date: "{today}"\n' in lock
    assert f"url: '{wheel_url('13.5.37')}', retrieved: '{today}', sha256: " in lock
    assert by_hand.items() <= content(folder).items()


def test_a_second_run_reads_only_what_may_have_changed_and_changes_nothing(
    folder: Path, sources: FactSources
) -> None:
    update(folder, sources)
    before, requests_before = content(folder), len(sources.requested)
    result = update(folder, sources)

    assert (0, "", "no changes\n") == (result.exit_code, result.stdout, result.stderr)
    assert before == content(folder)
    assert [] == [path for path in sources.requested[requests_before:] if path.endswith((".whl", ".yaml"))]


def test_a_new_release_is_one_row_more(folder: Path, sources: FactSources) -> None:
    update(folder, sources)
    requests_before = len(sources.requested)
    put_wheels(sources, WHEELS | {"13.6.1": wheel("compute_120")})
    result = update(folder, sources, "toolkit_wheels")

    assert (0, "toolkit_wheels: CUDA 13.6 added: built for 12.0\n") == (result.exit_code, result.stdout)
    assert [wheel_url("13.6.1").removeprefix("https://")] == [
        path for path in sources.requested[requests_before:] if path.endswith(".whl")
    ]


def test_a_gpu_that_no_table_by_hand_names_is_reported_each_time_and_gives_no_row(
    folder: Path, sources: FactSources
) -> None:
    """The other rows are written; exit status 2."""
    repository = "https://raw.githubusercontent.com/aws/karpenter-provider-aws"
    sources.put(f"{repository}/{COMMIT}/{INSTANCES}", ALL_INSTANCES)
    results = [update(folder, sources, "aws_instances") for _ in range(2)]
    table = (folder / "aws_instances.yaml").read_text("utf-8")

    for result in results:
        assert 2 == result.exit_code
        assert "error: aws_instances: unknown GPU x9000; add it to cloud_gpus.yaml\n" in result.stderr
    assert [False, True] == [f"value: {family}," in table for family in ("g99", "p94d")]


def test_check_writes_nothing_and_fails_if_something_would_change(folder: Path, sources: FactSources) -> None:
    before = content(folder)
    result = update(folder, sources, "--check")

    assert 1 == result.exit_code
    assert "toolkit_wheels: CUDA 13.5 added: built for 9.0 10.0\n" in result.stdout
    assert before == content(folder)


def test_a_stranger_replays_a_table_from_its_documents_byte_for_byte(
    folder: Path, sources: FactSources
) -> None:
    """By `gpugate facts update --locked`, whatever its source has by now."""
    update(folder, sources)
    written = content(folder)
    for name in GENERATED:
        (folder / f"{name}.yaml").unlink()
    put_wheels(sources, WHEELS | {"13.6.1": wheel("compute_120")})
    result = update(folder, sources, "--locked")

    assert 0 == result.exit_code, result.output
    assert written == content(folder)
    assert 0 == update(folder, sources, "--locked", "--check").exit_code


def test_a_row_that_the_documents_do_not_have_is_found_by_a_replay(
    folder: Path, sources: FactSources
) -> None:
    update(folder, sources)
    path = folder / "toolkit_wheels.yaml"
    path.write_text(path.read_text("utf-8").replace("8.0 9.0", "8.0 8.6 9.0"), "utf-8")
    result = update(folder, sources, "--locked", "--check")

    assert (1, "toolkit_wheels: CUDA 13.4: built_for 8.0 8.6 9.0 → 8.0 9.0\n") == (
        result.exit_code,
        result.stdout,
    )


def test_a_document_with_another_hash_is_refused(folder: Path, sources: FactSources) -> None:
    """Of the lock file, and of the list of its source."""
    update(folder, sources)
    before = content(folder)
    sources.put(f"https://{WHEEL}", wheel("compute_90", "compute_200"))
    replayed = update(folder, sources, "--locked", "toolkit_wheels")
    (folder / "lock.yaml").unlink()
    updated = update(folder, sources, "--check", "toolkit_wheels")

    for result in (replayed, updated):
        assert 2 == result.exit_code
        assert f"error: https://{WHEEL}: other content than expected: sha256 " in result.stderr
    assert before["toolkit_wheels.yaml"] == content(folder)["toolkit_wheels.yaml"]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(404), "/docs.nvidia.com/datacenter/tesla/drivers/releases.json: HTTP status 404"),
        (Reply(200, {}, b"<html>"), f"{RELEASES}: not in the expected form: JSONDecodeError: "),
        (
            Reply(302, {"Location": "https://localhost/releases.json"}),
            "127.0.0.1: a redirect to another host is not followed",
        ),
        (Reply(200, {}, b" " * 2049), "127.0.0.1: larger than 0 MiB"),
    ],
)
def test_a_source_that_cannot_be_read_leaves_its_table_as_it_is(
    folder: Path, sources: FactSources, reply: Reply, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tables are written; exit status 2."""
    update(folder, sources, "driver_branches")
    before = content(folder)
    sources.put(RELEASES, reply)
    monkeypatch.setattr(fetch, "MAX_BYTES", 2048)
    result = update(folder, sources)
    lock = (folder / "lock.yaml").read_text("utf-8")

    assert 2 == result.exit_code
    assert error in result.stderr
    assert before["driver_branches.yaml"] == content(folder)["driver_branches.yaml"]
    assert [True, True] == [f"table: {name}" in lock for name in ("driver_branches", "toolkit_wheels")]


def test_a_host_that_is_not_public_is_not_read(folder: Path, sources: FactSources) -> None:
    """Unless it is named as a mirror."""
    lock = folder / "lock.yaml"
    update(folder, sources, "toolkit_wheels")
    lock.write_text(lock.read_text("utf-8").replace("files.pythonhosted.org", "127.0.0.2"), "utf-8")
    result = update(folder, sources, "toolkit_wheels", "--locked")

    assert (2, True) == (result.exit_code, "127.0.0.2: the address is not public" in result.stderr)


def test_a_folder_is_required_outside_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = gpugate("facts", "update")

    assert (2, "error: rules/facts: no such folder; run this in a checkout, or give --folder\n") == (
        result.exit_code,
        result.stderr,
    )
