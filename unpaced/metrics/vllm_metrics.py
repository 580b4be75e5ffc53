"""vLLM's metric names, for its dashboards and for routers that read them.

Names, types and labels are vLLM's; the buckets are ours, which hold more. Two of its words mean
something else here: a block is 16 cells of the KV cache, and a request is one choice of it. The
label `model_name` has the model's names; figures that belong to none of them bear the first.
Sources: vLLM 005a810b, vllm/v1/metrics/loggers.py and examples/online_serving/prometheus_grafana;
the Kubernetes inference gateway's model server protocol (its proposal 003), which needs
num_requests_waiting, num_requests_running, kv_cache_usage_perc and cache_config_info.
"""

from collections.abc import Sequence
from typing import Final

from unpaced.completion.admission import Admission
from unpaced.metrics.histogram import Histogram
from unpaced.metrics.kv_use import KvUse
from unpaced.metrics.metrics import Metrics
from unpaced.metrics.model_metrics import ModelMetrics

_BLOCK_CELLS: Final = 16
_ENGINE: Final = "0"
_COUNTERS: Final = (
    ("prompt_tokens_total", "Number of prefill tokens processed.", ("n_prompt", "n_cached")),
    ("generation_tokens_total", "Number of generation tokens processed.", ("n_predicted",)),
    (
        "prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
        ("n_prompt", "n_cached"),
    ),
    (
        "prefix_cache_hits_total",
        "Prefix cache hits, in terms of number of cached tokens.",
        ("n_cached",),
    ),
)
# The second names are those of earlier versions, which its dashboards still ask for.
_HISTOGRAMS: Final = (
    ("time_to_first_token_seconds", "time_to_first_token", "Time to first token in seconds."),
    ("inter_token_latency_seconds", "inter_token", "Inter-token latency in seconds."),
    ("time_per_output_token_seconds", "inter_token", "Time per output token in seconds."),
    ("e2e_request_latency_seconds", "request_duration", "E2E request latency in seconds."),
    ("request_queue_time_seconds", "queue_time", "Time spent in WAITING phase."),
    ("request_inference_time_seconds", "run_time", "Time spent in RUNNING phase."),
    ("request_prefill_time_seconds", "prefill_time", "Time spent in PREFILL phase."),
    ("request_decode_time_seconds", "decode_time", "Time spent in DECODE phase."),
    ("request_prompt_tokens", "prompt_length", "Number of prefill tokens processed."),
    ("request_generation_tokens", "output_length", "Number of generation tokens processed."),
    (
        "request_max_num_generation_tokens",
        "output_length",
        "Maximum number of generation tokens of a request's sequences.",
    ),
)


def render_vllm(metrics: Metrics, admission: Admission, kv: KvUse) -> bytes:
    """The `vllm:` block of /metrics, in Prometheus' text format 0.0.4.

    Written line by line: the library takes three times as long, and with it a scrape 5 ms.
    """
    models = {_labels(name): model for name, model in metrics.models.items()}
    lines: list[str] = []
    for name, text, value in _gauges(admission, kv):
        _begin(lines, name, "gauge", text)
        lines.append(f"vllm:{name}{{{next(iter(models))}}} {value:.10g}\n")
    _begin(lines, "cache_config_info", "gauge", "The KV cache in blocks of cells.")
    n_blocks = kv.n_cells // _BLOCK_CELLS
    blocks = f'block_size="{_BLOCK_CELLS}",engine="{_ENGINE}",num_gpu_blocks="{n_blocks}"'
    lines.append(f"vllm:cache_config_info{{{blocks}}} 1\n")
    for name, text, attributes in _COUNTERS:
        _begin(lines, name, "counter", text)
        for labels, model in models.items():
            lines.append(f"vllm:{name}{{{labels}}} {_sum(model, attributes)}\n")
    text = "Count of successfully processed requests."
    _begin(lines, "request_success_total", "counter", text)
    for labels, model in models.items():
        for reason, n in _ends(model):
            reasoned = f'{labels},finished_reason="{reason}"'
            lines.append(f"vllm:request_success_total{{{reasoned}}} {n}\n")
    text = "Count of requests whose logits were not finite."
    _begin(lines, "corrupted_requests_total", "counter", text)
    for labels, model in models.items():
        lines.append(f"vllm:corrupted_requests_total{{{labels}}} {model.failed['non_finite']}\n")
    for name, attribute, text in _HISTOGRAMS:
        _begin(lines, name, "histogram", text)
        for labels, model in models.items():
            _add_histogram(lines, name, labels, getattr(model, attribute))
    return "".join(lines).encode()


def _begin(lines: list[str], name: str, kind: str, text: str) -> None:
    lines.append(f"# HELP vllm:{name} {text}\n# TYPE vllm:{name} {kind}\n")


def _labels(model: str) -> str:
    escaped = model.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'engine="{_ENGINE}",model_name="{escaped}"'


def _add_histogram(lines: list[str], name: str, labels: str, histogram: Histogram) -> None:
    total, buckets = histogram.total, histogram.cumulative()
    for bound, n in buckets:
        lines.append(f'vllm:{name}_bucket{{{labels},le="{bound}"}} {n:.0f}\n')
    lines.append(f"vllm:{name}_count{{{labels}}} {buckets[-1][1]:.0f}\n")
    lines.append(f"vllm:{name}_sum{{{labels}}} {total!r}\n")


def _gauges(admission: Admission, kv: KvUse) -> tuple[tuple[str, str, float], ...]:
    return (
        (
            "num_requests_running",
            "Number of requests in model execution batches.",
            admission.n_running,
        ),
        (
            "num_requests_waiting",
            "Number of requests waiting to be processed.",
            admission.n_waiting,
        ),
        ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", kv.ratio),
        ("gpu_cache_usage_perc", "KV-cache usage, by the name of earlier versions.", kv.ratio),
    )


def _ends(model: ModelMetrics) -> tuple[tuple[str, int], ...]:
    return (
        ("stop", model.finished["stop"]),
        ("length", model.finished["length"]),
        ("abort", sum(model.cancelled.values())),
        ("error", model.finished["error"]),
    )


def _sum(model: ModelMetrics, attributes: Sequence[str]) -> int:
    return sum(int(getattr(model, attribute)) for attribute in attributes)
