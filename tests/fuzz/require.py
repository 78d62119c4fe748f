"""Text to a constraint of NVIDIA_REQUIRE_CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rules.cuda.nvidia_require import Host, parse_constraint

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLE = "NVIDIA_REQUIRE_CUDA"
_HOSTS = (
    Host(),
    Host(cuda=(12, 4)),
    Host((11, 0), "450.80.02", (7, 0), ("tesla",)),
    Host((13, 1), "590.1", (12, 0), ("tesla", "nvidia")),
)


def seeds() -> Iterator[bytes]:
    """Yield expressions of NVIDIA's images."""
    yield b"cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=525,driver<526"
    yield b"cuda>=9.0"
    yield b"arch>=8.0,cuda!12.1 driver!=535.104.05,brand!=GeForce cuda<=11.8,cuda>11"


def words() -> Iterator[str]:
    """Yield the words of the language."""
    yield from (
        "cuda",
        "driver",
        "arch",
        "brand",
        "CUDA",
        "=",
        "!=",
        "!",
        "<",
        "<=",
        ">",
        ">=",
        "=<",
        ",",
        " ",
    )
    yield from (".", "12.4", "0", "00", "999999999", "535.104.05", "tesla", "\u0661")


def check(data: bytes) -> None:
    """Check that a valid constraint parses again from its factors, and an invalid one requires nothing."""
    constraint = parse_constraint(_VARIABLE, data.decode("utf-8", "replace"))
    answers = [constraint.holds(host) for host in _HOSTS]
    if constraint.problem is not None:
        assert (constraint.groups, constraint.minimum, constraint.native) == ((), None, None)
        assert answers == [True] * len(_HOSTS)
        assert constraint.problem.en
        return
    plain = " ".join(
        ",".join(f"{factor.name}{factor.operator}{factor.text}" for factor in group)
        for group in constraint.groups
    )
    again = parse_constraint(_VARIABLE, plain)
    if len(plain) > len(constraint.text) and again.problem:  # `!=` for `!`: it has grown too long
        return
    assert (again.groups, again.minimum, again.native) == (
        constraint.groups,
        constraint.minimum,
        constraint.native,
    )
    for host, answer in zip(_HOSTS, answers, strict=True):
        below = constraint.minimum and host.cuda and host.cuda < constraint.minimum
        assert not (below and answer)
