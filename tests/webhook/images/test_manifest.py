"""Documents of images: whatever the bytes, the result is an image or an error with a reason."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.support.image_builders import CUDA_ENV, config, index, manifest
from webhook.images.errors import ImageError, Reason, quoted
from webhook.images.manifest import Descriptor, choose, digest_of, read_config, read_manifest, verified

OF = config(CUDA_ENV)
DOCUMENTS = [json.loads(blob.body) for blob in (OF, manifest(OF), index({"linux/amd64": manifest(OF)}))]
_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3),
    max_leaves=10,
)


@some.composite
def changed(draw: some.DrawFn) -> bytes:
    """Return a document of an image with one value replaced by any other."""
    document: Any = json.loads(json.dumps(draw(some.sampled_from(DOCUMENTS))))
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(some.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and draw(some.booleans()):
            place = place[key]
            continue
        place[key] = draw(_JSON)
        return json.dumps(document).encode()


@given(some.binary() | changed())
def test_any_bytes_are_read_or_refused_with_a_reason(body: bytes) -> None:
    """Never another exception; and what is read is printable."""
    with suppress(ImageError):
        result = read_manifest(body)
        if not isinstance(result, Descriptor):
            choose(result)
    with suppress(ImageError):
        platform = read_config(body, digest_of(body))
        assert platform.platform.isprintable()
        assert all(text.isprintable() for pair in platform.env.items() for text in pair)
        assert platform.facts["require"] == platform.require


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_each_algorithm_of_digests_is_verified(algorithm: str) -> None:
    """Another one is refused."""
    import hashlib

    digest = f"{algorithm}:{hashlib.new(algorithm, b'body').hexdigest()}"
    assert b"body" == verified(b"body", digest)
    for wrong, reason in (
        (f"{algorithm}:{'0' * (len(digest) - 7)}", Reason.DIGEST_MISMATCH),
        (f"md5:{'0' * 32}", Reason.INVALID),
    ):
        with pytest.raises(ImageError) as caught:
            verified(b"body", wrong)
        assert reason == caught.value.reason


@given(some.text())
def test_a_text_of_a_stranger_is_one_short_printable_line(text: str) -> None:
    """In messages, which go to terminals and logs."""
    line = quoted(text)

    assert line.isprintable()
    assert len(line) <= 120
