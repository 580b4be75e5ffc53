"""vLLM's names, where --metrics-compat asks for them: its dashboard's and its routers'."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine_ext import FinishReason
from tests.support.scripted.asgi_client import get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.settings import Settings

pytestmark = pytest.mark.anyio

# What vLLM's dashboard asks for (vllm 004f771f, examples/online_serving/prometheus_grafana), what
# the Kubernetes inference gateway's endpoint picker reads, and what others' alerts mostly do.
_ASKED = {
    "e2e_request_latency_seconds": "histogram",
    "time_per_output_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "time_to_first_token_seconds": "histogram",
    "request_prompt_tokens": "histogram",
    "request_generation_tokens": "histogram",
    "request_max_num_generation_tokens": "histogram",
    "request_queue_time_seconds": "histogram",
    "request_prefill_time_seconds": "histogram",
    "request_decode_time_seconds": "histogram",
    "request_inference_time_seconds": "histogram",
    "prompt_tokens_total": "counter",
    "generation_tokens_total": "counter",
    "request_success_total": "counter",
    "corrupted_requests_total": "counter",
    "prefix_cache_queries_total": "counter",
    "prefix_cache_hits_total": "counter",
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge",
    "gpu_cache_usage_perc": "gauge",
    "cache_config_info": "gauge",
}
_MODEL = 'model_name="demo.gguf"'


async def metrics_of(**settings: str) -> str:
    engine = FakeEngine()
    engine.answer = b"abc"
    app = make_app(engine, **settings)
    await post(app, "/v1/completions", {"prompt": "xy"}).done()
    return (await get(app, "/metrics").done()).body.decode()


async def test_every_name_is_there_with_its_type() -> None:
    text = await metrics_of(metrics_compat="vllm")
    types = dict(re.findall(r"^# TYPE vllm:(\S+) (\S+)$", text, re.MULTILINE))
    assert types == _ASKED
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation for family in families)
    labels = f'engine="0",{_MODEL}'
    for line in (
        f"vllm:num_requests_waiting{{{labels}}} 0",
        f"vllm:prompt_tokens_total{{{labels}}} 3",
        f"vllm:generation_tokens_total{{{labels}}} 3",
        f"vllm:inter_token_latency_seconds_count{{{labels}}} 2",
        f"vllm:request_generation_tokens_sum{{{labels}}} 3.0",
        f"vllm:request_inference_time_seconds_count{{{labels}}} 1",
        f"vllm:corrupted_requests_total{{{labels}}} 0",
        f'vllm:request_success_total{{{labels},finished_reason="length"}} 1',
        'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="8"} 1',
    ):
        assert line in text.splitlines(), line
    assert "llamacpp:" not in text


async def test_kv_use_is_that_of_requests_that_run() -> None:
    engine = FakeEngine(n_ctx=100)
    engine.slots.cells = [30, 50]
    app = make_app(engine, parallel=2, metrics_compat="vllm")
    request = post(app, "/v1/completions", {"prompt": "xy"})
    sequence = await engine.submitted()
    sequence.start()
    text = (await get(app, "/metrics").done()).body.decode()
    assert "unpaced_kv_cells 200.0" in text
    assert "unpaced_kv_cells_running 30.0" in text
    assert "unpaced_kv_cells_idle 50.0" in text
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="demo.gguf"} 0.15' in text
    assert 'unpaced_slots{state="running"} 1.0' in text
    sequence.tokens(b"a")
    sequence.finish()
    await request.done()
    text = (await get(app, "/metrics").done()).body.decode()
    assert "unpaced_kv_used_ratio 0.0" in text


async def test_logits_that_are_not_finite_are_a_corrupted_request() -> None:
    engine = FakeEngine()
    app = make_app(engine, metrics_compat="vllm")
    request = post(app, "/v1/completions", {"prompt": "xy"})
    sequence = await engine.submitted()
    sequence.start()
    sequence.finish(FinishReason.NON_FINITE)
    assert (await request.done()).status == 500
    text = (await get(app, "/metrics").done()).body.decode()
    assert f'vllm:corrupted_requests_total{{engine="0",{_MODEL}}} 1' in text
    assert f'vllm:request_success_total{{engine="0",{_MODEL},finished_reason="error"}} 1' in text


async def test_who_asks_for_nothing_gets_llama_servers_names() -> None:
    assert "llamacpp:prompt_tokens_total" in (text := await metrics_of())
    assert "vllm:" not in text
    assert not re.search("^(llamacpp|vllm):", await metrics_of(metrics_compat="none"), re.MULTILINE)


@pytest.mark.parametrize("names", ["", "vLLM", "vllm,none", "sglang", "vllm,"])
def test_other_servers_names_are_refused(names: str) -> None:
    with pytest.raises(ValueError, match="must be llamacpp, vllm, both or none"):
        Settings(metrics_compat=names)


async def test_any_name_of_a_model_is_read_back() -> None:
    name = 'C:\\models\\"q4"\n.gguf'
    text = await metrics_of(metrics_compat="vllm", alias=name)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            assert name == labels.get("model_name", labels.get("model", name)), sample
