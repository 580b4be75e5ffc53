"""What is read at scrape time: the engine's counters, the queue, slots, KV, the event loop."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine_ext import BuildInfo, DecodeLoop, EngineState, EngineStats
from unpaced.completion.admission import Admission
from unpaced.completion.slot_table import SlotTable
from unpaced.metrics.histogram import HistogramFamily
from unpaced.metrics.kv_use import KvUse
from unpaced.metrics.loop_lag import LoopLag
from unpaced.metrics.number import NumberFamily
from unpaced.metrics.step_metrics import step_metrics
from unpaced.request.model_host import ModelHost


class LiveCollector(Collector):
    """Reads others; counts nothing itself."""

    def __init__(
        self,
        host: ModelHost,
        admission: Admission,
        slots: SlotTable,
        loop_lag: LoopLag,
        build: BuildInfo,
    ) -> None:
        self._host = host
        self._admission = admission
        self._slots = slots
        self._loop_lag = loop_lag
        self._build = build

    def collect(self) -> Iterator[Metric]:
        """One sample of each. Another thread may call it."""
        build, stats = self._build, self._host.engine.stats()
        told = {
            "version": build.version,
            "llama_commit": build.llama_commit,
            "profile": build.profile,
        }
        yield InfoMetricFamily("unpaced_build", "Version and build", value=told)
        yield from self._gauges(stats)
        yield from self._counters(stats)
        yield from step_metrics(stats.steps)
        yield from self._states(stats)
        yield from self._decode_loop()
        lag = HistogramFamily(
            "unpaced_event_loop_lag_seconds",
            "How late the front end's event loop is; it looks four times a second",
        )
        lag.members.append(({}, self._loop_lag.histogram))
        yield lag

    def _gauges(self, stats: EngineStats) -> Iterator[Metric]:
        admission, settings = self._admission, self._host.settings
        kv = KvUse.of(self._host, self._slots)
        for name, text, value in (
            ("requests_running", "Completions that hold a slot", admission.n_running),
            ("requests_waiting", "Completions that wait for a slot", admission.n_waiting),
            (
                "waiting_prompt_tokens",
                "Prompt tokens that wait for a slot",
                admission.n_tokens_waiting,
            ),
            (
                "queue_used_ratio",
                "Part of the queue's room that is taken, by requests or by prompt tokens",
                admission.used,
            ),
            ("engine_slots_active", "Slots in the engine's last step", stats.n_slots_active),
            ("kv_cells", "Cells of the KV cache, each a token's K and V", kv.n_cells),
            ("kv_cells_running", "KV cells of requests that run", kv.n_running),
            ("kv_cells_idle", "KV cells that idle slots keep for later prompts", kv.n_idle),
            ("kv_used_ratio", "Part of the KV cells that requests need which run", kv.ratio),
            ("kv_cells_shared", "KV cells that several prompts share", stats.n_cells_shared),
            ("prompt_cache_bytes", "Host memory of prompts without a slot", stats.n_cache_bytes),
            (
                "prompt_cache_early_bytes",
                "Host memory of copies of what idle slots hold, for when they are taken over",
                stats.n_cache_early_bytes,
            ),
            ("prompt_cache_prompts", "Prompts kept in host memory", stats.n_cache_states),
            (
                "prompt_cache_longest_turn_seconds",
                "The longest time that copying slots took between two steps",
                stats.cache_turn_us_max / 1e6,
            ),
            (
                "prompt_cache_token_seconds",
                "What a token takes that comes back by copy, by what is known; 0: nothing is",
                stats.cache_cell_ns / 1e9,
            ),
            ("engine_heartbeat_age_seconds", "Since the engine last moved", stats.heartbeat_age_s),
            (
                "engine_stall_limit_seconds",
                "Heartbeat's age at which the engine counts as lost; 0: never",
                settings.stall_timeout,
            ),
            ("engine_ring_most", "The most events that ever waited in the ring", stats.n_ring_most),
            ("engine_ring_capacity", "Events that the ring holds", stats.n_ring_max),
            ("engine_window_graphs", "Decode graphs in the GPU's cache", stats.n_window_graphs),
            ("engine_prompt_graphs", "Prompt graphs in the GPU's cache", stats.n_prompt_graphs),
        ):
            yield NumberFamily("gauge", f"unpaced_{name}", text, value)

    def _counters(self, stats: EngineStats) -> Iterator[Metric]:
        for name, text, count in (
            ("engine_steps", "Steps of the decode thread", stats.n_steps),
            (
                "engine_cpu_seconds",
                "Processor time of the decode thread, without its helpers",
                stats.cpu_us / 1e6,
            ),
            ("engine_tokens_decoded", "Tokens the engine decoded", stats.n_tokens_decoded),
            (
                "engine_tokens_device",
                "Tokens that the GPU drew and fed to itself",
                stats.n_tokens_device,
            ),
            (
                "engine_lane_steps",
                "Steps that several requests made together in the GPU's loop",
                stats.steps.n_lane_steps,
            ),
            ("engine_lane_tokens", "Tokens of those steps", stats.steps.n_lane_tokens),
            (
                "engine_masked_tokens",
                "Tokens that the GPU's loop drew under grammars by itself",
                stats.steps.n_masked_tokens,
            ),
            (
                "engine_late_masks",
                "Tokens under grammars of which that loop had to ask, since the mask was late",
                stats.steps.n_late_masks,
            ),
            ("engine_prompt_tokens", "Prompt tokens the engine computed", stats.n_tokens_prompt),
            (
                "prefix_shared_tokens",
                "Prompt tokens taken over by sharing the cells of others that hold them",
                stats.n_tokens_shared,
            ),
            (
                "prefix_waits",
                "Requests that waited for another one to compute their common prefix",
                stats.n_prefix_waits,
            ),
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
                "prompt_cache_copied",
                "Requests whose prompts, or their beginnings, host memory had and gave by copy",
                stats.n_cache_copied,
            ),
            (
                "prompt_cache_computed",
                "Requests whose prompts host memory had, and that were computed as it was quicker",
                stats.n_cache_computed,
            ),
            (
                "prompt_cache_tried",
                "Of the computed ones, those to which a part was copied to see what that takes",
                stats.n_cache_tried,
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
            (
                "engine_prompts_graph",
                "Prompts whose last tokens a captured CUDA graph computed",
                stats.n_prompts_graph,
            ),
            ("engine_ring_full", "Times the decode thread waited for us", stats.n_ring_full),
            ("engine_wakeups", "Times the engine woke the front end", stats.n_event_writes),
        ):
            yield NumberFamily("counter", f"unpaced_{name}", text, count)
        on_host = CounterMetricFamily(
            "unpaced_engine_host_requests",
            "Requests whose tokens the host drew, at least in part, although the GPU runs the loop",
            labels=["reason"],
        )
        for reason, n_requests in stats.n_requests_host.items():
            on_host.add_metric([reason], float(n_requests))
        yield on_host

    def _states(self, stats: EngineStats) -> Iterator[Metric]:
        engine = GaugeMetricFamily(
            "unpaced_engine_state", "1 for the state it is in", None, ["state"]
        )
        for each in EngineState:
            engine.add_metric([each.name.lower()], float(each is stats.state))
        yield engine
        slots = GaugeMetricFamily("unpaced_slots", "Slots, by what they do", None, ["state"])
        n_idle = self._slots.n_idle
        slots.add_metric(["idle"], n_idle)
        slots.add_metric(["running"], self._host.settings.n_slots - n_idle)
        yield slots

    def _decode_loop(self) -> Iterator[Metric]:
        engine, settings = self._host.engine, self._host.settings
        is_ready = engine.state is EngineState.READY
        is_expected = (
            self._build.gpu == "CUDA"
            and settings.gpu_layers != 0
            and settings.decode_loop in ("auto", "device")
        )
        is_missed = is_ready and is_expected and engine.decode_loop.loop != "device"
        yield NumberFamily(
            "gauge",
            "unpaced_decode_loop_missed",
            "1: the GPU should run the token loop and does not; unpaced_decode_loop_info says why",
            is_missed,
        )
        if is_ready:
            loop = engine.decode_loop
            yield InfoMetricFamily(
                "unpaced_decode_loop",
                "Where the token loop runs, and why not on the GPU",
                value={"loop": loop.loop, "reason": loop.reason},
            )
            yield _step_phases(loop)


def _step_phases(loop: DecodeLoop) -> GaugeMetricFamily:
    phases = GaugeMetricFamily(
        "unpaced_step_phases",
        "Phases of a step of the GPU's loop, by whose kernels compute them",
        labels=["phase", "kernels"],
    )
    counts = Counter[tuple[str, str]]()
    for told in loop.phases:
        counts[str(told["phase"]), str(told["kernels"])] += int(told["n"])
    for (phase, kernels), n in counts.items():
        phases.add_metric([phase, kernels], float(n))
    return phases
