"""Restarts by the supervisor, as Prometheus metrics of the server that runs now."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector


class RestartCollector(Collector):
    """`restarts`: numbers by reason, all reasons there are. `last_cause`: empty if there was none.

    They do not change during a server's life. Without a supervisor all of them are 0.
    """

    def __init__(self, restarts: Mapping[str, int], last_cause: str, n_refused: int) -> None:
        self._restarts = restarts
        self._last_cause = last_cause
        self._n_refused = n_refused

    def collect(self) -> Iterator[Metric]:
        """One sample of each."""
        restarts = CounterMetricFamily(
            "unpaced_supervisor_restarts",
            "Servers that the supervisor (--supervise) has replaced, by why they ended",
            labels=["reason"],
        )
        for reason, n in self._restarts.items():
            restarts.add_metric([reason], float(n))
        yield restarts
        yield CounterMetricFamily(
            "unpaced_supervisor_refused_requests",
            "Requests that the supervisor answered with 503 while no server ran",
            value=float(self._n_refused),
        )
        if self._last_cause:
            yield InfoMetricFamily(
                "unpaced_supervisor_last_restart",
                "Why the server before this one ended",
                value={"cause": self._last_cause},
            )
