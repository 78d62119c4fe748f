"""Who is answered next, who is refused, and what the memory of work in progress is bounded by."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.server import work_queue
from webhook.server.http import Lane, Request, Response, Work
from webhook.server.work_queue import FairQueue, Usage, WorkQueue

OK = Response(200, b"{}")


@dataclass
class Clock:
    """A clock that stands still until it is set."""

    now: float = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@dataclass
class Application:
    """Answers each request when the test releases it, and keeps the paths in the order of their starts."""

    started: list[str] = field(default_factory=list)
    _gates: dict[str, threading.Event] = field(default_factory=dict)
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _is_over: bool = False

    def __call__(self, request: Request) -> Response:
        """Wait for `release`."""
        with self._lock:
            self.started.append(request.path)
            self._lock.notify_all()
        self._gate(request.path).wait()
        return Response(200, request.path.encode())

    def release(self, *paths: str) -> None:
        """Let these requests be answered, also those that have not started."""
        for path in paths:
            self._gate(path).set()

    def wait_for(self, *paths: str) -> None:
        """Wait until these have started."""
        with self._lock:
            assert self._lock.wait_for(lambda: set(paths) <= set(self.started), 10)

    def release_all(self) -> None:
        """Let every request be answered, so that no thread is left."""
        with self._lock:
            self._is_over = True
            paths = list(self._gates)
        self.release(*paths)

    def _gate(self, path: str) -> threading.Event:
        with self._lock:
            gate = self._gates.setdefault(path, threading.Event())
            if self._is_over:
                gate.set()
            return gate


class Answers:
    """The answers by path, in the order in which they came."""

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.headers: dict[str, tuple[tuple[str, str], ...]] = {}
        self.threads: set[int] = set()
        self._changed = asyncio.Event()

    def of(self, path: str) -> Callable[[Response], None]:
        """Return what is called with the answer to a request."""

        def respond(response: Response) -> None:
            assert path not in self.statuses, f"{path} was answered twice"
            self.statuses[path] = response.status
            self.headers[path] = response.headers
            self.threads.add(threading.get_ident())
            self._changed.set()

        return respond

    async def wait_for(self, *paths: str) -> None:
        """Wait until these are answered."""
        async with asyncio.timeout(10):
            while not set(paths) <= set(self.statuses):
                self._changed.clear()
                await self._changed.wait()


@dataclass
class Lanes:
    """A fair queue with one thread, its clock, its application, and its answers."""

    clock: Clock
    application: Application
    answers: Answers
    queue: FairQueue

    def submit(self, path: str, *accounts: str, memory: int = 0) -> work_queue.Pending | None:
        """Submit a request, a millisecond after the one before."""
        self.clock.now += 0.001
        work = Work(Lane.LONG, lambda: accounts, memory)
        return self.queue.submit(Request("POST", path), self.answers.of(path), work)

    async def finish(self, *paths: str, after: float = 0.0) -> None:
        """Let these be answered one after the other, each after so many seconds of work."""
        for path in paths:
            self.application.wait_for(path)
            self.clock.now += after
            self.application.release(path)
            await self.answers.wait_for(path)


def in_queue(test: Callable[[Lanes], Awaitable[None]], *, threads: int = 1, memory: int = 100) -> Lanes:
    """Run a test with a fair queue; requests that are left are answered."""

    async def run() -> Lanes:
        clock, application = Clock(), Application()
        queue = FairQueue(application, name="test", threads=threads, memory=memory, clock=clock)
        lanes = Lanes(clock, application, Answers(), queue)
        try:
            await test(lanes)
        finally:
            queue.close()
            application.release_all()
        return lanes

    return asyncio.run(run())


def test_the_accounts_that_used_the_least_time_are_next() -> None:
    """However many requests of the others wait, and whichever account it is that differs."""

    async def test(lanes: Lanes) -> None:
        lanes.submit("first", "client 1", "namespace a", "user eve")
        for number in range(3):
            lanes.submit(f"more {number}", "client 1", "namespace a", "user eve")
        lanes.submit("same user", "client 1", "namespace b", "user eve")
        lanes.submit("other", "client 1", "namespace b", "user bob")
        await lanes.finish("first", after=0.3)
        await lanes.finish("other", "same user", "more 0", "more 1", "more 2", after=0.1)

    lanes = in_queue(test)

    assert ["first", "other", "same user", "more 0", "more 1", "more 2"] == lanes.application.started


def test_work_in_progress_counts_as_used() -> None:
    """A second long request of the same client does not get the second thread before another's."""

    async def test(lanes: Lanes) -> None:
        lanes.submit("long", "client 1")
        lanes.clock.now += 1.0
        lanes.submit("short", "client 2")
        lanes.application.wait_for("long", "short")
        lanes.submit("again", "client 1")
        lanes.submit("other", "client 2")
        await lanes.finish("short", after=0.01)
        await lanes.finish("other")

    lanes = in_queue(test, threads=2)

    assert "again" not in lanes.application.started[:3]


def test_equals_are_answered_in_the_order_of_their_arrival() -> None:
    """With and without accounts."""
    paths = [f"request {number}" for number in range(6)]

    async def test(lanes: Lanes) -> None:
        for number, path in enumerate(paths):
            lanes.submit(path, *([f"client {number % 3}"] if number % 2 else []))
        await lanes.finish(*paths)

    assert paths == in_queue(test).application.started


def test_a_request_that_waited_too_long_is_answered_429_though_no_thread_is_ever_free() -> None:
    """With Retry-After, or the API server would not send it again; one that came later waits on."""

    async def test(lanes: Lanes) -> None:
        lanes.submit("stuck", "client 1")
        lanes.submit("early", "client 2")
        lanes.clock.now += work_queue.PATIENCE / 2
        lanes.submit("late", "client 3")
        lanes.clock.now += work_queue.PATIENCE / 2
        await lanes.answers.wait_for("early")
        assert {"early": 429} == lanes.answers.statuses

    assert (("Retry-After", "1"),) == in_queue(test).answers.headers["early"]


def test_a_cancelled_request_is_not_worked_on() -> None:
    """Nor answered; those behind it are."""

    async def test(lanes: Lanes) -> None:
        lanes.submit("first", "client 1")
        pending = lanes.submit("gone", "client 2")
        lanes.submit("last", "client 3")
        assert pending is not None
        assert (True, False) == (pending.cancel(), pending.cancel())
        await lanes.finish("first", "last")

    lanes = in_queue(test)

    assert ["first", "last"] == lanes.application.started
    assert {"first", "last"} == set(lanes.answers.statuses)


def test_work_in_progress_cannot_be_cancelled() -> None:
    """Its memory is in use until it ends, which `respond` tells."""

    async def test(lanes: Lanes) -> None:
        pending = lanes.submit("first", "client 1")
        assert pending is not None
        lanes.application.wait_for("first")
        assert not pending.cancel()
        await lanes.finish("first")

    assert {"first": 200} == in_queue(test).answers.statuses


def test_the_memory_of_work_in_progress_stays_within_the_budget() -> None:
    """A large one waits for it, though a thread is free, and is not overtaken."""

    async def test(lanes: Lanes) -> None:
        lanes.submit("60", "client 1", memory=60)
        lanes.submit("50", "client 2", memory=50)
        lanes.submit("40", "client 3", memory=40)
        lanes.application.wait_for("60")
        assert ["60"] == lanes.application.started
        await lanes.finish("60")
        lanes.application.wait_for("50", "40")

    in_queue(test, threads=2)


def test_work_of_the_whole_budget_runs_and_more_is_refused() -> None:
    """At once, with what to do."""

    async def test(lanes: Lanes) -> None:
        lanes.submit("whole", "client 1", memory=100)
        assert lanes.submit("more", "client 1", memory=101) is None
        await lanes.finish("whole")

    assert {"more": 413, "whole": 200} == in_queue(test).answers.statuses


def test_who_waited_for_memory_and_gave_up_holds_no_one_up() -> None:
    """Its place is taken at the next look at the queue."""

    async def test(lanes: Lanes) -> None:
        lanes.submit("60", "client 1", memory=60)
        large = lanes.submit("50", "client 2", memory=50)
        lanes.submit("40", "client 3", memory=40)
        assert large is not None
        large.cancel()
        lanes.queue.sweep()
        lanes.application.wait_for("40")

    assert ["60", "40"] == in_queue(test, threads=2).application.started


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 100)), min_size=1, max_size=12
    ),
    st.integers(1, 3),
)
def test_each_request_is_answered_once_within_the_budget(
    requests: list[tuple[str, str, int]], threads: int
) -> None:
    """Whatever the accounts and the memory of each are."""
    memory = {str(number): size for number, (_, _, size) in enumerate(requests)}
    lock, running, most = threading.Lock(), [0], [0]

    def application(request: Request) -> Response:
        with lock:
            running[0] += memory[request.path]
            most[0] = max(most[0], running[0])
        with lock:
            running[0] -= memory[request.path]
        return OK

    async def run() -> dict[str, int]:
        queue = FairQueue(application, name="law", threads=threads, memory=100, clock=Clock())
        answers = Answers()
        for number, (client, user, size) in enumerate(requests):
            accounts = (client, user)
            work = Work(Lane.LONG, lambda accounts=accounts: accounts, size)  # type: ignore[misc]
            queue.submit(Request("POST", str(number)), answers.of(str(number)), work)
        await answers.wait_for(*memory)
        queue.close()
        return answers.statuses

    assert dict.fromkeys(memory, 200) == asyncio.run(run())
    assert most[0] <= 100


def test_used_time_is_halved_and_forgotten() -> None:
    """After ten seconds and after a few minutes."""
    usage = Usage(0.0)
    usage.charge(("a", "b"), 2.0)
    usage.decay(9.9)
    early = usage.of(("a", "b"))
    usage.decay(10.0)
    late = usage.of(("a", "b"))
    usage.decay(300.0)

    assert (4.0, 2.0, 0.0, 0) == (early, late, usage.of(("a", "b")), len(usage))


def test_the_accounts_that_used_most_are_kept_of_very_many() -> None:
    """Invented names do not clear what their inventor used."""
    usage = Usage(0.0)
    usage.charge(("client 1",), 1.0)
    for number in range(10_000):
        usage.charge((f"user {number}",), 0.001)

    assert len(usage) <= 4096
    assert usage.of(("client 1",)) == 1.0


@dataclass
class Served:
    """A work queue whose lane is the path's first word, its application and its answers."""

    clock: Clock
    application: Application
    answers: Answers
    queue: WorkQueue

    def submit(self, path: str) -> work_queue.Pending | None:
        """Submit a request of its own account."""
        return self.queue.submit(Request("POST", path, body=b"secret"), self.answers.of(path))


def served(
    test: Callable[[Served], Awaitable[None]], application: Callable[[Request], Response] | None = None
) -> Served:
    """Run a test with a work queue."""

    async def run() -> Served:
        clock, waiting = Clock(), Application()
        with WorkQueue(
            application or waiting,
            lambda request: Work(Lane[request.path.partition(" ")[0]], lambda: (request.path,)),
            clock=clock,
        ) as queue:
            tested = Served(clock, waiting, Answers(), queue)
            try:
                await test(tested)
            finally:
                waiting.release_all()
        return tested

    return asyncio.run(run())


def test_a_quick_request_is_answered_before_submit_returns() -> None:
    """In the thread of the event loop; others too, though they are worked on elsewhere."""
    threads: dict[str, int] = {}

    def application(request: Request) -> Response:
        threads[request.path] = threading.get_ident()
        return OK

    async def test(queue: Served) -> None:
        assert queue.submit("QUICK") is None
        assert {"QUICK": 200} == queue.answers.statuses
        for lane in ("LONG", "RULES", "OTHER"):
            queue.submit(lane)
        await queue.answers.wait_for("LONG", "RULES", "OTHER")

    answers = served(test, application).answers

    assert [lane for lane, thread in threads.items() if thread == threading.get_ident()] == ["QUICK"]
    assert {threading.get_ident()} == answers.threads


def test_after_two_that_were_not_quick_others_are_answered_elsewhere_for_a_second() -> None:
    """Then in the event loop's thread again. One alone, or a second one later, may be chance."""
    threads: dict[str, int] = {}

    async def test(queue: Served) -> None:
        def application(request: Request) -> Response:
            threads[request.path] = threading.get_ident()
            queue.clock.now += 0.006 if request.path.startswith("QUICK slow") else 0.0
            return OK

        schedule = lambda _: Work(Lane.QUICK)  # noqa: E731 - one line
        requests = (
            ("QUICK slow 1", 0.0),
            ("QUICK slow 2", 1.1),
            ("QUICK between", 0.1),
            ("QUICK slow 3", 0.1),
            ("QUICK next", 0.5),
            ("QUICK later", 0.6),
        )
        with WorkQueue(application, schedule, clock=queue.clock) as quick:
            for path, seconds in requests:
                queue.clock.now += seconds
                quick.submit(Request("POST", path), queue.answers.of(path))
                await queue.answers.wait_for(path)

    served(test)

    assert ["QUICK next"] == [path for path, thread in threads.items() if thread != threading.get_ident()]


def test_rules_pages_and_quick_requests_never_wait_for_long_ones() -> None:
    """Whatever number of those waits."""

    async def test(queue: Served) -> None:
        long = [f"LONG {number}" for number in range(20)]
        for path in long:
            queue.submit(path)
        queue.application.wait_for(*long[:2])
        queue.application.release("RULES", "OTHER", "QUICK")
        for path in ("RULES", "OTHER", "QUICK"):
            queue.submit(path)
        await queue.answers.wait_for("RULES", "OTHER", "QUICK")
        assert not {path for path in queue.answers.statuses if path in long}
        queue.application.release(*long)

    served(test)


@pytest.mark.parametrize("lane", ["QUICK", "LONG"])
def test_an_exception_is_answered_500_and_logged_without_its_message(
    lane: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The message may quote the request; the next request is answered."""

    def application(request: Request) -> Response:
        if request.path.endswith("bad"):
            raise ValueError(request.body.decode())
        return OK

    async def test(queue: Served) -> None:
        queue.submit(f"{lane} bad")
        queue.submit(f"{lane} good")
        await queue.answers.wait_for(f"{lane} bad", f"{lane} good")

    with caplog.at_level(logging.ERROR):
        answers = served(test, application).answers

    assert {f"{lane} bad": 500, f"{lane} good": 200} == answers.statuses
    assert "ValueError" in caplog.text
    assert "in application" in caplog.text
    assert "secret" not in caplog.text
