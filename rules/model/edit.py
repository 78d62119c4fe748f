"""An edit: the one value of an object to change, so that a finding is resolved."""

from __future__ import annotations

from typing import NamedTuple

from rules.text.paths import Path


class Edit(NamedTuple):
    """A change of one scalar of an object.

    path: of the scalar. old: what is replaced: the scalar, or a part of a command line in it; empty: the
    scalar is absent and is added to an object. new: what replaces it.
    """

    path: Path
    old: str
    new: str
