"""The object that OpenAI's Responses API answers with, and its output items."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unpaced.schemas.reading import object_of
from unpaced.schemas.responses import function_tools

if TYPE_CHECKING:
    from unpaced.completion.timings import Timings
    from unpaced.completion.writer import ResponseFacts


def response_object(
    facts: "ResponseFacts",
    request: dict[str, Any],
    response_id: str,
    *,
    status: str,
    output: Sequence[dict[str, Any]] = (),
    usage: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The response so far. `request` is the client's body: its fields are repeated as honoured."""
    sampling = facts.settings.sampling
    is_over = status != "in_progress"
    parallel = request.get("parallel_tool_calls")
    choice = request.get("tool_choice")
    return {
        "id": response_id,
        "object": "response",
        "created_at": facts.created,
        "completed_at": int(time.time()) if is_over else None,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "metadata": request.get("metadata") or {},
        "model": facts.model,
        "output": list(output),
        "parallel_tool_calls": True if parallel is None else parallel,
        "previous_response_id": None,
        "reasoning": {"effort": object_of(request, "reasoning").get("effort"), "summary": None},
        "store": False,
        "temperature": sampling.temperature,
        "text": {"format": object_of(request, "text").get("format") or {"type": "text"}},
        "tool_choice": "auto" if choice is None else choice,
        "tools": function_tools(request, warn=False),
        "top_p": sampling.top_p,
        "truncation": "disabled",
        "usage": usage,
    }


def usage_object(timings: "Timings", n_reasoning: int) -> dict[str, Any]:
    """Tokens; `n_reasoning` of those generated were reasoning."""
    return {
        "input_tokens": timings.n_prompt,
        "input_tokens_details": {"cached_tokens": timings.n_cached},
        "output_tokens": timings.n_decoded,
        "output_tokens_details": {"reasoning_tokens": n_reasoning},
        "total_tokens": timings.n_prompt + timings.n_decoded,
    }


def reasoning_item(item_id: str, text: str | None, status: str) -> dict[str, Any]:
    """The model's reasoning; None: there is none yet."""
    content = [] if text is None else [reasoning_part(text)]
    return {
        "id": item_id,
        "type": "reasoning",
        "summary": [],
        "content": content,
        "encrypted_content": "",
        "status": status,
    }


def message_item(item_id: str, text: str | None, status: str) -> dict[str, Any]:
    """The answer's text; None: there is none yet."""
    content = [] if text is None else [text_part(text)]
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "content": content,
        "status": status,
    }


def call_item(call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    """A function call; ids as llama-server makes them of the chat API's."""
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "call_id": f"call_{call_id}",
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def reasoning_part(text: str) -> dict[str, Any]:
    """The content part of a reasoning item."""
    return {"type": "reasoning_text", "text": text}


def text_part(text: str) -> dict[str, Any]:
    """The content part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
