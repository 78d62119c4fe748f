"""The targets by name: modules of `seeds()`, `words()` and `check(data)`.

`words()` are texts that mutations insert; `check` raises if a promise is broken.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGETS: Final = (
    "review",
    "rule_text",
    "expression",
    "quantity",
    "image",
    "require",
    "selector",
    "flags",
    "cost",
    "connection",
)
TESTS: Final = Path(__file__).parent.parent
CORPUS: Final = Path(__file__).parent / "corpus"


def kept(name: str) -> Iterator[bytes]:
    """Yield inputs that caused failures, and (named by hash) inputs with more coverage than the seeds."""
    for path in sorted((CORPUS / name).glob("*")):
        yield path.read_bytes()
