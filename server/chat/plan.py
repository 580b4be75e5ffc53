"""From a chat request's body to what is generated and how its text is read."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from server.chat.messages import read_messages
from server.chat.parser import ChatParser
from server.chat.template import ChatTemplate
from server.errors import invalid, invalid_field
from server.schemas.completion import CompletionBody, parse_completion
from server.schemas.values import json_type

if TYPE_CHECKING:
    from server.state import ServerState


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """A chat request, ready to run. `body` holds the rendered prompt and all native fields."""

    prompt: str
    body: CompletionBody

    def new_parser(self) -> ChatParser:
        """A parser for one choice's text."""
        return ChatParser()


async def prepare_chat(state: "ServerState", body: dict[str, Any]) -> ChatPlan:
    """Check a chat body and render its prompt. Raises: ApiError (400)."""
    messages = read_messages(body)
    template = ChatTemplate.of_model(state.engine.model)
    context = {"messages": messages, "add_generation_prompt": True}
    prompt = await asyncio.to_thread(template.render, context)
    return ChatPlan(prompt=prompt, body=parse_completion(_native_body(body, prompt)))


def _native_body(body: dict[str, Any], prompt: str) -> dict[str, Any]:
    """The rest of the body, as /completion takes it."""
    native = body | {"prompt": prompt, "echo": None}
    logprobs, top = body.get("logprobs"), body.get("top_logprobs")
    if logprobs is not None and not isinstance(logprobs, bool):
        raise invalid_field("logprobs", f"type must be boolean, but is {json_type(logprobs)}")
    if logprobs:
        if top is not None and (isinstance(top, bool) or not isinstance(top, int)):
            raise invalid_field("top_logprobs", f"type must be number, but is {json_type(top)}")
        native["n_probs"] = 20 if top is None else top
    elif top is not None:
        raise invalid("top_logprobs requires logprobs to be set to true", param="top_logprobs")
    native.pop("logprobs", None)
    return native
