"""What the steps of the host's loop are made of: batches, prompts beside streams, costs."""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from engine_ext import StepStats
from unpaced.metrics.number import NumberFamily


def step_metrics(stats: StepStats) -> Iterator[Metric]:
    """One sample of each."""
    yield HistogramMetricFamily(
        "unpaced_engine_batch_tokens",
        "Tokens of a batch of the host's loop: one for each slot that decodes, and prompts'",
        buckets=batch_buckets(stats),
        sum_value=float(stats.n_batch_tokens),
    )
    for name, text, n in (
        ("steps", "Steps that computed prompt tokens beside slots that decode", stats.n_beside),
        ("tokens", "Prompt tokens computed beside slots that decode", stats.n_tokens_beside),
    ):
        yield NumberFamily("counter", f"unpaced_engine_prefill_beside_{name}", text, n)
    for name, text, value in (
        (
            "prefill_beside_most_tokens",
            "The most prompt tokens of a step beside slots that decode",
            float(stats.n_tokens_beside_max),
        ),
        (
            "prefill_budget_tokens",
            "Prompt tokens that a step may compute beside slots that decode",
            float(stats.prefill_budget),
        ),
        (
            "step_decode_seconds",
            "What a step without prompt tokens takes, by what is known; 0: nothing is",
            stats.decode_us / 1e6,
        ),
        (
            "step_prompt_token_seconds",
            "What a prompt token adds to a step, by what is known; 0: nothing is",
            stats.prompt_token_ns / 1e9,
        ),
        (
            "prompt_alone_token_seconds",
            "What a token of a prompt alone takes in its largest step; 0: nothing is known",
            stats.prompt_alone_ns / 1e9,
        ),
        (
            "longest_gap_seconds",
            "The longest time between two tokens of a request since the start",
            stats.gap_us_max / 1e6,
        ),
    ):
        yield NumberFamily("gauge", f"unpaced_engine_{name}", text, value)


def batch_buckets(stats: StepStats) -> list[tuple[str, float]]:
    """Buckets as Prometheus wants them: (upper bound in tokens, batches of up to so many)."""
    buckets: list[tuple[str, float]] = []
    n = 0
    for power, count in enumerate(stats.n_batches[:-1]):
        n += count
        buckets.append((repr(float(1 << power)), float(n)))
    return [*buckets, ("+Inf", float(n + stats.n_batches[-1]))]
