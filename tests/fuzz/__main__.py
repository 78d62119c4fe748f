"""Coverage-guided fuzzing of one target: `python -m tests.fuzz TARGET [option of libFuzzer]…`.

Its seeds are written, and what it finds is kept, under `.fuzz/TARGET`. An input that breaks the target's
promise ends the run with a traceback and stays there as `crash-…`; after a fix it belongs into
`tests/fuzz/corpus/TARGET`, which `tests/project/test_fuzz.py` replays.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from pathlib import Path

import atheris

from tests.fuzz.mutator import mutated
from tests.fuzz.targets import TARGETS, kept

_OURS = ("rules", "webhook")
# Bytes, seconds, MiB. A usual review has 6 KB; one that takes a second is a find.
_LIMITS = ("-max_len=16384", "-timeout=5", "-rss_limit_mb=2048")
# How often libFuzzer's own mutations have their turn, which know bytes and nothing of texts.
_BY_BYTES = 0.3


def main() -> None:
    """Fuzz the target that the command line names until libFuzzer's limits of time or runs are met."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzz {{{'|'.join(TARGETS)}}} [-max_total_time=SECONDS]…")
    name, *options = sys.argv[1:]
    directory = Path(".fuzz") / name
    directory.mkdir(parents=True, exist_ok=True)
    if name == "cost":  # coverage says nothing about time, and to record it takes some
        importlib.import_module("tests.fuzz.cost").search(_seconds(options), directory)
        return
    with atheris.instrument_imports(include=[*_OURS], enable_loader_override=False):
        target = importlib.import_module(f"tests.fuzz.{name}")
    seeds = [*target.seeds(), *kept(name)]
    for number, seed in enumerate(seeds):
        (directory / f"seed-{number:03}").write_bytes(seed)
    words = list(target.words())

    def mutate(data: bytes, limit: int, seed: int) -> bytes:
        chance = random.Random(seed)  # noqa: S311 - no secret
        if chance.random() < _BY_BYTES:
            return bytes(atheris.Mutate(data, limit))
        return mutated(data, words, chance)[:limit]

    arguments = [sys.argv[0], *_LIMITS, f"-artifact_prefix={directory}/", *options, str(directory)]
    atheris.Setup(arguments, target.check, custom_mutator=mutate)
    atheris.Fuzz()


def _seconds(options: list[str]) -> float:
    """Return how long to search; for ever if no option says it."""
    limits = (option.partition("=")[2] for option in options if option.startswith("-max_total_time="))
    return next(map(float, limits), math.inf)


if __name__ == "__main__":
    main()
