"""From choices to server-sent events."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Scope, Send

from unpaced.completion.choice import Choice
from unpaced.completion.direct_stream import DirectStream
from unpaced.completion.merged_stream import MergedStream
from unpaced.http.event_stream import Pings, send_events
from unpaced.http.wire.connection import connection_of


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream is carried. `ping_s` <= 0: no pings."""

    progress: bool
    ping_s: float


async def stream(
    choices: Sequence[Choice], scope: Scope, send: Send, options: StreamOptions
) -> None:
    """Submit and stream the choices. Headers go out when the first slot starts its prompt.

    sse-starlette carries the events. One choice, the usual stream, is written to the connection
    instead, for what that saves a token and before the first one (docs/bench/sse.md). The bytes
    are the same either way, and so is what surrounds them.
    Raises: ApiError if a choice fails before any has started.
    """
    pings = Pings(send, ping=choices[0].writer.ping, ping_s=options.ping_s)
    connection = connection_of(scope)  # None under another server than ours
    try:
        if connection is not None and len(choices) == 1:
            await DirectStream(choices[0], connection, pings, progress=options.progress).send()
        else:
            async with MergedStream(choices, progress=options.progress) as merged:
                await merged.started()
                await send_events(merged.frames(), scope, pings.send)
    finally:
        pings.stop()
