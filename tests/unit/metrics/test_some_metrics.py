"""GET /metrics?name[]=...: some of the metrics, such as the page asks for."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette

from tests.support.page.wanted_metrics import wanted_by_the_page, wanted_names
from tests.support.scripted.asgi_client import get
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.metrics.gpu_collector import GpuCollector
from unpaced.metrics.gpu_watch import GpuWatch

pytestmark = pytest.mark.anyio
GPU = {
    "gpu": 0,
    "name": "a card",
    "uuid": "GPU-1",
    "memory_used_bytes": 1,
    "memory_bytes": 2,
    "utilization_ratio": 0.5,
    "power_watts": 100,
    "power_limit_watts": 200,
    "energy_joules": 3,
    "temperature_celsius": 50,
    "clock_sm_hertz": 1e9,
    "clock_memory_hertz": 1e9,
}


async def shown(app: Starlette, path: str) -> list[str]:
    answer = await get(app, path).done()
    assert answer.status == 200
    return answer.body.decode().splitlines()


def names(lines: list[str]) -> set[str]:
    return {line.split()[0].partition("{")[0] for line in lines if not line.startswith("#")}


async def test_what_is_asked_for_is_as_it_is_beside_the_others() -> None:
    app = make_app(FakeEngine(), metrics_compat="llamacpp,vllm")
    wanted = "unpaced_requests_running", "unpaced_inter_token_seconds_bucket", "unpaced_build_info"
    lines = await shown(app, "/metrics?" + "&".join(f"name[]={name}" for name in wanted))
    histogram = {f"unpaced_inter_token_seconds_{end}" for end in ("bucket", "count", "sum")}
    assert names(lines) == {wanted[0], wanted[2], *histogram}
    everything = await shown(app, "/metrics")
    assert set(lines) < set(everything)
    assert await shown(app, "/metrics?name[]=unheard_of") == []


async def test_the_page_asks_for_what_there_is_and_gets_it_alone() -> None:
    app, watch = make_app(FakeEngine()), GpuWatch(5, 10)
    watch.gpus = [GPU]
    registry = CollectorRegistry()
    registry.register(GpuCollector(watch))
    of_gpus = names(generate_latest(registry).decode().splitlines())
    everything = names(await shown(app, "/metrics")) | of_gpus
    assert set(wanted_names()) - everything == set()
    assert len(set(wanted_names())) == len(wanted_names()) > 30
    some = await shown(app, wanted_by_the_page())
    assert set(wanted_names()) - of_gpus - names(some) == set()
    assert len(some) < len(await shown(app, "/metrics")) / 2
