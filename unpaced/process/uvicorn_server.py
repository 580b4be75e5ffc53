"""uvicorn's server, told when to end, with an acceptor of ours and without signal handlers."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette

from unpaced.http.wire.acceptor import Acceptor, count_places
from unpaced.http.wire.handed_over import HandedOverProtocol
from unpaced.http.wire.header_deadlines import HeaderDeadlines
from unpaced.http.wire.send_deadlines import SendDeadlines
from unpaced.settings import Settings

_KEEP_ALIVE_S: Final = 75
GRACEFUL_S: Final = 5
TICK_S: Final = 1.0


class UvicornServer(uvicorn.Server):
    """uvicorn's server without its signal handlers: ours drain first."""

    def __init__(self, app: Starlette, settings: Settings) -> None:
        self._protocol: type[HandedOverProtocol] = type(
            "ConfiguredProtocol",
            (HandedOverProtocol,),
            {
                "max_header_bytes": settings.max_header_bytes,
                "header_deadlines": HeaderDeadlines(settings.header_timeout),
                "send_deadlines": SendDeadlines(settings.send_timeout),
            },
        )
        self.on_started: Callable[[], None] = lambda: None
        self.on_second: Callable[[], None] = lambda: None
        self.on_refused: Callable[[int], None] = lambda _: None
        self._ending = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,
                http=self._protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # nobody asks who the client is
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACEFUL_S,
                ssl_keyfile=settings.ssl_key_file,
                ssl_certfile=settings.ssl_cert_file,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, with an acceptor of ours; then call `on_started`.

        TLS stays with uvloop's servers: nobody sees what a connection wants before its handshake.
        """
        if self.config.is_ssl or sockets is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            acceptor = Acceptor(
                sockets,
                self._new_protocol,
                n_waiting_max=count_places(),
                on_refused=self.on_refused,
            )
            self.servers = [acceptor]  # type: ignore[list-item]
        self.on_started()

    def _new_protocol(self, first_bytes: bytes) -> asyncio.Protocol:
        protocol = self._protocol(self.config, self.server_state, self.lifespan.state)
        protocol.first_bytes = first_bytes
        return protocol

    def end(self) -> None:
        """Close the listeners, let responses end, and return from `serve`."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Wait for the end, which is told; uvicorn's own loop looks for it ten times a second."""
        while not await self.on_tick(0):  # 0: a tick that renews the Date header
            self.on_second()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), TICK_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """`ServerProcess` handles signals: nothing is done here."""
        yield
