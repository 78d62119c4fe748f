"""The bundle is kept as one, by whoever was first; what is no bundle is never overwritten."""

from __future__ import annotations

import stat
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import CertificateError, KeyPair, make_authority, make_leaf
from certs.bundle import FILES, Bundle, certificates_in, decode, encode
from certs.kubernetes_api import Conflict
from certs.store import DirectoryStore, SecretStore, Store, Stored
from tests.support.memory import SECRET, Memory
from tests.support.serving import encrypted
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AUTHORITIES = [make_authority("test CA", NOW) for _ in range(3)]
LEAF = make_leaf(AUTHORITIES[1], ["localhost"], NOW)
PREVIOUS = tuple(each.certificate_pem for each in AUTHORITIES[1:])
FULL = Bundle(AUTHORITIES[0], PREVIOUS, NOW, LEAF)
BARE = Bundle(AUTHORITIES[0])
GARBAGE = b"-----BEGIN GARBAGE-----"


@pytest.fixture(params=["secret", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store of each kind."""
    if request.param == "secret":
        return SecretStore(Memory(), "gpugate", "gpugate-certs")
    return DirectoryStore(tmp_path / "certs")


def test_an_empty_store_holds_no_bundle(store: Store) -> None:
    """Whether it is not there or has nothing in it."""
    assert store.load().bundle is None


@pytest.mark.parametrize("bundle", [FULL, BARE, replace(FULL, previous=(), leaf=None)])
def test_what_is_saved_is_loaded(store: Store, bundle: Bundle) -> None:
    """Before the first leaf, in the middle of a rotation, and at rest; also over another."""
    for each in (bundle, FULL, bundle):
        store.save(each, store.load())

        assert each == store.load().bundle


def test_who_writes_over_what_has_changed_meets_a_conflict(store: Store) -> None:
    """Where there was nothing, and where there was something; the winner's stays."""
    empty = store.load()
    store.save(BARE, empty)
    with pytest.raises(Conflict):
        store.save(FULL, empty)
    first = store.load()
    store.save(FULL, first)
    with pytest.raises(Conflict):
        store.save(BARE, first)

    assert FULL == store.load().bundle


def test_of_many_that_write_at_once_exactly_one_wins(store: Store) -> None:
    """All others are told."""
    empty = store.load()

    def write(authority: KeyPair) -> bool:
        try:
            store.save(Bundle(authority), empty)
        except Conflict:
            return False
        return True

    authorities = [make_authority("test CA", NOW) for _ in range(16)]
    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(write, authorities))
    stored = store.load().bundle

    assert stored
    assert [authority == stored.authority for authority in authorities] == won
    assert 1 == sum(won)


FULL_FILES = encode(FULL)
BROKEN = {
    "ca.crt is not a certificate": {"ca.crt": GARBAGE},
    "ca.crt is missing": {"ca.crt": b""},
    "ca.key is missing": {"ca.key": b""},
    "ca.key is not a private key": {"ca.key": GARBAGE},
    "without a password": {"ca.key": encrypted(AUTHORITIES[0].key_pem)},
    "ca.key is not the key of ca.crt": {"ca.key": AUTHORITIES[1].key_pem},
    "previous-ca.crt is not a certificate": {"previous-ca.crt": GARBAGE},
    "ca-trusted-since is not a time": {"ca-trusted-since": b"yesterday"},
    "ca-trusted-since has no zone": {"ca-trusted-since": b"2026-01-01T12:00:00"},
    "tls.key is missing": {"tls.key": b""},
    "tls.crt is missing": {"tls.crt": b""},
    "tls.key is not the key of tls.crt": {"tls.key": AUTHORITIES[1].key_pem},
    "tls.crt is not signed by ca.crt": {"previous-ca.crt": b""},
}


@pytest.mark.parametrize(("complaint", "change"), BROKEN.items(), ids=BROKEN)
def test_what_is_no_bundle_is_told_with_the_file_and_the_place(
    complaint: str, change: dict[str, bytes], tmp_path: Path
) -> None:
    """In one line that says what to do; a Secret and a directory alike."""
    files = FULL_FILES | change
    memory = Memory()
    memory.put(SECRET, {"data": {key: b64encode(value).decode() for key, value in files.items()}})
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    for store in (SecretStore(memory, "gpugate", "gpugate-certs"), DirectoryStore(tmp_path)):
        with pytest.raises(CertificateError) as error:
            store.load()
        message = str(error.value)
        assert message.startswith(f"{store} holds no certificates of gpugate: ")
        assert complaint in message
        assert message.endswith("; delete it, or name another")


@pytest.mark.parametrize(
    "data",
    [
        {"password": "c2VjcmV0"},
        {"tls.crt": b64encode(LEAF.certificate_pem).decode(), "tls.key": b64encode(LEAF.key_pem).decode()},
        {"ca.crt": "not base64!"},
    ],
    ids=["foreign", "of another issuer", "broken"],
)
def test_a_secret_of_somebody_else_is_refused(data: dict[str, str]) -> None:
    """It is not ours to overwrite."""
    memory = Memory()
    memory.put(SECRET, {"data": data})

    with pytest.raises(CertificateError, match="Secret gpugate/gpugate-certs holds no certificates"):
        SecretStore(memory, "gpugate", "gpugate-certs").load()


@given(files=st.dictionaries(st.sampled_from(FILES), st.sampled_from([*FULL_FILES.values(), GARBAGE])))
def test_any_mixture_of_files_is_a_bundle_or_one_clear_error(files: dict[str, bytes]) -> None:
    """And what is a bundle is written as it was read."""
    try:
        bundle = decode(files)
    except CertificateError:
        return

    assert bundle is None or bundle == decode(encode(bundle))


def test_a_secret_is_of_the_type_for_tls_and_keeps_what_else_it_has() -> None:
    """An empty one may have been applied by hand, for who may write but not create."""
    memory = Memory()
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    store.save(BARE, store.load())
    made = memory.objects.pop(SECRET)
    data = {"tls.crt": "", "note": b64encode(b"kept").decode(), "tls.key": ""}
    for found in ({"data": None}, {}, {"data": {"tls.crt": "", "tls.key": ""}}):
        memory.put(SECRET, {"type": "Opaque", "metadata": {"labels": {"team": "ml"}}} | found)
        store.save(BARE, store.load())
    held = memory.objects[SECRET]
    memory.put(SECRET, held | {"data": held["data"] | data | {"ca.crt": held["data"]["ca.crt"]}})
    store.save(FULL, store.load())

    assert "kubernetes.io/tls" == made["type"]
    assert {"tls.crt", "tls.key"} <= set(made["data"])
    assert ("Opaque", {"team": "ml"}) == (held["type"], held["metadata"]["labels"])
    assert b"kept" == b64decode(memory.objects[SECRET]["data"]["note"])
    assert LEAF.certificate_pem == b64decode(memory.objects[SECRET]["data"]["tls.crt"])


def test_keys_in_a_directory_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Through every renewal; certificates are for everybody."""
    store = DirectoryStore(tmp_path)
    modes = []
    for bundle in (BARE, FULL):
        store.save(bundle, store.load())
        modes.append({name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in FILES})

    assert [{name: 0o600 if name.endswith("key") else 0o644 for name in FILES}] * 2 == modes


def test_a_directory_is_replaced_as_a_whole_and_a_server_may_read_it_meanwhile(tmp_path: Path) -> None:
    """Certificate and key come from one version, and nothing is left of the others."""
    store = DirectoryStore(tmp_path)
    store.save(FULL, store.load())
    tls = TlsCertificate.from_files(tmp_path / "tls.crt", tmp_path / "tls.key")
    seen = set()
    for _ in range(20):
        leaf = make_leaf(AUTHORITIES[0], ["localhost"], NOW)
        store.save(replace(FULL, leaf=leaf), store.load())
        assert tls.reload()
        seen.add(tls.pair.certificate_pem)

    assert 20 == len(seen)
    assert 1 == sum(each.is_dir() and not each.is_symlink() for each in tmp_path.iterdir())


def test_a_directory_that_readers_race_with_is_never_seen_half_written(tmp_path: Path) -> None:
    """A half would be no bundle, and raise."""
    store = DirectoryStore(tmp_path)
    store.save(FULL, store.load())

    def write() -> None:
        for _ in range(20):
            stored = store.load()
            store.save(replace(FULL, leaf=make_leaf(AUTHORITIES[0], ["localhost"], NOW)), stored)

    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(write)
        seen: list[Stored] = []
        while not writing.done():
            seen.append(store.load())
        writing.result()

    assert all(stored.bundle for stored in seen)
    assert len(seen) > 1


def test_what_is_no_pem_holds_no_certificate() -> None:
    """As the placeholder that many charts ship, a line feed."""
    assert ((), ()) == (certificates_in(b"\n"), certificates_in(b""))
    assert PREVIOUS == certificates_in(b"# our CAs\n" + b"\n".join(PREVIOUS))
