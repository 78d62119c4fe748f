"""The client of registries: what it reads, how it authenticates, and which errors it distinguishes."""

from __future__ import annotations

import base64
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from msgspec.structs import replace

from rules.kube.image_reference import Image
from rules.text.i18n import Text
from tests.support.cpu_time import loops
from tests.support.fake_registry import OTHER, REGISTRY, Asked, FakeRegistry, Reply
from tests.support.image_builders import (
    CUDA_ENV,
    DOCKER_CONFIG,
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    INDEX,
    REQUIRE,
    config,
    document,
    index,
    manifest,
)
from tests.support.image_reading import SETTINGS, image, parsed, read, refusal
from tests.support.serving import HOST
from webhook.images.credentials import CredentialError, Credentials
from webhook.images.errors import Reason
from webhook.images.reader import ImageReader
from webhook.images.registry import _PARAMETER, CredentialSource

USER = Credentials("robot", "secret")
IDENTITY = Credentials("", "", "refresh")
GIVEN = Credentials("", "", "", "given")
BASIC = "Basic " + base64.b64encode(b"robot:secret").decode()
APP = "/v2/team/app/manifests/1"


class Known(CredentialSource):
    """Credentials for every image; records for which registries."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self.asked: list[str] = []

    def find(self, image: Image) -> Credentials | None:
        """Return them."""
        self.asked.append(image.name)
        return self._credentials


TOKEN = "t0ken"  # noqa: S105
DENIED = "registry.test: access denied: log in with `docker login`, or check that the repository exists"


def token_registry(registry: FakeRegistry, realm: str, token: str = TOKEN) -> None:
    """Make the image require a Bearer token of a realm."""
    copied = registry.replies.copy()

    def guarded(request: Asked) -> Reply:
        if request.authorization == f"Bearer {token}":
            reply = copied[request.path]
            assert isinstance(reply, Reply)
            return reply
        challenge = f'Bearer realm="{realm}",service="registry",scope="repository:team/app:pull"'
        return Reply(401, {"WWW-Authenticate": challenge})

    registry.replies |= dict.fromkeys(copied, guarded)
    registry.replies["/token"] = Reply(body=json.dumps({"token": token, "expires_in": 300}).encode())


def test_the_config_of_an_image_is_read(registry: FakeRegistry) -> None:
    """With its digest, its platform and its variables; anonymously, by three requests at most."""
    inspected = read(registry.reference("team/app:1"))
    (platform,) = inspected.platforms

    assert registry.reference("team/app:1") == inspected.reference
    assert manifest(config(CUDA_ENV)).digest == inspected.digest == platform.digest
    assert ("linux/amd64", CUDA_ENV) == (platform.platform, platform.env)
    assert [(APP, ""), (f"/v2/team/app/blobs/{config(CUDA_ENV).digest}", "")] == [
        (request.path, request.authorization) for request in registry.asked
    ]


@pytest.mark.parametrize("media_type", [INDEX, DOCKER_INDEX])
def test_an_index_is_read_for_each_platform(registry: FakeRegistry, media_type: str) -> None:
    """Attestations are skipped; the digest is that of the index."""
    configs = {name: config(CUDA_ENV, name) for name in ("arm64", "amd64")}
    kind = DOCKER_MANIFEST if media_type == DOCKER_INDEX else manifest(configs["amd64"]).media_type
    manifests = {f"linux/{name}": manifest(image_config, kind) for name, image_config in configs.items()}
    attestation = manifest(config({}, "none"))
    top = index(manifests | {"unknown/unknown": attestation}, media_type)
    registry.put("team/multi", "1", top, *manifests.values(), *configs.values(), attestation)

    inspected = read(registry.reference("team/multi:1"))

    assert (top.digest, 0) == (inspected.digest, inspected.omitted)
    assert [
        ("linux/amd64", manifests["linux/amd64"].digest),
        ("linux/arm64", manifests["linux/arm64"].digest),
    ] == [(platform.platform, platform.digest) for platform in inspected.platforms]


def test_one_platform_can_be_chosen(registry: FakeRegistry) -> None:
    """If it does not exist, the error names those that do."""
    of = config(CUDA_ENV, "arm64")
    top = index({"linux/arm64": manifest(of)})
    registry.put("team/arm", "1", top, manifest(of), of)
    reference = registry.reference("team/arm:1")

    assert ["linux/arm64"] == [
        platform.platform for platform in read(reference, platforms=["linux/arm64"]).platforms
    ]
    for name, available in ((reference, "linux/arm64"), (registry.reference("team/app:1"), "linux/amd64")):
        error = refusal(name, platforms=["linux/s390x"])
        assert (Reason.NOT_FOUND, f"no such platform; available: {available}") == (error.reason, str(error))


def test_a_pinned_image_is_read_by_its_digest(registry: FakeRegistry) -> None:
    """Even if a tag is written, too."""
    digest = manifest(config(CUDA_ENV)).digest
    inspected = read(registry.reference(f"team/app:other@{digest}"))

    assert digest == inspected.digest
    assert f"/v2/team/app/manifests/{digest}" == registry.asked[0].path


def test_the_digest_of_a_tag_is_read_without_its_content(registry: FakeRegistry) -> None:
    """By HEAD, which Docker Hub does not count as a pull; by GET from a registry that does not send it."""
    top = manifest(config(CUDA_ENV))
    with ImageReader(SETTINGS) as reader:
        assert top.digest == reader.digest(parsed(registry.reference("team/app:1"))).result()
        registry.replies[APP] = Reply(200, {}, top.body)
        assert top.digest == reader.digest(parsed(registry.reference("team/app:1"))).result()

    assert ["HEAD", "HEAD", "GET"] == [request.method for request in registry.asked]


def test_threads_share_one_pool_of_connections(registry: FakeRegistry) -> None:
    """Four images are read at the same time, over as many connections."""
    names = [registry.reference(f"team/app{number}:1") for number in range(12)]
    for number in range(12):
        image(registry, f"team/app{number}", {"CUDA_VERSION": "12.4.0"})
    with ImageReader(SETTINGS) as reader, ThreadPoolExecutor(12) as threads:
        references = threads.map(lambda name: reader.inspect(parsed(name)).result().reference, names)
        assert names == list(references)

    assert 24 == len(registry.asked)
    assert 4 >= len({request.client for request in registry.asked})


def test_a_token_is_requested_from_the_realm_of_the_registry(registry: FakeRegistry) -> None:
    """Anonymously for a public image; for its repository alone; once for all requests."""
    token_registry(registry, registry.url("/token"))

    read(registry.reference("team/app:1"))
    (token,) = [request for request in registry.asked if request.path.startswith("/token")]

    assert ("/token?service=registry&scope=repository:team/app:pull", "") == (token.path, token.authorization)
    assert ["", "Bearer t0ken", "Bearer t0ken"] == [
        request.authorization for request in registry.asked if request is not token
    ]


def test_credentials_are_sent_to_the_realm_and_only_the_token_to_the_registry(registry: FakeRegistry) -> None:
    """The realm may be on another host."""
    token_registry(registry, registry.url("/token", OTHER))

    read(registry.reference("team/app:1"), SETTINGS, Known(USER))

    assert [(OTHER, BASIC)] == [
        (request.host, request.authorization)
        for request in registry.asked
        if request.path.startswith("/token")
    ]
    assert BASIC not in {request.authorization for request in registry.asked if request.host == REGISTRY}


def test_an_identity_token_is_exchanged_by_post(registry: FakeRegistry) -> None:
    """As helpers of clouds return it."""
    token_registry(registry, registry.url("/token"))

    read(registry.reference("team/app:1"), SETTINGS, Known(IDENTITY))
    (token,) = [request for request in registry.asked if request.path.startswith("/token")]

    assert ("POST", "") == (token.method, token.authorization)
    assert b"grant_type=refresh_token&refresh_token=refresh" in token.body
    assert b"scope=repository:team/app:pull" in token.body.replace(b"%3A", b":").replace(b"%2F", b"/")


def test_a_registry_with_basic_authentication_gets_the_password(registry: FakeRegistry) -> None:
    """And no anonymous request afterwards."""
    copied = registry.replies.copy()

    def guarded(request: Asked) -> Reply:
        reply = copied[request.path]
        assert isinstance(reply, Reply)
        wrong = Reply(401, {"WWW-Authenticate": 'Basic realm="registry"'})
        return reply if request.authorization == BASIC else wrong

    registry.replies |= dict.fromkeys(copied, guarded)
    read(registry.reference("team/app:1"), SETTINGS, Known(USER))

    assert ["", BASIC, BASIC] == [request.authorization for request in registry.asked]
    error = refusal(registry.reference("team/app:1"))
    assert (Reason.UNAUTHORIZED, "registry.test: credentials are required") == (error.reason, str(error))


@pytest.mark.parametrize("text", ["a", "a ", 'a="', "a= ", "="])
def test_the_time_to_read_a_challenge_is_linear_in_its_length(text: str) -> None:
    """8,000 letters took 0.4 s, and the time grew with the square."""
    assert loops(lambda: _PARAMETER.findall(text * 100_000)) < 60


def test_a_registry_token_is_used_as_it_is(registry: FakeRegistry) -> None:
    """Without a request to the realm."""
    token_registry(registry, registry.url("/token"), "given")

    read(registry.reference("team/app:1"), SETTINGS, Known(GIVEN))

    assert not [request for request in registry.asked if request.path.startswith("/token")]


def test_credentials_that_cannot_be_read_are_an_error_of_the_image(registry: FakeRegistry) -> None:
    """With the message of the file or helper."""

    class Broken(CredentialSource):
        def find(self, image: Image) -> Credentials | None:
            del image
            raise CredentialError(Text("docker-credential-x: not found"))

    token_registry(registry, registry.url("/token"))
    error = refusal(registry.reference("team/app:1"), SETTINGS, Broken())

    assert (Reason.UNAUTHORIZED, "credentials: docker-credential-x: not found") == (error.reason, str(error))


def test_a_mirror_is_asked_instead_of_the_registry_with_its_own_credentials(registry: FakeRegistry) -> None:
    """The image keeps its name."""
    image(registry, "proxy/library/app", CUDA_ENV)
    settings = replace(SETTINGS, mirrors={"docker.io": registry.reference("proxy")})
    token_registry(registry, registry.url("/token"))
    known = Known(None)

    assert "docker.io/library/app:1" == read("app:1", settings, known).reference
    assert [registry.reference("proxy/library/app")] == known.asked


@pytest.mark.parametrize(
    ("reply", "reason", "message"),
    [
        (Reply(401), Reason.UNAUTHORIZED, "registry.test: unknown kind of authentication"),
        (
            Reply(403, {}, b'{"errors": [{"code": "DENIED", "message": "no access\\u001b[31m to app"}]}'),
            Reason.UNAUTHORIZED,
            f"{DENIED}: HTTP 403 (no access [31m to app)",
        ),
        (Reply(404, {}, b"<html>"), Reason.NOT_FOUND, "registry.test: the image does not exist: HTTP 404"),
        (Reply(429, {"Retry-After": "7"}), Reason.RATE_LIMITED, "registry.test: too many requests: HTTP 429"),
        (Reply(500, {}), Reason.UNAVAILABLE, "registry.test: the server failed: HTTP 500"),
        (Reply(503, {"Retry-After": "9"}), Reason.UNAVAILABLE, "registry.test: the server failed: HTTP 503"),
        (Reply(418, {}), Reason.INVALID, "registry.test: an unexpected answer: HTTP 418"),
    ],
)
def test_errors_of_a_registry_are_distinct(
    registry: FakeRegistry, reply: Reply, reason: Reason, message: str
) -> None:
    """With the printable part of the registry's own message, and the time to wait."""
    registry.replies[APP] = reply
    error = refusal(registry.reference("team/app:1"))

    assert (reason, message) == (error.reason, str(error))
    assert (float(reply.headers["Retry-After"]) if reply.headers else None) == error.retry_after_s


def test_the_time_to_wait_may_be_a_date_and_is_at_most_a_day(registry: FakeRegistry) -> None:
    """Both forms of HTTP; another text is ignored."""
    later = format_datetime(datetime.now(UTC) + timedelta(days=30), usegmt=True)
    waits = []
    for text in (later, "99999999", "soon", "Mon, 01 Jan 2001 00:00:00 GMT"):
        registry.replies[APP] = Reply(429, {"Retry-After": text})
        waits.append(refusal(registry.reference("team/app:1")).retry_after_s)

    assert [86400.0, 86400.0, None, 0.0] == waits


def test_a_registry_that_is_down_is_unavailable() -> None:
    """Nothing listens at its port."""
    with socket.socket() as held:
        held.bind((HOST, 0))
        error = refusal(f"{REGISTRY}:{held.getsockname()[1]}/app:1")

    message = "registry.test: no connection: Connection refused"
    assert (Reason.UNAVAILABLE, message) == (error.reason, str(error))


def test_a_name_that_does_not_exist_is_unavailable() -> None:
    """As the resolver of the system says it."""

    async def unknown(host: str, port: int) -> list[tuple[Any, ...]]:
        del host, port
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    error = refusal(f"{REGISTRY}/app:1", replace(SETTINGS, lookup=unknown))
    message = "registry.test: the name cannot be resolved: Name or service not known"

    assert (Reason.UNAVAILABLE, message) == (error.reason, str(error))


def test_a_certificate_of_an_unknown_ca_is_refused(registry: FakeRegistry) -> None:
    """The message says what to give."""
    error = refusal(registry.reference("team/app:1"), replace(SETTINGS, tls=None))

    assert Reason.UNAVAILABLE == error.reason
    assert "the certificate is not trusted" in str(error)
    assert [] == registry.asked


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not an image manifest or config"),
        (b"[" * 100_000, "not an image manifest or config"),
        (b'{"schemaVersion": 1, "fsLayers": []}', "neither an index nor a manifest"),
        (b'{"manifests": [], "config": {"digest": "x"}}', "both an index and a manifest"),
        (b'{"config": {"digest": "sha256:../../x"}}', "the manifest has an invalid digest"),
        (b'{"manifests": []}', "no such platform; available: -"),
        (b"\xff\xfe", "not an image manifest or config"),
    ],
)
def test_a_manifest_that_is_not_one_is_invalid(registry: FakeRegistry, body: bytes, message: str) -> None:
    """It never ends in another exception."""
    registry.replies[APP] = Reply(200, {}, body)

    assert message in str(refusal(registry.reference("team/app:1")))


def test_a_chart_is_not_an_image(registry: FakeRegistry) -> None:
    """Registries hold other artifacts."""
    of = document({"name": "chart", "version": "1.0.0"}, DOCKER_CONFIG)
    registry.put("team/chart", "1", manifest(of), of)

    assert "not an image manifest or config" in str(refusal(registry.reference("team/chart:1")))


def test_variables_that_are_not_printable_are_left_out(registry: FakeRegistry) -> None:
    """They would reach terminals and logs."""
    image(registry, "team/odd", {"CUDA_VERSION": "12\x1b[2J", "A": "b", "NVIDIA_REQUIRE_CUDA": REQUIRE})
    (platform,) = read(registry.reference("team/odd:1")).platforms

    assert {"A": "b", "NVIDIA_REQUIRE_CUDA": REQUIRE} == platform.env
