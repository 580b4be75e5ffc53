"""What completions come to under one of the model's names."""

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from engine_ext import FinishReason
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
_TOKENS: Final = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000,
    500000, 1000000,
)  # fmt: skip
FINISHES: Final = ("stop", "length", "error")
PHASES: Final = ("queued", "prefill", "decode")
FAILURES: Final = tuple(
    reason.name.lower()
    for reason in (
        FinishReason.NON_FINITE,
        FinishReason.DECODE_FAILED,
        FinishReason.EXCEPTION,
        FinishReason.GRAMMAR_FAILED,
        FinishReason.GRAMMAR_DEAD_END,
        FinishReason.STOPPED,
    )
)


class ModelMetrics:
    """Counts and histograms. Event loop's thread only; whoever only reads may be another one.

    Durations are seconds, lengths are tokens.
    """

    def __init__(self) -> None:
        self.inter_token = Histogram(_INTER_TOKEN_SECONDS)
        self.time_to_first_token = Histogram(_SECONDS)
        self.request_duration = Histogram(_SECONDS)
        self.queue_time = Histogram(_SECONDS)
        self.prefill_time = Histogram(_SECONDS)
        self.decode_time = Histogram(_SECONDS)
        self.run_time = Histogram(_SECONDS)
        self.prompt_length = Histogram(_TOKENS)
        self.output_length = Histogram(_TOKENS)
        self.finished = Counter(dict.fromkeys(FINISHES, 0))
        self.cancelled = Counter(dict.fromkeys(PHASES, 0))
        self.failed = Counter(dict.fromkeys(FAILURES, 0))
        self.n_tokens_max = 0
        self.prompt_us = 0
        self.predicted_us = 0
        self.n_prompt = 0
        """Prompt tokens computed. As in `usage` a prompt counts once, whatever its choices."""
        self.n_cached = 0
        self.n_predicted = 0

    def observe(self, choice: "Choice") -> None:
        """A completion is over, by itself or not."""
        self._count_end(choice)
        sequence_text = choice.sequence_text
        timings = sequence_text.timings
        if not timings.start_us:
            return
        if choice.counts_prompt:
            self.n_prompt += timings.n_processed - timings.n_cached
            self.n_cached += timings.n_cached
            self.prompt_length.observe(timings.n_prompt)
        self.queue_time.observe((timings.start_us - choice.arrived_us) * 1e-6)
        self.output_length.observe(timings.n_decoded)
        if timings.n_decoded:
            self.n_predicted += timings.n_decoded
            # The last token is not computed: nothing follows it.
            n_tokens = sequence_text.n_cells or timings.n_prompt + timings.n_decoded - 1
            self.n_tokens_max = max(self.n_tokens_max, n_tokens)
            self.prompt_us += timings.first_token_us - timings.start_us
            self.predicted_us += timings.last_token_us - timings.first_token_us
            self.time_to_first_token.observe((timings.first_token_us - choice.arrived_us) * 1e-6)
            self.prefill_time.observe(timings.prompt_ms * 1e-3)
            self.decode_time.observe(timings.predicted_ms * 1e-3)
            self.run_time.observe((timings.last_token_us - timings.start_us) * 1e-6)
        self.request_duration.observe(time.monotonic() - choice.arrived_us * 1e-6)

    def _count_end(self, choice: "Choice") -> None:
        sequence_text = choice.sequence_text
        if not sequence_text.is_over:
            self.cancelled[choice.phase] += 1
        elif sequence_text.error is None:
            self.finished[sequence_text.finish_reason] += 1
        else:
            self.finished["error"] += 1
            self.failed[sequence_text.failed_by.name.lower()] += 1
