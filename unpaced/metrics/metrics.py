"""What this process counts, under our own names: base units, closed label sets.

The token path only adds to plain integers; everything is read when Prometheus asks, so the exporter
costs the decode thread nothing. Names of other servers are in `llamacpp_metrics` and
`vllm_metrics`.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from unpaced.metrics.histogram import Histogram, HistogramFamily
from unpaced.metrics.model_metrics import ModelMetrics
from unpaced.metrics.number import NumberFamily

if TYPE_CHECKING:
    from unpaced.completion.choice import Choice

REJECT_REASONS: Final = ("queue_full", "connections", "draining", "failed", "loading")
_HISTOGRAMS: Final = (
    ("time_to_first_token_seconds", "From arrival to the first token"),
    ("request_duration_seconds", "From arrival to the last event"),
    ("queue_time_seconds", "From arrival to the start of the prompt"),
    ("prefill_time_seconds", "From the start of the prompt to a token"),
    ("decode_time_seconds", "From the first token to the last"),
    ("inter_token_seconds", "Between two tokens of a completion, on the decode thread's clock"),
    ("prompt_length_tokens", "Tokens of a prompt, reused ones included"),
    ("output_length_tokens", "Tokens generated for a completion"),
)


class Total(NamedTuple):
    """Of all names of the model: see ModelMetrics. `n_steps`: tokens but for the first ones."""

    n_prompt: int
    n_cached: int
    n_predicted: int
    n_steps: int
    prompt_us: int
    predicted_us: int
    n_tokens_max: int


class Metrics(Collector):
    """Everything this process counts. Event loop's thread only, but for `collect`.

    `names`: what the model is called: all that a label of a model ever has.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.models = {name: ModelMetrics() for name in names}
        self.started_at = time.time()
        self.count_dropped_log: Callable[[], int] = lambda: 0
        self._http = Counter[tuple[str, int]]()
        self._rejected = Counter(dict.fromkeys(REJECT_REASONS, 0))
        self.registry.register(self)

    def answered(self, route: str, status: int) -> None:
        """An HTTP request is over; `route` is a template, never what the client sent."""
        self._http[route, status] += 1

    def rejected(self, reason: str, n: int = 1) -> None:
        """Requests were refused with 503; `reason` is one of REJECT_REASONS."""
        self._rejected[reason] += n

    def inter_token(self, model: str) -> Histogram:
        """Gets the seconds between any two tokens of a sequence."""
        return self.models[model].inter_token

    def observe_choice(self, choice: "Choice") -> None:
        """A completion is over, by itself or not."""
        self.models[choice.model].observe(choice)

    def total(self) -> Total:
        """What `models` come to together."""
        models = list(self.models.values())
        return Total(
            n_prompt=sum(model.n_prompt for model in models),
            n_cached=sum(model.n_cached for model in models),
            n_predicted=sum(model.n_predicted for model in models),
            n_steps=sum(sum(model.inter_token.counts) for model in models),
            prompt_us=sum(model.prompt_us for model in models),
            predicted_us=sum(model.predicted_us for model in models),
            n_tokens_max=max(model.n_tokens_max for model in models),
        )

    def collect(self) -> Iterator[Metric]:
        """One sample of each. Another thread may call it."""
        http = CounterMetricFamily(
            "unpaced_http_requests",
            "HTTP requests answered, by route and status",
            labels=("route", "status"),
        )
        for (route, status), n in list(self._http.items()):
            http.add_metric((route, str(status)), n)
        yield http
        rejected = CounterMetricFamily(
            "unpaced_requests_rejected", "Requests refused with 503", labels=("reason",)
        )
        for reason, n in self._rejected.items():
            rejected.add_metric((reason,), n)
        yield rejected
        yield NumberFamily(
            "counter",
            "unpaced_log_lines_dropped",
            "Log lines that nobody read",
            self.count_dropped_log(),
        )
        yield from self._token_families()
        yield from self._end_families()
        yield from self._histogram_families()

    def _token_families(self) -> Iterator[Metric]:
        for name, text, attribute in (
            ("prompt_tokens", "Prompt tokens computed for completions that are over", "n_prompt"),
            ("prompt_tokens_cached", "Prompt tokens reused from a slot", "n_cached"),
            ("generated_tokens", "Tokens of completions that are over", "n_predicted"),
        ):
            family = CounterMetricFamily(f"unpaced_{name}", text, labels=("model",))
            for model, metrics in self.models.items():
                family.add_metric((model,), getattr(metrics, attribute))
            yield family

    def _end_families(self) -> Iterator[Metric]:
        for name, text, label, attribute in (
            ("finished", "Completions that ended, by reason", "reason", "finished"),
            (
                "cancelled",
                "Completions given up because the client left or the server stopped, by phase",
                "phase",
                "cancelled",
            ),
            ("failed", "Completions that ended in an error, by its kind", "reason", "failed"),
        ):
            family = CounterMetricFamily(
                f"unpaced_completions_{name}", text, labels=("model", label)
            )
            for model, metrics in self.models.items():
                for value, n in getattr(metrics, attribute).items():
                    family.add_metric((model, value), n)
            yield family

    def _histogram_families(self) -> Iterator[Metric]:
        for name, text in _HISTOGRAMS:
            family = HistogramFamily(f"unpaced_{name}", text)
            attribute = name.removesuffix("_seconds").removesuffix("_tokens")
            for model, metrics in self.models.items():
                family.members.append(({"model": model}, getattr(metrics, attribute)))
            yield family
