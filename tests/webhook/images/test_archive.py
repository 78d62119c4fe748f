"""Images in files: OCI layouts and archives; and files that are built to do harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.support.image_builders import (
    CUDA_ENV,
    config,
    docker_archive,
    index,
    layout,
    manifest,
    write_folder,
    write_tar,
)
from webhook.images import archive
from webhook.images.archive import inspect_file
from webhook.images.errors import ImageError, Reason

OF = config(CUDA_ENV)
TOP = manifest(OF)
REFERENCE = "docker.io/library/app:1"
LAYOUT = layout([(TOP, {"io.containerd.image.name": REFERENCE})], [OF])


def refusal(path: Path) -> ImageError:
    """Return the error of a file."""
    with pytest.raises(ImageError) as caught:
        inspect_file(path)
    return caught.value


def test_a_layout_is_read_as_folder_and_as_archive(tmp_path: Path) -> None:
    """Compressed, too."""
    paths = [
        write_folder(LAYOUT, tmp_path / "layout"),
        write_tar(LAYOUT, tmp_path / "layout.tar"),
        write_tar(LAYOUT, tmp_path / "layout.tar.gz", "gz"),
        write_tar({f"./{name}": body for name, body in LAYOUT.items()}, tmp_path / "dots.tar"),
    ]
    for path in paths:
        (image,) = inspect_file(path)
        (platform,) = image.platforms
        assert (REFERENCE, TOP.digest) == (image.reference, image.digest)
        assert ("linux/amd64", TOP.digest, CUDA_ENV) == (platform.platform, platform.digest, platform.env)


def test_an_archive_of_docker_or_podman_is_read(tmp_path: Path) -> None:
    """It has no digest; an image without a name has that of the file."""
    for names, reference in ((["app:1", "app:2"], REFERENCE), ([], f"{tmp_path}/saved.tar")):
        path = write_tar(docker_archive(OF, *names), tmp_path / "saved.tar")
        (image,) = inspect_file(path)
        assert (reference, "", CUDA_ENV) == (image.reference, image.digest, image.platforms[0].env)


def test_a_layout_in_an_archive_of_docker_takes_precedence(tmp_path: Path) -> None:
    """Newer versions write both; the layout has the digest."""
    path = write_tar(docker_archive(OF, "app:1") | LAYOUT, tmp_path / "both.tar")

    assert [TOP.digest] == [image.digest for image in inspect_file(path)]


def test_platforms_that_are_not_in_the_file_are_left_out(tmp_path: Path) -> None:
    """`docker save` writes the index of all platforms, and only the one that was pulled."""
    top = index({"linux/arm64": manifest(config({}, "arm64")), "linux/amd64": TOP})
    path = write_tar(layout([(top, {})], [TOP, OF]), tmp_path / "one.tar")
    (image,) = inspect_file(path)

    assert (top.digest, ["linux/amd64"]) == (
        image.digest,
        [platform.platform for platform in image.platforms],
    )
    assert ("linux/arm64",) == image.unread


@pytest.mark.parametrize("files", [LAYOUT, docker_archive(OF, "app:1")])
def test_without_an_index_other_platforms_are_unknown(files: dict[str, bytes], tmp_path: Path) -> None:
    """`skopeo copy` takes one platform of an image that may have several."""
    (image,) = inspect_file(write_tar(files, tmp_path / "one.tar"))

    assert image.unread is None


def test_a_tag_alone_is_not_a_reference(tmp_path: Path) -> None:
    """The image has the name of its file then."""
    files = layout([(TOP, {"org.opencontainers.image.ref.name": "latest"})], [OF])
    path = write_folder(files, tmp_path / "layout")

    assert [str(path)] == [image.reference for image in inspect_file(path)]


def test_several_images_of_a_file_are_read(tmp_path: Path) -> None:
    """Each with its name."""
    names = ["a.corp/one:1", "a.corp/two:2"]
    top = [(TOP, {"io.containerd.image.name": name}) for name in names]
    path = write_tar(layout(top, [OF]), tmp_path / "several.tar")

    assert names == [image.reference for image in inspect_file(path)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04" + bytes(600), "not a tar archive"),
        (b"", "not a tar archive"),
        (gzip.compress(b"text", mtime=0), "not a tar archive"),
        (gzip.compress(bytes(range(256)) * 9, mtime=0)[:60], "not a tar archive"),
        (bytes(10_240), "neither an OCI layout nor an image archive"),
    ],
    ids=["zip", "empty", "gzip of text", "truncated", "without members"],
)
def test_a_file_that_is_not_an_archive_is_invalid(tmp_path: Path, content: bytes, message: str) -> None:
    """Also a zip file."""
    path = tmp_path / "file.tar"
    path.write_bytes(content)
    error = refusal(path)

    assert Reason.INVALID == error.reason
    assert message in str(error)


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("index.json", b"[1]", "not an image manifest or config"),
        ("index.json", TOP.body, "index.json is not an index"),
        ("index.json", b'{"manifests": []}', "no image inside"),
        ("index.json", b'{"manifests": [{"digest": "sha256:../../../etc/passwd"}]}', "is missing"),
        ("manifest.json", b"{}", "manifest.json: "),
        ("manifest.json", b"[]", "no image inside"),
        ("manifest.json", b'[{"Config": "../secret.json"}]', "../secret.json is missing"),
        ("manifest.json", b'[{"Config": "/etc/passwd"}]', "/etc/passwd is missing"),
        ("manifest.json", b'[{"Config": "a\\u0000b"}]', "a b is missing"),
    ],
)
def test_documents_that_are_wrong_or_lead_out_of_the_folder_are_refused(
    tmp_path: Path, name: str, body: bytes, message: str
) -> None:
    """In folders and archives."""
    (tmp_path / "secret.json").write_bytes(OF.body)
    for path in (
        write_folder({name: body}, tmp_path / "folder"),
        write_tar({name: body}, tmp_path / "file.tar"),
    ):
        assert message in str(refusal(path))


def test_content_with_another_digest_is_refused(tmp_path: Path) -> None:
    """Of a manifest and of a config."""
    for blob in (TOP, OF):
        name = f"blobs/{blob.digest.replace(':', '/')}"
        path = write_tar(LAYOUT | {name: config({}).body}, tmp_path / "wrong.tar")
        assert Reason.DIGEST_MISMATCH == refusal(path).reason


def test_a_fifo_and_a_device_in_a_folder_do_not_block(tmp_path: Path) -> None:
    """They are not read."""
    os.mkfifo(tmp_path / "index.json")
    (tmp_path / "manifest.json").symlink_to("/dev/zero")

    assert Reason.INVALID == refusal(tmp_path).reason


def test_a_document_above_one_mib_is_not_read(tmp_path: Path) -> None:
    """In a folder it is an error; in an archive it is a layer."""
    large = LAYOUT | {"index.json": LAYOUT["index.json"] + b" " * 2**20}

    assert Reason.TOO_LARGE == refusal(write_folder(large, tmp_path / "folder")).reason
    assert Reason.INVALID == refusal(write_tar(large, tmp_path / "large.tar")).reason


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    """At one hundred times the size of the file; 64 MiB are free."""
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as bomb:
        member = tarfile.TarInfo("layer.tar")
        member.size = 200 * 2**20
        with Path("/dev/zero").open("rb") as zeros:
            bomb.addfile(member, zeros)
    error = refusal(path)

    assert Reason.TOO_LARGE == error.reason
    assert "MiB of content" in str(error)


def test_an_archive_with_too_many_members_is_refused(tmp_path: Path) -> None:
    """Whatever their size."""
    path = write_tar({f"{number}": b"" for number in range(10_001)}, tmp_path / "many.tar")

    assert (Reason.TOO_LARGE, "more than 10,000 members") == (refusal(path).reason, str(refusal(path)))


def test_an_archive_with_too_many_images_is_refused(tmp_path: Path) -> None:
    """None of them is left out silently."""
    path = write_tar(layout([(TOP, {})] * 33, [OF]), tmp_path / "many.tar")

    assert (Reason.TOO_LARGE, f"{path}: more than 32 images") == (refusal(path).reason, str(refusal(path)))


def test_documents_together_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are held in memory."""
    monkeypatch.setattr(archive, "_MAX_READ", 2**20)
    body = b"{" + b" " * 300_000
    path = write_tar({f"{number}.json": body for number in range(10)}, tmp_path / "many.tar")

    assert Reason.TOO_LARGE == refusal(path).reason


def header(**fields: int | bytes) -> bytes:
    """Return a header of a tar archive with some raw fields, by their offset as `at124`."""
    raw = bytearray(tarfile.TarInfo("index.json").tobuf(tarfile.USTAR_FORMAT))
    for name, value in fields.items():
        text = value if isinstance(value, bytes) else b"%011o\0" % value
        raw[int(name[2:]) : int(name[2:]) + len(text)] = text
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


_TIB = b"\x80" + bytes(3) + (2**40).to_bytes(8, "big")
HARMFUL = {
    "extended header of 1 TiB": header(at124=_TIB, at156=b"x"),
    "name of 1 TiB": header(at124=_TIB, at156=b"L"),
    "member of 1 TiB": header(at124=_TIB),
    "size of -1": header(at124=b"\xff" * 12),
    "size that leads back": header(at124=b"\xff" * 10 + b"\x00\x00"),
    "nested extended headers": header(at156=b"x") * 20_000,
    "sparse file": header(at156=b"S", at482=b"\x01") + b"\xff" * 2**16,
}


@pytest.mark.parametrize("raw", HARMFUL.values(), ids=HARMFUL)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_headers_that_are_built_to_do_harm_end_in_an_error(
    tmp_path: Path, raw: bytes, compress: type[bytes]
) -> None:
    """Within seconds, and without the memory that they ask for."""
    path = tmp_path / "bad.tar"
    path.write_bytes(compress(raw + bytes(1024)))

    assert refusal(path).reason in {Reason.INVALID, Reason.TOO_LARGE}


def test_a_name_with_escape_sequences_is_not_printed(tmp_path: Path) -> None:
    """In messages, and in references."""
    saved = [{"Config": "\x1b[2J", "RepoTags": ["\x1b]0;x\x07/app:1"]}]
    path = write_tar({"manifest.json": json.dumps(saved).encode()}, tmp_path / "odd.tar")

    assert "[2J is missing" == str(refusal(path))


def test_an_archive_is_read_in_one_pass(tmp_path: Path) -> None:
    """A compressed one cannot be read backwards."""
    path = write_tar(dict(reversed(LAYOUT.items())), tmp_path / "reversed.tar.gz", "gz")
    body = io.BytesIO(path.read_bytes())

    assert body.getbuffer().nbytes
    assert [REFERENCE] == [image.reference for image in inspect_file(path)]
