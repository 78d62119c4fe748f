"""The fetch queue: order, pauses and bounds."""

from __future__ import annotations

from webhook.images.errors import Reason
from webhook.images.resolver.fetch_queue import (
    AT_ONCE,
    INTERVAL_S,
    LONGEST_IMAGE_S,
    LONGEST_RETRY_AFTER_S,
    MAX_FAILED,
    MAX_WAITING,
    FetchQueue,
)

HOUR = 3600.0


def queue(*images: str, chance: float = 1.0) -> FetchQueue:
    """Return a queue in which these images wait; the registry is the first part of each."""
    filled = FetchQueue(lambda: chance)
    for image in images:
        filled.add(image, image.partition("/")[0], 0.0)
    return filled


def failed_at(of: FetchQueue, image: str, now: float, reason: Reason = Reason.NOT_FOUND) -> float:
    """Let an image be read and fail; return the pause."""
    of.add(image, image.partition("/")[0], now)
    assert image == of.take(now)
    return of.failed(image, reason, now)


def test_images_are_read_in_the_order_in_which_they_came_and_each_once() -> None:
    """An image that waits or is being read is not added again."""
    of = queue("a/1", "b/1", "a/1")
    taken = [of.take(0.0), of.take(0.0)]
    of.add("a/1", "a", 0.0)

    assert (["a/1", "b/1"], 0, False) == (taken, of.waiting, of.is_idle)


def test_a_registry_gets_two_images_a_second_and_others_do_not_wait_for_it() -> None:
    """One after the other, whatever waits."""
    of = queue("a/1", "a/2", "b/1")

    assert ["a/1", "b/1", None] == [of.take(0.0) for _ in range(3)]
    assert [None, "a/2"] == [of.take(INTERVAL_S - 0.01), of.take(INTERVAL_S)]


def test_four_images_are_read_at_once() -> None:
    """The next one starts when one of them ends."""
    of = queue(*(f"{number}/1" for number in range(AT_ONCE + 1)))
    taken = [of.take(0.0) for _ in range(AT_ONCE)]

    assert [f"{number}/1" for number in range(AT_ONCE)] == taken
    assert of.take(0.0) is None
    of.succeeded("0/1")
    assert f"{AT_ONCE}/1" == of.take(0.0)


def test_an_image_that_failed_waits_twice_as_long_each_time_up_to_six_hours() -> None:
    """And is not added in between, however often objects name it."""
    of, now, pauses = queue(), 0.0, []
    for _ in range(12):
        pause = failed_at(of, "a/1", now)
        pauses.append(pause)
        of.add("a/1", "a", now + pause - 1)
        assert 0 == of.waiting
        now += pause

    assert [30.0, 60.0, 120.0] == pauses[:3]
    assert LONGEST_IMAGE_S == pauses[-1]


def test_half_of_a_pause_is_random() -> None:
    """So that images that failed together are not read together."""
    assert [15.0, 30.0] == [failed_at(queue(chance=chance), "a/1", 0.0) for chance in (0.0, 1.0)]


def test_an_image_that_was_read_starts_again_with_a_short_pause() -> None:
    """Its earlier failures are forgotten."""
    of = queue()
    failed_at(of, "a/1", 0.0)
    of.add("a/1", "a", HOUR)
    of.take(HOUR)
    of.succeeded("a/1")

    assert 30.0 == failed_at(of, "a/1", 2 * HOUR)


def test_a_registry_that_does_not_answer_is_asked_for_no_image_for_a_while() -> None:
    """5 seconds, 10, 20; the others are read meanwhile, and its images stay in the queue."""
    of = queue("a/1", "a/2", "a/3", "b/1")
    of.take(0.0)
    of.failed("a/1", Reason.UNAVAILABLE, 0.0)

    assert ["b/1", None, None] == [of.take(0.0), of.take(4.9), of.take(4.9)]
    assert "a/2" == of.take(5.0)
    of.failed("a/2", Reason.TIMEOUT, 5.0)
    assert [None, "a/3"] == [of.take(14.9), of.take(15.0)]


def test_a_missing_image_is_not_the_fault_of_its_registry() -> None:
    """The next image is read in its turn."""
    of = queue("a/1", "a/2")
    of.take(0.0)
    of.failed("a/1", Reason.NOT_FOUND, 0.0)

    assert "a/2" == of.take(INTERVAL_S)


def test_a_registry_that_names_a_time_is_not_asked_before() -> None:
    """429 with Retry-After, at most six hours."""
    of = queue("a/1", "a/2")
    of.take(0.0)
    pause = of.failed("a/1", Reason.RATE_LIMITED, 0.0, HOUR)

    assert (HOUR, None, "a/2") == (pause, of.take(HOUR - 1), of.take(HOUR))
    assert LONGEST_RETRY_AFTER_S == of.failed("a/2", Reason.RATE_LIMITED, HOUR, 30 * 24 * HOUR)


def test_2000_images_wait_and_others_have_to_be_added_later() -> None:
    """A user who names more uses no more memory."""
    of = queue(*(f"a/{number}" for number in range(MAX_WAITING + 5)))

    assert MAX_WAITING == of.waiting
    of.take(0.0)
    of.add("a/late", "a", 0.0)
    assert MAX_WAITING == of.waiting


def test_images_that_fail_do_not_fill_the_queue() -> None:
    """They leave it until their pause is over."""
    of = queue("a/1", "a/2")
    of.take(0.0)
    of.failed("a/1", Reason.INVALID, 0.0)

    assert (1, 1) == (of.waiting, of.failures(["a/1", "a/2"]))


def test_pods_that_come_and_go_shorten_no_pause() -> None:
    """An image that nothing uses is remembered for an hour after its pause, and 5,000 of them at most."""
    of = queue()
    failed_at(of, "a/1", 0.0)
    of.retain(set(), 30.0 + HOUR - 1)
    kept = failed_at(of, "a/1", 30.0 + HOUR - 1)
    of.retain(set(), 90.0 + 2 * HOUR)
    forgotten = failed_at(of, "a/1", 90.0 + 2 * HOUR)

    assert (60.0, 30.0) == (kept, forgotten)
    many = [f"a/{number}" for number in range(MAX_FAILED + 3)]
    for number, image in enumerate(many):
        failed_at(of, image, 3 * HOUR + number * INTERVAL_S)
    of.retain(set(), 4 * HOUR)
    assert MAX_FAILED == of.failures(many)


def test_what_nothing_uses_any_more_is_forgotten() -> None:
    """Waiting images, and registries that have no pause."""
    of = queue("a/1", "b/1", "c/1")
    of.take(0.0)
    of.failed("a/1", Reason.UNAVAILABLE, 0.0)
    of.retain({"c/1"}, 0.0)

    assert (1, {"a"}) == (of.waiting, of.paused(0.0))
    of.retain(set(), HOUR)
    assert (set(), True) == (of.paused(0.0), of.is_idle)
