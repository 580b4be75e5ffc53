"""Ctrl-C in `unpaced chat`, at moments when the program is at something else."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing
from types import FrameType
from typing import Any

import httpx
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.key_binding import KeyPressEvent
from prompt_toolkit.output import DummyOutput

from tests.support.server import Server, serving
from unpaced.cli.chat import keyboard
from unpaced.cli.chat.connection import Connection
from unpaced.cli.chat.interrupts import Interrupted, Interrupts

PATIENCE_S = 20


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-np", "1", "--context-shift") as running:  # no answer has an end of its own
        yield running


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def ask(connection: Connection, **fields: Any) -> None:
    """Take an answer to its end."""
    body = {"messages": [{"role": "user", "content": "x"}], "ignore_eos": True} | fields
    async with aclosing(connection.answer(body)) as pieces:
        async for _ in pieces:
            pass


def interrupted_answer(url: str, before: Callable[[], None] = lambda: None) -> None:
    """Ask for an answer that Ctrl-C must end, and for one more over the same connection."""

    async def chat() -> None:
        connection = Connection(url, "")
        async with aclosing(connection):
            await connection.model_name()
            with Interrupts() as interrupts:
                before()
                with pytest.raises(Interrupted):
                    await asyncio.wait_for(interrupts.ending(ask(connection)), PATIENCE_S)
                await asyncio.wait_for(interrupts.ending(ask(connection, max_tokens=1)), PATIENCE_S)

    asyncio.run(chat())


def test_before_the_first_piece(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    send, kept = httpx.AsyncClient.send, []

    async def interrupted(
        client: httpx.AsyncClient, request: httpx.Request, **options: Any
    ) -> httpx.Response:
        response = await send(client, request, **options)
        kept.append(response)  # it is open, and nobody has it
        if len(kept) == 2:  # the first one had the model's name
            press_ctrl_c()
        return response

    monkeypatch.setattr(httpx.AsyncClient, "send", interrupted)
    interrupted_answer(server.url)
    assert len(kept) == 3
    assert kept[1].is_closed
    server.until(lambda: server.metric("unpaced_requests_running") == 0, 10)


def test_between_a_lock_and_its_release(server: Server) -> None:
    # Python's own handler raises at once, and the lock would stay shut. After `__enter__` comes the
    # block that `__exit__` belongs to: each of the answer's first blocks has its turn.
    n_blocks = 0

    def press_in(block: int) -> Callable[[FrameType, str, Any], Any]:
        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal n_blocks
            if frame.f_code.co_name not in ("__enter__", "__aenter__"):
                return None
            if event == "return":
                n_blocks += 1
                if n_blocks == block:
                    sys.settrace(None)
                    press_ctrl_c()
            return trace

        return trace

    before = sys.gettrace()
    try:
        for block in range(1, 31):
            n_blocks = 0
            interrupted_answer(server.url, lambda: sys.settrace(press_in(block)))  # noqa: B023
            assert n_blocks == block
    finally:
        sys.settrace(before)
    server.until(lambda: server.metric("unpaced_requests_running") == 0, 10)


def test_right_behind_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    # The input has been taken, and prompt_toolkit still puts the terminal in order.
    send = keyboard._send

    def interrupted(event: KeyPressEvent) -> None:
        send(event)
        press_ctrl_c()

    async def chat() -> bool:
        with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
            typed = keyboard.Keyboard(keeps_history=False)
            keys.send_text("a question\r")
            with Interrupts() as interrupts:
                try:
                    await asyncio.wait_for(interrupts.ending(typed.read()), PATIENCE_S)
                    await asyncio.wait_for(interrupts.ending(asyncio.sleep(60)), 2)
                except Interrupted:
                    return True
                except TimeoutError:
                    return False
        return False

    monkeypatch.setattr(keyboard, "_send", interrupted)
    assert asyncio.run(chat())
