"""A client that reads nothing for the whole time is told on; one that reads a little is not."""

import asyncio
from typing import cast

from tests.unit.http.wire.test_header_deadlines import Clock
from unpaced.http.wire.send_deadlines import SendDeadlines


class Sender:
    def __init__(self, n_unread: int) -> None:
        self.n_unread = n_unread
        self.was_told = False

    def unread_bytes(self) -> int:
        return self.n_unread

    def on_send_deadline(self) -> None:
        self.was_told = True


def watched(*sizes: int) -> tuple[Clock, SendDeadlines, list[Sender]]:
    clock, deadlines = Clock(), SendDeadlines(8.0)
    senders = [Sender(size) for size in sizes]
    for sender in senders:
        deadlines.begin(sender, cast(asyncio.AbstractEventLoop, clock))
    return clock, deadlines, senders


def test_who_reads_nothing_is_told_on_and_who_reads_is_not() -> None:
    clock, _, (still, slow, quick) = watched(100, 100, 100)
    for _ in range(20):
        clock.advance(1)
        slow.n_unread -= 1
        quick.n_unread = 0
    assert [sender.was_told for sender in (still, slow, quick)] == [True, False, False]
    clock.advance(10)
    assert slow.was_told


def test_nobody_is_watched_who_has_caught_up_or_gone() -> None:
    clock, deadlines, (gone, back) = watched(100, 100)
    deadlines.end(gone)
    deadlines.end(gone)
    back.n_unread = 0
    clock.advance(20)
    assert not gone.was_told and not back.was_told
    assert not clock.timers
    back.n_unread = 5
    deadlines.begin(back, cast(asyncio.AbstractEventLoop, clock))
    clock.advance(7)
    assert not back.was_told
    clock.advance(3)
    assert back.was_told
