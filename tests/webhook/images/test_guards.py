"""The guards of the client: each test tries to get around one of them."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import socket
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
from msgspec.structs import replace

from rules.kube.image_reference import Image
from tests.support.fake_registry import OTHER, REGISTRY, Asked, FakeRegistry, Reply, plain_registry
from tests.support.image_builders import CUDA_ENV, config, document, index, manifest
from tests.support.image_reading import SETTINGS, image, read, refusal, to_loopback
from tests.support.serving import HOST
from webhook.images.credentials import Credentials
from webhook.images.errors import Reason
from webhook.images.guards import Guards, allowed_address
from webhook.images.manifest import MAX_BYTES
from webhook.images.registry import ClientSettings

APP = "/v2/team/app/manifests/1"
BLOB = f"/v2/team/app/blobs/{config(CUDA_ENV).digest}"
ONLY_REGISTRY = replace(SETTINGS, guards=Guards(private=(REGISTRY,)))
# Seconds of a request in tests of slow servers; and how long such a test may take on a busy machine.
IMPATIENT = replace(SETTINGS, request_s=0.3)
PATIENCE_S = 10.0


class Robot:
    """Credentials for every image."""

    def find(self, image: Image) -> Credentials | None:
        """Return them."""
        del image
        return Credentials("robot", "secret")


@pytest.mark.parametrize(
    ("address", "private", "public"),
    [
        ("8.8.8.8", True, True),
        ("2606:4700::1111", True, True),
        ("127.0.0.1", True, False),
        ("::1", True, False),
        ("10.1.2.3", True, False),
        ("172.16.0.1", True, False),
        ("192.168.1.1", True, False),
        ("100.64.0.1", True, False),
        ("fd12::1", True, False),
        ("fec0::1", True, False),
        ("::ffff:10.0.0.1", True, False),
        ("64:ff9b::a00:1", True, False),
        ("64:ff9b::808:808", True, True),
        ("169.254.169.254", False, False),
        ("fe80::1", False, False),
        ("fe80::1%eth0", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("2002:a9fe:a9fe::1", False, False),
        ("fd00:ec2::254", False, False),
        ("fd20:ce::254", False, False),
        ("100.100.100.200", False, False),
        ("168.63.129.16", False, False),
        ("192.0.0.192", False, False),
        ("0.0.0.0", False, False),  # noqa: S104
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("ff02::1", False, False),
        ("255.255.255.255", True, False),
        ("240.0.0.1", True, False),
    ],
)
def test_only_public_addresses_are_allowed_and_local_ones_of_listed_hosts(
    address: str, private: bool, public: bool
) -> None:
    """Link-local, multicast and metadata addresses never are, in any notation."""
    parsed_address = ip_address(address)

    assert (private, public) == (
        allowed_address(parsed_address, private=True),
        allowed_address(parsed_address, private=False),
    )


def test_a_registry_that_is_not_listed_is_not_asked(registry: FakeRegistry) -> None:
    """Globs of host and port, as references have them."""
    for globs, asks in ((["docker.io", "*.corp"], False), (["registry.*:*"], True), ([REGISTRY], False)):
        settings = replace(SETTINGS, guards=Guards(globs, private=(REGISTRY,)))
        registry.asked.clear()
        if asks:
            read(registry.reference("team/app:1"), settings)
        else:
            error = refusal(registry.reference("team/app:1"), settings)
            assert (Reason.BLOCKED, []) == (error.reason, registry.asked)


@pytest.mark.parametrize("host", [REGISTRY, "127.0.0.1", "localhost"])
def test_a_private_address_is_not_connected_to_unless_its_host_is_listed(
    registry: FakeRegistry, host: str
) -> None:
    """By name or as a literal address."""
    settings = replace(SETTINGS, guards=Guards())
    error = refusal(registry.reference("team/app:1", host), settings)

    assert Reason.BLOCKED == error.reason
    assert "the address is not public; list the host as private if it is yours" in str(error)
    assert [] == registry.asked


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "2130706433", "127.1", "0x7f.1", "0.0.0.0", "[::ffff:7f00:1]", "[::1]"],  # noqa: S104
)
def test_no_notation_of_a_local_address_passes(host: str) -> None:
    """As the system resolves it, without listed hosts."""
    settings = ClientSettings(guards=Guards(insecure=("*",)), request_s=PATIENCE_S)
    error = refusal(f"{host}:1/app:1", settings)

    assert error.reason in {Reason.BLOCKED, Reason.UNAVAILABLE}
    assert "Connection refused" not in str(error)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("https://other.test:{port}/x", "other.test (127.0.0.1): the address is not public"),
        ("https://127.0.0.1:{port}/x", "127.0.0.1: the address is not public"),
        ("https://169.254.169.254/latest/meta-data/", "169.254.169.254: link-local"),
        ("https://[::ffff:127.0.0.1]:{port}/x", "the address is not public"),
        ("http://registry.test:{port}/x", "only https is allowed"),
        ("file:///etc/passwd", "only https is allowed"),
        ("//169.254.169.254/x", "metadata addresses are never allowed"),
        ("https://robot:secret@registry.test:{port}/x", "a URL with a user name is not allowed"),
    ],
)
@pytest.mark.parametrize("path", [APP, BLOB])
def test_a_redirect_passes_the_same_guards(
    registry: FakeRegistry, path: str, target: str, message: str
) -> None:
    """Of manifests and of configs."""
    location = target.format(port=registry.port)
    registry.replies[path] = Reply(307, {"Location": location})
    registry.replies["/x"] = Reply(200, {}, b"{}")

    error = refusal(registry.reference("team/app:1"), ONLY_REGISTRY)

    assert Reason.BLOCKED == error.reason
    assert message in str(error)
    assert "secret" not in str(error)
    assert "/x" not in [request.path for request in registry.asked]


def test_at_most_three_redirects_are_followed(registry: FakeRegistry) -> None:
    """A fourth is refused."""
    blob = registry.replies[BLOB]
    for number, target in enumerate(["/1", "/2", BLOB + "?signed=%2F"]):
        registry.replies[f"/{number}"] = Reply(302, {"Location": target})
    registry.replies[BLOB] = lambda request: blob if "?" in request.path else Reply(302, {"Location": "/1"})  # type: ignore[assignment,return-value]

    assert "12.4" == str(read(registry.reference("team/app:1")).platforms[0].cuda)
    assert f"{BLOB}?signed=%2F" == registry.asked[-1].path
    registry.replies[BLOB] = lambda request: blob if "?" in request.path else Reply(302, {"Location": "/0"})  # type: ignore[assignment,return-value]
    error = refusal(registry.reference("team/app:1"))
    assert (Reason.BLOCKED, "registry.test: more than 3 redirects") == (error.reason, str(error))


def test_credentials_are_not_sent_to_another_host(registry: FakeRegistry) -> None:
    """Neither after a redirect, nor if that host asks for them, nor when it leads back."""
    copied = registry.replies.copy()

    def guarded(request: Asked) -> Reply:
        if not request.authorization:
            return Reply(401, {"WWW-Authenticate": "Basic realm=registry"})
        reply = copied[APP]
        return reply if request.path == APP else Reply(307, {"Location": registry.url("/cdn", OTHER)})  # type: ignore[return-value]

    registry.replies |= {APP: guarded, BLOB: guarded}
    registry.replies["/cdn"] = copied[BLOB]
    read(registry.reference("team/app:1"), SETTINGS, Robot())
    registry.replies["/cdn"] = Reply(401, {"WWW-Authenticate": "Basic realm=cdn"})
    error = refusal(registry.reference("team/app:1"), SETTINGS, Robot())
    registry.replies["/cdn"] = Reply(307, {"Location": registry.url("/back")})
    refusal(registry.reference("team/app:1"), SETTINGS, Robot())

    assert Reason.UNAUTHORIZED == error.reason
    others = [request for request in registry.asked if request.host == OTHER or request.path == "/back"]
    assert 4 <= len(others)
    assert {""} == {request.authorization for request in others}


@pytest.mark.parametrize(
    ("realm", "reason"),
    [
        ("http://registry.test:{port}/token", Reason.BLOCKED),
        ("https://169.254.169.254/token", Reason.BLOCKED),
        ("https://other.test:{port}/token", Reason.BLOCKED),
        ("/token", Reason.INVALID),
        ("", Reason.INVALID),
    ],
)
def test_a_realm_for_tokens_passes_the_guards(registry: FakeRegistry, realm: str, reason: Reason) -> None:
    """It gets no credentials otherwise."""
    challenge = f'Bearer realm="{realm.format(port=registry.port)}",service="x"'
    registry.replies[APP] = Reply(401, {"WWW-Authenticate": challenge})

    assert reason == refusal(registry.reference("team/app:1"), ONLY_REGISTRY, Robot()).reason
    assert [APP] == [request.path for request in registry.asked]


def test_a_refresh_token_does_not_follow_a_redirect(registry: FakeRegistry) -> None:
    """A form is sent once."""

    class Identity:
        def find(self, image: Image) -> Credentials | None:
            del image
            return Credentials("", "", "refresh")

    registry.replies[APP] = Reply(401, {"WWW-Authenticate": f'Bearer realm="{registry.url("/token")}"'})
    registry.replies["/token"] = Reply(307, {"Location": registry.url("/token", OTHER)})
    error = refusal(registry.reference("team/app:1"), SETTINGS, Identity())

    assert Reason.INVALID == error.reason
    assert [REGISTRY, REGISTRY] == [request.host for request in registry.asked]


def changing(*answers: str) -> Callable[[str, int], Any]:
    """Return a resolution of names whose answers change; the last one stays."""
    left = list(answers)

    async def lookup(host: str, port: int) -> list[tuple[Any, ...]]:
        del host
        address = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (part, port)) for part in address.split()]

    return lookup


def test_the_checked_address_is_the_one_that_is_connected_to(registry: FakeRegistry) -> None:
    """A name is resolved once for a connection; a later answer, of an evil server, is checked again."""
    reference = registry.reference("team/app:1")

    read(reference, replace(SETTINGS, lookup=changing(HOST, "169.254.169.254")))
    registry.replies[APP] = dataclasses.replace(registry.replies[APP], headers={"Connection": "close"})  # type: ignore[type-var]
    error = refusal(reference, replace(SETTINGS, lookup=changing(HOST, "169.254.169.254")))

    assert Reason.BLOCKED == error.reason
    assert "registry.test (169.254.169.254): link-local" in str(error)


def test_only_the_allowed_addresses_of_an_answer_are_used(registry: FakeRegistry) -> None:
    """If one is allowed, the others are left out."""
    lookup = changing(f"169.254.169.254 {HOST}")

    assert read(registry.reference("team/app:1"), replace(SETTINGS, lookup=lookup)).platforms


def test_a_document_above_one_mib_is_refused(registry: FakeRegistry) -> None:
    """One of exactly that size is read."""
    for size, reason in ((MAX_BYTES, Reason.INVALID), (MAX_BYTES + 1, Reason.TOO_LARGE)):
        registry.replies[APP] = Reply(200, {}, b"x" * size)
        assert reason == refusal(registry.reference("team/app:1")).reason


@pytest.mark.parametrize("reply", [Reply(slow=True), Reply(slow_head=True)])
def test_a_slow_answer_ends_after_the_time_of_the_whole_request(registry: FakeRegistry, reply: Reply) -> None:
    """Though each byte arrives in time."""
    registry.replies[APP] = reply
    started = time.monotonic()
    error = refusal(registry.reference("team/app:1"), IMPATIENT)

    assert time.monotonic() - started < PATIENCE_S
    message = "registry.test: no complete answer within 0.3 seconds"
    assert (Reason.TIMEOUT, message) == (error.reason, str(error))


def test_redirects_share_the_time_of_the_request(registry: FakeRegistry) -> None:
    """It does not begin again."""
    registry.replies[APP] = Reply(307, {"Location": "/slow"})
    registry.replies["/slow"] = Reply(slow=True)

    assert Reason.TIMEOUT == refusal(registry.reference("team/app:1"), IMPATIENT).reason


def test_a_server_that_says_nothing_and_a_name_server_that_does_not_answer_time_out() -> None:
    """In the TLS handshake, and before the connection."""

    async def never(host: str, port: int) -> list[tuple[Any, ...]]:
        del host, port
        await asyncio.Event().wait()
        return []

    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        reasons = {
            refusal(f"{REGISTRY}:{port}/app:1", replace(IMPATIENT, lookup=lookup)).reason
            for lookup in (to_loopback, never)
        }

    assert {Reason.TIMEOUT} == reasons


def test_a_compressed_answer_is_refused(registry: FakeRegistry) -> None:
    """A gzip bomb is not expanded: the request asks for no compression."""
    bomb = gzip.compress(bytes(64 * MAX_BYTES))
    registry.replies[APP] = Reply(200, {"Content-Encoding": "gzip"}, bomb)
    error = refusal(registry.reference("team/app:1"))

    assert Reason.INVALID == error.reason
    assert "the answer is compressed" in str(error)
    assert "identity" == registry.asked[0].headers["Accept-Encoding"]


def test_of_an_index_with_thousands_of_platforms_eight_are_read(registry: FakeRegistry) -> None:
    """Those of nodes with GPUs first; the number of the others is reported. With 10,000 it is too large."""
    of = config(CUDA_ENV)
    top = manifest(of)
    names = [*(f"linux/a{number}" for number in range(4000)), "linux/arm64", "linux/amd64"]
    registry.put("team/many", "1", index(dict.fromkeys(names, top)), top, of)
    parsed = read(registry.reference("team/many:1"))

    assert ["linux/amd64", "linux/arm64", "linux/a0"] == [platform.platform for platform in parsed.platforms][
        :3
    ]
    assert (8, 3994) == (len(parsed.platforms), parsed.omitted)
    assert 32 == len(parsed.unread or ())
    registry.put("team/more", "1", index(dict.fromkeys((f"linux/a{n}" for n in range(10_000)), top)))
    assert Reason.TOO_LARGE == refusal(registry.reference("team/more:1")).reason


def test_an_index_inside_an_index_is_not_followed(registry: FakeRegistry) -> None:
    """By its media type, or by its content."""
    inner = index({"linux/amd64": manifest(config({}))})
    for kind in (inner.media_type, "application/json"):
        entry = inner.descriptor | {"mediaType": kind, "platform": {"os": "linux", "architecture": "amd64"}}
        top = document({"manifests": [entry]}, inner.media_type)
        registry.put("team/nested", "1", top, inner)
        assert refusal(registry.reference("team/nested:1")).reason in {Reason.INVALID, Reason.NOT_FOUND}


def test_content_with_another_digest_is_refused(registry: FakeRegistry) -> None:
    """Of a pinned image, of a manifest of an index, and of a config; also with sha512."""
    other = manifest(config({"CUDA_VERSION": "1.0"}))
    of = config(CUDA_ENV)
    top = index({"linux/amd64": manifest(of)})
    registry.put("team/multi", "1", top, manifest(of), of)
    paths = {
        registry.reference(f"team/multi@{top.digest}"): f"/v2/team/multi/manifests/{top.digest}",
        registry.reference("team/multi:1"): f"/v2/team/multi/manifests/{manifest(of).digest}",
        registry.reference("team/app:1"): BLOB,
        registry.reference(f"team/app@sha512:{'0' * 128}"): f"/v2/team/app/manifests/sha512:{'0' * 128}",
    }
    for reference, path in paths.items():
        before = registry.replies.get(path)
        registry.replies[path] = Reply(200, {}, other.body)
        assert Reason.DIGEST_MISMATCH == refusal(reference).reason
        if before:
            registry.replies[path] = before


def test_http_is_used_for_a_registry_that_is_listed_as_insecure() -> None:
    """And for no other."""
    with plain_registry() as registry:
        image(registry, "team/app", CUDA_ENV)
        reference = registry.reference("team/app:1")
        guards = Guards(private=("*",), insecure=(f"{REGISTRY}:{registry.port}",))

        assert read(reference, replace(SETTINGS, guards=guards)).platforms
        error = refusal(reference)
        assert Reason.UNAVAILABLE == error.reason
        assert "if the registry has no TLS, list it as insecure" in str(error)
        registry.replies[APP] = Reply(307, {"Location": f"http://{OTHER}:{registry.port}/x"})
        assert Reason.BLOCKED == refusal(reference, replace(SETTINGS, guards=guards)).reason


def test_a_proxy_is_asked_to_connect(registry: FakeRegistry) -> None:
    """It resolves the name of the registry itself."""
    with plain_registry() as proxy:
        guards = Guards(private=(HOST,))
        settings = replace(SETTINGS, guards=guards, proxy_of=lambda _: f"http://{HOST}:{proxy.port}")
        error = refusal("registry.example.com/app:1", settings)

    assert Reason.UNAVAILABLE == error.reason
    assert [("CONNECT", "registry.example.com:443")] == [
        (request.method, request.path) for request in proxy.asked
    ]
    assert [] == registry.asked


def test_four_images_are_read_at_the_same_time() -> None:
    """Others wait."""
    running, most = 0, 0

    async def lookup(host: str, port: int) -> list[tuple[Any, ...]]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(100):
            await asyncio.sleep(0)
        running -= 1
        return await to_loopback(host, port)

    from tests.support.image_reading import parsed
    from webhook.images.reader import ImageReader

    with socket.socket() as held, ImageReader(replace(SETTINGS, lookup=lookup)) as reader:
        held.bind((HOST, 0))
        name = f"{REGISTRY}:{held.getsockname()[1]}"
        futures = [reader.inspect(parsed(f"{name}/app:{number}")) for number in range(20)]
        errors = [future.exception() for future in futures]

    assert 20 == len([error for error in errors if error])
    assert 4 == most
