"""POST /infill: llama-server's fill-in-the-middle, for editors."""

from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.body import read_object
from unpaced.http.errors import invalid_field
from unpaced.http.request_record import record_of
from unpaced.http.routing import Routes
from unpaced.request.infill import InfillLimits, read_infill
from unpaced.request.reasoning import read_reasoning
from unpaced.routes.parts import completions_of, host_of
from unpaced.schemas.completion import parse_completion
from unpaced.writers.native import NativeWriter

routes = Routes("completions")


@routes.post("/infill")
async def infill(request: Request) -> Response:
    """A completion between `input_prefix` and `input_suffix`; shaped as /completion."""
    body = await read_object(request)
    engine, settings = host_of(request).engine, host_of(request).settings
    limits = InfillLimits(
        n_batch=settings.batch_size, n_ctx=engine.model.n_ctx, n_predict=settings.n_predict
    )
    tokens = await read_infill(engine, body, limits, suffix_first=settings.spm_infill)
    parsed = parse_completion(body | {"prompt": tokens})
    if parsed.echo:
        raise invalid_field("echo", "only /v1/completions supports it")
    arrived_us = record_of(request.scope).started_us
    return await completions_of(request).make(
        parsed, NativeWriter, arrived_us=arrived_us, reasoning=read_reasoning(parsed)
    )
