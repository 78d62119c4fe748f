"""Facts that a user names: a bundle, a folder of tables, or the built-in ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rules.cuda.fact_bundle import FactBundle, FactBundleError, checked_bundle, read_bundle
from rules.cuda.tables import RELEASED, built_in_tables
from rules.model.rule import FactRelease
from rules.schema.fact_release import read_release
from rules.text.i18n import Message, located
from rules.text.yaml_document import Location, SourceError, read
from webhook.cli.inputs.files import read_path
from webhook.cli.terminal.console import BadInputError

BUILT_IN: Final = "builtin"
LOCK: Final = "lock"
_NO_TABLES: Final = Message("{folder}: no tables in this folder; expected files such as drivers.yaml")


def read_facts(name: str) -> FactBundle:
    """Return the facts of a bundle or a folder, or the built-in ones for `builtin`. Raises BadInputError."""
    built_in = built_in_tables()
    if name == BUILT_IN:
        return FactBundle(built_in[LOCK]["date"], built_in)
    if name and (folder := Path(name)).is_dir():
        tables = read_folder(folder)
        with _errors_in(name):
            return checked_bundle(tables.get(LOCK, built_in[LOCK])["date"], tables, built_in)
    data = "".join(text for _, text in read_path(name))
    with _errors_in(name):
        return read_bundle(data.encode(), built_in)


def release_of(bundle: FactBundle, name: str) -> FactRelease:
    """Return the release of the facts that `read_facts` returns for a name. Raises BadInputError."""
    with _errors_in(name):
        return read_release(bundle, name, Location(name))


def read_folder(folder: Path) -> dict[str, Any]:
    """Return the tables of a release of facts that a folder has, unchecked. Raises BadInputError."""
    tables = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.stem not in RELEASED:
            continue
        (document,) = read(path.read_text("utf-8"), str(path))
        if isinstance(document, SourceError):
            raise BadInputError(document.text)
        tables[path.stem] = document.value
    if not tables:
        raise BadInputError(_NO_TABLES.having(folder=folder))
    return tables


@contextmanager
def _errors_in(name: str) -> Iterator[None]:
    try:
        yield
    except FactBundleError as error:
        place = f"{name}: {error.place}" if error.place else name
        raise BadInputError(located(place, error.text)) from None
