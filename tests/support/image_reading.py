"""Reading images from the fake registry, under guards that allow it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rules.kube.image_reference import Image, parse_image
from tests.support.fake_registry import OTHER, REGISTRY, FakeRegistry
from tests.support.image_builders import Blob, config, manifest
from tests.support.serving import HOST, client_context
from webhook.images.errors import ImageError
from webhook.images.guards import Guards
from webhook.images.inspection import InspectedImage
from webhook.images.reader import ImageReader
from webhook.images.registry import ClientSettings, CredentialSource


async def to_loopback(host: str, port: int) -> list[tuple[Any, ...]]:
    """Resolve every name to the address of the fake registry."""
    del host
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, port))]


SETTINGS = ClientSettings(guards=Guards(private=(REGISTRY, OTHER)), tls=client_context(), lookup=to_loopback)


def image(registry: FakeRegistry, repository: str, env: Mapping[str, str]) -> Blob:
    """Add an image of one platform with the tag 1; return its manifest."""
    of = config(env)
    top = manifest(of)
    registry.put(repository, "1", top, of)
    return top


def parsed(reference: str) -> Image:
    """Return a reference, which is valid."""
    parsed_image = parse_image(reference)
    assert parsed_image
    return parsed_image


def read(
    reference: str,
    settings: ClientSettings = SETTINGS,
    credentials: CredentialSource | None = None,
    platforms: Sequence[str] = (),
) -> InspectedImage:
    """Return an image from the registry."""
    with ImageReader(settings, credentials) as reader:
        return reader.inspect(parsed(reference), platforms).result()


def refusal(reference: str, *arguments: Any, **settings: Any) -> ImageError:
    """Return the error of an image that cannot be read."""
    with pytest.raises(ImageError) as caught:
        read(reference, *arguments, **settings)
    return caught.value
