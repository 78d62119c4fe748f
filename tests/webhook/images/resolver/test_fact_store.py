"""The fact store: rows, bounds, ages, and what survives a restart."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection
from hashlib import sha256
from typing import Any

import pytest
import yaml

from rules import load_rules
from rules.cuda.image_catalog import ImageCatalog
from webhook.images.resolver.fact_store import (
    LABELS,
    MAX_BYTES,
    MAX_IMAGES,
    MAX_TIMES_BYTES,
    NAMES,
    REREAD_S,
    UNUSED_S,
    Content,
    FactStore,
    is_valid,
    shard_of,
)
from webhook.yaml_output import dump_yaml

NOW = 1_800_000_000.0
DAY = 24 * 3600.0
APP = "registry.example.com/team/app:1"
ROW = {"cuda": "12.4", "require": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}, "platforms": ["linux/amd64"]}


def digest(name: str) -> str:
    """Return a digest."""
    return f"sha256:{sha256(name.encode()).hexdigest()}"


def put(store: FactStore, key: str, now: float = NOW, used: Collection[str] = (), **row: Any) -> bool:
    """Store an image with the facts of ROW, under a digest of its name."""
    return store.put(key, digest(key), [{**ROW, **row}], now, used)


def store(*keys: str, now: float = NOW) -> FactStore:
    """Return a store with these images."""
    facts = FactStore()
    for key in keys:
        assert put(facts, key, now)
    return facts


def rows(of: FactStore) -> list[dict[str, Any]]:
    """Return all rows that would be written."""
    written = [content.catalog for content in of.pending().values() if content.catalog]
    return [row for text in written for row in yaml.safe_load(text)["images"]]


def in_one_shard(count: int, prefix: str = "registry.example.com/x") -> list[str]:
    """Return images whose digests fall to the first ConfigMap."""
    names = (f"{prefix}:{number}" for number in itertools.count())
    return list(itertools.islice((name for name in names if shard_of(digest(name)) == NAMES[0]), count))


def reload(of: FactStore, now: float = NOW) -> FactStore:
    """Return the store of a process that starts with what was written."""
    facts = FactStore()
    for name, content in of.pending().items():
        facts.load(name, content, now)
    return facts


def test_a_row_by_tag_has_the_exact_reference_and_the_digest() -> None:
    """A reference with a digest needs only that."""
    pinned = f"registry.example.com/team/app@{digest('x')}"
    claims = store(APP)
    claims.put(pinned, digest("x"), [ROW], NOW, ())

    assert [{"image": APP, "digest": digest(APP), **ROW}] == [row for row in rows(claims) if "image" in row]
    assert [{"digest": digest("x"), **ROW}] == [row for row in rows(claims) if "image" not in row]


def test_the_gate_reads_the_rows_as_facts() -> None:
    """By tag and by digest."""
    (content,) = store(APP).pending().values()
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAMES[0], "namespace": "kube-public", "labels": LABELS},
        "data": {"rule.yaml": content.catalog},
    }
    loaded = load_rules([(NAMES[0], dump_yaml(document))])
    catalog = ImageCatalog(row for rule in loaded.rules.images for row in rule.rows)

    assert ((), ()) == (loaded.errors, loaded.warnings)
    assert ["12.4", "12.4"] == [
        str(catalog.find(image).cuda) for image in (APP, f"mirror.example.com/y@{digest(APP)}")
    ]


def test_references_with_a_digest_share_its_row() -> None:
    """Copies of an image in several registries."""
    facts = FactStore()
    for name in ("a.example.com/x", "b.example.com/x"):
        facts.put(f"{name}@{digest('x')}", digest("x"), [ROW], NOW, ())

    assert [{"digest": digest("x"), **ROW}] == rows(facts)
    assert 2 == len(reload(facts))


def test_facts_survive_a_restart_with_their_times() -> None:
    """A tag is read again a day after it was read, not after the restart."""
    reloaded = reload(store(APP), NOW + DAY / 2)

    assert (digest(APP), NOW) == (reloaded.digest(APP), reloaded.oldest)
    assert {} == reloaded.pending()
    assert [False, True] == [reloaded.must_reread(APP, NOW + after) for after in (REREAD_S - 1, REREAD_S)]


@pytest.mark.parametrize(
    "content",
    [
        Content("[", "{}"),
        Content("1", "{}"),
        Content("images: 1", "{}"),
        Content("images: [{image: x, cuda: '99'}]", '{"x": ["a", "b"]}'),
        Content("images: []", "["),
        Content("images: []", "[]"),
        Content("images: []", '{"x": 1}'),
        Content(f"images: [{{image: {APP}, cuda: '12.4', digest: '{digest(APP)}'}}]", f'{{"{APP}": [1, 2]}}'),
        Content("images: [{image: x, cuda: '12.4'}]", '{"x": ["2027-01-15T08:00:00Z", ""]}'),
    ],
)
def test_invalid_content_of_a_config_map_is_replaced(content: Content) -> None:
    """Somebody edited it; the images are read again."""
    facts = FactStore()
    facts.load(NAMES[0], content, NOW)

    assert (0, {NAMES[0]: Content()}) == (len(facts), facts.pending())


def test_only_what_changed_is_written() -> None:
    """Until it is written."""
    claims = store(APP)
    ((name, content),) = claims.pending().items()
    claims.written(name, content, NOW)
    written = claims.pending()
    claims.confirm(APP, NOW + DAY)

    assert ({}, [name]) == (written, list(claims.pending()))


def test_a_config_map_that_somebody_changed_or_deleted_is_written_again() -> None:
    """But not for its own write."""
    claims = store(APP)
    ((name, content),) = claims.pending().items()
    claims.written(name, content, NOW)
    claims.seen(name, content)
    own = claims.pending()
    claims.seen(name, Content())

    assert ({}, {name: content}) == (own, claims.pending())
    claims.written(name, content, NOW)
    claims.seen("of-somebody", Content("x"))
    assert {} == claims.pending()


def test_an_image_that_nothing_has_used_for_a_week_is_dropped() -> None:
    """And its ConfigMap no longer has rows."""
    claims = store(APP)
    claims.use((), NOW + UNUSED_S - 1)
    kept = len(claims)
    claims.use((), NOW + UNUSED_S)

    assert (1, 0, [Content()]) == (kept, len(claims), list(claims.pending().values()))


def test_the_time_of_use_is_written_once_a_day() -> None:
    """A write makes each gate read the ConfigMap."""
    claims = store(APP)
    ((name, content),) = claims.pending().items()
    claims.written(name, content, NOW)
    claims.use([APP], NOW + DAY - 1)
    early = claims.pending()
    claims.use([APP], NOW + DAY)

    assert ({}, [name]) == (early, list(claims.pending()))
    later = reload(claims, NOW + 2 * DAY)
    later.use((), NOW + DAY + UNUSED_S - 1)
    assert 1 == len(later)


def test_a_digest_is_read_once_and_a_tag_again_after_a_day() -> None:
    """What a digest names never changes."""
    pinned = f"registry.example.com/app@{digest('x')}"
    claims = store(APP)
    claims.put(pinned, digest("x"), [ROW], NOW, ())

    assert [False, True] == [claims.must_reread(key, NOW + REREAD_S) for key in (pinned, APP)]


def test_a_tag_that_moved_has_only_its_new_rows() -> None:
    """Whatever ConfigMap they fall to."""
    claims = store(APP)
    claims.put(APP, digest("new"), [ROW | {"cuda": "13.0"}], NOW, ())

    assert [("13.0", digest("new"))] == [(row["cuda"], row["digest"]) for row in rows(claims)]


def test_a_full_config_map_drops_the_image_that_is_unused_for_the_longest_time() -> None:
    """Never one that is in use: then the new image is refused."""
    first, second, *others, new, last = in_one_shard(MAX_IMAGES + 2)
    claims = store(second, now=NOW - 1)
    put(claims, first, NOW - 2)
    for key in others:
        put(claims, key)

    assert put(claims, new, used={first, new})
    assert (MAX_IMAGES, True, False) == (len(claims), first in claims, second in claims)
    assert not put(claims, last, used={first, new, *others})
    assert MAX_IMAGES == len(claims)


def test_a_config_map_is_far_below_the_limit_of_one() -> None:
    """Even if each image has as many facts as are accepted."""
    facts = FactStore()
    long = {f"NVIDIA_REQUIRE_{number}": "cuda>=12.4 " * 80 for number in range(15)}
    for key in in_one_shard(60):
        put(facts, key, require=long)
    sizes = [sum(map(len, content)) for content in facts.pending().values()]

    assert (True, True) == (len(facts) < 60, max(sizes) < 2**20)
    assert max(sizes) > MAX_BYTES / 2


def test_the_times_of_long_names_fit_into_an_annotation() -> None:
    """All annotations of an object may have 256 KiB."""
    facts = FactStore()
    for key in in_one_shard(MAX_IMAGES, f"registry.example.com/{'x' * 210}/{'y' * 20}"):
        put(facts, key)
    (content,) = facts.pending().values()

    assert MAX_TIMES_BYTES / 2 < len(content.times) < MAX_TIMES_BYTES


def test_too_many_facts_and_invalid_ones_are_refused() -> None:
    """An image cannot make the ConfigMap of others invalid."""
    long = {f"NVIDIA_REQUIRE_{number}": "cuda>=12.4 " * 80 for number in range(30)}
    for wrong in (long, {"NVIDIA_REQUIRE_CUDA": "cuda=>12"}, {"PATH": "x"}):
        with pytest.raises(ValueError, match="its facts"):
            put(FactStore(), APP, require=wrong)

    assert is_valid(dump_yaml({"images": [{"image": APP, **ROW}]}))


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    """A time in the future counts as now."""
    reloaded = reload(store(APP, now=NOW + 365 * DAY))

    assert reloaded.must_reread(APP, NOW + REREAD_S)


def test_images_that_a_catalogue_of_the_cluster_knows_are_dropped() -> None:
    """Their rows would take precedence over its own."""
    claims = store(APP, "registry.example.com/other:1")
    claims.keep(lambda key: key != APP)

    assert [False, True] == [key in claims for key in (APP, "registry.example.com/other:1")]


def test_the_times_are_readable() -> None:
    """Of reading, and of use."""
    (content,) = store(APP).pending().values()

    moment = "2027-01-15T08:00:00Z"
    assert {APP: [moment, moment]} == json.loads(content.times)
