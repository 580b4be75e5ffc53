"""--deterministic: a request's tokens and their probabilities are the same, bit by bit, on a fresh
server and on one that has served others and serves them now."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from tests.support.server import Server, serving

CHUNK = 64
FLAGS = ("--deterministic", "-np", "4", "-c", "4096", "--prefill-budget", str(CHUNK))
N_VOCAB = 1500


def tokens(n: int, seed: int) -> list[int]:
    return Random(seed).choices(range(100, N_VOCAB), k=n)


def bodies() -> list[dict[str, Any]]:
    """Prompts of one token to many chunks; some begin alike, some draw, some under a grammar."""
    random = Random(7)
    common = tokens(3 * CHUNK + 5, 1)
    made = []
    for i in range(24):
        n_own = random.choice((1, 5, CHUNK - 1, CHUNK, CHUNK + 1, 300))
        prompt = (common if i % 3 == 0 else []) + tokens(n_own, 100 + i)
        body: dict[str, Any] = {"prompt": prompt, "n_predict": random.randint(4, 60), "seed": i}
        body |= {"n_probs": 3, "ignore_eos": True}
        body |= {"temperature": 0} if i % 4 == 0 else {"temperature": 1.5, "top_k": 0}
        if i % 8 == 5:
            body |= {"grammar": "root ::= [a-z ]+", "ignore_eos": False}
        made.append(body)
    return made


def answer(server: Server, body: dict[str, Any]) -> list[Any]:
    entries: list[Any] = server.complete(**body)["completion_probabilities"]
    return entries


@pytest.fixture(scope="module")
def alone() -> list[list[Any]]:
    """Of each body: without a prompt cache, one after the other."""
    with serving(*FLAGS, "-cram", "0") as server:
        return [answer(server, body | {"cache_prompt": False}) for body in bodies()]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*FLAGS) as running:
        yield running


def in_crowd(server: Server, order: Sequence[int]) -> list[list[Any]]:
    made = bodies()
    with ThreadPoolExecutor(6) as pool:  # more than there are slots
        answers = dict(zip(order, pool.map(lambda i: answer(server, made[i]), order), strict=True))
    return [answers[i] for i in range(len(made))]


@pytest.mark.parametrize("seed", range(3))
def test_tokens_in_a_crowd_are_those_alone(
    server: Server, alone: list[list[Any]], seed: int
) -> None:
    order = list(range(len(alone)))
    Random(seed).shuffle(order)
    assert in_crowd(server, order) == alone


def test_prompts_are_reused_by_whole_chunks(server: Server, alone: list[list[Any]]) -> None:
    body = bodies()[0]  # 3 chunks and more
    n_prompt = len(body["prompt"])
    server.complete(**body)
    again = server.complete(**body)
    assert again["timings"]["cache_n"] == (n_prompt - 1) // CHUNK * CHUNK >= 3 * CHUNK
    assert again["completion_probabilities"] == alone[0]
    # What was decoded is computed anew, since a prompt's chunk has other bits.
    longer = body["prompt"] + [entry["id"] for entry in again["completion_probabilities"]]
    went_on = server.complete(**body | {"prompt": longer})
    assert went_on["timings"]["cache_n"] == n_prompt // CHUNK * CHUNK
    fresh = server.complete(**body | {"prompt": longer, "cache_prompt": False})
    assert fresh["timings"]["cache_n"] == 0
    assert went_on["completion_probabilities"] == fresh["completion_probabilities"]


def test_one_slot_does_not_hang_on_its_past(alone: list[list[Any]]) -> None:
    flags = ("--deterministic", "-np", "1", "-c", "1024", "--prefill-budget", str(CHUNK))
    with serving(*flags) as server:
        for i in (5, 0, 3, 0, 6, 0, 3):
            assert answer(server, bodies()[i]) == alone[i]


def test_props_tell(server: Server) -> None:
    facts = server.client.get("/props").json()["unpaced"]["deterministic"]
    assert facts == {"on": True, "chunk_tokens": CHUNK}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--kv-unified",), "--kv-unified"),
        (("--context-shift",), "--context-shift"),
        (("--max-itl-ms", "5"), "--max-itl-ms"),
        (("--cache-reuse", "64"), "--cache-reuse"),
    ],
)
def test_what_contradicts_it_is_refused(flags: tuple[str, ...], named: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unpaced", "serve", "--deterministic", *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert named in done.stderr
    assert "deterministic" in done.stderr
