"""POST /infill: llama-server's fill-in-the-middle, for editors."""

from starlette.requests import Request
from starlette.responses import Response

from server.completion.infill import InfillLimits, read_infill
from server.completion.make import make_completion
from server.completion.reasoning import read_thoughts
from server.completion.request_record import record_of
from server.completion.state import state_of
from server.http.body import read_object
from server.http.errors import invalid_field
from server.http.routing import Routes
from server.schemas.completion import parse_completion
from server.writers.native import NativeWriter

routes = Routes("completions")


@routes.post("/infill")
async def infill(request: Request) -> Response:
    """A completion between `input_prefix` and `input_suffix`; shaped as /completion."""
    state = state_of(request)
    body = await read_object(request)
    settings = state.settings
    limits = InfillLimits(
        n_batch=settings.batch_size, n_ctx=state.engine.model.n_ctx, n_predict=settings.n_predict
    )
    tokens = await read_infill(state.engine, body, limits, suffix_first=settings.spm_infill)
    parsed = parse_completion(body | {"prompt": tokens})
    if parsed.echo:
        raise invalid_field("echo", "only /v1/completions supports it")
    arrived_us = record_of(request.scope).started_us
    return await make_completion(
        state, parsed, NativeWriter, arrived_us=arrived_us, thoughts=read_thoughts(parsed)
    )
