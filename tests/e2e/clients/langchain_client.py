"""langchain-openai: a chat, its stream, structured output, a turn with a tool's result."""

import sys

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, Field


class Weather(BaseModel):
    """What the sky does."""

    model_config = ConfigDict(extra="forbid")
    degrees: int = Field(ge=-9, le=9)
    rain: bool


@tool
def look(thing: str) -> str:
    """Look at a thing."""
    return f"a {thing}"


def main(url: str, key: str) -> None:
    chat = ChatOpenAI(
        model="demo", base_url=f"{url}/v1", api_key=key, max_tokens=12, seed=1, stream_usage=True
    )
    whole = chat.invoke("Tell me a story")
    assert whole.content and whole.usage_metadata["output_tokens"] <= 12
    chunks = list(chat.stream("Tell me a story"))
    assert "".join(chunk.content for chunk in chunks) == whole.content
    assert sum((chunk.usage_metadata or {}).get("output_tokens", 0) for chunk in chunks) > 0
    structured = ChatOpenAI(model="demo", base_url=f"{url}/v1", api_key=key, max_tokens=400, seed=1)
    weather = structured.with_structured_output(Weather, method="json_schema").invoke("How is it?")
    assert isinstance(weather, Weather)
    call = {"name": "look", "args": {"thing": "cat"}, "id": "t1", "type": "tool_call"}
    turns = [
        HumanMessage("Look at the cat"),
        AIMessage("", tool_calls=[call]),
        ToolMessage(look.invoke({"thing": "cat"}), tool_call_id="t1"),
    ]
    assert chat.bind_tools([look]).invoke(turns).response_metadata["finish_reason"]
    answer = ChatOpenAI(
        model="demo", base_url=f"{url}/v1", api_key=key, max_tokens=12, use_responses_api=True
    ).invoke("Tell me a story")
    assert answer.text


if __name__ == "__main__":
    main(*sys.argv[1:3])
