"""How a server's end is called, what waits for the next one, and when a server hangs."""

from types import SimpleNamespace
from typing import cast

import pytest

from unpaced.process.past_servers import REASONS, PastServers
from unpaced.settings import Settings
from unpaced.supervision.back_off import N_FAILED_MAX, BackOff
from unpaced.supervision.child import Child
from unpaced.supervision.ending import Ending
from unpaced.supervision.hang import HangLimits


@pytest.mark.parametrize(
    ("ending", "reason", "cause", "status"),
    [
        (Ending(-9), "signal", "was killed by SIGKILL", 137),
        (Ending(-37), "signal", "was killed by signal 37", 165),
        (Ending(70), "engine_lost", "ended with status 70: the engine was lost", 70),
        (Ending(1), "exit", "ended with status 1", 1),
        (Ending(0), "exit", "ended with status 0", 0),
        (Ending(-9, hang="hung: so"), "hang", "hung: so", 137),
    ],
)
def test_an_end_has_one_name(ending: Ending, reason: str, cause: str, status: int) -> None:
    assert (ending.reason, ending.cause, ending.exit_status) == (reason, cause, status)
    assert reason in REASONS


def test_what_has_to_be_put_right_is_not_tried_again() -> None:
    assert BackOff().seconds(Ending(1)) is None


def test_failed_starts_wait_longer_and_longer_and_end() -> None:
    back_off = BackOff()
    waits = [back_off.seconds(Ending(-11)) for _ in range(N_FAILED_MAX)]
    assert waits == [1, 2, 4, 8, None]


def test_a_server_that_was_ready_is_replaced_however_often() -> None:
    back_off = BackOff()
    for _ in range(100):
        assert back_off.seconds(Ending(-9, was_ready=True, lived_s=1)) == 1
    assert back_off.seconds(Ending(-9, was_ready=True, lived_s=10)) == 0
    # A model that is away for a moment is no wrong configuration: it has been there.
    assert [back_off.seconds(Ending(1)) for _ in range(3)] == [1, 2, 4]
    assert back_off.seconds(Ending(70, was_ready=True, lived_s=99)) == 0
    assert back_off.seconds(Ending(1)) == 1  # counted anew


def child(**moments: float | None) -> Child:
    given = {"heard_s": None, "ready_s": None, "beat_s": None, "stopping_s": None} | moments
    return cast(Child, SimpleNamespace(**given))


@pytest.mark.parametrize(
    ("moments", "seconds", "why"),
    [
        ({}, 10_000, ""),  # it may be downloading
        ({"heard_s": 0}, 59, ""),
        ({"heard_s": 0}, 61, "event loop"),
        ({"heard_s": 0, "ready_s": 0, "beat_s": 0}, 19, ""),
        ({"heard_s": 0, "ready_s": 0, "beat_s": 0}, 21, "event loop"),
        ({"heard_s": 74, "ready_s": 0, "beat_s": 0}, 74, ""),
        ({"heard_s": 76, "ready_s": 0, "beat_s": 0}, 76, "decode thread"),
        ({"heard_s": 0, "ready_s": 0, "beat_s": 0, "stopping_s": 0}, 54, ""),
        ({"heard_s": 0, "ready_s": 0, "beat_s": 0, "stopping_s": 0}, 56, "not ended"),
    ],
)
def test_when_a_server_hangs(moments: dict[str, float], seconds: float, why: str) -> None:
    limits = HangLimits(Settings())  # 60 s without progress, 30 to drain, 5 to stop
    found = limits.why(child(**moments), seconds)
    assert why in found
    assert bool(why) == bool(found)
    assert HangLimits(Settings(stall_timeout=0)).why(child(**moments), seconds) == ""


def test_what_is_handed_to_the_next_server_comes_back() -> None:
    past = PastServers(last_cause='"quoted" =\n', n_refused=3)
    past.restarts["hang"] += 2
    assert PastServers.of_environment(past.to_environment()) == past
    assert PastServers.of_environment({}) is None
