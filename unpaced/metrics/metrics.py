"""Prometheus metrics under our own names: base units, closed label sets.

The token path only adds to plain integers; the engine's counters are read when Prometheus asks, so
the exporter costs the decode thread nothing. llama-server's names are in `llamacpp_metrics`.
"""

import time
from collections import Counter as Counted
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client import Histogram as SlowHistogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from engine_ext import DecodeLoop, EngineState, EngineStats
from unpaced.metrics.histogram import Histogram

if TYPE_CHECKING:
    from unpaced.completion.choice import Choice

# vLLM's buckets, so that dashboards carry over; the inter-token ones begin where ours matter.
_SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_INTER_TOKEN_SECONDS: Final = (
    0.00025, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.0125, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
_FINISHES: Final = ("stop", "length", "error")
_PHASES: Final = ("queued", "prefill", "decode")
REJECT_REASONS: Final = ("queue_full", "connections", "draining", "failed", "loading")


class Metrics:
    """Everything this process counts. Event loop's thread only."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.inter_token = Histogram(_INTER_TOKEN_SECONDS)
        self.started_at = time.time()
        self.n_tokens_max = 0
        self.prompt_us = 0
        self.predicted_us = 0
        self.n_prompt = 0
        self.n_cached = 0
        self.n_predicted = 0
        self.count_dropped_log: Callable[[], int] = lambda: 0
        self._http = Counter(
            "unpaced_http_requests",
            "HTTP requests answered, by route and status",
            ("route", "status"),
            registry=self.registry,
        )
        self._finished = self._labelled(
            "unpaced_completions_finished", "Completions that ended, by reason", "reason", _FINISHES
        )
        self._cancelled = self._labelled(
            "unpaced_completions_cancelled",
            "Completions given up because the client left or the server stopped, by phase",
            "phase",
            _PHASES,
        )
        self._rejected = self._labelled(
            "unpaced_requests_rejected", "Requests refused with 503", "reason", REJECT_REASONS
        )
        self._ttft = self._seconds("time_to_first_token", "From arrival to the first token")
        self._e2e = self._seconds("request_duration", "From arrival to the last event")
        self._queue = self._seconds("queue_time", "From arrival to the start of the prompt")
        self._prefill = self._seconds("prefill_time", "From the start of the prompt to a token")
        self._decode = self._seconds("decode_time", "From the first token to the last")

    def _labelled(
        self, name: str, text: str, label: str, values: tuple[str, ...]
    ) -> dict[str, Counter]:
        counter = Counter(name, text, (label,), registry=self.registry)
        return {value: counter.labels(value) for value in values}

    def _seconds(self, name: str, text: str) -> SlowHistogram:
        return SlowHistogram(
            f"unpaced_{name}_seconds", text, registry=self.registry, buckets=_SECONDS
        )

    def answered(self, route: str, status: int) -> None:
        """An HTTP request is over; `route` is a template, never what the client sent."""
        self._http.labels(route, str(status)).inc()

    def rejected(self, reason: str) -> None:
        """A request was refused with 503."""
        self._rejected[reason].inc()

    def observe_choice(self, choice: "Choice") -> None:
        """A completion is over, by itself or not."""
        sequence_text = choice.sequence_text
        timings = sequence_text.timings
        if not sequence_text.is_over:
            self._cancelled[choice.phase].inc()
        elif sequence_text.error is not None:
            self._finished["error"].inc()
        else:
            self._finished[sequence_text.finish_reason].inc()
        if not timings.start_us:
            return
        self.n_prompt += timings.n_processed - timings.n_cached
        self.n_cached += timings.n_cached
        self._queue.observe((timings.start_us - choice.arrived_us) * 1e-6)
        if timings.n_decoded:
            self.n_predicted += timings.n_decoded
            # The last token is not computed: nothing follows it.
            n_tokens = sequence_text.n_cells or timings.n_prompt + timings.n_decoded - 1
            self.n_tokens_max = max(self.n_tokens_max, n_tokens)
            self.prompt_us += timings.first_token_us - timings.start_us
            self.predicted_us += timings.last_token_us - timings.first_token_us
            self._ttft.observe((timings.first_token_us - choice.arrived_us) * 1e-6)
            self._prefill.observe(timings.prompt_ms * 1e-3)
            self._decode.observe(timings.predicted_ms * 1e-3)
        self._e2e.observe(time.monotonic() - choice.arrived_us * 1e-6)


class LiveCollector(Collector):
    """What is read at scrape time: engine counters, queue, the token path's histogram."""

    def __init__(
        self,
        metrics: Metrics,
        stats: Callable[[], EngineStats],
        queue: Callable[[], tuple[int, int, int]],
        build: dict[str, str],
        decode_loop: Callable[[], DecodeLoop | None],
    ) -> None:
        self._decode_loop = decode_loop
        self._metrics = metrics
        self._stats = stats
        self._queue = queue
        self._build = build
        metrics.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """One sample of each."""
        metrics, stats = self._metrics, self._stats()
        running, waiting, waiting_tokens = self._queue()
        yield InfoMetricFamily("unpaced_build", "Version and build", value=self._build)
        for name, text, value in (
            ("requests_running", "Completions that hold a slot", running),
            ("requests_waiting", "Completions that wait for a slot", waiting),
            ("waiting_prompt_tokens", "Prompt tokens that wait for a slot", waiting_tokens),
            ("engine_slots_active", "Slots in the engine's last step", stats.n_slots_active),
            ("prompt_cache_bytes", "Host memory of prompts without a slot", stats.n_cache_bytes),
            ("prompt_cache_prompts", "Prompts kept in host memory", stats.n_cache_states),
            (
                "prompt_cache_longest_turn_seconds",
                "The longest time that copying slots took between two steps",
                stats.cache_turn_us_max / 1e6,
            ),
            ("engine_heartbeat_age_seconds", "Since the engine last moved", stats.heartbeat_age_s),
            ("engine_window_graphs", "Decode graphs in the GPU's cache", stats.n_window_graphs),
        ):
            yield GaugeMetricFamily(f"unpaced_{name}", text, value=float(value))
        state = GaugeMetricFamily(
            "unpaced_engine_state", "1 for the state it is in", None, ["state"]
        )
        for each in EngineState:
            state.add_metric([each.name.lower()], float(each is stats.state))
        yield state
        for name, text, count in (
            ("prompt_tokens", "Prompt tokens computed for finished completions", metrics.n_prompt),
            ("prompt_tokens_cached", "Prompt tokens reused from a slot", metrics.n_cached),
            ("generated_tokens", "Tokens of finished completions", metrics.n_predicted),
            ("log_lines_dropped", "Log lines that nobody read", metrics.count_dropped_log()),
            ("engine_steps", "Steps of the decode thread", stats.n_steps),
            ("engine_tokens_decoded", "Tokens the engine decoded", stats.n_tokens_decoded),
            (
                "engine_tokens_device",
                "Tokens that the GPU drew and fed to itself",
                stats.n_tokens_device,
            ),
            ("engine_prompt_tokens", "Prompt tokens the engine computed", stats.n_tokens_prompt),
            (
                "engine_requests_failed",
                "Requests the engine ended by a fault",
                stats.n_requests_failed,
            ),
            ("prompt_cache_seconds", "Time spent on copying slots", stats.cache_us / 1e6),
            (
                "prompt_cache_lost",
                "Prompts whose cells were needed before they had been copied",
                stats.n_cache_lost,
            ),
            (
                "kv_waits",
                "Times a request began to wait for KV cells that others held",
                stats.n_cell_waits,
            ),
            (
                "kv_cells_yielded",
                "KV cells that a running request gave to another one and computed anew later",
                stats.n_cells_yielded,
            ),
            ("engine_ring_full", "Times the decode thread waited for us", stats.n_ring_full),
            ("engine_wakeups", "Times the engine woke the front end", stats.n_event_writes),
        ):
            yield CounterMetricFamily(f"unpaced_{name}", text, value=float(count))
        on_host = CounterMetricFamily(
            "unpaced_engine_host_requests",
            "Requests whose tokens the host drew, at least in part, although the GPU runs the loop",
            labels=["reason"],
        )
        for reason, n_requests in stats.n_requests_host.items():
            on_host.add_metric([reason], float(n_requests))
        yield on_host
        if (loop := self._decode_loop()) is not None:
            yield InfoMetricFamily(
                "unpaced_decode_loop",
                "Where the token loop runs, and why not on the GPU",
                value={"loop": loop.loop, "reason": loop.reason},
            )
            yield _step_phases(loop)
        yield HistogramMetricFamily(
            "unpaced_inter_token_seconds",
            "Between two tokens of a completion, on the decode thread's clock",
            buckets=metrics.inter_token.cumulative(),
            sum_value=metrics.inter_token.total,
        )


def _step_phases(loop: DecodeLoop) -> GaugeMetricFamily:
    phases = GaugeMetricFamily(
        "unpaced_step_phases",
        "Phases of a step of the GPU's loop, by whose kernels compute them",
        labels=["phase", "kernels"],
    )
    counts = Counted[tuple[str, str]]()
    for told in loop.phases:
        counts[str(told["phase"]), str(told["kernels"])] += int(told["n"])
    for (phase, kernels), n in counts.items():
        phases.add_metric([phase, kernels], float(n))
    return phases
