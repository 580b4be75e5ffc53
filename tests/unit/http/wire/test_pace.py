"""Long turns of the event loop begin fewer connections, short ones more again."""

from unpaced.http.wire.pace import N_MAX, N_MIN, TURN_S, Pace


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def counts(pace: Pace, clock: Clock, took_s: float, n_turns: int) -> list[int]:
    found = []
    for _ in range(n_turns):
        clock.now += took_s
        found.append(pace.n_of_turn())
    return found


def test_long_turns_begin_fewer_and_short_ones_more_again() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.n_of_turn() == N_MAX
    assert counts(pace, clock, 2 * TURN_S, 4) == [8, 4, N_MIN, N_MIN]
    assert counts(pace, clock, 0.75 * TURN_S, 3) == [N_MIN] * 3
    assert counts(pace, clock, 0.25 * TURN_S, 4) == [8, N_MAX, N_MAX, N_MAX]


def test_a_rest_is_no_long_turn() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.n_of_turn()
    pace.rest()
    assert counts(pace, clock, 100 * TURN_S, 1) == [N_MAX]
