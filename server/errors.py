"""What a client is told when a request fails: llama-server's error objects, in one place."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

JSON_TYPE: Final = "application/json; charset=utf-8"
RETRY_AFTER_S: Final = "1"

_ANTHROPIC_PATHS: Final = ("/v1/messages", "/v1/messages/count_tokens")
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
        code_last: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})
        self.code_last = code_last

    def to_json(self) -> dict[str, Any]:
        """The body: `{"error": {...}}`."""
        error: dict[str, Any] = {"code": self.status, "message": str(self), "type": self.kind}
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


def not_found() -> ApiError:
    """404 for a wrong path or method, as llama-server answers both."""
    return ApiError(404, "not_found_error", "File Not Found", code_last=True)


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
    is_anthropic = path.endswith(_ANTHROPIC_PATHS)
    return Response(
        orjson.dumps(anthropic_error(error) if is_anthropic else error.to_json()),
        status_code=error.status,
        headers=error.headers,
        media_type=JSON_TYPE,
    )


def anthropic_error(error: ApiError) -> dict[str, Any]:
    """The body as Anthropic's API has it; llama-server's `code` and extras stay in it."""
    body = error.to_json()["error"]
    fallback = "invalid_request_error" if error.status < 500 else "api_error"
    body["type"] = _ANTHROPIC_TYPES.get(error.status, fallback)
    return {"type": "error", "error": body}


def error_frame(error: ApiError) -> bytes:
    """The last event of a stream that failed; no [DONE] follows, as in llama-server."""
    return b"data: " + orjson.dumps(error.to_json()) + b"\n\n"


async def handle_error(request: Request, error: Exception) -> Response:
    """The one exception handler of the application."""
    if isinstance(error, HTTPException):
        if error.status_code in (404, 405):
            error = not_found()
        else:
            error = ApiError(error.status_code, "invalid_request_error", str(error.detail))
    elif not isinstance(error, ApiError):
        error = server_fault("internal error; the server's log has the details")
    return error_response(error, request.url.path)
