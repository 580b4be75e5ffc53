"""Streams and whole responses on a scripted engine: text, order, errors, pings."""

import math
from typing import Any

import pytest

from engine_ext import FinishReason
from tests.support.scripted.asgi_client import AsgiRequest, post, turns
from tests.support.scripted.fake_engine import EOS, FakeEngine
from tests.support.scripted.server_app import make_app

pytestmark = pytest.mark.anyio


def text_of(request: AsgiRequest) -> str:
    return "".join(c["text"] for event in request.events for c in event["choices"])


@pytest.mark.parametrize("answer", ["abc", "é€😀x", "one STOP two", "STO", "aSTSTOPb"])
async def test_streamed_text_is_the_whole_text(answer: str) -> None:
    engine = FakeEngine()
    engine.answer = answer.encode()
    app = make_app(engine)
    body = {"prompt": "hi", "stop": ["STOP"]}
    whole = await post(app, "/v1/completions", body).done()
    streamed = await post(app, "/v1/completions", body | {"stream": True}).done()
    expected = answer.partition("STOP")[0]
    assert whole.json["choices"][0]["text"] == expected
    assert text_of(streamed) == expected
    native = await post(app, "/completion", body | {"stream": True}).done()
    assert "".join(event["content"] for event in native.events) == expected


async def test_a_stop_string_cancels_and_names_itself() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = post(app, "/completion", {"prompt": "hi", "stop": ["ab"], "stream": True})
    await engine.submitted()
    sequence = engine.sequences[0]
    sequence.start()
    sequence.tokens(b"xa")
    await turns(20)
    assert "".join(event["content"] for event in request.events) == "x"
    sequence.tokens(b"bzz")
    await request.done()
    assert sequence.is_cancelled
    final = request.events[-1]
    assert (final["stop_type"], final["stopping_word"]) == ("word", "ab")
    assert final["tokens_predicted"] == 3


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
async def test_the_event_that_completes_a_stop_string_has_timings(path: str) -> None:
    engine = FakeEngine()
    request = post(make_app(engine), path, {"stream": True, "stop": ["xy"], "prompt": "a"})
    await engine.submitted()
    sequence = engine.sequences[0]
    sequence.start()
    sequence.tokens(b"ab")
    sequence.tokens(b"cxy")
    sequence.finish()
    await request.done()
    told = ["timings" in event for event in request.events]
    assert told[-2:] == [True, True]
    assert not any(told[:-2])


async def test_headers_go_out_when_the_slot_starts() -> None:
    engine = FakeEngine()
    request = post(make_app(engine), "/v1/completions", {"prompt": "hi", "stream": True})
    await engine.submitted()
    await turns(20)
    assert request.status == 0
    engine.sequences[0].start()
    await request.until(lambda r: r.status == 200)
    assert request.body == b""
    assert request.headers["content-type"] == "text/event-stream"
    engine.sequences[0].play(b"x")
    await request.done()
    assert request.body.endswith(b"data: [DONE]\n\n")


async def test_one_frame_a_token_even_where_text_is_held_back() -> None:
    engine = FakeEngine()
    engine.answer = "😀b".encode()
    request = await post(
        make_app(engine), "/completion", {"prompt": "hi", "stream": True, "stop": ["bc"]}
    ).done()
    tokens = [token for event in request.events for token in event["tokens"]]
    assert tokens == list("😀b".encode())
    assert [event["content"] for event in request.events] == ["", "", "", "😀", "", "b", ""]


async def test_the_eog_token_is_counted_and_has_no_text() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = post(app, "/v1/completions", {"prompt": "hi"})
    await engine.submitted()
    sequence = engine.sequences[0]
    sequence.start()
    sequence.tokens([97, EOS])
    sequence.finish(FinishReason.EOS)
    await request.done()
    assert request.json["choices"][0]["text"] == "a"
    assert request.json["choices"][0]["finish_reason"] == "stop"
    assert request.json["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("reason", "status", "text"),
    [
        (FinishReason.NON_FINITE, 500, "not finite"),
        (FinishReason.DECODE_FAILED, 500, "llama_decode failed with -3"),
        (FinishReason.EXCEPTION, 500, "engine failed"),
        (FinishReason.STOPPED, 503, "stopping"),
    ],
)
async def test_faults_are_a_status_before_the_stream_and_an_event_in_it(
    reason: FinishReason, status: int, text: str
) -> None:
    engine = FakeEngine()
    app = make_app(engine)
    early = post(app, "/v1/completions", {"prompt": "hi", "stream": True})
    late = post(app, "/v1/completions", {"prompt": "hi", "stream": True})
    whole = post(app, "/v1/completions", {"prompt": "hi"})
    await engine.submitted()
    engine.sequences[0].finish(reason, status=-3)
    await early.done()
    assert early.status == status
    assert text in early.json["error"]["message"]
    await engine.submitted(2)
    engine.sequences[1].start()
    engine.sequences[1].tokens(b"a")
    engine.sequences[1].finish(reason, status=-3)
    await late.done()
    assert late.status == 200
    assert text in late.events[-1]["error"]["message"]
    assert b"[DONE]" not in late.body
    await engine.submitted(3)
    engine.sequences[2].start()
    engine.sequences[2].finish(reason, status=-3)
    await whole.done()
    assert whole.status == status


async def test_several_choices_are_merged_by_index() -> None:
    engine = FakeEngine()
    app = make_app(engine, parallel=4)
    request = post(
        app, "/v1/completions", {"prompt": ["a", "bb"], "n": 2, "stream": True, "seed": 7}
    )
    await engine.submitted(4)
    seeds = [sequence.request.sampling.seed for sequence in engine.sequences]
    assert seeds == [7, 8, 7, 8]
    for i, sequence in enumerate(engine.sequences):
        sequence.start()
        sequence.tokens(b"%d" % i)
    await turns(30)
    for i, sequence in enumerate(reversed(engine.sequences)):
        sequence.tokens(b"xyz"[: i % 4])
        sequence.finish()
    await request.done()
    texts = {0: "", 1: "", 2: "", 3: ""}
    for event in request.events:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {0: "0xyz", 1: "1xy", 2: "2x", 3: "3"}
    finals = [event for event in request.events if event["choices"][0]["finish_reason"]]
    assert len(finals) == 4
    assert [("usage" in event) for event in finals] == [False, False, False, True]
    usage = finals[-1]["usage"]
    assert usage["prompt_tokens"] == len("a") + len("bb") + 2
    assert usage["completion_tokens"] == 4 + 3 + 2 + 1
    assert request.body.endswith(b"data: [DONE]\n\n")
    assert request.body.count(b"[DONE]") == 1


async def test_choices_beyond_the_slots_wait_their_turn() -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    app = make_app(engine, parallel=1)
    request = await post(app, "/v1/completions", {"prompt": "a", "n": 5}).done()
    assert [choice["text"] for choice in request.json["choices"]] == ["ok"] * 5
    assert [choice["index"] for choice in request.json["choices"]] == [0, 1, 2, 3, 4]
    native = await post(app, "/completion", {"prompt": ["a", "b"]}).done()
    assert [entry["index"] for entry in native.json] == [0, 1]


async def test_one_failing_choice_ends_the_merged_stream() -> None:
    engine = FakeEngine()
    app = make_app(engine, parallel=2)
    request = post(app, "/v1/completions", {"prompt": "a", "n": 2, "stream": True})
    await engine.submitted(2)
    engine.sequences[0].start()
    engine.sequences[1].start()
    engine.sequences[1].finish(FinishReason.EXCEPTION)
    await request.done()
    assert "error" in request.events[-1]
    assert b"[DONE]" not in request.body
    assert engine.sequences[0].is_cancelled


@pytest.mark.parametrize("n", [1, 2])
async def test_a_silent_stream_is_pinged(n: int) -> None:
    engine = FakeEngine()
    app = make_app(engine, parallel=2)
    body: dict[str, Any] = {"prompt": "a", "stream": True, "n": n, "sse_ping_interval": 1}
    request = post(app, "/v1/completions", body)
    await engine.submitted(n)
    engine.sequences[0].start()
    await request.until(lambda r: r.body.startswith(b":"))
    for sequence in engine.sequences:
        sequence.play(b"x")
    await request.done()


async def test_prompt_progress_is_sent_where_asked_for() -> None:
    engine = FakeEngine()
    request = post(
        make_app(engine), "/completion", {"prompt": "abcd", "stream": True, "return_progress": True}
    )
    await engine.submitted()
    sequence = engine.sequences[0]
    sequence.start(n_cached=1)
    sequence.prefill(3)
    sequence.prefill(5)
    sequence.tokens(b"x")
    sequence.finish()
    await request.done()
    progress = [e["prompt_progress"] for e in request.events if "prompt_progress" in e]
    assert [(p["total"], p["cache"], p["processed"]) for p in progress] == [
        (5, 1, 1),
        (5, 1, 3),
        (5, 1, 5),
    ]


async def test_echo_with_logprobs_has_the_legacy_shape() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = post(
        app, "/v1/completions", {"prompt": [97, 98], "echo": True, "max_tokens": 1, "logprobs": 1}
    )
    await engine.submitted()
    sequence = engine.sequences[0]
    assert sequence.request.prompt_logprobs
    sequence.start()
    sequence.prompt_logprob(98, -2.0, [(99, -1.0)])
    sequence.tokens(b"c", logprob=-0.25)
    sequence.finish()
    await request.done()
    choice = request.json["choices"][0]
    assert choice["text"] == "abc"
    assert choice["logprobs"] == {
        "tokens": ["a", "b", "c"],
        "token_logprobs": [None, -2.0, -0.25],
        "top_logprobs": [None, {"c": -1.0, "b": -2.0}, {"c": -0.25}],
        "text_offset": [0, 1, 2],
    }


def cut_at(text: str, offsets: list[int]) -> list[str]:
    """What lies between each offset and the next."""
    return [text[a:b] for a, b in zip(offsets, [*offsets[1:], len(text)], strict=True)]


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_have_openais_lists_beside_llama_servers(stream: bool) -> None:
    engine = FakeEngine()
    engine.answer = "a\u00e9b".encode()  # the second character is two tokens
    body = {"prompt": "x", "max_tokens": 4, "logprobs": 2, "stream": stream}
    request = await post(make_app(engine), "/v1/completions", body).done()
    choices = [e["choices"][0] for e in (request.events if stream else [request.json])]
    text = "".join(choice["text"] for choice in choices)
    lists = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert len(lists) == (4 if stream else 1)
    joined = {key: [item for one in lists for item in one[key]] for key in lists[0]}
    assert [entry["id"] for entry in joined["content"]] == list(engine.answer)
    assert joined["tokens"] == ["a", "", "\u00e9", "b"]
    assert cut_at(text, joined["text_offset"]) == joined["tokens"]
    assert joined["token_logprobs"] == [-0.5] * 4
    assert joined["top_logprobs"][0] == {"a": -0.5, "A": -9.0}


async def test_n_probs_are_llama_servers_alone() -> None:
    engine = FakeEngine()
    engine.answer = b"a"
    body = {"prompt": "x", "max_tokens": 1, "n_probs": 2}
    request = await post(make_app(engine), "/v1/completions", body).done()
    assert list(request.json["choices"][0]["logprobs"]) == ["content"]


async def test_the_lists_end_before_a_stop_string_and_hold_an_unfinished_character() -> None:
    engine = FakeEngine()
    engine.answer = b"abEND"
    body = {"prompt": "x", "max_tokens": 9, "logprobs": 1, "stop": "END"}
    request = await post(make_app(engine), "/v1/completions", body).done()
    assert request.json["choices"][0]["logprobs"]["tokens"] == ["a", "b"]
    engine.answer = b"a\xc3"
    request = await post(make_app(engine), "/v1/completions", {"prompt": "x", "logprobs": 1}).done()
    choice = request.json["choices"][0]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == "a\ufffd"


async def echo_after_sampling(**asked: int) -> Any:
    """`logprobs` of a prompt's second token and one drawn with the probability 0.5."""
    engine = FakeEngine()
    body = {"prompt": [97, 98], "echo": True, "max_tokens": 1, "post_sampling_probs": True}
    request = post(make_app(engine), "/v1/completions", body | asked)
    sequence = await engine.submitted()
    sequence.start()
    sequence.prompt_logprob(98, -2.0, [(99, -1.0)])
    sequence.tokens(b"c", logprob=0.5)
    sequence.finish()
    return (await request.done()).json["choices"][0]["logprobs"]


async def test_probabilities_after_sampling_are_logarithms_in_openais_lists() -> None:
    logprobs = await echo_after_sampling(logprobs=1)
    assert logprobs["token_logprobs"] == [None, -2.0, math.log(0.5)]


async def test_a_prompts_native_entries_are_logprobs_whatever_is_drawn() -> None:
    _, second, drawn = (await echo_after_sampling(n_probs=1))["content"]
    assert (second["logprob"], second["top_logprobs"][0]["logprob"]) == (-2.0, -1.0)
    assert drawn["prob"] == 0.5


async def test_response_fields_that_name_nothing_leave_nothing() -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    app = make_app(engine)
    for fields, expected in (([""], {}), (["", "content"], {"content": "ok"})):
        body = {"prompt": "a", "n_predict": 2, "response_fields": fields}
        assert (await post(app, "/completion", body).done()).json == expected


async def test_echo_without_tokens_asks_the_engine_for_the_prompt_alone() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    for stream in (False, True):
        request = post(
            app,
            "/v1/completions",
            {"prompt": "ab", "echo": True, "max_tokens": 0, "stream": stream},
        )
        await engine.submitted(1 + stream)
        assert engine.sequences[-1].request.max_tokens == 0
        engine.sequences[-1].play(b"")
        await request.done()
        events = request.events if stream else [request.json]
        assert "".join(event["choices"][0]["text"] for event in events) == "ab"
        assert events[-1]["choices"][0]["finish_reason"] == "length"
        assert events[-1]["usage"]["completion_tokens"] == 0


async def test_response_fields_pick_and_flatten() -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    fields = ["content", "generation_settings/n_predict", "nothing", "timings/nothing"]
    request = await post(
        make_app(engine), "/completion", {"prompt": "a", "n_predict": 2, "response_fields": fields}
    ).done()
    assert request.json == {"content": "ok", "generation_settings/n_predict": 2}
