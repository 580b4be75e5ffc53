"""Whether a proxy holds tokens back: what a decode thread made that stands still must come."""

import contextlib
from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest

from tests.support.faults.frozen_thread import CannotFreeze, frozen, thread_of
from tests.support.patience import patience
from tests.support.server import ReachableServer

RUNNING: Final = "unpaced_requests_running"
_DECODED: Final = "unpaced_engine_tokens_decoded_total"
_N_IN_16_KIB: Final = 60  # events of a token


def is_idle(server: ReachableServer) -> Callable[[], bool]:
    """Holds when the server has no request running."""
    return lambda: server.metric(RUNNING) == 0


def streams_at_once(
    server: ReachableServer, pid: int, client: httpx.Client, body: dict[str, Any]
) -> bool:
    """Whether the answer begins with its first tokens, and each of them comes.

    A proxy that buffers begins with 16 KiB of them. On a machine that is busy so many may be made
    meanwhile, but not each time. One may be made and not yet told: its thread stands still between.

    `server` is asked for its metrics, past the proxy; `pid` is its process; `client` asks the proxy
    for a completion with this body, which must not end by itself.
    """
    for _ in range(3):
        n_made, n_received = _made_and_received(server, pid, client, body)
        if n_made < _N_IN_16_KIB and n_made - n_received in (0, 1):
            return True
    return False


def _made_and_received(
    server: ReachableServer, pid: int, client: httpx.Client, body: dict[str, Any]
) -> tuple[int, int]:
    """Tokens that are made when the client sees the answer begin, and how many of them it gets.

    No further one is made then, so that what is held back stays so.
    """
    server.until(is_idle(server))
    before = server.metric(_DECODED)
    n_received = 0
    client.timeout = httpx.Timeout(60, read=patience(1))
    with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        lines = answer.iter_lines()
        try:
            with frozen(thread_of(pid, "decode")):
                n_made = int(server.metric(_DECODED) - before)
                with contextlib.suppress(httpx.ReadTimeout):
                    for line in lines:
                        n_received += line.startswith("data: ")
        except CannotFreeze as error:
            pytest.skip(f"no ptrace here: {error}")
    return n_made, n_received
