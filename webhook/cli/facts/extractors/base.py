"""Extractor: what one source publishes, as rows of a generated table. No network, no clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

Row = dict[str, Any]
# Returns the content of an address.
Get = Callable[[str], bytes]


class Document(Struct, frozen=True):
    """A document that contains facts.

    name: its rows have it as `document`. fixed: this address never has other content. sha256: as the source
    says, or empty.
    """

    name: str
    url: str
    fixed: bool = False
    sha256: str = ""


# Returns the documents of a source.
Finder = Callable[[Get], list[Document]]
# Returns the rows of a document, from its name and content.
Rows = Callable[[str, bytes], list[Row]]


class Extractor(Struct, frozen=True):
    """The functions of a source, and the table that they fill.

    table: its name, one of `rules.cuda.tables.GENERATED`. source: key of sources.yaml. status: of the rows.
    about: the comment of the table. rows: in the order of the table. unknown: names of GPUs in a document
    that give no row, since no table by hand has them. All raise one of EXTRACT_ERRORS if the source has
    another form than the module describes.
    """

    table: str
    source: str
    status: str
    about: str
    find: Finder
    rows: Rows
    unknown: Callable[[bytes], list[str]] = lambda _: []


# What reading a document of an unexpected form raises; ValueError is the base of JSON's and Unicode's errors.
EXTRACT_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
