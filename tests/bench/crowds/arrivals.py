"""Requests that come and are cut by chance, and what their clients saw."""

import asyncio
import json
import random
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import httpx

N_FAMILIES = 6
RATES = (0.5, 1.0, 2.0, 4.0)  # requests a second
BURST = 24  # requests at once


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended."""

    KINDS: ClassVar = ("whole", "cut", "too_long", "refused", "lost")

    kind: str
    n_tokens: int = 0
    wait_s: float = 0.0  # to the first token of a stream, to the answer of others
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One of the mixture; `n_tokens` fit behind the prompt unless it is too long."""

    prompt: list[int]
    n_tokens: int
    is_endless: bool  # asks for as many as fit
    is_stream: bool
    leaves_after_s: float | None
    seed: int
    is_too_long: bool

    def body(self) -> dict[str, Any]:
        """What is sent."""
        return {
            "prompt": self.prompt,
            "n_predict": -1 if self.is_endless else self.n_tokens,
            "stream": self.is_stream,
            "ignore_eos": True,
            "seed": self.seed,
        }


class Arrivals:
    """One round's requests, of one source of chance."""

    def __init__(self, client: httpx.AsyncClient, n_ctx: int, chance: random.Random) -> None:
        self._client, self._n_ctx, self._chance = client, n_ctx, chance
        self._families = [self._tokens(chance.randint(100, n_ctx // 2)) for _ in range(N_FAMILIES)]

    async def run(self, seconds: float) -> list[Outcome]:
        """Requests come for so long; returns when the last one has ended."""
        end = time.monotonic() + seconds
        tasks: list[asyncio.Task[Outcome]] = []
        rate = self._chance.choice(RATES)
        while time.monotonic() < end:
            n = BURST if self._chance.random() < 0.02 else 1
            tasks += [asyncio.create_task(self._ask(self._request())) for _ in range(n)]
            await asyncio.sleep(self._chance.expovariate(rate) * (1 if n == 1 else 4 * rate))
        return list(await asyncio.gather(*tasks))

    def _tokens(self, n: int) -> list[int]:
        return [self._chance.randint(10, 250) for _ in range(n)]

    def _request(self) -> Request:
        chance = self._chance
        kind = chance.random()
        n_tokens = chance.randint(1, 100)
        is_too_long = kind < 0.03
        if is_too_long:
            prompt = self._tokens(self._n_ctx + chance.randint(0, 50))
        elif kind < 0.35:
            prompt = self._tokens(chance.randint(1, 60))
        elif kind < 0.7:
            prompt = chance.choice(self._families) + self._tokens(chance.randint(1, 60))
        else:
            prompt = self._tokens(self._n_ctx - n_tokens)
        is_endless = kind > 0.95 or 0.03 < kind < 0.06
        if is_endless:
            n_tokens = self._n_ctx - len(prompt)
        leaves = chance.expovariate(3.0) if chance.random() < 0.2 and not is_too_long else None
        seed = chance.randrange(1 << 31)
        return Request(
            prompt, n_tokens, is_endless, chance.random() < 0.7, leaves, seed, is_too_long
        )

    async def _ask(self, request: Request) -> Outcome:
        began = time.monotonic()
        outcome = Outcome("cut")
        try:
            async with asyncio.timeout(request.leaves_after_s):
                outcome = await self._answer_to(request)
        except TimeoutError:
            return outcome
        except httpx.HTTPError as error:
            outcome = Outcome("lost", fault=f"{error!r} for {len(request.prompt)} tokens")
        leaves = request.leaves_after_s
        # The client's library may take its own leaving for the answer's end.
        has_left = leaves is not None and time.monotonic() - began >= leaves
        return Outcome("cut") if has_left and outcome.kind == "lost" else outcome

    async def _answer_to(self, request: Request) -> Outcome:
        began = time.monotonic()
        async with self._client.stream("POST", "/completion", json=request.body()) as answer:
            if answer.status_code != 200:
                return _refusal(request, answer.status_code, await answer.aread())
            first_s, text = 0.0, b""
            async for chunk in answer.aiter_bytes():
                first_s = first_s or time.monotonic() - began
                text += chunk
        # httpx's own lines end at what JSON leaves as it is, such as U+0085.
        last = text.strip().rsplit(b"\n", 1)[-1].removeprefix(b"data: ")
        try:
            n = json.loads(last).get("tokens_predicted", -1)
        except ValueError:
            n = -1
        if request.is_too_long or n != request.n_tokens:
            return Outcome("lost", fault=f"{n} tokens of {request.n_tokens}: {last[-200:]!r}")
        return Outcome("whole", n, first_s)


def _refusal(request: Request, status: int, body: bytes) -> Outcome:
    if request.is_too_long and status == 400 and b"exceed" in body:
        return Outcome("too_long")
    if status == 503 and not request.is_too_long:
        return Outcome("refused")
    return Outcome("lost", fault=f"{status} {body[:200]!r} for {len(request.prompt)} tokens")
