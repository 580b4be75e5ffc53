"""A client that leaves ends its request in every state, and nobody else's."""

import asyncio
from typing import NoReturn

import pytest
from starlette.applications import Starlette

from engine_ext import FinishReason
from tests.support.scripted.asgi_client import AsgiRequest, post, turns
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.completion.completions import Completions
from unpaced.metrics.metrics import Metrics

pytestmark = pytest.mark.anyio


async def slot_is_free(app: Starlette) -> None:
    completions: Completions = app.state.completions
    async with asyncio.timeout(1):
        await completions.admission.idle()


def start(app: Starlette, *, stream: bool, n: int = 1) -> AsgiRequest:
    return post(app, "/v1/completions", {"prompt": "hello", "stream": stream, "n": n})


@pytest.mark.parametrize("stream", [False, True])
async def test_while_queued(stream: bool) -> None:
    engine = FakeEngine()
    app = make_app(engine)
    first = start(app, stream=False)
    await engine.submitted()
    queued = start(app, stream=stream)
    third = start(app, stream=False)
    await turns(50)
    queued.hang_up()
    await queued.done()
    assert queued.status == 0
    assert len(engine.sequences) == 1
    assert not engine.sequences[0].is_cancelled
    engine.sequences[0].play(b"one")
    await first.done()
    (await engine.submitted(2)).play(b"three")
    await third.done()
    assert [r.json["choices"][0]["text"] for r in (first, third)] == ["one", "three"]
    await slot_is_free(app)


@pytest.mark.parametrize("stream", [False, True])
async def test_during_prefill(stream: bool) -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = start(app, stream=stream)
    sequence = await engine.submitted()
    sequence.start()
    sequence.prefill(2)
    await turns(20)
    request.hang_up()
    await request.done()
    assert sequence.is_cancelled
    await slot_is_free(app)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
async def test_while_decoding(stream: bool, n: int) -> None:
    engine = FakeEngine()
    app = make_app(engine, parallel=n)
    request = start(app, stream=stream, n=n)
    await engine.submitted(n)
    for sequence in engine.sequences:
        sequence.start()
        sequence.tokens(b"abc")
    await turns(20)
    request.hang_up()
    await request.done()
    assert all(sequence.is_cancelled for sequence in engine.sequences)
    await slot_is_free(app)


async def test_a_slot_is_free_only_when_the_engine_has_let_go_of_it() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = start(app, stream=True)
    sequence = await engine.submitted()
    sequence.start()
    request.hang_up()
    await request.done()
    completions: Completions = app.state.completions
    assert completions.admission.n_running == 1
    await slot_is_free(app)


async def test_the_next_request_is_served_after_a_storm_of_disconnects() -> None:
    engine = FakeEngine()
    app = make_app(engine, max_queue_requests=1000)
    requests = [start(app, stream=i % 2 == 0) for i in range(100)]
    await turns(50)
    for request in requests:
        request.hang_up()
    for request in requests:
        await request.done()
    await slot_is_free(app)
    engine.answer = b"fine"
    good = await start(app, stream=False).done()
    assert good.json["choices"][0]["text"] == "fine"


async def test_cancelled_completions_are_counted_by_phase() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    decoding = start(app, stream=True)
    sequence = await engine.submitted()
    sequence.start()
    sequence.tokens(b"a")
    queued = start(app, stream=True)
    await turns(50)
    for request in (queued, decoding):
        request.hang_up()
        await request.done()
    metrics: Metrics = app.state.metrics
    value = metrics.registry.get_sample_value
    for phase, n in (("queued", 1), ("prefill", 0), ("decode", 1)):
        labels = {"model": "demo.gguf", "phase": phase}
        assert value("unpaced_completions_cancelled_total", labels) == n


async def test_a_fault_of_the_engine_after_a_disconnect_is_nobodys() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = start(app, stream=True)
    sequence = await engine.submitted()
    sequence.start()
    request.hang_up()
    await request.done()
    sequence.finish(FinishReason.EXCEPTION)
    await slot_is_free(app)


async def test_a_fault_after_the_engine_has_the_request_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> NoReturn:
        raise RuntimeError("broken")

    engine = FakeEngine()
    app = make_app(engine)
    monkeypatch.setattr("unpaced.completion.completions.Completions._facts", fail)
    request = start(app, stream=True, n=2)
    with pytest.raises(RuntimeError, match="broken"):
        await request.done()
    assert request.status == 500
    assert [sequence.is_cancelled for sequence in engine.sequences] == [True]
    await slot_is_free(app)
