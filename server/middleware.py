"""Around every request: its id, the gate while loading or draining, one log line, one count.

Plain ASGI: Starlette's BaseHTTPMiddleware would break streaming and the notice of a disconnect.
"""

from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import ApiError, error_response, unavailable
from server.request_record import RequestRecord, open_record
from server.state import Phase, ServerState

# Answered in every phase.
_ALWAYS: Final = frozenset({"/health/live", "/health/ready", "/metrics"})
_OTHER: Final = "other"


class RequestMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state
        self._log = structlog.stdlib.get_logger("unpaced.request")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = open_record(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = [*message.get("headers", ()), (b"server", b"unpaced")]
                headers.append((b"x-request-id", record.request_id.encode()))
                message["headers"] = headers
            await send(message)

        try:
            refusal = self._refusal(scope["path"])
            if refusal is None:
                await self._app(scope, receive, send_with_id)
            else:
                await error_response(refusal)(scope, receive, send_with_id)
        finally:
            self._conclude(scope, record)

    def _refusal(self, path: str) -> ApiError | None:
        state = self._state
        if state.phase is Phase.READY or path.removeprefix(state.settings.api_prefix) in _ALWAYS:
            return None
        if state.phase is Phase.LOADING:
            state.metrics.rejected("loading")
            return unavailable("Loading model")
        state.metrics.rejected("draining")
        return unavailable("the server is shutting down", close=True)

    def _conclude(self, scope: Scope, record: RequestRecord) -> None:
        route = scope.get("route")
        template = getattr(route, "path", _OTHER)
        self._state.metrics.answered(template, record.status)
        # Probes and scrapes come every few seconds and say nothing.
        quiet = scope["method"] == "GET" and record.status < 400
        level = self._log.debug if quiet else self._log.info
        level("request", method=scope["method"], path=scope["path"], **record.to_log())
