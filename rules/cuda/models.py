"""Facts about models by their names on Hugging Face, facts/models.yaml: size, precision and attention heads.

A name does not say what a file contains: only a name with the organisation of the table is certain. Of a
model that is not in the table, a name such as `org/my-70B-AWQ` says the size, which is never certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, NamedTuple

from msgspec import Struct

from rules.cuda.tables import BUILT_IN, Facts, Status, derived, pattern

_BYTES_PER_GIB: Final = 2**30
# The bits of a parameter by the quantization of a row; `mixed` has no single number.
_BITS: Final = {"": 16, "fp8": 8, "nvfp4": 4, "mxfp4": 4}
_MIXED: Final = "mixed"
_MLA: Final = "mla"
_NONE: Final = "none"
_OPEN: Final = "*"
_SMALLEST: Final = 2  # billions of parameters by a name; fewer fit every GPU
_LONGEST: Final = 200  # characters; Hugging Face allows 96 for a name, and as many for its organisation
_PLAIN: Final = re.compile(r"(?:[\w.-]+/)?[\w.-]+", re.ASCII)  # no path, tag or variable
# The name of a model ends before such a character; `.5` continues a version.
_END: Final = re.compile(r"(?=[-_:@]|\.(?!\d)|$)")
_SIZE: Final = re.compile(r"(?<![a-z0-9.])\d+(?:\.\d+)?b(?![a-z0-9])")  # another model: `7b`


class ModelFacts(Struct, frozen=True):
    """The facts about a model by its name.

    Attributes:
        name: of the row of the table; empty: there is none, the name of the model says its size.
        parameters: billions.
        weights: bytes of all ranks together, at least, in the precision that the name says; None: unknown.
        quantization: of the weights; empty for none.
        dtype: in its config.json; None if it has none.
        float16: whether servers load it in float16.
        heads: attention heads; None: unknown, or it has none.
        kv_heads: key-value heads; None: unknown, or it has none.
        latent: multi-head latent attention, which has no key-value heads.
        expert_width: moe_intermediate_size; None: unknown, or it has no experts.
        source: of the row.
        status: of all facts.
        weights_status: of parameters and weights, at most `status`; dtype_status and heads_status likewise.
    """

    name: str
    parameters: float
    weights: int | None
    quantization: str
    dtype: str | None
    float16: bool
    heads: int | None
    kv_heads: int | None
    latent: bool
    expert_width: int | None
    source: str
    status: Status
    weights_status: Status
    dtype_status: Status
    heads_status: Status


class _Row(NamedTuple):
    """A row of the table for one of its names."""

    name: str
    open: bool  # its facts are valid for longer names
    values: dict[str, Any]


class _Size(NamedTuple):
    """A part of a name that says the number of parameters."""

    pattern: re.Pattern[str]
    parameters: float | None  # None: its group
    unless: re.Pattern[str] | None
    source: str


class _Suffix(NamedTuple):
    """A part of a name after the name of the model."""

    pattern: re.Pattern[str]
    quantization: str | None  # None: the file does not contain the weights of the model
    bits: int  # of a parameter, at least
    status: Status


def model_facts(name: str, facts: Facts = BUILT_IN) -> ModelFacts | None:
    """Return the facts about a model such as `meta-llama/Llama-3.1-8B-Instruct`; None if it is unknown.

    Letter case does not matter. Without its organisation, or with another one, all facts are uncertain.
    """
    text = name.strip().lower()
    if len(text) > _LONGEST or text.count("/") > 1:
        return None
    stored_smaller = False
    for index, key in ((_full_names(facts), text), (_short_names(facts), text.rpartition("/")[2])):
        for row, rest in _candidates(index, key):
            stored_smaller |= "quantization" in row.values
            suffix = _suffix(facts, rest)
            if row.open or not rest or (suffix and suffix.pattern.sub("", rest).strip("-_.") == ""):
                if _SIZE.search(rest) or (suffix and suffix.quantization is None):
                    return None
                return _facts(row, suffix, certain=index is _full_names(facts))
    return None if stored_smaller or not _PLAIN.fullmatch(text) else _facts_by_size(facts, text)


@derived
def _full_names(facts: Facts) -> dict[str, _Row]:
    """Return the rows by name with organisation, in lower case without `*`."""
    return {
        name.rstrip(_OPEN).lower(): _Row(name, name.endswith(_OPEN), row)
        for row in facts.table("models")["models"]
        for name in row["models"]
    }


@derived
def _short_names(facts: Facts) -> dict[str, _Row]:
    """Return the rows by name without organisation."""
    return {name.rpartition("/")[2]: row for name, row in _full_names(facts).items()}


def _part(regex: str) -> re.Pattern[str]:
    return pattern(rf"(?<![a-z0-9.])(?<!\d_)(?:{regex})(?![a-z0-9])")  # `1_6b` is not `6b`


@derived
def _sizes(facts: Facts) -> tuple[_Size, ...]:
    return tuple(
        _Size(
            _part(row["parts"]),
            row.get("parameters"),
            _part(row["unless"]) if "unless" in row else None,
            row["source"],
        )
        for row in facts.table("models")["sizes"]
    )


@derived
def _shares(facts: Facts) -> tuple[tuple[re.Pattern[str] | None, Fraction], ...]:
    """Return the share of a number in a name that the weights have at least, by a part of the name."""
    return tuple(
        (_part(row["parts"]) if "parts" in row else None, Fraction(str(row["share"])))
        for row in facts.table("models")["least"]
    )


@derived
def _suffixes(facts: Facts) -> tuple[_Suffix, ...]:
    return tuple(
        _Suffix(
            pattern(rf"(?<![a-z0-9])(?:{row['parts']})(?![a-z0-9])"),
            row.get("quantization"),
            row.get("bits", 0),
            Status(row["status"]),
        )
        for row in facts.table("models")["suffixes"]
    )


def _candidates(index: dict[str, _Row], name: str) -> Iterator[tuple[_Row, str]]:
    """Yield the rows whose name a name begins with, the longest first, with the rest of the name."""
    for end in reversed([match.start() for match in _END.finditer(name)]):
        if row := index.get(name[:end]):
            yield row, name[end:]


def _suffix(facts: Facts, rest: str) -> _Suffix | None:
    return next((suffix for suffix in _suffixes(facts) if suffix.pattern.search(rest)), None)


def _facts_by_size(facts: Facts, name: str) -> ModelFacts | None:
    """Return the size of a model that only its name says; None if it says none, or two."""
    short = name.rpartition("/")[2]
    suffix = _suffix(facts, short)
    matches = [(size, number) for size in _sizes(facts) for number in size.pattern.findall(short)]
    if len(matches) != 1 or (suffix and suffix.quantization is None):
        return None
    size, number = matches[0]
    parameters = size.parameters or float(number)
    if parameters < _SMALLEST or (size.unless and size.unless.search(short)):
        return None
    share = next(share for part, share in _shares(facts) if part is None or part.search(short))
    bits = suffix.bits if suffix else _BITS[""]
    return ModelFacts(
        name="",
        parameters=parameters,
        weights=int(Fraction(str(parameters)) * share * bits * 10**9 / 8),
        quantization="" if suffix is None or suffix.quantization == _NONE else str(suffix.quantization),
        dtype=None,
        float16=True,
        heads=None,
        kv_heads=None,
        latent=False,
        expert_width=None,
        source=size.source,
        status=Status.UNVERIFIED,
        weights_status=Status.UNVERIFIED,
        dtype_status=Status.UNVERIFIED,
        heads_status=Status.UNVERIFIED,
    )


def _facts(row: _Row, suffix: _Suffix | None, *, certain: bool) -> ModelFacts:
    values = row.values
    status = Status(values["status"]) if certain else Status.UNVERIFIED
    quantization = values.get("quantization", "")
    weights: int | None = int(Fraction(str(values["weights"])) * _BYTES_PER_GIB)
    if suffix:
        bits = _BITS.get(quantization)
        weights = weights * suffix.bits // bits if weights and bits else None
        quantization = "" if suffix.quantization == _NONE else str(suffix.quantization)
    dtype, kv_heads = values["dtype"], values.get("kv_heads")
    return ModelFacts(
        name=row.name,
        parameters=values["parameters"],
        weights=weights,
        quantization=quantization,
        dtype=None if dtype == _NONE else dtype,
        float16=values.get("float16", True),
        heads=values.get("heads"),
        kv_heads=None if kv_heads == _MLA else kv_heads,
        latent=kv_heads == _MLA,
        expert_width=values.get("expert_width"),
        source=values["source"],
        status=status,
        weights_status=_least(status, values.get("parameters_status"), suffix and suffix.status),
        dtype_status=_least(status, values.get("dtype_status")),
        heads_status=_least(status, values.get("heads_status")),
    )


def _least(status: Status, *others: str | None) -> Status:
    """Return the least certain status; None counts as the first."""
    return max([status, *(Status(other) for other in others if other)], key=list(Status).index)
