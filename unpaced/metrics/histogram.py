"""A histogram cheap enough for the token path; a collector reads it when Prometheus scrapes."""

from engine_ext import Histogram as NativeHistogram


class Histogram(NativeHistogram):
    """Counts per bucket, upper bounds inclusive, and the sum. One writer, the event loop's thread.

    Native, so that the engine can count tokens that no Python sees.
    """

    def cumulative(self) -> list[tuple[str, float]]:
        """Buckets as Prometheus wants them: (upper bound, observations up to it)."""
        buckets: list[tuple[str, float]] = []
        n = 0
        counts = self.counts
        for bound, count in zip(self.bounds, counts, strict=False):
            n += count
            buckets.append((repr(bound), float(n)))
        return [*buckets, ("+Inf", float(n + counts[-1]))]
