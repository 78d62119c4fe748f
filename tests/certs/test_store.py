"""The store saves a bundle as a whole, the first writer wins, and other content is never overwritten."""

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
PREVIOUS = tuple(authority.certificate_pem for authority in AUTHORITIES[1:])
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
    """Whether it is missing or empty."""
    assert store.load().bundle is None


@pytest.mark.parametrize("bundle", [FULL, BARE, replace(FULL, previous=(), leaf=None)])
def test_a_saved_bundle_is_loaded(store: Store, bundle: Bundle) -> None:
    """Before the first leaf, during a rotation and after it; also over another bundle."""
    for saved in (bundle, FULL, bundle):
        store.save(saved, store.load())

        assert saved == store.load().bundle


def test_a_write_over_a_changed_store_is_a_conflict(store: Store) -> None:
    """Whether the store was empty or not; the first write stays."""
    empty = store.load()
    store.save(BARE, empty)
    with pytest.raises(Conflict):
        store.save(FULL, empty)
    first = store.load()
    store.save(FULL, first)
    with pytest.raises(Conflict):
        store.save(BARE, first)

    assert FULL == store.load().bundle


def test_of_many_concurrent_writers_exactly_one_wins(store: Store) -> None:
    """All others get a conflict."""
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
    "ca.crt is not a PEM certificate": {"ca.crt": GARBAGE},
    "ca.crt is missing": {"ca.crt": b""},
    "ca.key is missing": {"ca.key": b""},
    "ca.key is not an unencrypted PEM private": {"ca.key": GARBAGE},
    "ca.key is not an unencrypted PEM private key": {"ca.key": encrypted(AUTHORITIES[0].key_pem)},
    "ca.key is not the key of ca.crt": {"ca.key": AUTHORITIES[1].key_pem},
    "previous-ca.crt is not a PEM certificate": {"previous-ca.crt": GARBAGE},
    "ca-trusted-since is not a timestamp": {"ca-trusted-since": b"yesterday"},
    "ca-trusted-since has no time zone": {"ca-trusted-since": b"2026-01-01T12:00:00"},
    "tls.key is missing": {"tls.key": b""},
    "tls.crt is missing": {"tls.crt": b""},
    "tls.key is not the key of tls.crt": {"tls.key": AUTHORITIES[1].key_pem},
    "tls.crt is not signed by ca.crt": {"previous-ca.crt": b""},
}


@pytest.mark.parametrize(("complaint", "change"), BROKEN.items(), ids=BROKEN)
def test_the_error_for_an_invalid_bundle_names_the_file_and_the_store(
    complaint: str, change: dict[str, bytes], tmp_path: Path
) -> None:
    """In one line that says what to do, for a Secret and for a directory."""
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
        assert message.endswith("; delete it, or use another")


@pytest.mark.parametrize(
    "data",
    [
        {"password": "c2VjcmV0"},
        {"tls.crt": b64encode(LEAF.certificate_pem).decode(), "tls.key": b64encode(LEAF.key_pem).decode()},
        {"ca.crt": "not base64!"},
    ],
    ids=["foreign", "of another issuer", "broken"],
)
def test_a_secret_with_other_content_is_refused(data: dict[str, str]) -> None:
    """It belongs to somebody else and must not be overwritten."""
    memory = Memory()
    memory.put(SECRET, {"data": data})

    with pytest.raises(CertificateError, match="Secret gpugate/gpugate-certs holds no certificates"):
        SecretStore(memory, "gpugate", "gpugate-certs").load()


@given(files=st.dictionaries(st.sampled_from(FILES), st.sampled_from([*FULL_FILES.values(), GARBAGE])))
def test_any_combination_of_files_is_a_bundle_or_one_clear_error(files: dict[str, bytes]) -> None:
    """A bundle does not change when it is encoded and decoded."""
    try:
        bundle = decode(files)
    except CertificateError:
        return

    assert bundle is None or bundle == decode(encode(bundle))


def test_a_new_secret_has_the_tls_type_and_an_existing_one_keeps_its_other_data() -> None:
    """An administrator may have applied an empty one, because gpugate may update but not create it."""
    memory = Memory()
    store = SecretStore(memory, "gpugate", "gpugate-certs")
    store.save(BARE, store.load())
    made = memory.objects.pop(SECRET)
    data = {"tls.crt": "", "note": b64encode(b"kept").decode(), "tls.key": ""}
    for content in ({"data": None}, {}, {"data": {"tls.crt": "", "tls.key": ""}}):
        memory.put(SECRET, {"type": "Opaque", "metadata": {"labels": {"team": "ml"}}} | content)
        store.save(BARE, store.load())
    held = memory.objects[SECRET]
    memory.put(SECRET, held | {"data": held["data"] | data | {"ca.crt": held["data"]["ca.crt"]}})
    store.save(FULL, store.load())

    assert "kubernetes.io/tls" == made["type"]
    assert {"tls.crt", "tls.key"} <= set(made["data"])
    assert ("Opaque", {"team": "ml"}) == (held["type"], held["metadata"]["labels"])
    assert b"kept" == b64decode(memory.objects[SECRET]["data"]["note"])
    assert LEAF.certificate_pem == b64decode(memory.objects[SECRET]["data"]["tls.crt"])


def test_keys_in_a_directory_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """After every renewal; certificates are readable by everybody."""
    store = DirectoryStore(tmp_path)
    modes = []
    for bundle in (BARE, FULL):
        store.save(bundle, store.load())
        modes.append({name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in FILES})

    assert [{name: 0o600 if name.endswith("key") else 0o644 for name in FILES}] * 2 == modes


def test_a_directory_is_replaced_atomically_while_a_server_reads_it(tmp_path: Path) -> None:
    """Certificate and key come from one version, and no older version remains."""
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
    assert 1 == sum(path.is_dir() and not path.is_symlink() for path in tmp_path.iterdir())


def test_concurrent_readers_never_see_a_half_written_directory(tmp_path: Path) -> None:
    """A half-written bundle would raise."""
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


def test_content_that_is_not_pem_has_no_certificates() -> None:
    """Such as a line feed, the placeholder in many charts."""
    assert ((), ()) == (certificates_in(b"\n"), certificates_in(b""))
    assert PREVIOUS == certificates_in(b"# our CAs\n" + b"\n".join(PREVIOUS))
