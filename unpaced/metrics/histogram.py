"""A histogram cheap enough for the token path; a collector reads it when Prometheus scrapes."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from engine_ext import Histogram as NativeHistogram


class Histogram(NativeHistogram):
    """Counts per bucket, upper bounds inclusive, and the sum. One writer, the event loop's thread.

    Native, so that the engine can count tokens that no Python sees.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self._names = [*map(repr, self.bounds), "+Inf"]

    def running_sums(self) -> list[int]:
        """Observations up to each bound, and all of them."""
        return list(accumulate(self.counts))

    def cumulative(self) -> list[tuple[str, float]]:
        """Buckets as Prometheus wants them: (upper bound, observations up to it)."""
        return list(zip(self._names, map(float, self.running_sums()), strict=True))


class HistogramFamily(Metric):
    """The library's, but that its samples are made when somebody asks for them: most samples of a
    scrape are buckets, and `Exposition` writes them without."""

    def __init__(self, name: str, text: str) -> None:
        self.members: list[tuple[Mapping[str, str], Histogram]] = []
        """Labels, none of which is `le`, and what they are of."""
        super().__init__(name, text, "histogram")

    @property
    def samples(self) -> list[Sample]:
        """Of all members, as they are now."""
        return [sample for member in self.members for sample in self.samples_of(*member)]

    @samples.setter
    def samples(self, _: list[Sample]) -> None:
        """The library sets it to none at first."""

    def samples_of(self, labels: Mapping[str, str], histogram: Histogram) -> list[Sample]:
        """A member's: each bucket, the count, the sum."""
        total, buckets = histogram.total, histogram.cumulative()
        return [
            *(Sample(f"{self.name}_bucket", {**labels, "le": bound}, n) for bound, n in buckets),
            Sample(f"{self.name}_count", {**labels}, buckets[-1][1]),
            Sample(f"{self.name}_sum", {**labels}, total),
        ]
