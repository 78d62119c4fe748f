"""Releases of facts: the ConfigMap that has a bundle, and the rule that it makes."""

from __future__ import annotations

import zlib
from base64 import b64decode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from rules.cuda.fact_bundle import (
    MAX_BYTES,
    FactBundle,
    FactBundleError,
    read_all,
    read_bundle,
    write_bundle,
)
from rules.cuda.tables import Facts, built_in_tables
from rules.model.rule import FactRelease
from rules.schema.builder import RuleBuilder
from rules.schema.errors import Code, missing_key, unknown_key
from rules.text.i18n import Joined, Message, Text
from rules.text.paths import Path, object_at
from rules.text.yaml_document import Location

# The value of the label `gpugate.dev/type`.
FACTS_TYPE: Final = "Facts"
# The keys of a bundle in `data`, and compressed in `binaryData`: `kubectl apply` stores a copy of the whole
# ConfigMap in an annotation, for which a bundle is too large.
KEY: Final = "facts.json"
PACKED_KEY: Final = "facts.json.gz"
_GZIP: Final = zlib.MAX_WBITS | 16


def build_release(builder: RuleBuilder, config_map: Mapping[str, Any]) -> FactRelease | None:
    """Return the release of a ConfigMap; None, with errors added to builder, if it is invalid."""
    packed, plain = (object_at(config_map, field) for field in ("binaryData", "data"))
    for field, members, known in (("binaryData", packed, PACKED_KEY), ("data", plain, KEY)):
        for key in members.keys() - {known}:
            path: Path = (*builder.path, field, key)
            builder.add_error(path, unknown_key(str(key), [known]), key=True, code=Code.UNKNOWN_KEY)
    path = (*builder.path, *(("binaryData", PACKED_KEY) if PACKED_KEY in packed else ("data", KEY)))
    try:
        data = _bundle(packed, plain)
        if data is None:
            builder.add_error(path[:-1], missing_key(KEY), key=True, code=Code.MISSING_KEY)
            return None
        bundle = read_bundle(data, _built_in())
        return replace(read_release(bundle, builder.name, builder.location), enabled=builder.enabled)
    except FactBundleError as error:
        builder.add_error(path, Joined(": ", [error.place, error.text]) if error.place else error.text)
        return None


def read_release(bundle: FactBundle, name: str, location: Location) -> FactRelease:
    """Return the release of a bundle, enabled. Raises FactBundleError if a value is wrong."""
    digest = sha256(write_bundle(bundle).encode("utf-8", "surrogatepass")).hexdigest()
    tables = {**bundle.tables, "lock": {**bundle.tables["lock"], "date": bundle.date}}
    facts = Facts(tables.__getitem__)
    read_all(facts)
    return FactRelease(name, Text(""), True, location, digest, facts)


def _bundle(packed: Mapping[Any, Any], plain: Mapping[Any, Any]) -> bytes | None:
    """Return the bundle, at most MAX_BYTES + 1 of it; None if there is none. Raises FactBundleError."""
    if PACKED_KEY not in packed:
        text = plain.get(KEY)
        return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else None
    try:
        data = b64decode(packed[PACKED_KEY], validate=True)
        return zlib.decompressobj(_GZIP).decompress(data, MAX_BYTES + 1)
    except (TypeError, ValueError, zlib.error) as error:
        raise FactBundleError("", Message("not gzip in base64: {why}", why=str(error))) from None


_built_in: Final = cache(built_in_tables)
