"""Image references are parsed as container runtimes parse them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.kube.image_reference import Image, parse_image

SHA256 = "sha256:" + "0123456789abcdef" * 4

component = st.from_regex(r"[a-z0-9]+(?:(?:[._]|__|-{1,3})[a-z0-9]+){0,2}", fullmatch=True)
registry = st.one_of(
    st.just("docker.io"),
    st.just("localhost"),
    st.from_regex(r"[a-z0-9]{1,8}(?:\.[a-z0-9]{1,8}){1,2}(?::[0-9]{1,5})?", fullmatch=True),
    st.from_regex(r"\[[0-9a-f:]{2,10}\]:[0-9]{1,5}", fullmatch=True),
)
tag = st.none() | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)


@st.composite
def images(draw: st.DrawFn) -> Image:
    """Any image, normalised."""
    where = draw(registry)
    path = draw(st.lists(component, min_size=1, max_size=3))
    if where == "docker.io" and len(path) == 1:
        path = ["library", *path]
    return Image(where, "/".join(path), draw(tag), draw(st.sampled_from([None, SHA256])))


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        # https://github.com/distribution/reference/blob/main/normalize_test.go and reference_test.go
        ("ubuntu", "docker.io", "library/ubuntu", None, None),
        ("ubuntu:22.04", "docker.io", "library/ubuntu", "22.04", None),
        ("library/ubuntu", "docker.io", "library/ubuntu", None, None),
        ("docker.io/ubuntu", "docker.io", "library/ubuntu", None, None),
        ("index.docker.io/ubuntu", "docker.io", "library/ubuntu", None, None),
        ("vllm/vllm-openai:v0.9.0", "docker.io", "vllm/vllm-openai", "v0.9.0", None),
        ("nvcr.io/nvidia/pytorch:25.04-py3", "nvcr.io", "nvidia/pytorch", "25.04-py3", None),
        ("localhost:5000/app", "localhost:5000", "app", None, None),
        ("localhost/app:1", "localhost", "app", "1", None),
        ("registry:5000/team/app:1", "registry:5000", "team/app", "1", None),
        ("192.168.1.5:5000/app:1.0.1", "192.168.1.5:5000", "app", "1.0.1", None),
        ("[2001:db8::1]:5000/app:1", "[2001:db8::1]:5000", "app", "1", None),
        ("Registry/app", "Registry", "app", None, None),
        ("app:5000", "docker.io", "library/app", "5000", None),
        (f"app@{SHA256}", "docker.io", "library/app", None, SHA256),
        (f"a.example/b/c:v1@{SHA256}", "a.example", "b/c", "v1", SHA256),
        ("a__b--c/d.e", "docker.io", "a__b--c/d.e", None, None),
    ],
)
def test_a_reference_has_parts(
    text: str, registry: str, repository: str, tag: str | None, digest: str | None
) -> None:
    """Ports are not tags, and a name without a registry is on Docker Hub."""
    assert Image(registry, repository, tag, digest) == parse_image(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "ubuntu ",
        "Ubuntu",
        "docker.io/Library/ubuntu",
        "${IMAGE}",
        "<image>",
        "V_IMAGE_URL",
        "app:",
        "app:-tag",
        "app:" + "t" * 129,
        "a//b",
        "/app",
        "app/",
        "a___b",
        "a..b",
        "-app",
        "ubuntu:22.04/app",
        "app@sha256:abc",
        "app@md5:0123456789abcdef0123456789abcdef",
        "app@sha256:" + "A" * 64,
        f"app@{SHA256}@{SHA256}",
        "0123456789abcdef" * 4,
        "a" * 256,
        "x/" * 5000 + "y",
        "镜像:latest",
        "app:标签",
    ],
)
def test_an_invalid_reference_is_none(text: str) -> None:
    """Templates, capital letters in names, malformed digests, image ids."""
    assert parse_image(text) is None


@pytest.mark.parametrize(
    ("text", "canonical", "familiar"),
    [
        ("nginx", "docker.io/library/nginx:latest", "nginx:latest"),
        ("docker.io/vllm/vllm-openai", "docker.io/vllm/vllm-openai:latest", "vllm/vllm-openai:latest"),
        ("docker.io/a.b/c", "docker.io/a.b/c:latest", "docker.io/a.b/c:latest"),
        ("library/a/b", "docker.io/library/a/b:latest", "library/a/b:latest"),
        ("nvcr.io/nvidia/cuda:12.4.1", "nvcr.io/nvidia/cuda:12.4.1", "nvcr.io/nvidia/cuda:12.4.1"),
        (f"nginx@{SHA256}", f"docker.io/library/nginx@{SHA256}", f"nginx@{SHA256}"),
        (f"nginx:1@{SHA256}", f"docker.io/library/nginx:1@{SHA256}", f"nginx:1@{SHA256}"),
    ],
)
def test_a_reference_has_a_canonical_and_a_familiar_form(text: str, canonical: str, familiar: str) -> None:
    """`latest` is added if there is neither tag nor digest, because that is pulled."""
    image = parse_image(text)

    assert image is not None
    assert (canonical, familiar) == (image.canonical, image.familiar)


def test_an_image_has_spellings_for_patterns() -> None:
    """Canonical and familiar, with tag, with tag and digest, and the name alone; each once."""
    image = parse_image(f"vllm/vllm-openai:v1@{SHA256}")

    assert image is not None
    assert image.spellings == (
        "docker.io/vllm/vllm-openai:v1",
        "vllm/vllm-openai:v1",
        f"docker.io/vllm/vllm-openai:v1@{SHA256}",
        f"vllm/vllm-openai:v1@{SHA256}",
        "docker.io/vllm/vllm-openai",
        "vllm/vllm-openai",
    )


def test_the_short_form_has_no_digest() -> None:
    """64 hexadecimal digits do not help the reader of a message."""
    images = [parse_image(f"nginx:1@{SHA256}"), parse_image(f"nginx@{SHA256}")]

    assert ["nginx:1", "nginx"] == [image and image.short for image in images]


@given(images())
def test_the_canonical_form_parses_to_the_same_image(image: Image) -> None:
    """Except that the tag `latest` is explicit."""
    again = parse_image(image.canonical)

    assert again is not None
    assert (image.name, image.effective_tag, image.digest) == (again.name, again.tag, again.digest)
    assert image.canonical == again.canonical


@given(images())
def test_the_familiar_form_parses_to_the_same_image(image: Image) -> None:
    """If a Docker Hub path resembles a registry, the registry is explicit."""
    again = parse_image(image.familiar)

    assert again is not None
    assert image.canonical == again.canonical


@given(st.text(max_size=400) | st.text(alphabet="ab0./:@-_AB[]$", max_size=60))
def test_the_parser_never_raises(text: str) -> None:
    """For any text; a parsed reference parses again to the same image."""
    image = parse_image(text)

    assert image is None or parse_image(image.canonical) is not None
