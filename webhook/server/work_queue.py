"""Work queue: in which thread a request is answered, and when.

A request that takes milliseconds is answered in the event loop's thread. All others wait in fair queues, one
for each lane: next is the request whose accounts (client, namespace, user) have used the least time recently.
One that waits too long is answered 429. Work that takes memory starts only within a budget.
Why: docs/adr/0010-transport.md.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from time import monotonic
from traceback import format_tb
from typing import Final, Self

from webhook.server.http import Application, Lane, Request, Response, Schedule, Work, failure

_log = logging.getLogger(__name__)

# Seconds that a request waits for a worker, then it is answered 429. Within the webhook's time-out of 5 s fit
# two such waits, the second before the retry, and the most expensive review (0.5 s) with a second to spare.
PATIENCE: Final = 1.5
# Seconds between two sweeps of the requests that wait.
_SWEEP: Final = 0.1
# Seconds in the event loop's thread after which a request was not quick. The second such request within a
# while begins another one in which that thread answers none: so it is blocked for longer at most twice a
# second. One may be chance: another process had the core. The thread's CPU time would show that, but reading
# it costs more than anything else here.
_QUICK: Final = 0.005
_BACKOFF: Final = 1.0
# Seconds after which used time counts half as much: two time-outs of the webhook, so that a waiting request
# is still compared with what others had used when it arrived.
_HALF_LIFE: Final = 10.0
# Seconds of used time that is forgotten: less than a switch between threads delays others.
_NEGLIGIBLE: Final = 0.001
# Accounts with used time, of about 150 bytes each: 0.6 MB a lane. Of more, those that used most are kept.
_ACCOUNTS: Final = 4096
# Bytes that all work of a lane takes at most at once. Of the container's limit of 512 MiB, 150 are taken with
# 10,000 nodes, 64 by bodies, 26 by 1,000 connections; 32 remain for answers, log and fragmentation. Of the
# other 240, LONG and RULES have half each, so that a rule never waits for the memory of a pod.
MEMORY: Final = 120 * 2**20
# Threads of each lane. Work is CPU-bound: more threads are not faster, and they block the event loop; the
# second one is there in case a call never returns. Work of OTHER may wait for locks, one lock for each page.
_THREADS: Final = {Lane.QUICK: 2, Lane.LONG: 2, Lane.RULES: 1, Lane.OTHER: 4}

Respond = Callable[[Response], None]
Clock = Callable[[], float]


@dataclass(eq=False, slots=True)
class Pending:
    """A request that waits for a worker or is being worked on."""

    respond: Respond
    arrived: float  # seconds, monotonic
    accounts: tuple[str, ...]
    memory: int
    _drop: Callable[[Pending], Request | None] = field(repr=False)
    started: float = 0.0

    def cancel(self) -> bool:
        """Drop the request if it still waits, and return whether it did; `respond` is then never called.

        If it does not wait any more, the work continues, and `respond` is called when it ends.
        """
        return self._drop(self) is not None


class Usage:
    """Seconds that each account used recently: halved every ten seconds; a bounded number of accounts."""

    def __init__(self, now: float) -> None:
        self._seconds: dict[str, float] = {}
        self._halved = now

    def __len__(self) -> int:
        return len(self._seconds)

    def of(self, accounts: tuple[str, ...]) -> float:
        """Return the seconds that these accounts used together."""
        return sum(self._seconds.get(account, 0.0) for account in accounts)

    def charge(self, accounts: tuple[str, ...], seconds: float) -> None:
        """Add the time of a request to all of its accounts."""
        for account in accounts:
            self._seconds[account] = self._seconds.get(account, 0.0) + seconds
        if len(self._seconds) > _ACCOUNTS:
            self._seconds = dict(
                heapq.nlargest(_ACCOUNTS // 2, self._seconds.items(), key=lambda item: item[1])
            )

    def decay(self, now: float) -> None:
        """Halve the used seconds once for each half-life that has passed."""
        periods = (now - self._halved) // _HALF_LIFE
        if periods > 0:
            self._halved += periods * _HALF_LIFE
            factor = 0.5**periods
            halved = {account: seconds * factor for account, seconds in self._seconds.items()}
            self._seconds = {account: seconds for account, seconds in halved.items() if seconds > _NEGLIGIBLE}


class FairQueue:
    """Requests that wait for the threads of one lane. All methods are for the event loop's thread.

    Next is the request whose accounts used the least time recently, including work in progress; among equals,
    the first. It starts when a thread is free and the memory of all work stays within `memory` bytes. No
    later request overtakes it, so that large requests are not starved. A request that has waited for
    `patience` seconds is answered 429, even if no thread ever becomes free.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        application: Application,
        *,
        name: str,
        threads: int,
        memory: int = MEMORY,
        patience: float = PATIENCE,
        clock: Clock,
    ) -> None:
        self._application = application
        self._threads = threads
        self._memory = memory
        self._patience = patience
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, name)
        self._usage = Usage(clock())
        # The requests of the same accounts, oldest first. Together as many as there are connections, at most.
        self._waiting: dict[tuple[str, ...], dict[Pending, Request]] = {}
        self._running: set[Pending] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    def submit(self, request: Request, respond: Respond, work: Work) -> Pending | None:
        """Start or queue a request; None if it was refused, because its work could never start."""
        if work.memory > self._memory:
            respond(_too_large(work.memory, self._memory))
            return None
        pending = Pending(respond, self._clock(), work.accounts(), work.memory, self._drop)
        self._waiting.setdefault(pending.accounts, {})[pending] = request
        self._start()
        if self._waiting and self._sweeping is None:
            self._sweeping = self._loop.call_later(_SWEEP, self._sweep_again)
        return pending

    def sweep(self) -> None:
        """Answer 429 to requests that have waited too long."""
        overdue = self._clock() - self._patience
        for requests in list(self._waiting.values()):
            for pending in [pending for pending in requests if pending.arrived <= overdue]:
                if self._drop(pending) is not None:  # the response to an earlier one may have cancelled it
                    pending.respond(_BUSY)
        self._start()  # one that was dropped may have waited for memory, with others behind it

    def close(self) -> None:
        """Start no more work."""
        self._waiting.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._pool.shutdown(wait=False)

    def _sweep_again(self) -> None:
        self.sweep()
        self._sweeping = self._loop.call_later(_SWEEP, self._sweep_again) if self._waiting else None

    def _drop(self, pending: Pending) -> Request | None:
        """Remove a request and return it; None if it no longer waits."""
        requests = self._waiting.get(pending.accounts, {})
        request = requests.pop(pending, None)
        if request is not None and not requests:
            del self._waiting[pending.accounts]
        return request

    def _start(self) -> None:
        """Start the next requests for which there is a thread and memory."""
        while self._waiting and len(self._running) < self._threads:
            pending, request = self._next()
            if pending.memory + sum(running.memory for running in self._running) > self._memory:
                return
            self._drop(pending)
            pending.started = self._clock()
            self._running.add(pending)
            self._pool.submit(self._run, pending, request)

    def _next(self) -> tuple[Pending, Request]:
        """Return the request that is next."""
        now = self._clock()
        self._usage.decay(now)
        in_progress: dict[str, float] = {}
        for running in self._running:
            for account in running.accounts:
                in_progress[account] = in_progress.get(account, 0.0) + now - running.started

        def used(first: tuple[Pending, Request]) -> tuple[float, float]:
            pending, _ = first
            busy = sum(in_progress.get(account, 0.0) for account in pending.accounts)
            return self._usage.of(pending.accounts) + busy, pending.arrived

        return min((next(iter(requests.items())) for requests in self._waiting.values()), key=used)

    def _run(self, pending: Pending, request: Request) -> None:
        """Work on a request, in a thread of the pool."""
        response = answer(self._application, request)
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._finish, pending, response)

    def _finish(self, pending: Pending, response: Response) -> None:
        self._running.discard(pending)
        self._usage.charge(pending.accounts, self._clock() - pending.started)
        self._start()
        pending.respond(response)


class WorkQueue:
    """Answers each request in the lane that the schedule chooses. For the event loop's thread only.

    A QUICK request is answered before `submit` returns. After two that were not quick, QUICK requests also
    use a fair queue with threads of their own, for a second. An exception of the application is logged
    without its message, which may quote the request, and answered 500 without details.
    """

    def __init__(
        self,
        application: Application,
        schedule: Schedule,
        *,
        memory: int = MEMORY,
        patience: float = PATIENCE,
        clock: Clock = monotonic,
    ) -> None:
        self._application = application
        self._schedule = schedule
        self._clock = clock
        self._slow_at = self._backoff_until = float("-inf")
        self._lanes = {
            lane: FairQueue(
                application,
                name=lane.name.lower(),
                threads=threads,
                memory=memory,
                patience=patience,
                clock=self._clock,
            )
            for lane, threads in _THREADS.items()
        }

    def submit(self, request: Request, respond: Respond) -> Pending | None:
        """Answer a request: call `respond` once, in the event loop's thread.

        Returns None if it was answered at once, else the pending request, to cancel if the client
        disconnects.
        """
        work = self._schedule(request)
        start = self._clock()
        if work.lane is not Lane.QUICK or start < self._backoff_until:
            return self._lanes[work.lane].submit(request, respond, work)
        response = answer(self._application, request)
        end = self._clock()
        if end - start > _QUICK:
            if start - self._slow_at < _BACKOFF:
                self._backoff_until = end + _BACKOFF
            self._slow_at = end
        respond(response)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Start no more work; work in progress ends unseen."""
        for lane in self._lanes.values():
            lane.close()


def answer(application: Application, request: Request) -> Response:
    """Return the application's response, or 500 if it fails."""
    try:
        return application(request)
    except Exception as error:  # noqa: BLE001 - a bug must cost this one request, not the server
        # Type and traceback without the error's message, which may quote the request.
        traceback = "".join(format_tb(error.__traceback__))
        _log.error("failed on a request: %s\n%s", type(error).__name__, traceback)
        return _FAILED


def _too_large(memory: int, limit: int) -> Response:
    """Return the refusal of a request whose work takes too much memory."""
    sizes = f"{memory / 2**20:.0f} MiB of memory, the limit is {limit / 2**20:.0f}"
    detail = f"decoded, this body may take {sizes}; send fewer lists, objects and strings"
    return failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


_BUSY: Final = failure(HTTPStatus.TOO_MANY_REQUESTS)
_FAILED: Final = failure(HTTPStatus.INTERNAL_SERVER_ERROR)
