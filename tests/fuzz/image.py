"""Text to an image reference, and its facts in a catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rules.cuda.image_catalog import built_in_catalog
from rules.kube.image_reference import parse_image

if TYPE_CHECKING:
    from collections.abc import Iterator


def seeds() -> Iterator[bytes]:
    """Yield one reference of each form."""
    digest = "sha256:" + "0123456789abcdef" * 4
    yield from (
        text.encode()
        for text in (
            "nginx",
            "nvidia/cuda:12.1.0-cudnn8-runtime-ubuntu22.04",
            "nvcr.io/nvidia/pytorch:24.05-py3",
            f"localhost:5000/team__x/a-b.c:v1@{digest}",
            f"[::1]:443/x@{digest}",
            "index.docker.io/library/paddle:2.6.1-gpu-cuda11.7-cudnn8.4-trt8.4",
            "vllm/vllm-openai:v0.8.4",
            digest[7:],
        )
    )


def words() -> Iterator[str]:
    """Yield parts of references and tags."""
    yield from (
        "a",
        "A",
        "0",
        ".",
        "_",
        "__",
        "-",
        "/",
        ":",
        "@",
        ":5000",
        "localhost",
        "docker.io",
        "index.",
    )
    yield from (
        "library/",
        "cuda12.4",
        "cu121",
        "sha256:",
        "[",
        "]",
        "::1",
        "py3",
        "24.05",
        "v",
        "0" * 64,
        "f" * 96,
    )


def check(data: bytes) -> None:
    """Every spelling of a reference has the same name, and the same facts in a catalogue."""
    text = data.decode("utf-8", "replace")
    facts = built_in_catalog().look_up(text)
    image = parse_image(text)
    if image is None:
        return
    for written in (image.canonical, image.familiar):
        again = parse_image(written)
        assert again is not None, written
        assert (again.name, again.effective_tag, again.digest) == (
            image.name,
            image.effective_tag,
            image.digest,
        ), written
        assert facts == built_in_catalog().look_up(written), written
    assert image.short in image.canonical
    assert all(image.spellings)
