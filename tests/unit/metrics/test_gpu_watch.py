"""GPUs by NVML's own Python binding, on a library that answers, loses a GPU, or hangs."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest
from prometheus_client import CollectorRegistry

from tests.support.nvml.library import FakeNvml
from unpaced.metrics.gpu_collector import GpuCollector
from unpaced.metrics.gpu_watch import GpuWatch

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(library: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    library.become("ok")
    for name, value in library.environment.items():
        monkeypatch.setenv(name, value)
    return library


@asynccontextmanager
async def watching(deadline_s: float = 20.0, pause_s: float = 0.2) -> AsyncIterator[GpuWatch]:
    watch = GpuWatch(0.1, deadline_s, pause_s)
    watch.start()
    try:
        yield watch
    finally:
        await watch.stop()


async def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        for _ in count():
            if condition():
                return
            await asyncio.sleep(0.01)


async def give_short_deadline(watch: GpuWatch) -> None:
    """From its next reading on the watch waits no longer than that for another one."""
    await until(lambda: watch.is_up)
    watch._deadline_s, read_at = 0.3, watch.read_at
    await until(lambda: watch.read_at > read_at)


def shown(watch: GpuWatch) -> dict[str, float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(GpuCollector(watch))
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


async def test_a_reading_is_shown_in_base_units(nvml: FakeNvml) -> None:
    async with watching() as watch:
        await until(lambda: watch.is_up)
        values = shown(watch)
    assert values["unpaced_gpu_up{1}"] == 1
    assert values["unpaced_gpu_memory_used_bytes{0}"] == 20000
    assert values["unpaced_gpu_memory_bytes{0}"] == 80000
    assert values["unpaced_gpu_utilization_ratio{0}"] == 0.75
    assert values["unpaced_gpu_power_watts{1}"] == 123.5
    assert values["unpaced_gpu_power_limit_watts{1}"] == 700
    assert values["unpaced_gpu_energy_joules_total{0}"] == 5
    assert values["unpaced_gpu_temperature_celsius{0}"] == 41
    assert values["unpaced_gpu_clock_sm_hertz{0}"] == 1.98e9
    assert values["unpaced_gpu_info{0}{Fake GPU 0}{GPU-00000000}"] == 1
    assert "unpaced_gpu_clock_memory_hertz{0}" not in values  # not supported by this driver


async def test_a_lost_gpu_is_down_and_keeps_its_name(nvml: FakeNvml) -> None:
    async with watching() as watch:
        await until(lambda: watch.is_up)
        nvml.become("lost")
        await until(lambda: shown(watch)["unpaced_gpu_up{1}"] == 0)
        values = shown(watch)
        assert values["unpaced_gpu_up{0}"] == values["unpaced_gpu_watch_up"] == 1
        assert "unpaced_gpu_power_watts{1}" not in values
        assert "unpaced_gpu_info{1}{Fake GPU 1}{GPU-00000001}" in values
        nvml.become("ok")
        await until(lambda: shown(watch)["unpaced_gpu_up{1}"] == 1)


async def test_a_driver_that_hangs_is_given_up_and_asked_again(nvml: FakeNvml) -> None:
    async with watching() as watch:
        await give_short_deadline(watch)
        first = watch._child
        assert first is not None
        nvml.become("hang")
        longest_s = 0.0
        while watch.is_up:
            began = time.monotonic()
            shown(watch)
            await asyncio.sleep(0.01)
            longest_s = max(longest_s, time.monotonic() - began)
        assert longest_s < 0.3  # nobody waits for NVML
        values = shown(watch)
        assert values["unpaced_gpu_up{0}"] == values["unpaced_gpu_watch_up"] == 0
        assert values["unpaced_gpu_watch_failures_total{silent}"] == 1
        assert "unpaced_gpu_memory_used_bytes{0}" not in values
        watch._deadline_s = 20.0
        nvml.become("ok")
        await until(lambda: watch.is_up)
        assert first.poll() is not None


async def test_where_there_is_no_driver_nothing_is_shown(nvml: FakeNvml) -> None:
    nvml.become("none")
    async with watching(pause_s=60) as watch:
        await until(lambda: watch.troubles["ended"] == 1)
        assert shown(watch).keys() == {
            "unpaced_gpu_watch_up",
            "unpaced_gpu_watch_failures_total{silent}",
            "unpaced_gpu_watch_failures_total{ended}",
        }


async def test_the_process_ends_with_the_watch(nvml: FakeNvml) -> None:
    async with watching() as watch:
        await until(lambda: watch.is_up)
        child = watch._child
        assert child is not None and child.poll() is None
    assert child.poll() is not None


async def test_a_process_that_cannot_be_killed_gets_no_second_one(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching() as watch:
        await give_short_deadline(watch)
        child = watch._child
        assert child is not None
        # As one that hangs within the driver: signals wait.
        monkeypatch.setattr(child, "kill", lambda: None)
        nvml.become("hang")
        await until(lambda: not watch.is_up)
        await asyncio.sleep(0.5)
        assert watch._child is None
        os.kill(child.pid, 9)
        watch._deadline_s = 20.0
        nvml.become("ok")
        await until(lambda: watch.is_up)
