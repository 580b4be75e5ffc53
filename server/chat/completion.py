"""A chat request as a whole, whatever API it came by."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from server.chat.plan import ChatPlan, prepare_chat
from server.completion.make import make_completion
from server.completion.response import CompletionResponse
from server.writers.chat import ChatWriter

if TYPE_CHECKING:
    from server.completion.state import ServerState


async def make_chat(
    state: "ServerState",
    body: dict[str, Any],
    writer: type[ChatWriter] = ChatWriter,
    *,
    arrived_us: int,
) -> CompletionResponse:
    """Plan a chat body and run it with this writer for every choice. Raises: ApiError."""
    state.admission.check_room()
    return await run_chat(state, await prepare_chat(state, body), writer, arrived_us=arrived_us)


async def run_chat(
    state: "ServerState", plan: ChatPlan, writer: Callable[..., ChatWriter], *, arrived_us: int
) -> CompletionResponse:
    """Run a plan. Raises: ApiError."""
    return await make_completion(
        state,
        plan.body,
        partial(writer, plan=plan),
        arrived_us=arrived_us,
        marks=plan.syntax.marks,
        grammar=plan.grammar,
        thoughts=plan.thoughts,
    )
