"""Clients beside each other: shares by tokens, priorities within one, and room in a full queue."""

import asyncio
from dataclasses import replace

import pytest

from tests.support.scripted.asgi_client import post, turns
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.completion.admission import Admission, Ticket
from unpaced.completion.fair_queue import AGEING_TURNS, TURN_TOKENS, FairQueue, Place, Request
from unpaced.http.client_network import network_of
from unpaced.http.errors import ApiError

pytestmark = pytest.mark.anyio


def serve(admission: Admission, n: int, n_decoded: int = 0) -> list[Ticket]:
    """Who gets the one slot next, so many times, each for so many tokens."""
    order = []
    for _ in range(n):
        (running,) = admission._running
        running.finished(n_decoded)
        following = next(iter(admission.waiting()))
        running.release()
        assert following.is_granted
        order.append(following)
    return order


def clients_of(tickets: list[Ticket]) -> list[int | str]:
    return [ticket.request.client for ticket in tickets]


# -- shares -----------------------------------------------------------------------------------


def test_long_prompts_do_not_make_short_ones_of_another_client_wait() -> None:
    admission = Admission(n_slots=1, max_requests=1000, max_tokens=0)
    for _ in range(20):
        admission.enter([5000], client="greedy")
    polite = [admission.enter([10], client="polite")[0] for _ in range(200)]
    # 5016 tokens of a turn are as much as 192 turns of 26 tokens.
    order = serve(admission, 199)
    assert clients_of(order[:193]) == ["polite"] * 193
    assert order[:193] == polite[:193]
    assert clients_of(order).count("greedy") == 1


def test_generated_tokens_count_as_those_of_prompts_and_reused_ones_do_not() -> None:
    for n_cached, n_decoded, n_turns in ((0, 0, 1), (0, 400, 5), (0, 1600, 17), (90, 1600, 16)):
        admission = Admission(n_slots=1, max_requests=100, max_tokens=0)
        (first,) = admission.enter([100], client=1)
        for client in (1, *[2] * 50):
            admission.enter([84], client=client)  # 100 a turn
        first.started(0, n_cached)
        first.finished(n_decoded)
        order = clients_of(serve(admission, 20))
        assert order.index(1) == (100 + TURN_TOKENS + n_decoded - n_cached + 99) // 100
        assert order.index(1) in (n_turns, n_turns + 1)


def test_who_comes_anew_is_next_whatever_the_others_wait_for() -> None:
    admission = Admission(n_slots=1, max_requests=1000, max_tokens=0)
    admission.enter([1], client="c")  # served once, then gone
    for _ in range(50):
        admission.enter([3000, 10], client="a")
        admission.enter([2000, 7], client="b")
    serve(admission, 60)
    (late,) = admission.enter([4000], client="c")
    assert serve(admission, 1) == [late]
    # It has no turns in store for the time when it was not there.
    admission.enter([3000] * 9, client="c")
    assert clients_of(serve(admission, 6)).count("c") <= 2


def test_a_client_that_cannot_go_on_saves_no_turns_up() -> None:
    admission = Admission(n_slots=2, max_requests=1000, max_tokens=0)
    (holder,) = admission.enter([10], client="holder", wanted=0)
    holder.started(0)
    pinned = [admission.enter([10], client="pinned", wanted=0)[0] for _ in range(40)]
    others = [admission.enter([10], client="other")[0] for _ in range(60)]
    for ticket in others[:30]:
        ticket.started(1)
        ticket.release()
    others[30].started(1)  # and keeps it: all that is left is slot 0
    holder.release()
    order = []
    for _ in range(12):
        (running,) = (t for t in (*pinned, *others[31:]) if t.is_granted)
        running.started(0)
        order.append(running.request.client)
        running.release()
    assert order.count("pinned") == 6


def test_debts_of_clients_that_have_left_are_bounded() -> None:
    queue: FairQueue[Place] = FairQueue(10, 0)
    for i in range(20_000):
        queue.begin([Place(Request(f"10.0.{i >> 8}.{i & 255}"), 10)])
    queue.begin([Place(Request("heavy"), 1_000_000)])
    for i in range(20_000):
        queue.begin([Place(Request(f"10.1.{i >> 8}.{i & 255}"), 10)])
    assert len(queue._served) < 5000
    assert queue.served("heavy") - queue.served("new") > 900_000  # the largest are kept


# -- priorities -------------------------------------------------------------------------------


def test_the_lower_priority_is_earlier_and_among_equals_the_first() -> None:
    admission = Admission(n_slots=1, max_requests=100, max_tokens=0)
    priorities = [0, 0, 5, -3, 0, -3, 2**62]
    tickets = [admission.enter([1], priority=priority)[0] for priority in priorities]
    order = [tickets.index(ticket) for ticket in serve(admission, 6)]
    assert order == [3, 5, 1, 4, 2, 6]


def test_nobody_raises_himself_above_other_clients_by_a_priority() -> None:
    orders = []
    for priority in (0, -(2**62)):
        admission = Admission(n_slots=1, max_requests=100, max_tokens=0)
        for client in (1, 1, 2, 1, 2, 1):
            admission.enter([50], client=client, priority=priority if client == 1 else 0)
        orders.append(clients_of(serve(admission, 5)))
    assert orders[0] == orders[1] == [2, 1, 2, 1, 1]


def test_who_waits_behind_lower_priorities_for_ever_gets_one_turn_of_some() -> None:
    admission = Admission(n_slots=1, max_requests=100, max_tokens=0)
    admission.enter([1])
    late = [admission.enter([1], priority=9)[0] for _ in range(2)]
    n_turns = []
    for turn in range(1, 3 * AGEING_TURNS):
        admission.enter([1], priority=0)
        if serve(admission, 1)[0] in late:
            n_turns.append(turn)
    assert n_turns == [AGEING_TURNS, 2 * AGEING_TURNS]


# -- room -------------------------------------------------------------------------------------


async def test_a_client_that_fills_the_queue_makes_room_for_another() -> None:
    n_refused = []
    admission = Admission(1, 6, 0, on_refusal=lambda: n_refused.append(1))
    greedy = [admission.enter([1], client=1, priority=p)[0] for p in (0, 0, 1, 0, 0, 0, 0)]
    polite = [admission.enter([1], client=2)[0] for _ in range(3)]
    # Its last ones go: the one of the latest priority, then the youngest.
    lost = [ticket for ticket in greedy if not ticket.is_granted and not ticket.is_waiting]
    assert lost == [greedy[2], greedy[5], greedy[6]]
    assert (admission.n_waiting, len(n_refused)) == (6, 3)
    for ticket in lost:
        with pytest.raises(ApiError, match="the queue is full, and most of it") as caught:
            await ticket.granted()
        assert caught.value.status == 503
        ticket.release()
    # Both have half of it now.
    for client in (1, 2):
        with pytest.raises(ApiError, match="7 requests would wait, 6 may"):
            admission.enter([1], client=client)
        with pytest.raises(ApiError):
            admission.check_room(client=client)
    admission.check_room(client=3)
    assert all(ticket.is_waiting for ticket in polite)


async def test_a_request_loses_all_its_places_and_one_that_has_begun_is_the_last_to() -> None:
    admission = Admission(n_slots=1, max_requests=6, max_tokens=0)
    begun = admission.enter([1] * 4, client=1, priority=9)
    whole = admission.enter([1] * 3, client=1)
    admission.enter([1], client=2)
    assert [ticket.is_waiting for ticket in whole] == [False] * 3
    assert [ticket.is_waiting for ticket in begun] == [False, True, True, True]
    assert admission.n_waiting == 4


async def test_room_is_shared_by_prompt_tokens_too() -> None:
    admission = Admission(n_slots=1, max_requests=100, max_tokens=10_000)
    admission.enter([1], client=1)
    long = [admission.enter([4000], client=1)[0] for _ in range(2)]
    for _ in range(4):
        admission.enter([500], client=2)
    assert admission.n_tokens_waiting == 10_000
    admission.enter([1000], client=2)
    assert [ticket.is_waiting for ticket in long] == [True, False]
    with pytest.raises(ApiError, match="11500 prompt tokens would wait, 10000 may"):
        admission.enter([4500], client=2)  # it would have more than the other one
    assert admission.n_tokens_waiting == 7000


def test_those_who_want_a_slot_that_is_taken_are_bounded_too() -> None:
    admission = Admission(n_slots=4, max_requests=3, max_tokens=0)
    admission.enter([1], wanted=0)[0].started(0)
    for _ in range(3):
        admission.enter([1], wanted=0)
    with pytest.raises(ApiError, match="4 requests would wait"):
        admission.enter([1], wanted=0)
    assert admission.enter([1])[0].is_granted  # three slots are free


# -- over HTTP --------------------------------------------------------------------------------

_MESSAGES = [{"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "a"}),
        ("/v1/completions", {"prompt": "a"}),
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
        ("/v1/chat/completions", {"messages": _MESSAGES}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", {"messages": _MESSAGES, "max_tokens": 3}),
    ],
)
async def test_every_completion_takes_a_priority(path: str, body: dict[str, object]) -> None:
    engine = FakeEngine()
    engine.model = replace(engine.model, fim_prefix=1, fim_suffix=2, fim_middle=3)
    app = make_app(engine)
    admission: Admission = app.state.completions.admission
    requests = [post(app, "/completion", {"prompt": "x"})]
    await engine.submitted()
    requests += [post(app, path, body | {"priority": priority}) for priority in (7, -7)]
    while admission.n_waiting < 2:  # a chat's template takes a process
        assert not any(request.status for request in requests)
        await asyncio.sleep(0.001)
    assert [ticket.request.priority for ticket in admission.waiting()] == [-7, 7]
    wrong = await post(app, path, body | {"priority": "high"}).done()
    assert wrong.status == 400
    assert "priority" in wrong.json["error"]["message"]
    for number in (1, 2, 3):
        (await engine.submitted(number)).play(b"ok")
    for request in requests:
        assert (await request.done()).status == 200


@pytest.mark.parametrize("keys", [(), ("one", "two")])
async def test_clients_are_told_apart_by_key_and_without_keys_by_address(
    keys: tuple[str, ...],
) -> None:
    engine = FakeEngine()
    app = make_app(engine, max_queue_requests=4, api_key=keys)
    requests = []
    for _ in range(5):
        request = post(app, "/completion", {"prompt": "abc"}, authorization="Bearer one")
        request.come_from("10.0.0.1")
        requests.append(request)
        await turns(20)
    polite = post(app, "/completion", {"prompt": "z"}, authorization="Bearer two")
    polite.come_from("10.0.0.2")
    await turns(50)
    assert (await requests[-1].done()).status == 503  # it gave way
    assert requests[-1].headers["retry-after"] == "1"
    (await engine.submitted()).play(b"x")
    sequence = await engine.submitted(2)
    assert sequence.request.prompt[-1] == ord("z")
    sequence.play(b"x")
    assert (await polite.done()).status == 200
    for number in (3, 4, 5):
        (await engine.submitted(number)).play(b"x")
    for request in requests[:-1]:
        assert (await request.done()).status == 200


def test_a_network_is_what_one_client_has() -> None:
    assert network_of(None) == network_of(("", 0)) == ""
    assert network_of(("192.0.2.7", 5)) == "192.0.2.7"
    assert network_of(("::ffff:192.0.2.7", 5)) == "192.0.2.7"
    one, same, other = (("2001:db8:0:1::5", 1), ("2001:db8:0:1:ffff::9", 2), ("2001:db8:0:2::5", 1))
    assert network_of(one) == network_of(same) != network_of(other)
    assert network_of(("fe80::1%eth0", 1)) == network_of(("fe80::2", 1))
