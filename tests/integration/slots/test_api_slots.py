"""Slots of a real server: the prompt cache in all its forms, context shift, files."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.server import Server, serving
from tests.support.ties import assert_equal_up_to_a_tie

LONG = " ".join(f"The {word} saw the little fox near the old mill." for word in (
    "king", "queen", "baker", "miller", "child", "old man", "bear", "wolf", "bird", "mouse",
))  # fmt: skip
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "n_predict": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    flags = ("-np", "2", "-t", "1", "-tb", "1", "--slot-save-path", str(folder), "-cram", "0")
    with serving(*flags) as running:
        yield running


def act(server: Server, slot: int, action: str, name: str = "state.bin") -> Any:
    response = server.post(f"/slots/{slot}?action={action}", {"filename": name})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_saved_slot_goes_on_in_another_one(server: Server, folder: Path) -> None:
    first = server.complete(prompt=LONG, **GREEDY, id_slot=1, cache_prompt=False)
    assert first["id_slot"] == 1
    n_prompt = first["tokens_evaluated"]
    saved = act(server, 1, "save")
    assert saved["id_slot"] == 1
    assert saved["filename"] == "state.bin"
    assert saved["n_saved"] == n_prompt + 23 == first["tokens_cached"]
    assert saved["n_written"] == (folder / "state.bin").stat().st_size
    assert saved["timings"]["save_ms"] > 0
    # What the restored slot's answer is compared with: the last token of the prompt is computed
    # alone in both. Computed with the others, as at first, it may differ in its last bits.
    cached = server.complete(prompt=LONG, **GREEDY, id_slot=1)
    assert cached["timings"]["prompt_n"] == 1
    assert act(server, 1, "erase")["n_erased"] == n_prompt + 23
    again = server.complete(prompt=LONG, **GREEDY, id_slot=1)
    assert again["timings"]["cache_n"] == 0
    assert again["content"] == first["content"]
    restored = act(server, 0, "restore")
    assert restored["n_restored"] == saved["n_saved"]
    assert restored["n_read"] == saved["n_written"]
    assert restored["timings"]["restore_ms"] > 0
    other = server.complete("/v1/completions", prompt=LONG, **GREEDY, id_slot=0)
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == n_prompt - 1
    assert other["timings"]["cache_n"] == n_prompt - 1
    assert other["timings"]["prompt_n"] == 1
    assert other["choices"][0]["text"] == cached["content"]


def test_files_that_are_none_are_refused_and_nothing_else_is_lost(
    server: Server, folder: Path
) -> None:
    server.complete(prompt=LONG, **GREEDY, id_slot=1)
    act(server, 1, "save", "good.bin")
    data = (folder / "good.bin").read_bytes()
    (folder / "short.bin").write_bytes(data[:1000])
    (folder / "noise.bin").write_bytes(b"\0" * 1000)
    (folder / "changed.bin").write_bytes(data[:5000] + b"!" + data[5001:])
    (folder / "link.bin").symlink_to(folder / "good.bin")
    (folder / "folder.bin").mkdir()
    for name in ("none", "short.bin", "noise.bin", "changed.bin", "link.bin", "folder.bin"):
        response = server.post("/slots/0?action=restore", {"filename": name})
        assert response.status_code == 400, name
        assert response.json()["error"]["message"].startswith("Unable to restore slot: ")
    for name in ("link.bin", "folder.bin"):
        response = server.post("/slots/1?action=save", {"filename": name})
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith("Unable to save slot: ")
        assert response.json()["error"]["param"] == "filename"
    assert (folder / "good.bin").read_bytes() == data
    # Without its last 40 bytes it is refused: the first cell's sequence id is our mark.
    (folder / "lost.bin").write_bytes(data[:-40])
    response = server.post("/slots/0?action=restore", {"filename": "lost.bin"})
    assert response.status_code == 400
    # As an older llama-server wrote it: a plain list of tokens, its slot in each cell, no trailer.
    n = int.from_bytes(data[20:24], "little")
    state = bytearray(data[28 + 4 * n : -40])
    mark = state.index((0x55445031).to_bytes(4, "little"))
    assert mark < 100
    state[mark : mark + 4] = bytes(4)
    plain = data[:8] + data[20:24] + data[24 : 24 + 4 * n] + state
    (folder / "plain.bin").write_bytes(plain)
    assert act(server, 0, "restore", "plain.bin")["n_restored"] == n
    answer = server.complete(prompt=LONG, **GREEDY, id_slot=1)
    assert answer["timings"]["prompt_n"] == 1


def test_actions_do_not_disturb_a_stream_and_wait_for_their_slot(server: Server) -> None:
    body: dict[str, Any] = {
        "prompt": "Once upon a time",
        "temperature": 0,
        "ignore_eos": True,
        "n_predict": 200,
    }
    alone = server.complete(**body, id_slot=0, cache_prompt=False)
    server.complete(prompt=LONG, **GREEDY, id_slot=1)
    answers: list[Any] = []
    stream = threading.Thread(
        target=lambda: answers.append(server.complete(**body, id_slot=0, cache_prompt=False))
    )
    stream.start()
    server.until(lambda: answers != [] or server.client.get("/slots").json()[0]["is_processing"])
    for _ in range(5):
        act(server, 1, "save", "busy.bin")
        act(server, 1, "erase")
        act(server, 1, "restore", "busy.bin")
    erased = act(server, 0, "erase")["n_erased"]  # once the stream is over
    stream.join()
    assert answers[0]["content"] == alone["content"]
    assert erased == answers[0]["tokens_cached"]


def test_a_wanted_slot_wraps(server: Server) -> None:
    for wanted, slot in ((0, 0), (1, 1), (7, 1), (6, 0)):
        assert server.complete(prompt="x", n_predict=1, id_slot=wanted)["id_slot"] == slot


def test_moved_chunks_are_reused_when_asked(server: Server) -> None:
    tokens = server.post("/tokenize", {"content": LONG * 3, "add_special": True}).json()["tokens"]
    server.complete(prompt=tokens, **GREEDY, id_slot=0, cache_prompt=False)
    shorter = tokens[:40] + tokens[80:]
    answer = server.complete(prompt=shorter, **GREEDY, id_slot=0, n_cache_reuse=32)
    assert answer["timings"]["cache_n"] >= len(shorter) - 40
    plain = server.complete(prompt=tokens, **GREEDY, id_slot=0)
    assert plain["timings"]["cache_n"] < 80


def test_prompts_go_to_host_memory_and_come_back() -> None:
    with serving("-t", "1", "-tb", "1", "-c", "1024", "-v") as server:
        props = server.client.get("/props").json()
        assert props["total_slots"] == 4
        assert props["default_generation_settings"]["n_ctx"] == 1024
        first = server.complete(prompt=LONG, **GREEDY, n_probs=2)
        for word in ("sun", "moon", "star"):
            server.complete(prompt=f"A story of the {word}:", **GREEDY)
        cells = [slot.get("n_prompt_tokens", 0) for slot in server.client.get("/slots").json()]
        assert sum(n > 0 for n in cells) == 1  # the idle ones gave up theirs
        assert server.metric("unpaced_prompt_cache_prompts") == 3
        assert server.metric("unpaced_prompt_cache_bytes") > 0
        again = server.complete(prompt=LONG, **GREEDY, n_probs=2)
        assert again["timings"]["cache_n"] == first["tokens_evaluated"] - 1
        # Its last token is computed alone now, and over cells that lie elsewhere.
        assert_equal_up_to_a_tie(
            first["completion_probabilities"], again["completion_probabilities"]
        )
        assert server.metric("unpaced_prompt_cache_copied_total") <= 1  # 0: it was still parked
        assert server.metric("unpaced_prompt_cache_computed_total") == 0
        kept = server.client.get("/props").json()["unpaced"]["prompt_cache"]
        assert kept["computed"] == 0
        assert kept["cost"]["compute_token_ms"] > 0
        log = server.logged()
        assert "updating prompt cache" in log
        assert "__TEST_TAG_CACHE_IDLE_SLOT__" in log


def test_prompts_come_and_go_beside_a_stream() -> None:
    with serving("-t", "1", "-tb", "1", "-c", "4096", "-ub", "64") as server:
        body: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
        answers: list[Any] = []
        stream = threading.Thread(
            target=lambda: answers.append(
                server.stream(prompt="The little fox", n_predict=900, **body)
            )
        )
        stream.start()
        server.until(lambda: any(s["is_processing"] for s in server.client.get("/slots").json()))
        prompts = [f"{word} {LONG * 2}" for word in ("One", "Two", "Six", "Ten", "Now")]
        cold = [server.complete(prompt=prompt, n_predict=4, **body) for prompt in prompts]
        for prompt, first in zip(prompts, cold, strict=True):
            again = server.complete(prompt=prompt, n_predict=4, **body)
            assert first["timings"]["cache_n"] < 3
            assert again["timings"]["cache_n"] == again["tokens_evaluated"] - 1
        stream.join()
        assert answers[0][-1]["tokens_predicted"] == 900
        assert server.metric("unpaced_prompt_cache_lost_total") == 0
        assert server.metric("unpaced_prompt_cache_seconds_total") > 0
        longest = server.metric("unpaced_prompt_cache_longest_turn_seconds")
        assert 0 < longest <= server.metric("unpaced_prompt_cache_seconds_total")


def test_a_full_context_shifts_or_ends() -> None:
    body: dict[str, Any] = {"prompt": LONG[:200], "temperature": 0, "ignore_eos": True}
    body["cache_prompt"] = False  # each prompt in the same batches as the first
    with serving("-np", "1", "-t", "1", "-c", "256", "--context-shift", "--keep", "8") as server:
        shifted = server.complete(**body, n_predict=400)
        assert shifted["timings"]["predicted_n"] == 400
        assert shifted["truncated"] is True
        assert shifted["stop_type"] == "limit"
        assert shifted["tokens_cached"] < 256
        assert shifted["generation_settings"]["n_keep"] == 8
        stopped = server.complete(**body, n_predict=400, stop=[shifted["content"][-12:]])
        assert stopped["stop_type"] == "word"
        n_all = stopped["tokens_evaluated"] + stopped["tokens_predicted"]
        assert stopped["truncated"] is (n_all > 256)
    with serving("-np", "1", "-t", "1", "-c", "256") as server:
        ended = server.complete(**body, n_predict=-1)
        n_prompt = ended["tokens_evaluated"]
        assert ended["truncated"] is True
        assert ended["timings"]["predicted_n"] == 256 - n_prompt
        assert ended["content"] == shifted["content"][: len(ended["content"])]
        chat = server.complete("/v1/completions", **body, max_tokens=4000)
        assert chat["choices"][0]["finish_reason"] == "length"
        response = server.post("/completion", {"prompt": [5] * 256})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["type"] == "exceed_context_size_error"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (256, 256)


def test_texts_that_share_too_few_cells_are_all_finished() -> None:
    with serving("-np", "4", "-kvu", "-t", "1", "-tb", "1", "-c", "256") as server:
        body: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "n_predict": 100}
        answers = ask_all(server, [{"prompt": f"{i} foxes", **body} for i in range(4)])
        assert [answer["timings"]["predicted_n"] for answer in answers] == [100] * 4
        assert server.metric("unpaced_kv_cells_yielded_total") > 0
        assert server.metric("unpaced_engine_requests_failed_total") == 0
        assert server.complete(prompt="after", **body)["timings"]["predicted_n"] == 100


def ask_all(server: Server, bodies: list[dict[str, Any]]) -> list[Any]:
    """Answers of requests that are sent at the same time."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: server.complete(**body), bodies))


def test_prompts_of_more_than_half_the_context_wait_for_one_another() -> None:
    words = ("One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")
    with serving("-t", "1", "-tb", "1", "-c", "1024", "-ub", "128") as server:
        assert server.client.get("/props").json()["total_slots"] == 4
        one = server.post("/tokenize", {"content": LONG * 6, "add_special": True}).json()["tokens"]
        bodies: list[dict[str, Any]] = []
        for word in words:
            tokens = server.post("/tokenize", {"content": f"{word}. "}).json()["tokens"]
            bodies.append({"prompt": [*tokens, *one][:614], **GREEDY, "n_probs": 4})
        cold: dict[str, Any] = {"cache_prompt": False}
        together = ask_all(server, [body | cold for body in bodies])
        alone = [server.complete(**body, **cold) for body in bodies]
        for one_answer, other in zip(alone, together, strict=True):
            assert other["tokens_evaluated"] == 614
            assert other["timings"]["prompt_n"] == 614
            assert other["timings"]["predicted_n"] == 24
            assert_equal_up_to_a_tie(
                one_answer["completion_probabilities"], other["completion_probabilities"]
            )
        assert server.metric("unpaced_kv_waits_total") >= 3
        assert server.metric("unpaced_kv_cells_yielded_total") == 0
        # The log lines of the completions say so.
        waited = re.findall(r"cells_ms=([0-9.]+)", server.logged())
        assert len(waited) == 16
        assert sum(float(ms) > 0 for ms in waited) >= 3
        # And with what is reused: prompts that hold cells while they wait.
        for answer in ask_all(server, bodies * 2):
            assert answer["timings"]["predicted_n"] == 24
            timings = answer["timings"]
            assert timings["cache_n"] + timings["prompt_n"] == 614
        assert server.metric("unpaced_engine_requests_failed_total") == 0


def test_who_leaves_while_it_waits_for_cells_is_forgotten() -> None:
    with serving("-t", "1", "-tb", "1", "-c", "512") as server:
        long: dict[str, Any] = {"prompt": [5] * 300, "temperature": 0, "ignore_eos": True}
        first = threading.Thread(target=lambda: server.complete(**long, n_predict=200))
        first.start()
        server.until(lambda: server.metric("unpaced_engine_slots_active") == 1)
        with server.client.stream(
            "POST", "/completion", json=long | {"prompt": [6] * 300, "stream": True, "n_predict": 9}
        ) as response:
            assert response.status_code == 200
            server.until(lambda: server.metric("unpaced_kv_waits_total") == 1)
        server.until(lambda: server.metric("unpaced_engine_slots_active") == 1)
        first.join()
        assert server.complete(**long, n_predict=3)["timings"]["predicted_n"] == 3


@pytest.mark.parametrize("flags", [[], ["-np", "1"], ["-np", "4", "-cram", "0"]])
def test_a_request_alone_is_answered_as_on_a_fresh_server(flags: list[str]) -> None:
    """Bit by bit, logprobs too: attention's sums depend on which cells hold what."""
    body: dict[str, Any] = {"prompt": LONG, **GREEDY, "n_probs": 5, "cache_prompt": False}
    random = Random(1)

    def other(seed: int) -> dict[str, Any]:
        prompt = [random.randrange(10, 900) for _ in range(random.randrange(1, 60))]
        reuses = random.random() < 0.5
        n_predict = random.randrange(1, 30)
        return {"prompt": prompt, "n_predict": n_predict, "cache_prompt": reuses, "seed": seed}

    with serving("-t", "1", "-tb", "1", "-c", "4096", *flags) as server:
        fresh = server.complete(**body)["completion_probabilities"]
        for _ in range(3):
            ask_all(server, [other(seed) for seed in range(17)])
            assert server.complete(**body)["completion_probabilities"] == fresh
