"""What a client is told when a request fails: llama-server's error objects, in one place."""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine_ext import EngineError, TextError

JSON_TYPE: Final = "application/json; charset=utf-8"
RETRY_AFTER_S: Final = "1"

_ANTHROPIC_PATH: Final = re.compile(r"/v1/messages(/|$)")
_OPENAI_PATH: Final = re.compile(r"/v1/")
_OVERFLOW: Final = "context_length_exceeded"
_N_SHOWN: Final = 200
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ApiError(Exception):
    """A failed request. `param` names the field at fault; `extra` joins the error object.

    `openai_code`: what OpenAI's API has as `code`, where llama-server has the status.
    `code_last`: the keys in the order of llama-server's web server, not of its completions.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        param: str | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        openai_code: str | None = None,
        code_last: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})
        self.openai_code = openai_code
        self.code_last = code_last

    def to_json(self, *, for_openai: bool = False) -> dict[str, Any]:
        """The body: `{"error": {...}}`."""
        code = self.openai_code if for_openai and self.openai_code else self.status
        error: dict[str, Any] = {"code": code, "message": str(self), "type": self.kind}
        if self.code_last:
            error["code"] = error.pop("code")
        if self.param is not None:
            error["param"] = self.param
        return {"error": error | self.extra}


def invalid(message: str, *, param: str | None = None) -> ApiError:
    """400: the client's fault."""
    return ApiError(400, "invalid_request_error", message, param=param)


def invalid_field(name: str, message: str) -> ApiError:
    """400 that names a field, worded as llama-server words it."""
    return invalid(f"Field '{name}': {message}", param=name)


def exceeds_context(n_prompt: int, n_ctx: int) -> ApiError:
    """400: the prompt does not fit the slot's context. Both are tokens."""
    return ApiError(
        400,
        "exceed_context_size_error",
        f"request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens), "
        "try increasing it",
        extra={"n_prompt_tokens": n_prompt, "n_ctx": n_ctx},
        openai_code=_OVERFLOW,
    )


def unavailable(message: str, *, close: bool = False) -> ApiError:
    """503 with Retry-After: try again later."""
    headers = {"retry-after": RETRY_AFTER_S}
    if close:
        headers["connection"] = "close"
    return ApiError(503, "unavailable_error", message, headers=headers)


def loading() -> ApiError:
    """503 while the model is being loaded."""
    headers = {"retry-after": RETRY_AFTER_S}
    return ApiError(503, "unavailable_error", "Loading model", headers=headers, code_last=True)


def not_found(reason: str) -> ApiError:
    """404, as llama-server answers a wrong path or method, and why."""
    return ApiError(404, "not_found_error", f"File Not Found: {reason}", code_last=True)


def _no_route(request: Request) -> ApiError:
    """404 that names method and path, and the methods that the path has."""
    path: str = request.scope["path"]
    methods = {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.path_regex.match(path)
        for method in route.methods or ()
    }
    shown = path if len(path) <= _N_SHOWN else f"{path[:_N_SHOWN]}..."
    has = f"; it has {', '.join(sorted(methods - {'HEAD'}))}" if methods else ""
    return not_found(f"there is no {request.method} {shown}{has}")


def no_such_model(name: str) -> ApiError:
    """404: another model than the one that is served."""
    return ApiError(
        404,
        "not_found_error",
        f"The model '{name[:_N_SHOWN]}' does not exist; GET /v1/models lists what is served",
        param="model",
        openai_code="model_not_found",
    )


def not_supported(message: str) -> ApiError:
    """501: this server was started without it, or has no such thing."""
    return ApiError(501, "not_supported_error", message)


def unauthorized() -> ApiError:
    """401: the API key is missing or not one of the server's."""
    return ApiError(401, "authentication_error", "Invalid API Key", code_last=True)


def server_fault(message: str) -> ApiError:
    """500: our fault or the engine's."""
    return ApiError(500, "server_error", message)


def error_response(error: ApiError, path: str = "") -> Response:
    """The whole response to a request for `path` that failed before its stream began."""
    if is_anthropic(path):
        body = anthropic_error(error)
    else:
        body = error.to_json(for_openai=_OPENAI_PATH.search(path) is not None)
    return Response(
        orjson.dumps(body),
        status_code=error.status,
        headers=error.headers,
        media_type=JSON_TYPE,
    )


def is_anthropic(path: str) -> bool:
    """Whether a path is of Anthropic's API, whose errors look otherwise."""
    return _ANTHROPIC_PATH.search(path) is not None


def anthropic_error(error: ApiError) -> dict[str, Any]:
    """The body as Anthropic's API has it; llama-server's `code` and extras stay in it."""
    body = error.to_json()["error"]
    if error.openai_code == _OVERFLOW:  # the sentence by which Anthropic's clients know it
        n_prompt, n_ctx = body["n_prompt_tokens"], body["n_ctx"]
        body["message"] = f"prompt is too long: {n_prompt} tokens > {n_ctx} maximum"
    fallback = "invalid_request_error" if error.status < 500 else "api_error"
    body["type"] = _ANTHROPIC_TYPES.get(error.status, fallback)
    return {"type": "error", "error": body}


def error_frame(error: ApiError) -> bytes:
    """The last event of a stream that failed; no [DONE] follows, as in llama-server."""
    return b"data: " + orjson.dumps(error.to_json()) + b"\n\n"


# What a handler may raise; anything else is a fault of ours.
REFUSALS: Final = (ApiError, EngineError, HTTPException, TextError)


async def handle_error(request: Request, error: Exception) -> Response:
    """The one exception handler of the application."""
    if isinstance(error, HTTPException):
        if error.status_code in (404, 405):
            error = _no_route(request)
        else:
            error = ApiError(error.status_code, "invalid_request_error", str(error.detail))
    elif isinstance(error, TextError):
        error = invalid(str(error))
    elif isinstance(error, EngineError):  # too much waits, or it stops or has failed meanwhile
        error = unavailable(str(error))
    elif not isinstance(error, ApiError):
        error = server_fault("internal error; the server's log has the details")
    return error_response(error, request.scope["path"])
