"""llama-server's own metric names, for the dashboards that exist.

Types and help texts are llama-server's. One difference: its two throughput gauges cover the time
since the last scrape by anybody, so that two scrapers spoil each other's; ours cover the last
`WINDOW_S` seconds, whoever asks.
Source: llama.cpp 0c1e57098, tools/server/server-task.cpp (to_metrics).
"""

import time
from collections import deque
from typing import Final, NamedTuple

from engine_ext import EngineStats
from unpaced.completion.admission import Admission
from unpaced.metrics.metrics import Metrics

WINDOW_S: Final = 60.0


class _Sample(NamedTuple):
    at: float
    n_prompt: int
    prompt_us: int
    n_steps: int
    predicted_us: int


class LlamacppMetrics:
    """Renders the `llamacpp:` block of /metrics."""

    def __init__(self, metrics: Metrics, admission: Admission) -> None:
        self._metrics = metrics
        self._admission = admission
        self._samples: deque[_Sample] = deque([_Sample(time.monotonic(), 0, 0, 0, 0)])

    def render(self, stats: EngineStats) -> str:
        """The block, in Prometheus' text format 0.0.4."""
        m = self._metrics.total()
        prompt_rate, predicted_rate = self._rates()
        counters: list[tuple[str, str, float]] = [
            (
                "prompt_tokens_total",
                "Number of prompt tokens processed, excluding cached tokens",
                m.n_prompt,
            ),
            (
                "prompt_tokens_cached_total",
                "Number of prompt tokens reused from the cache",
                m.n_cached,
            ),
            ("prompt_seconds_total", "Total time spent processing prompts", m.prompt_us / 1e6),
            ("tokens_predicted_total", "Number of generation tokens processed", m.n_predicted),
            (
                "tokens_predicted_seconds_total",
                "Total time spent generating tokens",
                m.predicted_us / 1e6,
            ),
            (
                "n_decode_total",
                "Total number of llama_decode() calls, "
                "excluding speculative decoding and multimodal decoding",
                stats.n_steps,
            ),
            (
                "n_tokens_max",
                "Largest observed sequence length (prompt + generation)",
                m.n_tokens_max,
            ),
            ("spec_decode_num_draft_tokens_total", "Speculative: Total draft tokens generated", 0),
            (
                "spec_decode_num_accepted_tokens_total",
                "Speculative: Total draft tokens accepted by the target model",
                0,
            ),
            (
                "spec_decode_num_drafts_total",
                "Speculative: Total speculative decoding verification steps",
                0,
            ),
        ]
        gauges: list[tuple[str, str, float]] = [
            ("prompt_tokens_seconds", "Average prompt throughput in tokens/s", prompt_rate),
            (
                "predicted_tokens_seconds",
                "Average generation throughput in tokens/s",
                predicted_rate,
            ),
            ("requests_processing", "Number of requests processing", self._admission.n_running),
            ("requests_deferred", "Number of requests deferred", self._admission.n_waiting),
            (
                "n_busy_slots_per_decode",
                "Average number of busy slots per llama_decode() call",
                stats.n_busy_slots / max(stats.n_steps, 1),
            ),
        ]
        lines = []
        for kind, items in (("counter", counters), ("gauge", gauges)):
            for name, text, value in items:
                lines.append(f"# HELP llamacpp:{name} {text}\n# TYPE llamacpp:{name} {kind}\n")
                lines.append(f"llamacpp:{name} {value:.10g}\n")
        return "".join(lines)

    def _rates(self) -> tuple[float, float]:
        """Tokens a second of prompts and of generation, over the window's busy time."""
        m, samples = self._metrics.total(), self._samples
        # The first token of a completion comes with its prompt: steps, not tokens, count.
        now = _Sample(time.monotonic(), m.n_prompt, m.prompt_us, m.n_steps, m.predicted_us)
        while len(samples) > 1 and samples[1].at < now.at - WINDOW_S:
            samples.popleft()
        old = samples[0]
        if now.at - samples[-1].at > 1.0:
            samples.append(now)
        prompt_us = now.prompt_us - old.prompt_us
        predicted_us = now.predicted_us - old.predicted_us
        return (
            (now.n_prompt - old.n_prompt) / prompt_us * 1e6 if prompt_us else 0.0,
            (now.n_steps - old.n_steps) / predicted_us * 1e6 if predicted_us else 0.0,
        )
