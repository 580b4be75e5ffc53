"""The anthropic library for Python: messages, their stream, token counts, errors; sync, async."""

import asyncio
import sys

import anthropic

CHAT = [{"role": "user", "content": "Tell me a story"}]
TOOL = {
    "name": "look",
    "description": "Look at a thing",
    "input_schema": {
        "type": "object",
        "properties": {"thing": {"type": "string", "enum": ["cat", "dog"]}},
        "required": ["thing"],
    },
}


def check(client: anthropic.Anthropic) -> None:
    greedy = {"temperature": 0}
    fields = {"model": "demo", "max_tokens": 12, "messages": CHAT, "extra_body": greedy}
    whole = client.messages.create(system="Be brief", **fields)
    assert whole.content[0].type == "text" and whole.content[0].text
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.usage.output_tokens > 0
    with client.messages.stream(system="Be brief", **fields) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model="demo", messages=CHAT, system="Be brief")
    usage = whole.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    turns = [
        *CHAT,
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"thing": "cat"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a cat"}],
        },
    ]
    answer = client.messages.create(model="demo", max_tokens=5, messages=turns, tools=[TOOL])
    assert answer.role == "assistant"
    forced = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}}
    called = client.messages.create(model="demo", max_tokens=400, messages=CHAT, **forced)
    use = called.content[-1]
    assert called.stop_reason == "tool_use" and use.name == "look"
    assert use.input["thing"] in ("cat", "dog")
    with client.messages.stream(
        model="demo", max_tokens=400, messages=CHAT, thinking={"type": "disabled"}, **forced
    ) as stream:
        streamed = stream.get_final_message()
    assert streamed.content[-1].input["thing"] in ("cat", "dog")
    stopped = client.messages.create(stop_sequences=[text[:4].strip()], **fields)
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[:4].strip()
    try:
        client.messages.create(model="demo", max_tokens=-7, messages=CHAT)
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error"
        assert "max_tokens" in error.body["error"]["message"]
    else:
        raise AssertionError("a bad field was taken")


async def check_async(url: str, key: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key) as client:
        async with client.messages.stream(model="demo", max_tokens=8, messages=CHAT) as stream:
            text = "".join([piece async for piece in stream.text_stream])
        assert text


def main(url: str, key: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key=key) as client:
        check(client)
    with anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0) as stranger:
        try:
            stranger.messages.create(model="demo", max_tokens=1, messages=CHAT)
        except anthropic.AuthenticationError as error:
            assert error.body["error"]["type"] == "authentication_error"
        else:
            raise AssertionError("a wrong key was taken")
    asyncio.run(check_async(url, key))


if __name__ == "__main__":
    main(*sys.argv[1:3])
