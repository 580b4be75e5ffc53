"""When an engine counts as lost."""

from typing import cast

import pytest

from engine_ext import DecodeLoop, Engine, EngineState
from unpaced.process.engine_watch import EngineWatch


def decode_loop(compiled_from: str) -> DecodeLoop:
    return DecodeLoop(
        loop="device",
        reason="",
        device="",
        compiled_from=compiled_from,
        memory_bytes={},
        elsewhere=(),
        n_elsewhere=0,
        n_graph_nodes={},
        n_graph_splits=1,
        phases=(),
    )


class WatchedEngine:
    """What the watch looks at."""

    def __init__(self) -> None:
        self.state = EngineState.READY
        self.error = ""
        self.progress: int | None = 1
        self.gpu_test = 0.0, False
        self.decode_loop = decode_loop("")


def looks(watch: EngineWatch, engine: WatchedEngine, begin: float, end: float) -> str | None:
    """Look every second; the first reason."""
    now = begin
    while now <= end:
        why = watch.look(cast(Engine, engine), now)
        if why is not None:
            return why
        now += 1
    return None


@pytest.mark.parametrize("progress", [1, 7])
def test_no_progress_for_longer_than_the_limit(progress: int) -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=10, period_s=1)
    engine.progress = progress
    assert looks(watch, engine, 100, 110) is None
    assert "not moved for 11 s" in (looks(watch, engine, 111, 111) or "")


def test_the_driver_may_take_long_to_compile_a_kernel() -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=10, period_s=1)
    engine.decode_loop = decode_loop("7.5")
    assert looks(watch, engine, 100, 200) is None
    assert "not moved for 101 s" in (looks(watch, engine, 201, 201) or "")


def test_progress_and_idleness_are_well() -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=10, period_s=1)
    for second in range(100, 200):
        engine.progress = None if second % 7 == 0 else second
        assert watch.look(cast(Engine, engine), float(second)) is None
    engine.progress = None
    assert looks(watch, engine, 200, 300) is None


def test_a_process_that_stood_still_itself_knows_nothing() -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=10, period_s=1)
    assert looks(watch, engine, 100, 105) is None
    assert looks(watch, engine, 500, 510) is None
    assert looks(watch, engine, 511, 511) is not None


def test_no_limit() -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=0, period_s=1)
    assert looks(watch, engine, 100, 900) is None


def test_a_gpu_that_hangs_while_its_kernels_are_tested() -> None:
    engine = WatchedEngine()
    watch, patient = EngineWatch(limit_s=10, period_s=1), EngineWatch(limit_s=0, period_s=1)
    for silence_s, is_lost in ((0.0, False), (9.9, False), (10.1, True)):
        engine.gpu_test = silence_s, False
        why = watch.look_at_load(cast(Engine, engine))
        assert (why is not None) == is_lost
        assert patient.look_at_load(cast(Engine, engine)) is None
    assert "no sign of life for 10 s" in (why or "")
    for silence_s, is_lost in ((99.9, False), (100.1, True)):
        engine.gpu_test = silence_s, True
        assert (watch.look_at_load(cast(Engine, engine)) is not None) == is_lost


def test_a_failed_engine_is_lost_at_once() -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=0, period_s=1)
    engine.state, engine.error = EngineState.FAILED, "the GPU is gone"
    assert looks(watch, engine, 100, 100) == "the GPU is gone"
    engine.error = ""
    assert looks(watch, engine, 101, 101) == "the decode thread has failed"


def test_a_watchdog_hears_nothing_while_nothing_moves() -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=10, period_s=1)
    watched = cast(Engine, engine)
    assert looks(watch, engine, 100, 100) is None
    assert watch.is_moving(watched)
    assert looks(watch, engine, 101, 102) is None
    assert not watch.is_moving(watched)
    assert watch.silence_s == 2
    engine.progress = 2
    assert looks(watch, engine, 103, 103) is None
    assert watch.is_moving(watched)
    engine.progress = None  # it has nothing to do
    assert looks(watch, engine, 104, 110) is None
    assert watch.is_moving(watched)


def test_a_watchdog_knows_nothing_of_kernels_that_are_compiled() -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=10, period_s=1)
    engine.decode_loop = decode_loop("compute_75")
    patience = engine.decode_loop.patience
    assert patience > 1
    assert looks(watch, engine, 100, 100 + 10 * (patience - 1)) is None
    assert watch.is_moving(cast(Engine, engine))
    assert looks(watch, engine, 101 + 10 * (patience - 1), 102 + 10 * (patience - 1)) is None
    assert not watch.is_moving(cast(Engine, engine))


def test_without_a_limit_nobody_asks_for_progress() -> None:
    engine, watch = WatchedEngine(), EngineWatch(limit_s=0, period_s=1)
    assert looks(watch, engine, 100, 200) is None
    assert watch.is_moving(cast(Engine, engine))
