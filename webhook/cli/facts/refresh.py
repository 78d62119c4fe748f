"""Files of a folder of facts after their refresh; nothing is written here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from rules.text.i18n import Message
from webhook.cli.facts.extractors import EXTRACTORS
from webhook.cli.facts.fetch import fetcher
from webhook.cli.facts.folder import LockedDocument, lock_text, locked_documents, table_text
from webhook.cli.facts.update import ExtractError, GeneratedTable, replayed, updated
from webhook.cli.inputs.facts import LOCK
from webhook.images.errors import ImageError

if TYPE_CHECKING:
    from webhook.images.registry import ClientSettings


class Refreshed(Struct, frozen=True):
    """What a refresh leads to.

    tables: generated ones, by name. files: their texts, and that of the lock file. errors: of sources that
    could not be read, and names that give no row.
    """

    tables: dict[str, Any] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)
    errors: list[Message] = field(default_factory=list)


def refresh(
    folder: Path, old: Mapping[str, Any], names: Collection[str], settings: ClientSettings, today: str | None
) -> Refreshed:
    """Return the refreshed tables of some names. today: None reads only the documents of the lock file."""
    result = Refreshed()
    locked: dict[str, list[LockedDocument]] = {}
    for document in locked_documents(old):
        locked.setdefault(document.table, []).append(document)
    with fetcher(settings) as get:
        for extractor in EXTRACTORS:
            table = GeneratedTable(old.get(extractor.table, ()), locked.get(extractor.table, ()))
            if extractor.table not in names or (today is None and not table.documents):
                continue
            try:
                new = updated(extractor, table, get, today) if today else replayed(extractor, table, get)
            except (ExtractError, ImageError) as error:
                result.errors.append(error.text)
                continue
            text = Message("{table}: unknown GPU {name}; add it to cloud_gpus.yaml", table=extractor.table)
            result.errors.extend(text.having(name=name) for name in new.unknown)
            locked[extractor.table] = [*new.documents]
            result.tables[extractor.table] = list(new.rows)
            result.files[folder / f"{extractor.table}.yaml"] = table_text(extractor, new.rows)
    changed = any(old.get(name, []) != table for name, table in result.tables.items())
    date = today if today and changed else old.get(LOCK, {}).get("date", today or "")
    documents = [document for name in sorted(locked) for document in locked[name]]
    result.files[folder / f"{LOCK}.yaml"] = lock_text(date, documents)
    return result
