"""The GPUs' metrics, from their last reading. Nothing here asks NVML."""

import time
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from unpaced.metrics.gpu_watch import GpuWatch

_GAUGES: Final = (
    ("memory_used_bytes", "Memory in use, by whatever process"),
    ("memory_bytes", "Memory of the GPU"),
    ("utilization_ratio", "Part of the time in which a kernel ran, over the driver's period"),
    ("power_watts", "Power drawn"),
    ("power_limit_watts", "Power that may be drawn"),
    ("temperature_celsius", "Temperature of the chip"),
    ("clock_sm_hertz", "Clock of the multiprocessors"),
    ("clock_memory_hertz", "Clock of the memory"),
)


class GpuCollector(Collector):
    """By GPU, with NVML's number of it: all that the process may see by NVML, used or not."""

    def __init__(self, watch: GpuWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """One sample of each. Any thread."""
        watch, gpus = self._watch, self._watch.gpus
        yield GaugeMetricFamily(
            "unpaced_gpu_watch_up", "1: NVML was asked and has answered in time", watch.is_up
        )
        troubles = CounterMetricFamily(
            "unpaced_gpu_watch_failures",
            "Processes that asked NVML and said nothing in time, or came to an end",
            labels=("reason",),
        )
        for reason, n in watch.troubles.items():
            troubles.add_metric((reason,), n)
        yield troubles
        if not gpus:
            return
        age_s = time.monotonic() - watch.read_at
        yield GaugeMetricFamily("unpaced_gpu_reading_age_seconds", "Of the last reading", age_s)
        up = GaugeMetricFamily("unpaced_gpu_up", "1: NVML answers for the GPU", labels=("gpu",))
        for gpu in gpus:
            up.add_metric((str(gpu["gpu"]),), float("error" not in gpu))
        yield up
        yield _info(gpus)
        for name, text in _GAUGES:
            gauge = GaugeMetricFamily(f"unpaced_gpu_{name}", text, labels=("gpu",))
            _add(gauge, gpus, name)
            yield gauge
        energy = CounterMetricFamily(
            "unpaced_gpu_energy_joules", "Energy used since the driver was loaded", labels=("gpu",)
        )
        _add(energy, gpus, "energy_joules")
        yield energy


def _add(
    family: GaugeMetricFamily | CounterMetricFamily, gpus: list[dict[str, Any]], name: str
) -> None:
    for gpu in gpus:
        if name in gpu:
            family.add_metric((str(gpu["gpu"]),), float(gpu[name]))


def _info(gpus: list[dict[str, Any]]) -> InfoMetricFamily:
    info = InfoMetricFamily("unpaced_gpu", "Which GPU it is", labels=("gpu",))
    for gpu in gpus:
        if "uuid" in gpu and "name" in gpu:
            info.add_metric((str(gpu["gpu"]),), {"name": gpu["name"], "uuid": gpu["uuid"]})
    return info
