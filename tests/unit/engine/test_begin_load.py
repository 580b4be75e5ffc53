"""An engine may load before there is an event loop."""

import asyncio
import time

import pytest

from engine_ext import Engine, EngineConfig, EngineError, EngineState
from unpaced.settings.model import DEMO_MODEL


def test_a_load_begun_without_a_loop_is_the_one_that_start_waits_for() -> None:
    engine = Engine(EngineConfig(model_path=DEMO_MODEL, n_ctx=512))
    engine.begin_load()
    deadline = time.monotonic() + 60
    while engine.state is EngineState.LOADING and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.state is EngineState.READY
    with pytest.raises(EngineError, match="started before"):
        engine.begin_load()

    async def ids() -> list[int]:
        async with engine:
            return await engine.tokenize("Once upon a time")

    assert len(asyncio.run(ids())) > 1
