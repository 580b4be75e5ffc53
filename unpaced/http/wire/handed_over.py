"""The protocol of a connection that the acceptor hands over, from its first bytes to its last."""

import asyncio

from unpaced.http.wire.protocol import LimitedHttpProtocol


class HandedOverProtocol(LimitedHttpProtocol):
    """Begins with `first_bytes`, which were read before; is freed when the connection ends."""

    first_bytes = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.first_bytes:
            self.data_received(self.first_bytes)
            self.first_bytes = b""
            if self.flow.read_paused:  # the transport begins to read only after this
                self.loop.call_soon(self._pause_again)

    def _pause_again(self) -> None:
        if self.flow.read_paused:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # Requests know the connection: as a cycle everything of theirs would wait for the
        # collector, which stopped the event loop for 25 to 40 ms each second of a flood.
        self._running = self._half_closed = None
        self.cycle = self.scope = None  # type: ignore[assignment]
        self.pipeline.clear()
