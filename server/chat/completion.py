"""A chat request as a whole, whatever API it came by."""

from collections.abc import Callable
from functools import partial

from server.chat.plan import ChatPlan
from server.completion.completions import Completions
from server.completion.response import CompletionResponse
from server.completion.writer import ChoiceWriter


async def run_chat(
    completions: Completions,
    plan: ChatPlan,
    writer: Callable[..., ChoiceWriter],
    *,
    arrived_us: int,
) -> CompletionResponse:
    """Run a plan, with this writer for every choice. Raises: ApiError."""
    return await completions.make(
        plan.body,
        partial(writer, plan=plan),
        arrived_us=arrived_us,
        marks=plan.syntax.marks,
        grammar=plan.grammar,
        reasoning=plan.reasoning,
    )
