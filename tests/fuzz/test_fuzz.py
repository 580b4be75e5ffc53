"""Some thousand odd requests in every run of the tests; docs/fuzz.md has the long run."""

from typing import Final

import pytest

from tests.fuzz.fuzz_server import SLOW_S, run_fuzz
from tests.fuzz.odd_requests import OddRequests, Route
from tests.support.server import serving

N: Final = 2000


def test_no_request_is_the_servers_fault() -> None:
    with serving("-t", "1") as server:
        outcome = run_fuzz(server, range(N), seed=21, slow_s=SLOW_S)
        assert outcome.tally.faults == []
        assert outcome.tally.unanswered == []
        assert outcome.is_golden and outcome.is_same_process
        assert sum(outcome.tally.statuses.values()) == N
        assert outcome.tally.statuses[200] > N / 5  # they reach the engine, not only its checks


@pytest.mark.parametrize("seed", [1, 2])
def test_a_number_is_the_same_request_each_time(seed: int) -> None:
    routes = [Route("POST", "/completion"), Route("POST", "/v1/messages"), Route("GET", "/slots")]

    def requests(numbers: list[int], seed: int) -> dict[int, bytes]:
        odd = OddRequests(seed, routes, ["prompt", "messages"], ["role", "user"])
        return {number: odd.make(number).to_bytes() for number in numbers}

    numbers = list(range(300))
    assert requests(numbers, seed) == requests(numbers[::-1], seed)
    assert requests(numbers, seed) != requests(numbers, seed + 1)
