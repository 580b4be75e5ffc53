"""The application on a scripted engine behind a real socket, for clients that need one."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import uvicorn

from tests.support.scripted.fake_engine import FakeEngine, FakeSequence
from tests.support.scripted.server_app import make_app

T = TypeVar("T")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


class ScriptedServer:
    """Runs in a thread of its own; `play` and `submitted` are called from the test's."""

    def __init__(self, server: uvicorn.Server, engine: FakeEngine) -> None:
        self._server = server
        self._engine = engine
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def submitted(self, n: int) -> FakeSequence:
        """The n-th request that reaches the engine, counted from 1; waits for it."""
        return self._in_loop(lambda: self._engine.submitted(n))

    def await_cancel(self, sequence: FakeSequence) -> None:
        """Until the engine has heard that nobody wants the rest."""
        deadline = time.monotonic() + 20
        while not sequence.is_cancelled:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def play(self, act: Callable[[], None]) -> None:
        """Have the engine do something."""

        async def run() -> None:
            act()

        self._in_loop(run)

    def _in_loop(self, make: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            return await make()

        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)


@contextlib.contextmanager
def scripted_server(engine: FakeEngine, **settings: Any) -> Iterator[ScriptedServer]:
    """Serve until the block ends."""
    app = make_app(engine, **settings)
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, ws="none")
    server = _Server(config)
    scripted = ScriptedServer(server, engine)

    async def serve() -> None:
        scripted.loop = asyncio.get_running_loop()
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert server.is_up.wait(30)
    try:
        yield scripted
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)
        app.state.templates.close()
