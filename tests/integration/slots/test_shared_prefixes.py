"""Requests of a real server that begin alike: what they share is computed once."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.server import Server, serving
from tests.support.ties import assert_equal_up_to_a_tie

N_VOCAB = 1500
N_TAIL = 8
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "n_predict": 8, "n_probs": 8}
# Cells enough for all, chunks so small that a prompt takes many of them.
ROOMY = ("-np", "16", "-kvu", "-c", "8192", "-ub", "64")


def tokens(n: int, seed: int) -> list[int]:
    return Random(seed).choices(range(100, N_VOCAB), k=n)


def crowd(n: int, n_prefix: int, seed: int = 0) -> list[list[int]]:
    """Prompts that begin with the same tokens; each ends otherwise."""
    prefix = tokens(n_prefix, 1000 + seed)
    return [[*prefix, 100 + i, *tokens(N_TAIL - 1, 2000 + 100 * seed + i)] for i in range(n)]


def at_once(server: Server, prompts: Sequence[list[int]], **body: Any) -> list[Any]:
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(
            pool.map(lambda prompt: server.complete(prompt=prompt, **GREEDY | body), prompts)
        )


def n_computed(server: Server) -> float:
    return server.metric("unpaced_engine_prompt_tokens_total")


def cached(answers: Sequence[Any]) -> list[int]:
    return [answer["timings"]["cache_n"] for answer in answers]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("slots")
    with serving(*ROOMY, "--slot-save-path", str(folder)) as running:
        yield running


@pytest.mark.parametrize("flags", [(), ROOMY], ids=["defaults", "16 slots"])
def test_a_crowd_computes_its_common_prefix_once(flags: tuple[str, ...]) -> None:
    # Without flags four slots share the demo model's 1024 cells.
    n_prefix = 900 if flags else 700
    with serving(*flags) as server:
        for seed, turns in enumerate((1, 16)):
            before = n_computed(server), server.metric("unpaced_prefix_shared_tokens_total")
            prompts = crowd(16, n_prefix, seed)
            answers = (
                at_once(server, prompts)
                if turns == 1
                else [answer for prompt in prompts for answer in at_once(server, [prompt])]
            )
            assert sorted(cached(answers)) == [0] + [n_prefix] * 15
            assert all(a["timings"]["prompt_n"] in (N_TAIL, n_prefix + N_TAIL) for a in answers)
            assert n_computed(server) - before[0] == n_prefix + 16 * N_TAIL
            if turns == 1:
                shared = server.metric("unpaced_prefix_shared_tokens_total") - before[1]
                assert shared >= 3 * n_prefix
        assert server.metric("unpaced_kv_cells_yielded_total") == 0


def test_usage_tells_what_was_shared(server: Server) -> None:
    text = " ".join(["The king saw the little fox near the old mill."] * 12)
    with ThreadPoolExecutor(4) as pool:
        bodies = [
            {"prompt": f"{text} And {i}", "max_tokens": 4, "temperature": 0} for i in range(4)
        ]
        posts = pool.map(lambda body: server.post("/v1/completions", body).json(), bodies)
        usage = [answer["usage"] for answer in posts]
    counts = sorted(u["prompt_tokens_details"]["cached_tokens"] for u in usage)
    assert counts[0] == 0
    assert all(n > 100 for n in counts[1:])


def test_who_shares_says_what_it_would_alone() -> None:
    prompts = crowd(6, 300)
    for attention in ("on", "off"):
        with serving(*ROOMY, "-fa", attention) as server:
            alone = [
                server.complete(prompt=prompt, **GREEDY | {"cache_prompt": False, "n_predict": 24})
                for prompt in prompts
            ]
            together = at_once(server, prompts, n_predict=24, cache_salt="not the first ones'")
            assert sorted(cached(together)) == [0] + [300] * 5
            for one, other in zip(alone, together, strict=True):
                assert_equal_up_to_a_tie(
                    one["completion_probabilities"], other["completion_probabilities"]
                )


def test_a_salt_and_a_key_are_domains_of_their_own(tmp_path: Path) -> None:
    prompts = crowd(2, 200)
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    with serving(*ROOMY, "--api-key-file", str(keys)) as server:

        def ask(key: str, i: int, **body: Any) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            body = GREEDY | {"prompt": prompts[i], "n_predict": 1} | body
            answer = server.client.post("/completion", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            return int(answer.json()["timings"]["cache_n"])

        assert ask("one", 0) == 0
        assert ask("two", 0) == 0
        assert ask("one", 1) == 200
        assert ask("two", 1) == 200
        assert ask("one", 0, cache_salt="a") == 0
        assert ask("two", 1, cache_salt="a") == 200  # whoever has the salt
        assert ask("one", 0, cache_salt="b") == 0
        assert ask("one", 0) == 200


def test_a_bad_salt_is_refused(server: Server) -> None:
    for salt in ("", 5, "x" * 4097):
        answer = server.post("/completion", {"prompt": [5, 6], "cache_salt": salt})
        assert answer.status_code == 400
        assert "cache_salt" in answer.text
    chat = {"messages": [{"role": "user", "content": "x"}], "cache_salt": "", "max_tokens": 1}
    assert server.post("/v1/chat/completions", chat).status_code == 400


def test_salts_are_not_shared_at_once_either(server: Server) -> None:
    prompts = crowd(4, 400, 3)
    before = n_computed(server)
    with ThreadPoolExecutor(4) as pool:
        ask = pool.map(
            lambda i: server.complete(prompt=prompts[i], **GREEDY, cache_salt=f"salt {i % 2}"),
            range(4),
        )
        assert sorted(cached(list(ask))) == [0, 0, 400, 400]
    assert n_computed(server) - before == 2 * 400 + 4 * N_TAIL


def test_without_cache_prompt_everything_is_computed(server: Server) -> None:
    prompts = crowd(4, 300, 4)
    before = n_computed(server)
    assert cached(at_once(server, prompts, cache_prompt=False)) == [0] * 4
    assert n_computed(server) - before == 4 * (300 + N_TAIL)


def test_one_of_those_that_wait_goes_on_where_the_first_one_leaves(server: Server) -> None:
    prompts = crowd(4, 900, 5)
    before = n_computed(server)
    n_waits = server.metric("unpaced_prefix_waits_total")
    n_first = server.metric("unpaced_engine_prompt_tokens_total")
    first = server.open_request("/completion", prompt=prompts[0], stream=True, **GREEDY)
    server.until(lambda: n_computed(server) > n_first)
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(server.complete, prompt=prompt, **GREEDY) for prompt in prompts[1:]]
        server.until(lambda: server.metric("unpaced_prefix_waits_total") >= n_waits + 3)
        first.close()
        counts = sorted(cached([other.result() for other in others]))
    assert counts[1:] == [900, 900]
    assert counts[0] < 900  # it has computed what the first one had not
    assert n_computed(server) - before <= 900 + 4 * N_TAIL


def test_contexts_shift_although_cells_are_shared() -> None:
    """What the one drops and moves, the others keep where it is."""
    flags = ("-np", "3", "-kvu", "-c", "1024", "--context-shift", "-fa", "off")
    # Beyond half of the context: some of what is moved is shared.
    prompts = crowd(3, 780)
    body = {"n_predict": 300, "n_discard": 300}
    with serving(*flags, "--no-cache-idle-slots") as server:
        alone = [
            server.complete(prompt=prompt, **GREEDY | body | {"cache_prompt": False})
            for prompt in prompts
        ]
        assert all(answer["truncated"] for answer in alone)
    with serving(*flags) as server:
        together = at_once(server, prompts, **body)
        assert sorted(cached(together)) == [0, 780, 780]
        for one, other in zip(alone, together, strict=True):
            assert other["truncated"]
            assert other["tokens_predicted"] == 300
            assert_equal_up_to_a_tie(
                one["completion_probabilities"], other["completion_probabilities"]
            )


def test_where_cells_are_short_everyone_is_answered() -> None:
    prompts = crowd(8, 600)
    with serving("-np", "8", "-kvu", "-c", "1024") as server:
        answers = at_once(server, prompts, n_predict=100)
        assert all(answer["tokens_predicted"] == 100 for answer in answers)
        assert server.metric("unpaced_kv_cells_yielded_total") > 0
        assert sorted(cached(answers)) == [0] + [600] * 7
        # What somebody else holds as well nobody gives up.
        assert n_computed(server) < 2 * 600 + 8 * (N_TAIL + 100)


def test_slot_actions_leave_what_others_share_as_it_is(server: Server) -> None:
    prompts = crowd(3, 300, 6)
    long = GREEDY | {"n_predict": 400}
    alone = server.complete(prompt=prompts[1], **long, cache_salt="alone")
    server.complete(prompt=prompts[0], **GREEDY, id_slot=0)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(server.complete, prompt=prompts[1], **long, id_slot=1)
        server.until(lambda: server.metric("unpaced_requests_running") == 1)
        server.until(lambda: server.metric("unpaced_kv_cells_shared") >= 300)
        for action in ("save", "erase", "restore"):
            answer = server.post(f"/slots/0?action={action}", {"filename": "shared.bin"})
            assert answer.status_code == 200, answer.text
        assert not stream.done()
        running = stream.result()
    assert running["timings"]["cache_n"] == 300
    assert_equal_up_to_a_tie(alone["completion_probabilities"], running["completion_probabilities"])
    restored = server.complete(prompt=prompts[0], **GREEDY, id_slot=0)
    assert restored["timings"]["cache_n"] == 300 + N_TAIL - 1


def test_slots_tell_what_is_shared(server: Server) -> None:
    prompts = crowd(2, 300, 7)
    with ThreadPoolExecutor(2) as pool:
        streams = [
            pool.submit(server.complete, prompt=prompt, **GREEDY | {"n_predict": 200}, id_slot=i)
            for i, prompt in enumerate(prompts)
        ]

        def shared() -> list[int]:
            slots = server.client.get("/slots").json()
            return [slot.get("n_cells_shared", 0) for slot in slots[:2]]

        server.until(lambda: shared() == [300, 300])
        assert server.metric("unpaced_kv_cells_running") < 2 * 300
        for stream in streams:
            stream.result()


def test_a_prompt_on_its_way_to_host_memory_is_shared(server: Server) -> None:
    """Parked when its slot is taken, then copied; its cells stay those of whoever has them, too."""
    prompts = crowd(3, 400, 8)
    server.complete(prompt=prompts[0], **GREEDY, id_slot=0)
    server.complete(prompt=tokens(50, 9), **GREEDY, id_slot=0)
    again = at_once(server, prompts)
    assert sorted(cached(again))[1:] == [400, 400 + N_TAIL - 1] or min(cached(again)) >= 400
    assert server.metric("unpaced_engine_requests_failed_total") == 0


@pytest.mark.parametrize("flags", [("-np", "2"), ("-np", "1")])
def test_props_say_why_prefixes_are_not_shared(flags: tuple[str, ...]) -> None:
    with serving(*flags) as server:
        told = server.client.get("/props").json()["unpaced"]["shared_prefixes"]
        assert told["is_on"] is False
        assert told["reason"]


def test_props_say_that_prefixes_are_shared(server: Server) -> None:
    told = server.client.get("/props").json()["unpaced"]["shared_prefixes"]
    assert told == {"is_on": True, "reason": ""}
