"""Refresh of generated tables: which documents are read, and what the tables and the lock file become."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct

from rules.text.i18n import Message
from webhook.cli.facts.extractors.base import EXTRACT_ERRORS, Document, Extractor, Get, Row
from webhook.cli.facts.folder import LockedDocument


class ExtractError(Exception):
    """A source has no documents, other content than the lock file says, or another form than expected."""

    def __init__(self, text: Message) -> None:
        super().__init__(text.en)
        self.text = text


class GeneratedTable(Struct, frozen=True):
    """The rows of a generated table and the documents that they are from. unknown: GPUs that give no row."""

    rows: Sequence[Row]
    documents: Sequence[LockedDocument]
    unknown: Sequence[str] = ()


def updated(extractor: Extractor, old: GeneratedTable, get: Get, today: str) -> GeneratedTable:
    """Return a table as its source has it now. today: YYYY-MM-DD.

    A document whose address never has other content is read once: its rows stay. Raises ExtractError, and
    what `get` raises.
    """
    known = {document.url: document for document in old.documents}
    rows: list[Row] = []
    documents: list[LockedDocument] = []
    unknown: list[str] = []
    for document in _found(extractor, get):
        locked = known.get(document.url)
        if locked and document.fixed and document.sha256 in ("", locked.sha256):
            documents.append(locked)
            rows += [row for row in old.rows if row["document"] == document.name]
            continue
        data = get(document.url)
        digest = _verified(document.url, data, document.sha256)
        same = locked is not None and locked.sha256 == digest
        retrieved = locked.retrieved if locked and same else today
        documents.append(LockedDocument(extractor.table, document.name, document.url, retrieved, digest))
        rows += _extracted(extractor, document.name, document.url, data)
        unknown += extractor.unknown(data)
    return GeneratedTable(rows, documents, unknown)


def replayed(extractor: Extractor, old: GeneratedTable, get: Get) -> GeneratedTable:
    """Return a table as its locked documents have it. Raises ExtractError, and what `get` raises."""
    rows: list[Row] = []
    for locked in old.documents:
        data = get(locked.url)
        _verified(locked.url, data, locked.sha256)
        rows += _extracted(extractor, locked.document, locked.url, data)
    return GeneratedTable(rows, old.documents)


def _found(extractor: Extractor, get: Get) -> list[Document]:
    try:
        documents = extractor.find(get)
    except EXTRACT_ERRORS as error:
        raise _other_form(extractor.table, error) from None
    if not documents:
        raise ExtractError(Message("{place}: the source has no documents", place=extractor.table))
    return documents


def _extracted(extractor: Extractor, name: str, url: str, data: bytes) -> list[Row]:
    try:
        rows = extractor.rows(name, data)
    except EXTRACT_ERRORS as error:
        raise _other_form(url, error) from None
    origin = {"document": name, "source": extractor.source, "status": extractor.status}
    return [row | origin for row in rows]


def _verified(url: str, data: bytes, expected: str) -> str:
    """Return the digest of a document. Raises ExtractError if another one is expected."""
    digest = sha256(data).hexdigest()
    if expected and digest != expected:
        raise ExtractError(
            Message(
                "{url}: other content than expected: sha256 {digest}, not {expected}",
                url=url,
                digest=digest,
                expected=expected,
            )
        )
    return digest


def _other_form(place: str, error: Exception) -> ExtractError:
    why = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return ExtractError(Message("{place}: not in the expected form: {why}", place=place, why=why))
