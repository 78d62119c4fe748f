"""A profile of the whole server, from the connection to the decision and back, by package."""

from __future__ import annotations

import cProfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pstats import Stats
from typing import Any, Final

from tests.bench.cases import ROOT, builtin, cluster
from tests.bench.client import Webhook, exchange
from tests.bench.decisions import logging_to_devnull
from tests.bench.figures import Table
from tests.support.serving import HOST, serving
from tests.support.tls import unverified
from webhook.admission.app import create_server_application
from webhook.admission.handler import AdmissionHandler

# The functions of an idle thread.
_WAITING: Final = ("'poll' of 'select.epoll'", "'acquire' of '_thread.lock'", "'get' of '_queue.SimpleQueue'")
_IN_C: Final = {"_ssl.": "OpenSSL", "_socket.": "sockets"}
_SHOWN: Final = 12


def profile(bodies: Sequence[bytes], nodes: int, repeats: int = 40) -> Table:
    """Return the share of the server's time of each package, for these reviews in turn.

    On one connection, so that no thread waits for another.
    """
    handler = AdmissionHandler(builtin(), inventory=cluster(nodes))
    for body in bodies:
        handler.answer("mutate", body)  # fills the caches
    with (
        logging_to_devnull(),
        _new_threads_profiled() as profiles,
        serving(create_server_application(handler)) as server,
    ):
        webhook = Webhook(f"https://{HOST}:{server.port}/mutate", unverified())
        requests = [webhook.request(body) for body in bodies]
        with webhook.connect() as connection:
            for request in requests * repeats:
                exchange(connection, request)
    spent = _by_package(profiles)
    rows = tuple((where, f"{part / spent.total():.0%}") for where, part in spent.most_common(_SHOWN))
    note = "A profiler overstates the cost of many small calls."
    return Table("Profile of gpugate with its server", ("package", "its own time"), rows, note)


@contextmanager
def _new_threads_profiled() -> Iterator[list[cProfile.Profile]]:
    """Profile each thread that starts in the block; the list is complete when they have ended."""
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
    """Return the seconds spent in each package's own functions; C code counts for its caller."""
    spent: Counter[str] = Counter()
    for profile_document in profiles:
        stats: dict[tuple[str, int, str], Any] = Stats(profile_document).stats  # type: ignore[attr-defined]
        for (file, _, function), (_, _, own, _, callers) in stats.items():
            if file != "~":
                spent[_package(file)] += own
            elif not any(waiting in function for waiting in _WAITING):
                for (caller, _, _), (_, _, part, _) in callers.items():
                    where = next((name for mark, name in _IN_C.items() if mark in function), None)
                    spent[where or _package(caller)] += part
    return spent


def _package(file: str) -> str:
    """Return the package of a file, such as `rules` or `asyncio`."""
    path = Path(file)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        return path.relative_to(ROOT).parts[0]
    if "site-packages" in path.parts:
        return path.parts[path.parts.index("site-packages") + 1]
    at = next((at for at, part in enumerate(path.parts) if part.startswith("python3")), -2)
    return Path(path.parts[at + 1]).stem
