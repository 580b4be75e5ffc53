"""The `timings` of a response are finite, whatever was measured."""

import math

import pytest

from unpaced.completion.timings import Timings


@pytest.mark.parametrize(
    "timings",
    [
        Timings(),
        Timings(start_us=5, n_prompt=3),
        Timings(
            start_us=5,
            first_token_us=5,
            last_token_us=5,
            n_prompt=3,
            n_cached=3,
            n_processed=3,
            n_decoded=1,
        ),
        Timings(start_us=5, first_token_us=9, last_token_us=99, n_prompt=3, n_decoded=10),
    ],
)
def test_timings_are_finite(timings: Timings) -> None:
    body = timings.to_json()
    assert all(math.isfinite(value) and value >= 0 for value in body.values())
    if timings.n_decoded == 1:
        assert body["predicted_per_second"] == body["predicted_per_token_ms"] == 0.0
    if timings.n_decoded == 10:
        assert body["predicted_per_second"] == pytest.approx(1e6 * 9 / 90)
