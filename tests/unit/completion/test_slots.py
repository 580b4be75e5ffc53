"""Slots as the server sees them: turns, GET /slots, actions, ends of a text, memory limits."""

import asyncio
from pathlib import Path

import pytest

from engine_ext import FinishReason
from tests.support.scripted.asgi_client import get, post, turns
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.completion.admission import Admission, Ticket
from unpaced.routes.slots import is_file_name
from unpaced.settings import Settings
from unpaced.settings.host_memory import available_bytes

pytestmark = pytest.mark.anyio

# -- turns ------------------------------------------------------------------------------------


def release_in_turn(admission: Admission, tickets: list[Ticket]) -> list[int]:
    """Indices of the tickets in the order in which they got the one slot."""
    order = []
    for _ in tickets:
        (index,) = (i for i, ticket in enumerate(tickets) if ticket.is_granted)
        order.append(index)
        tickets[index].release()
    return order


def test_clients_take_turns_and_of_each_the_first_comes_first() -> None:
    admission = Admission(n_slots=1, max_requests=100, max_tokens=0)
    clients = [1, 1, 1, 1, 2, 2, 3, 1]
    tickets = [admission.enter([1], client=client)[0] for client in clients]
    waiting = [tickets.index(ticket) for ticket in admission.waiting()]
    assert waiting == [4, 6, 1, 5, 2, 3, 7]
    assert release_in_turn(admission, tickets) == [0, *waiting]
    assert admission.is_idle


def test_who_waits_for_a_slot_holds_up_nobody_and_gets_it() -> None:
    admission = Admission(n_slots=2, max_requests=100, max_tokens=0)
    first = admission.enter([1])[0]
    pinned = admission.enter([1], wanted=3)[0]
    assert not pinned.is_granted  # the first one may be in slot 1: the engine has not said yet
    first.started(1)
    assert not pinned.is_granted
    other = admission.enter([1])[0]
    assert other.is_granted
    other.started(0)
    late = admission.enter([1])[0]
    first.release()
    assert pinned.is_granted
    assert not late.is_granted
    other.release()
    assert late.is_granted


def test_a_wanted_slot_that_is_free_is_given_at_once() -> None:
    admission = Admission(n_slots=2, max_requests=100, max_tokens=0)
    admission.enter([1], wanted=0)[0].started(0)
    assert admission.enter([1], wanted=1)[0].is_granted
    assert not admission.enter([1], wanted=0)[0].is_granted


# -- GET /slots ---------------------------------------------------------------------------------


async def test_slots_before_while_and_after_a_request() -> None:
    engine = FakeEngine()
    app = make_app(engine, parallel=2)
    empty = (await get(app, "/slots").done()).json
    assert empty == [
        {"id": slot, "n_ctx": 128, "speculative": False, "is_processing": False} for slot in (0, 1)
    ]
    request = post(app, "/completion", {"prompt": "abc", "n_predict": 9, "top_k": 7})
    sequence = await engine.submitted()
    sequence.start(n_cached=1)
    sequence.prefill()
    sequence.tokens(b"x\ny")
    await turns()
    busy, idle = (await get(app, "/slots").done()).json
    assert idle == empty[1]
    assert busy["is_processing"] is True
    assert busy["n_prompt_tokens_processed"] == 3
    assert busy["n_prompt_tokens_cache"] == 1
    assert busy["params"]["top_k"] == 7
    assert "stop" not in busy["params"]
    assert busy["next_token"] == [
        {"has_next_token": True, "has_new_line": True, "n_remain": 6, "n_decoded": 3}
    ]
    sequence.finish()
    await request.done()
    idle = (await get(app, "/slots").done()).json[0]
    assert idle["is_processing"] is False
    assert idle["n_prompt_tokens"] == engine.slots.cells[0]
    assert idle["next_token"] == [
        {"has_next_token": False, "has_new_line": False, "n_remain": -1, "n_decoded": 0}
    ]


async def test_the_queue_is_shown_to_those_who_ask() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    requests = [post(app, "/completion", {"prompt": text}) for text in ("a", "bcd", "ef")]
    (await engine.submitted()).start()
    await turns()
    answer = await get(app, "/slots").done()
    assert isinstance(answer.json, list)
    assert answer.headers["x-queue-length"] == "2"
    asked = (await get(app, "/slots?queue=1").done()).json
    assert asked["slots"] == answer.json
    assert asked["queue"] == [
        {"position": i, "n_prompt_tokens": n, "id_slot": -1, "priority": 0, "api_key_index": 0}
        for i, n in ((1, 4), (2, 3))
    ]
    assert (await get(app, "/slots?fail_on_no_slot=1").done()).status == 503
    for number in (1, 2, 3):
        (await engine.submitted(number)).play(b"")
    for request in requests:
        await request.done()
    assert (await get(app, "/slots?fail_on_no_slot=1").done()).status == 200


async def test_slots_can_be_hidden() -> None:
    answer = await get(make_app(FakeEngine(), slots=False), "/slots").done()
    assert answer.status == 501
    assert answer.json["error"]["message"].endswith("Start it with `--slots`")
    answer = await post(make_app(FakeEngine()), "/slots/0?action=save", {}).done()
    assert answer.status == 501
    assert answer.json["error"]["message"].endswith("Start it with `--slot-save-path`")


# -- actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slot", "query", "body", "message"),
    [
        ("1", "action=save", {"filename": "a"}, "Invalid slot ID"),
        ("-1", "action=save", {"filename": "a"}, "Invalid slot ID"),
        ("x", "action=save", {"filename": "a"}, "Invalid slot ID"),
        ("\u0661", "action=save", {"filename": "a"}, "Invalid slot ID"),
        ("0", "action=copy", {"filename": "a"}, "Invalid action"),
        ("0", "", {"filename": "a"}, "Invalid action"),
        ("0", "action=save", {}, "Field 'filename': is required"),
        ("0", "action=save", {"filename": 1}, "Field 'filename': type must be string"),
        ("0", "action=restore", {"filename": "../a"}, "Invalid filename"),
    ],
)
async def test_actions_name_what_is_wrong(
    tmp_path: Path, slot: str, query: str, body: dict[str, object], message: str
) -> None:
    app = make_app(FakeEngine(), slot_save_path=tmp_path)
    answer = await post(app, f"/slots/{slot}?{query}", body).done()
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith(message)


def test_file_names() -> None:
    for name in ("a", "slot 1.bin", "\u00fc\u4e2d.bin", "x" * 255, "a.b.c", ".hidden"):
        assert is_file_name(name), name
    for name in (
        "", ".", "..", "a/b", "a\\b", "/a", "a..b", " a", "a ", "a.", "a:b", "a*", "a?", "a\n",
        "\x7f", "\x85", "a\0", "\ufeff", "\uff0e", "\u2215a", "\ud800", "x" * 256, "\u00fc" * 128,
        ".unpaced-1",
    ):  # fmt: skip
        assert not is_file_name(name), name


def test_the_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a folder"):
        Settings(slot_save_path=tmp_path / "none")


# -- ends of a text -------------------------------------------------------------------------------


async def test_limits_of_a_text_reach_the_engine_and_cut_it() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = post(
        app, "/completion", {"prompt": "p", "n_indent": 2, "t_max_predict_ms": 7, "stop": ["d"]}
    )
    sequence = await engine.submitted(1)
    assert (sequence.request.n_indent, sequence.request.t_max_ms) == (2, 7)
    sequence.start()
    # The token that completes a stop string is a limit's if the engine says so.
    sequence.tokens(b"a\n  b\n c\n d")
    sequence.finish(FinishReason.INDENT_LIMIT, cut_line=2)
    answer = (await request.done()).json
    assert answer["content"] == "a\n  b\n "
    assert answer["stop_type"] == "limit"
    assert answer["stopping_word"] == "d"


@pytest.mark.parametrize("reason", [FinishReason.STOP_STRING, FinishReason.EOS])
async def test_a_cut_line_leaves_the_reason_as_it_is(reason: FinishReason) -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = post(app, "/completion", {"prompt": "p", "n_indent": 1, "stop": ["x"]})
    sequence = await engine.submitted(1)
    sequence.start()
    sequence.tokens(b"a\nb" + b"x" * (reason is FinishReason.STOP_STRING))
    sequence.finish(reason, cut_line=1 if reason is FinishReason.EOS else -1)
    answer = (await request.done()).json
    assert answer["content"] == ("a\n" if reason is FinishReason.EOS else "a\nb")
    assert answer["stop_type"] == ("eos" if reason is FinishReason.EOS else "word")


# -- memory ---------------------------------------------------------------------------------------


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_memory_is_what_host_and_groups_leave(tmp_path: Path) -> None:
    meminfo = "MemTotal: 9 kB\nMemAvailable: 4000 kB\n"
    assert available_bytes(tmp_path) == 1 << 62  # nothing is known
    write(tmp_path, proc__meminfo=meminfo)
    assert available_bytes(tmp_path) == 4000 * 1024
    write(tmp_path, proc__self__cgroup="0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup"
    (group / "a/b").mkdir(parents=True)
    for folder, limit in ((group / "a/b", "max"), (group / "a", "3000000")):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text("1000000")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert available_bytes(tmp_path) == 2_500_000
    write(tmp_path, proc__self__cgroup="5:cpu:/x\n4:memory:/x\n")
    old = group / "memory/x"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("900000")
    (old / "memory.usage_in_bytes").write_text("950000")
    assert available_bytes(tmp_path) == 0


def test_the_prompt_cache_stays_within_half_of_the_free_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unpaced.settings.slots.available_bytes", lambda: 100 << 20)
    assert Settings().cache_bytes_max == 50 << 20
    assert Settings(cache_ram=-1).cache_bytes_max == 50 << 20
    assert Settings(cache_ram=20).cache_bytes_max == 20 << 20
    assert Settings(cache_ram=0).cache_bytes_max == 0


def test_slots_and_who_shares_the_context() -> None:
    for given, n_slots, shares in (
        ({}, 4, True),
        ({"parallel": 2}, 2, False),
        ({"parallel": 2, "kv_unified": True}, 2, True),
        ({"kv_unified": False}, 4, False),
    ):
        config = Settings(**given).engine_config()
        assert (config.n_slots, config.kv_unified) == (n_slots, shares)
    with pytest.raises(ValueError, match="at least 1"):
        Settings(parallel=0)


async def test_a_client_that_leaves_while_it_waits_for_a_slot() -> None:
    admission = Admission(n_slots=1, max_requests=9, max_tokens=0)
    first = admission.enter([1], wanted=0)[0]
    second = admission.enter([1], wanted=0)[0]
    waits = asyncio.create_task(second.granted())
    await turns()
    waits.cancel()
    second.release()
    first.release()
    assert admission.is_idle
