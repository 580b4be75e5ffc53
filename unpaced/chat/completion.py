"""A chat request as a whole, whatever API it came by."""

from collections.abc import Callable
from functools import partial

from unpaced.chat.compiled_chat import CompiledChat
from unpaced.completion.completions import Completions
from unpaced.completion.response import CompletionResponse
from unpaced.completion.writer import ChoiceWriter


async def run_chat(
    completions: Completions,
    compiled: CompiledChat,
    writer: Callable[..., ChoiceWriter],
    *,
    arrived_us: int,
) -> CompletionResponse:
    """Run a chat, with this writer for every choice. Raises: ApiError."""
    return await completions.make(
        compiled.body,
        partial(writer, compiled=compiled),
        arrived_us=arrived_us,
        marks=compiled.syntax.marks,
        grammar=compiled.grammar,
        reasoning=compiled.reasoning,
    )
