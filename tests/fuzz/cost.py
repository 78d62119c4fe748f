"""The CPU time of the largest objects: a shape, to a decision that takes half a second at most.

`python -m tests.fuzz cost -max_total_time=SECONDS` searches for the shape that takes the longest. Coverage
says nothing about that, so the feedback is CPU time: each climb starts with a few numbers and changes some of
them as long as the object takes longer. What it finds is shrunk to the numbers that matter, printed, and kept
in `.fuzz/cost`; after a fix it belongs into `tests/fuzz/corpus/cost`.
"""

from __future__ import annotations

import gc
import json
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, process_time
from typing import Final, NamedTuple, NoReturn

import msgspec

from rules.decision.pipeline import Snapshot, decide
from rules.decision.size_limit import RULE
from rules.kube.json_patch import ObjectError
from rules.model.decision import Decision
from tests.fuzz.large_cluster import inventory, policy
from tests.fuzz.large_objects import GENES, LONGEST, Shape, TooLongError, large_object
from tests.fuzz.targets import kept
from tests.support.webhooks import review
from webhook.admission.review import decode_review, encode_decision

# Seconds of CPU that any object may take, on a machine on which _calibrate() takes _CALIBRATION seconds.
BOUND: Final = 0.5
_CALIBRATION: Final = 0.046
# Times of the bound that a test allows: machines differ in what they are fast at, and a busy one loses its
# caches, which slows a large object more than the small ones of _calibrate().
_TOLERANCE: Final = 4.0
# Seconds of CPU after which an object is given up.
_PATIENCE: Final = 5.0
# Random shapes of which the best is changed.
_STARTS: Final = 8
# How often a climb starts with what was found before.
_FROM_FINDS: Final = 0.6
# Attempts to make a shape smaller whose object is too long, or denied by the size limit.
_HALVINGS: Final = 12
# Characters of a message that are printed.
_MESSAGE: Final = 160
# The worst shapes that are printed at the end.
_SHOWN: Final = 10
# Numbers of which each magnitude is as likely.
_LARGE: Final = 50
# Changes of a shape without success before the next climb starts.
_TRIES: Final = 25


class Cost(NamedTuple):
    """Seconds of CPU."""

    decode: float
    decide: float
    encode: float

    @property
    def total(self) -> float:
        """Seconds of all of it."""
        return sum(self)


class _Found(NamedTuple):
    cost: Cost
    length: int
    decision: Decision | None

    @property
    def over_limit(self) -> bool:
        """Whether it is denied because it is too large."""
        return self.decision is not None and any(
            violation.rule == RULE for violation in self.decision.violations
        )

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in self.cost._asdict().items())
        what = "given up" if self.decision is None else "allowed" if self.decision.allowed else "denied"
        message = (
            self.decision.denial.en.splitlines()[0][:160] if self.decision and self.decision.denial.en else ""
        )
        return f"{self.cost.total:.3f} s ({parts}), {self.length:,} bytes, {what} {message}"


def seeds() -> Iterator[bytes]:
    """Yield shapes of usual objects."""
    yield json.dumps({"containers": 1}).encode()
    yield json.dumps({"kind": 2, "templates": 4, "containers": 2, "env": 20, "labels": 10}).encode()


def words() -> Iterator[str]:
    """Yield the names of the numbers."""
    yield from GENES


def check(data: bytes) -> None:
    """Check that an object of this shape takes half a second at most, as far as machines are comparable."""
    shape = json.loads(data)
    results = []
    for attempt in range(3):
        slower = _calibrate() / _CALIBRATION
        results.append((measured(shape, f"check{attempt}"), slower))
        if results[-1][0].cost.total <= BOUND * slower * _TOLERANCE:
            return
    raise AssertionError(f"{shape}: {[(str(measurement), slower) for measurement, slower in results]}")


def is_too_large(data: bytes) -> bool:
    """Return whether an object of this shape is denied by the size limit."""
    return measured(json.loads(data), "size").over_limit


def search(seconds: float, folder: Path) -> None:
    """Print the shapes that take the longest, found in so many seconds."""
    inventory(0), inventory(1)
    gc.freeze()
    chance, end = random.Random(), monotonic() + seconds  # noqa: S311 - no secret
    best: list[tuple[float, str, Shape]] = []
    while monotonic() < end:
        shape, measurement = _climb(chance, end)
        shape = _shrunk(shape, measurement, end + 60)
        measurement = measured(shape, "final")
        best.append((measurement.cost.total, str(measurement), shape))
        _tell(str(measurement), shape)
        (folder / f"{measurement.cost.total:07.3f}.json").write_text(json.dumps(shape))
    sys.stdout.write("\nThe worst:\n")
    for _, text, shape in sorted(best, key=lambda row: -row[0])[:_SHOWN]:
        _tell(text, shape)


def _tell(text: str, shape: Shape) -> None:
    sys.stdout.write(f"{text}\n    {json.dumps(shape)}\n")
    sys.stdout.flush()


def _climb(chance: random.Random, end: float) -> tuple[Shape, _Found]:
    """Return the shape at which a climb ends, from the best of some random ones."""
    best, shape = _NOTHING, dict[str, int]()
    for _ in range(_STARTS):
        start, measurement = _fitted(_start(chance), chance)
        if measurement.cost.total > best.cost.total:
            best, shape = measurement, start
        if monotonic() > end:
            break
    tries = 0
    while tries < _TRIES and monotonic() < end and best.cost.total < _PATIENCE:
        changed = dict(shape)
        for _ in range(chance.choice((1, 1, 2, 3))):
            _change(changed, chance)
        changed, measurement = _fitted(changed, chance)
        if measurement.cost.total > 1.05 * best.cost.total:
            measurement = min(measurement, _tried(changed, chance), key=lambda attempt: attempt.cost.total)
        tries += 1
        if measurement.cost.total > 1.05 * best.cost.total:
            shape, best, tries = changed, measurement, 0
    return shape, best


def _start(chance: random.Random) -> dict[str, int]:
    """Return a random shape, a few large numbers and any of the small ones; or earlier finds as one."""
    if chance.random() < _FROM_FINDS:
        chosen = chance.sample(list(kept("cost")), chance.randint(1, 3))
        return {name: number for kept_shape in chosen for name, number in json.loads(kept_shape).items()}
    large = [name for name, (_, greatest) in GENES.items() if greatest >= _LARGE]
    small = [name for name in GENES if name not in large]
    shape = {"containers": chance.choice((1, 1, 1, 10, 100, 1000))}
    for name in (*chance.sample(large, chance.randint(1, 4)), *chance.sample(small, chance.randint(3, 12))):
        shape[name] = _number(name, chance)
    if chance.random() < 0.5:
        shape["group"] = 0  # one GPU, which has rules and nodes
    return shape


def _fitted(shape: dict[str, int], chance: random.Random) -> tuple[dict[str, int], _Found]:
    """Return a shape, made smaller until its object is not too large, and what it costs."""
    measurement = _NOTHING
    for _ in range(_HALVINGS):
        measurement = _tried(shape, chance)
        if measurement.cost.total >= BOUND or (measurement.length and not measurement.over_limit):
            break
        largest = max(shape, key=lambda name: shape[name] * (chance.random() + 0.2))
        shape = shape | {largest: max(GENES[largest][0], shape[largest] * 2 // 3)}
    return shape, measurement


def _tried(shape: Shape, chance: random.Random) -> _Found:
    """Return what an object of a shape costs; nothing if it is too long."""
    try:
        return measured(shape, f"{chance.random()}")
    except TooLongError:
        return _NOTHING


def _number(name: str, chance: random.Random) -> int:
    """Return a number for a gene; of large ones each magnitude is as likely."""
    least, greatest = GENES[name]
    if greatest < _LARGE:
        return chance.randint(least, greatest)
    return int(max(least, min(greatest, 10 ** chance.uniform(0, len(str(greatest))))))


def _change(shape: dict[str, int], chance: random.Random) -> None:
    name = chance.choice([*GENES, *shape, *shape])
    least, greatest = GENES[name]
    value = shape.get(name, 0)
    if chance.random() < 0.2 and name != "containers":
        shape.pop(name, None)
    elif greatest < _LARGE or value < 2 or chance.random() < 0.3:
        shape[name] = _number(name, chance)
    else:
        shape[name] = max(
            least, min(greatest, int(value * chance.choice((0.3, 0.5, 0.7, 0.9, 1.1, 1.4, 2, 4))))
        )


def _shrunk(shape: Shape, measurement: _Found, end: float) -> Shape:
    """Return a shape without the numbers that do not matter."""
    for name in list(shape):
        smaller = {other: number for other, number in shape.items() if other != name}
        if monotonic() < end and _tried(smaller, random.Random()).cost.total > 0.9 * measurement.cost.total:  # noqa: S311
            shape = smaller
    return shape


def measured(shape: Shape, salt: str) -> _Found:
    """Return what an object of a shape costs, and the decision on it. Raises TooLongError."""
    made = large_object(shape, salt)
    content = msgspec.json.encode(review(made.fields["object"], **made.fields))
    if len(content) > LONGEST:
        raise TooLongError
    cluster, rules = inventory(shape.get("cluster", 0)), policy(shape.get("policy", 0))
    gc.collect()
    with _limited(_PATIENCE):
        try:
            start = process_time()
            read = decode_review(content, mutating=made.mutating)
            decoded = process_time()
            decision = decide(Snapshot(rules, cluster), read.request, 0.0)
            decided = process_time()
            encode_decision(read.uid, decision)
            return _Found(
                Cost(decoded - start, decided - decoded, process_time() - decided), len(content), decision
            )
        except ObjectError:
            return _NOTHING
        except _GivenUpError:
            return _Found(Cost(0.0, _PATIENCE, 0.0), len(content), None)


_NOTHING: Final = _Found(Cost(0.0, 0.0, 0.0), 0, None)


class _GivenUpError(BaseException):
    """An object takes too long."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _GivenUpError after so many seconds of CPU."""

    def give_up(*_: object) -> NoReturn:
        raise _GivenUpError

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _calibrate() -> float:
    """Return the seconds of CPU that a fixed piece of work takes, of the kind that decisions do."""
    start = process_time()
    for number in range(20_000):
        words = {f"key{number}.{at}": str(at) for at in range(5)}
        "".join([f"{name}={text}" for name, text in sorted(words.items())])
    return process_time() - start
