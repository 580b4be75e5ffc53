"""The text of /metrics is the one that prometheus_client writes."""

from collections.abc import Iterator, Sequence

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from tests.support.scripted.asgi_client import post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.metrics.exposition import Exposition
from unpaced.metrics.histogram import Histogram, HistogramFamily
from unpaced.metrics.number import NumberFamily

VALUES = (
    *(0.0, -0.0, 1.0, -1.0, 0.1, 1e-7, 1e-5, 999999.0, 999999.9, 1e6, 1234567.0, 123456789.125),
    *(1e21, -1e21, 2.0**53, float("inf"), float("-inf"), float("nan")),
)
ODD = 'a "quoted"\\ label,\nof\ttwo {lines} — ü'


class Fixed(Collector):
    """Tells of families that are there."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def of_library(families: Sequence[Metric]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fixed(families))
    return generate_latest(registry).decode()


def families(n: float) -> list[Metric]:
    counter = CounterMetricFamily("a", f"Help of {ODD}", labels=("z", "b"))
    gauge = GaugeMetricFamily("b_bytes", "", labels=("value",))
    for value in VALUES:
        counter.add_metric((ODD, str(value)), value + n)
        gauge.add_metric((str(value),), value)
    histogram = HistogramMetricFamily("c", "c", labels=("model",))
    histogram.add_metric(("x",), [("0.5", n), ("+Inf", n + 1)], n / 3)
    info = InfoMetricFamily("d", "d", value={"version": ODD})
    return [counter, gauge, histogram, info, GaugeMetricFamily("e", "e", n)]


def test_every_kind_of_family_and_value() -> None:
    exposition = Exposition()
    for n in (0, 5, 1e9):  # the second time its heads are there
        assert exposition.write(families(n)) == of_library(families(n))


@pytest.mark.anyio
async def test_all_of_a_server() -> None:
    engine = FakeEngine()
    engine.answer = b"abc"
    app = make_app(engine, alias='small,"large"')
    await post(app, "/v1/completions", {"prompt": "x", "model": "small"}).done()
    told = list(app.state.metrics.registry.collect())
    text = Exposition().write(told)
    assert text == of_library(told)
    assert text.count("\n") > 400


def test_a_kind_that_nobody_has_is_refused() -> None:
    with pytest.raises(KeyError, match="summary"):
        Exposition().write([SummaryMetricFamily("a", "a", 1, 2)])


def test_a_histogram_s_family_is_the_library_s() -> None:
    histogram = Histogram((0.25, 1.0, 10.0))
    for value in (0.25, 0.5, 3, 1000):
        histogram.observe(value)
    ours, exposition = HistogramFamily("a", "text"), Exposition()
    ours.members.append(({"model": "m"}, histogram))
    library = HistogramMetricFamily("a", "text", labels=("model",))
    library.add_metric(("m",), [("0.25", 1), ("1.0", 2), ("10.0", 3), ("+Inf", 4)], 1003.75)
    assert ours == library
    for _ in range(2):
        assert exposition.write([ours]) == of_library([library])
        histogram.observe(0.1)
        library.samples = ours.samples


def test_a_number_s_family_is_the_library_s() -> None:
    exposition = Exposition()
    for value in VALUES[:-1]:  # NaN is not equal to itself
        numbers = [NumberFamily("counter", "a", ODD, value), NumberFamily("gauge", "b", "", value)]
        library = [CounterMetricFamily("a", ODD, value), GaugeMetricFamily("b", "", value)]
        assert numbers == library
        assert exposition.write(numbers) == of_library(library)
        assert exposition.write(library) == of_library(library)  # whoever's it is
