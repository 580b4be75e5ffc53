"""The histogram of the token path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpaced.metrics.histogram import Histogram


@given(st.lists(st.floats(0, 10), max_size=50))
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    histogram = Histogram((0.5, 1.0, 5.0))
    for value in values:
        histogram.observe(value)
    buckets = dict(histogram.cumulative())
    for bound in (0.5, 1.0, 5.0):
        assert buckets[repr(bound)] == sum(value <= bound for value in values)
    assert buckets["+Inf"] == len(values)
    assert histogram.total == pytest.approx(sum(values))
