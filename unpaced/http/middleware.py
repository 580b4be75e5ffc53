"""Around every request: id, CORS, the gate while loading or draining, API key, one log line.

The order is llama-server's: CORS headers on every answer, preflights answered before anything else,
then the gate, then the key.

Plain ASGI: Starlette's BaseHTTPMiddleware would break streaming and the notice of a disconnect.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine_ext import client_key, turn_taker
from unpaced.http.api_keys import ApiKeys
from unpaced.http.client_network import network_of
from unpaced.http.cors import CorsPolicy
from unpaced.http.errors import ApiError, error_response, unauthorized
from unpaced.http.gate import Gate
from unpaced.http.hosts import HostPolicy
from unpaced.http.request_record import RequestRecord, open_record
from unpaced.http.trace_ids import TraceIds

# Answered in every phase.
ALWAYS: Final = frozenset(
    {"/health/live", "/health/ready", "/metrics", "/", "/index.html", "/docs"}
)
# Answered without an API key.
PUBLIC: Final = ALWAYS - {"/metrics"} | {"/health", "/v1/health"}
# The scripts and styles of the page at / are answered as that is.
PAGE_FOLDER: Final = "/page/"
# What wakes a sleeping server besides POST.
_WAKING: Final = frozenset({"/slots", "/tokenizer_info"})
# What needs a slot: refused before its body is looked at while nobody else can even wait.
_COMPLETING: Final = frozenset(
    {"/completion", "/completions", "/v1/completions", "/chat/completions", "/v1/chat/completions",
     "/infill", "/responses", "/v1/responses", "/v1/messages"}
)  # fmt: skip
_OTHER: Final = "other"
_PREFLIGHT: Final = {"content-type": "text/html"}  # media_type would add a charset


class RequestMiddleware:
    """The outermost layer of the application.

    `prefix`: what every path begins with. `check_room` raises the ApiError of a completion that
    could not even wait. `awake`: the model is there inside; None: it always is. `has_page`: / and
    what is below PAGE_FOLDER are this server's page, not a folder of the user's. `on_answered` gets
    a route's template and the status, `on_concluded` the whole request, and says which trace it
    belongs to; None: nobody asks.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        *,
        prefix: str,
        keys: ApiKeys,
        hosts: HostPolicy,
        cors: CorsPolicy,
        check_room: Callable[[], None],
        awake: Callable[[], AbstractAsyncContextManager[None]] | None,
        has_page: bool,
        on_answered: Callable[[str, int], None],
        on_concluded: Callable[[Scope, RequestRecord], TraceIds | None] | None = None,
    ) -> None:
        self._app = app
        self._gate = gate
        self._check_room = check_room
        self._awake = awake
        self._has_page = has_page
        self._on_answered = on_answered
        self._on_concluded = on_concluded
        self._prefix = prefix
        self._keys = keys
        self._hosts = hosts
        self._cors = cors
        self._log = structlog.stdlib.get_logger("unpaced.request")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = open_record(scope)
        if scope["method"] == "HEAD":
            # As GET is answered; the HTTP layer, which has the request's own scope, sends no body.
            scope = {**scope, "method": "GET"}
        is_preflight = scope["method"] == "OPTIONS"
        cors = self._cors.headers(scope["headers"], preflight=is_preflight)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = [*message.get("headers", ()), *cors, (b"server", b"unpaced")]
                message["headers"] = headers + record.to_headers()
            await send(message)

        try:
            if is_preflight:
                await Response(headers=_PREFLIGHT)(scope, receive, send_with_id)
                return
            refusal = self._refusal(scope)
            if refusal is not None:
                await error_response(refusal, scope["path"])(scope, receive, send_with_id)
                return
            await self._serve(scope, receive, send_with_id)
        finally:
            self._conclude(scope, record)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._awake is None or not self._needs_model(scope):
            await self._app(scope, receive, send)
            return
        try:
            async with self._awake():
                await self._app(scope, receive, send)
        except ApiError as error:  # the model could not be loaded again
            await error_response(error, scope["path"])(scope, receive, send)

    def _needs_model(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(self._prefix)
        return scope["method"] == "POST" or path in _WAKING

    def _refusal(self, scope: Scope) -> ApiError | None:
        path = scope["path"].removeprefix(self._prefix) or "/"
        # `server` is set for Unix sockets alone, which no browser reaches.
        if self._hosts.is_active and scope.get("server") is None:
            refusal = self._hosts.refusal(scope["headers"])
            if refusal is not None:
                return refusal
        refusal = None if path in ALWAYS else self._gate.refusal()
        if refusal is not None and not self._is_of_page(path):
            return refusal
        key = self._keys.find(scope["headers"])
        scope.setdefault("state", {})["api_key_index"] = key or 0  # 0 on public paths
        client_key.set(key or 0)
        # Who shares slots fairly.
        turn_taker.set(key or 0 if self._keys.are_asked_for else network_of(scope.get("client")))
        if key is None and path not in PUBLIC and not self._is_of_page(path):
            return unauthorized()
        if path in _COMPLETING and scope["method"] == "POST":
            try:
                self._check_room()
            except ApiError as error:
                return error.with_traceback(None)  # its frames would hold it: a cycle
        return None

    def _is_of_page(self, path: str) -> bool:
        return self._has_page and path.startswith(PAGE_FOLDER)

    def _conclude(self, scope: Scope, record: RequestRecord) -> None:
        route = scope.get("route")
        template = getattr(route, "path", _OTHER)
        self._on_answered(template, record.status)
        if self._on_concluded is not None:
            record.trace = self._on_concluded(scope, record)
        else:
            record.trace = TraceIds.of_headers(scope["headers"])
        # Probes and scrapes come every few seconds and say nothing.
        quiet = scope["method"] == "GET" and record.status < 400
        level = self._log.debug if quiet else self._log.info
        # As it was sent: decoded it may hold line ends and look like lines of ours.
        path = scope.get("raw_path", b"").decode("latin-1") or scope["path"]
        level("request", method=scope["method"], path=path, **record.to_log())
