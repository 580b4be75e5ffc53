"""The queue: order, limits, and what a full one answers."""

import asyncio

import pytest

from tests.support.scripted.asgi_client import get, post, turns
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.completion.admission import Admission
from unpaced.http.errors import ApiError, unavailable
from unpaced.http.gate import Gate, Phase

pytestmark = pytest.mark.anyio


async def test_slots_are_given_in_order_of_arrival() -> None:
    admission = Admission(n_slots=1, max_requests=10, max_tokens=0)
    tickets = [admission.enter([1])[0] for _ in range(4)]
    for i, ticket in enumerate(tickets):
        assert [t.is_granted for t in tickets] == [j == i for j in range(4)]
        ticket.release()
    assert admission.is_idle


async def test_one_who_leaves_the_queue_holds_up_nobody() -> None:
    admission = Admission(n_slots=1, max_requests=10, max_tokens=0)
    first, second, third = (admission.enter([5])[0] for _ in range(3))
    second.release()
    second.release()
    assert (admission.n_waiting, admission.n_tokens_waiting) == (1, 5)
    first.release()
    assert third.is_granted
    assert not second.is_granted


async def test_the_limits_count_those_who_wait() -> None:
    admission = Admission(n_slots=1, max_requests=2, max_tokens=100)
    admission.enter([1000])
    admission.enter([60])
    with pytest.raises(ApiError, match="101 prompt tokens would wait"):
        admission.enter([41])
    admission.enter([40])
    with pytest.raises(ApiError, match="3 requests would wait") as caught:
        admission.enter([1])
    assert caught.value.status == 503
    assert "retry-after" in caught.value.headers
    with pytest.raises(ApiError):
        admission.check_room()


async def test_a_group_enters_whole_or_not_at_all() -> None:
    admission = Admission(n_slots=2, max_requests=1, max_tokens=0)
    with pytest.raises(ApiError):
        admission.enter([1, 1, 1, 1])
    assert admission.is_idle
    assert len(admission.enter([1, 1, 1])) == 3
    assert (admission.n_running, admission.n_waiting) == (2, 1)


async def test_those_who_wait_can_be_refused() -> None:
    admission = Admission(n_slots=1, max_requests=2, max_tokens=0)
    admission.enter([1])
    waiting = admission.enter([1])[0]
    waits = asyncio.create_task(waiting.granted())
    await turns()
    admission.refuse_waiting(unavailable("closing"))
    with pytest.raises(ApiError, match="closing"):
        await waits


async def test_a_full_queue_answers_503_at_once_and_serves_the_rest() -> None:
    engine = FakeEngine()
    app = make_app(engine, max_queue_requests=2)
    accepted = [post(app, "/v1/completions", {"prompt": "a"}) for _ in range(3)]
    await turns(50)
    refused = await post(app, "/v1/completions", {"prompt": "a", "stream": True}).done()
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json["error"]["type"] == "unavailable_error"
    metrics = (await get(app, "/metrics").done()).body.decode()
    assert 'unpaced_requests_rejected_total{reason="queue_full"} 1.0' in metrics
    for i in range(3):
        (await engine.submitted(i + 1)).play(b"ok")
    for request in accepted:
        assert (await request.done()).status == 200


async def test_a_draining_server_refuses_and_finishes_what_it_has() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    gate: Gate = app.state.gate
    running = post(app, "/v1/completions", {"prompt": "a", "stream": True})
    sequence = await engine.submitted()
    gate.phase = Phase.DRAINING
    refused = await post(app, "/v1/completions", {"prompt": "a"}).done()
    assert (refused.status, refused.headers["connection"]) == (503, "close")
    assert (await get(app, "/health/ready").done()).status == 503
    assert (await get(app, "/health/live").done()).status == 200
    sequence.play(b"whole")
    await running.done()
    assert running.body.endswith(b"[DONE]\n\n")


async def test_while_loading_everything_but_probes_answers_like_llama_server() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    gate: Gate = app.state.gate
    gate.phase = Phase.LOADING
    for request in (get(app, "/health"), get(app, "/v1/models"), post(app, "/completion", {})):
        await request.done()
        assert request.status == 503
        assert request.json["error"]["message"] == "Loading model"
        assert request.json["error"]["type"] == "unavailable_error"
    assert (await get(app, "/health/live").done()).status == 200
    assert (await get(app, "/metrics").done()).status == 200
    assert "Loading model" in (await get(app, "/health/ready").done()).json["error"]["message"]
