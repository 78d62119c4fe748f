"""Where the time of the whole server goes, from the connection to the decision and back: by package."""

from __future__ import annotations

import cProfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pstats import Stats
from typing import Any, Final

from tests.bench.cases import ROOT, cluster, shipped
from tests.bench.client import Webhook, exchange, unverified
from tests.bench.decisions import logging_to_nowhere
from tests.bench.figures import Table
from tests.support.serving import HOST, serving
from webhook.admission.app import create_app
from webhook.admission.handler import AdmissionHandler

# In a thread that has nothing to do.
_WAITING: Final = ("'poll' of 'select.epoll'", "'acquire' of '_thread.lock'", "'get' of '_queue.SimpleQueue'")
_IN_C: Final = {"_ssl.": "OpenSSL", "_socket.": "sockets"}
_SHOWN: Final = 12


def profile(bodies: Sequence[bytes], nodes: int, turns: int = 40) -> Table:
    """Return where the server spends its time on these reviews, by turns on one connection.

    One connection, so that threads take turns and none waits for another.
    """
    gate = AdmissionHandler(shipped(), inventory=cluster(nodes))
    for body in bodies:
        gate.answer("mutate", body)  # what is read or remembered once
    with logging_to_nowhere(), _new_threads_profiled() as profiles, serving(create_app(gate)) as server:
        webhook = Webhook(f"https://{HOST}:{server.port}/mutate", unverified())
        requests = [webhook.request(body) for body in bodies]
        with webhook.connect() as connection:
            for request in requests * turns:
                exchange(connection, request)
    spent = _by_package(profiles)
    rows = tuple((where, f"{part / spent.total():.0%}") for where, part in spent.most_common(_SHOWN))
    note = "Of a profile, which makes many small calls look dearer than they are."
    return Table("Where gpugate's time goes, its server included", ("package", "its own time"), rows, note)


@contextmanager
def _new_threads_profiled() -> Iterator[list[cProfile.Profile]]:
    """Profile each thread that is started in the block; the list is whole once they have ended."""
    profiles: list[cProfile.Profile] = []

    def begin(*_: object) -> None:
        profiles.append(cProfile.Profile())
        profiles[-1].enable()

    threading.setprofile(begin)
    try:
        yield profiles
    finally:
        threading.setprofile(None)


def _by_package(profiles: Iterable[cProfile.Profile]) -> Counter[str]:
    """Return the seconds spent in each package's own functions; what C does counts for who calls it."""
    spent: Counter[str] = Counter()
    for each in profiles:
        stats: dict[tuple[str, int, str], Any] = Stats(each).stats  # type: ignore[attr-defined]
        for (file, _, function), (_, _, own, _, callers) in stats.items():
            if file != "~":
                spent[_package(file)] += own
            elif not any(waiting in function for waiting in _WAITING):
                for (caller, _, _), (_, _, part, _) in callers.items():
                    where = next((name for mark, name in _IN_C.items() if mark in function), None)
                    spent[where or _package(caller)] += part
    return spent


def _package(file: str) -> str:
    """Return what a file belongs to: `rules`, `uvicorn`, `asyncio`; C that C calls is nobody's."""
    path = Path(file)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        return path.relative_to(ROOT).parts[0]
    if "site-packages" in path.parts:
        return path.parts[path.parts.index("site-packages") + 1]
    at = next((at for at, part in enumerate(path.parts) if part.startswith("python3")), -2)
    return Path(path.parts[at + 1]).stem
