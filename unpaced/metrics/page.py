"""The text of GET /metrics."""

import threading
from collections.abc import Container

from unpaced.completion.admission import Admission
from unpaced.completion.slot_table import SlotTable
from unpaced.metrics.exposition import Exposition, series_names
from unpaced.metrics.kv_use import KvUse
from unpaced.metrics.llamacpp_metrics import LlamacppMetrics
from unpaced.metrics.metrics import Metrics
from unpaced.metrics.vllm_metrics import render_vllm
from unpaced.request.model_host import ModelHost


class MetricsPage:
    """Our metrics, and the same by other servers' names where the settings ask for them."""

    def __init__(
        self, metrics: Metrics, host: ModelHost, admission: Admission, slots: SlotTable
    ) -> None:
        self._metrics = metrics
        self._host = host
        self._admission = admission
        self._slots = slots
        self._exposition = Exposition()
        self._turn = threading.Lock()
        self._llamacpp = LlamacppMetrics(metrics, admission)
        self.started_at = metrics.started_at

    def render(self) -> bytes:
        """Prometheus' text format 0.0.4. Any thread; threads wait for one another."""
        names = self._host.settings.metrics_names
        with self._turn:
            text = self._exposition.write(self._metrics.registry.collect()).encode()
            if "llamacpp" in names:
                text += self._llamacpp.render(self._host.engine.stats()).encode()
            if "vllm" in names:
                kv = KvUse.of(self._host, self._slots)
                text += render_vllm(self._metrics, self._admission, kv)
        return text

    def render_some(self, wanted: Container[str]) -> bytes:
        """Of our own metrics those that have a series of these names. Any thread, as `render`."""
        with self._turn:
            families = self._metrics.registry.collect()
            some = (each for each in families if any(n in wanted for n in series_names(each)))
            return self._exposition.write(some).encode()
