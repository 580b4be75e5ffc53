"""Chat is made ready beside nobody's request, and before the first one that needs it."""

import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.patience import patience
from tests.support.server import Server, serving

ENDLESS = {"prompt": "a", "n_predict": -1, "ignore_eos": True, "stream": True}


def children(server: Server) -> Iterator[str]:
    """The processes that it started: templates have one."""
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        yield from (task / "children").read_text().split()


def test_chat_is_made_ready_when_a_stream_has_ended() -> None:
    with serving("-c", "256", "--context-shift") as server:
        with server.open_request("/completion", **ENDLESS) as stream:
            ends = time.monotonic() + 2.5
            while time.monotonic() < ends:
                assert stream.recv(65536)
            assert not list(children(server))
        ends = time.monotonic() + patience(10)
        while not list(children(server)):
            assert time.monotonic() < ends
            time.sleep(0.05)
