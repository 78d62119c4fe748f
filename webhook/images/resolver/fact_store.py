"""Fact store: facts about images, as ImageCatalog rows in a few ConfigMaps.

A hash of an image's digest selects its ConfigMap, which also has the times when the image was read and last
used. The store is bounded: an image that is unused for a week is dropped; if a ConfigMap is full, the image
that is unused for the longest time is dropped earlier. Times are seconds since the epoch.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import yaml

from rules import load_rules
from rules.schema.config_map import DOCUMENT_KEY, ENABLED_LABEL, TYPE_LABEL
from webhook.cluster.rule_snapshot import IMAGE_RESOLVER, MANAGED_LABEL
from webhook.images.inspection import Row
from webhook.yaml_output import dump_yaml

# ConfigMaps, and in each: images, and bytes of their rows. A ConfigMap may have 1 MiB, an object in etcd 1.5.
SHARDS: Final = 8
MAX_IMAGES: Final = 500
MAX_BYTES: Final = 512 * 1024
# Bytes of the times, in an annotation: all annotations of an object may have 256 KiB.
MAX_TIMES_BYTES: Final = 200 * 1024
# Bytes of the rows of one image. NVIDIA's longest requirement has 1.3 KB; eight platforms with that fit.
MAX_ROW_BYTES: Final = 16 * 1024
# Seconds: after which a tag is read again, because it can be moved; after which an unused image is dropped;
# and by which the written time of use may be too early.
REREAD_S: Final = 24 * 3600.0
UNUSED_S: Final = 7 * 24 * 3600.0
_STALE_TIMES_S: Final = 24 * 3600.0

NAMES: Final = tuple(f"gpugate-images-{shard}" for shard in range(SHARDS))
CATALOG_TYPE: Final = "ImageCatalog"
LABELS: Final = {TYPE_LABEL: CATALOG_TYPE, ENABLED_LABEL: "true", MANAGED_LABEL: IMAGE_RESOLVER}
# A JSON object: the times when each image was read and last used. The gate does not read annotations.
TIMES_ANNOTATION: Final = "gpugate.dev/image-times"
# Characters of the times of an image, without its name.
_TIMES_LENGTH: Final = 60


# The one in C reads 4,000 rows in a second, the other in ten.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Content(NamedTuple):
    """The content of a ConfigMap; both texts are empty without images."""

    catalog: str = ""  # an ImageCatalog
    times: str = ""  # JSON: the times of its images


class _Entry:
    """Facts about an image. shard: its ConfigMap, the same for equal digests. size: of the rows."""

    __slots__ = ("digest", "read_at", "rows", "shard", "size", "used_at")

    def __init__(self, digest: str, rows: tuple[Row, ...], read_at: float, used_at: float) -> None:
        self.digest, self.rows, self.read_at, self.used_at = digest, rows, read_at, used_at
        self.shard = shard_of(digest)
        self.size = len(json.dumps(rows))


class FactStore:
    """The facts about images, by their keys (`image_key`)."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._shards: dict[str, dict[str, _Entry]] = {name: {} for name in NAMES}
        self._changed: set[str] = set()
        self._written: dict[str, Content] = {}
        self._written_at: dict[str, float] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest(self) -> float | None:
        """The time when the oldest facts were read."""
        return min((entry.read_at for entry in self._entries.values()), default=None)

    def digest(self, key: str) -> str | None:
        """Return the digest of an image when it was read; None if it is not known."""
        entry = self._entries.get(key)
        return entry.digest if entry else None

    def load(self, name: str, content: Content, now: float) -> None:
        """Load the content that an earlier process wrote to a ConfigMap; invalid content is dropped."""
        if name not in NAMES:
            return
        self._written[name], self._written_at[name] = content, now
        try:
            rows = yaml.load(content.catalog or "{}", _Loader).get("images", [])  # noqa: S506 - a safe loader
            named: defaultdict[str, list[Row]] = defaultdict(list)
            for row in rows if is_valid(content.catalog) else ():
                named[row.get("image") or row["digest"]].append(row)
            for key, (read_at, used_at) in json.loads(content.times or "{}").items():
                own = tuple(named[_name(key) or key.rpartition("@")[2]])
                if own:
                    entry = _Entry(own[0]["digest"], own, _seconds(read_at, now), _seconds(used_at, now))
                    self._load(name, key, entry)
        except (ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError):
            self._changed.add(name)  # somebody edited it
        if self._render(name) != content:
            self._changed.add(name)

    def put(self, key: str, digest: str, rows: Iterable[Row], now: float, used: Collection[str]) -> bool:
        """Store the facts about an image in place of earlier ones; return whether there was room.

        Raises ValueError if the rows are no valid rule, or too large.
        """
        image = {"image": _name(key)} if _name(key) else {}
        named = tuple({**image, "digest": digest, **row} for row in rows)
        entry = _Entry(digest, named, now, now)
        if entry.size > MAX_ROW_BYTES:
            raise ValueError(f"its facts have more than {MAX_ROW_BYTES // 1024} KiB")
        if not is_valid(_catalog(named)):
            raise ValueError("its facts are not a valid ImageCatalog")
        self._drop(key)
        if not self._make_room(key, entry, used):
            return False
        self._add(key, entry)
        self._changed.add(entry.shard)
        return True

    def keep(self, used: Callable[[str], bool]) -> None:
        """Drop the images that are not in use."""
        for key in [key for key in self._entries if not used(key)]:
            self._drop(key)

    def confirm(self, key: str, now: float) -> None:
        """Note that a tag still has the digest that it had."""
        if entry := self._entries.get(key):
            entry.read_at = now
            self._changed.add(entry.shard)

    def must_reread(self, key: str, now: float) -> bool:
        """Return whether the facts of an image are absent, or are of a tag and a day old."""
        entry = self._entries.get(key)
        return entry is None or (bool(_name(key)) and now - entry.read_at >= REREAD_S)

    def use(self, used: Collection[str], now: float) -> None:
        """Note which images are in use, and drop images that are unused for a week."""
        for key in used:
            if entry := self._entries.get(key):
                entry.used_at = now
                if now - self._written_at.get(entry.shard, now) >= _STALE_TIMES_S:
                    self._changed.add(entry.shard)
        for key in [key for key, entry in self._entries.items() if now - entry.used_at >= UNUSED_S]:
            self._drop(key)

    def seen(self, name: str, content: Content) -> None:
        """Note the content of a ConfigMap; it is written again if somebody else changed or deleted it."""
        if name in NAMES and content != self._written.get(name, Content()):
            self._changed.add(name)

    def pending(self) -> Mapping[str, Content]:
        """Return the content of each ConfigMap that must be written."""
        return {name: self._render(name) for name in sorted(self._changed)}

    def written(self, name: str, content: Content, now: float) -> None:
        """Note that a ConfigMap was written."""
        self._written[name], self._written_at[name] = content, now
        self._changed.discard(name)

    def _load(self, name: str, key: str, entry: _Entry) -> None:
        if entry.shard == name and self._fits(key, entry):
            self._add(key, entry)

    def _add(self, key: str, entry: _Entry) -> None:
        self._entries[key] = self._shards[entry.shard][key] = entry

    def _drop(self, key: str) -> None:
        if entry := self._entries.pop(key, None):
            del self._shards[entry.shard][key]
            self._changed.add(entry.shard)

    def _fits(self, key: str, entry: _Entry) -> bool:
        others = self._shards[entry.shard]
        return (
            len(others) < MAX_IMAGES
            and sum(other.size for other in others.values()) + entry.size <= MAX_BYTES
            and sum(len(image) + _TIMES_LENGTH for image in (*others, key)) <= MAX_TIMES_BYTES
        )

    def _make_room(self, key: str, entry: _Entry, used: Collection[str]) -> bool:
        """Drop images that are unused for the longest time until an entry fits; return whether it does."""
        unused = [key for key in self._shards[entry.shard] if key not in used]
        unused.sort(key=lambda key: self._entries[key].used_at, reverse=True)
        while not self._fits(key, entry):
            if not unused:
                return False
            self._drop(unused.pop())
        return True

    def _render(self, name: str) -> Content:
        entries = sorted(self._shards[name].items())
        if not entries:
            return Content()
        # Rows of references with a digest name no image: several of them may share a row.
        rows = {json.dumps(row, sort_keys=True): row for _, entry in entries for row in entry.rows}
        times = {key: [_text(entry.read_at), _text(entry.used_at)] for key, entry in entries}
        return Content(_catalog(rows.values()), json.dumps(times))


def shard_of(digest: str) -> str:
    """Return the name of the ConfigMap for a digest."""
    return NAMES[zlib.crc32(digest.encode()) % SHARDS]


def is_valid(catalog: str) -> bool:
    """Return whether the gate accepts an ImageCatalog, read as it reads it."""
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAMES[0], "namespace": "x", "labels": LABELS},
        "data": {DOCUMENT_KEY: catalog},
    }
    return not load_rules([(NAMES[0], json.dumps(document))], "x").errors  # JSON is YAML


def _catalog(rows: Iterable[Row]) -> str:
    return dump_yaml({"images": list(rows)})


def _name(key: str) -> str:
    """Return the value of `image` in the rows of an image; empty for a reference with a digest."""
    return "" if "@" in key else key


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: str, now: float) -> float:
    """Return a time that was written; never later than now, so that a wrong clock delays nothing."""
    return min(datetime.fromisoformat(text).timestamp(), now)
