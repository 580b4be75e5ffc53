"""The openai library for Python: completions, chat, responses, models; plain, streamed, async."""

import asyncio
import json
import sys

import openai

CHAT = [{"role": "user", "content": "Tell me a story"}]
THING = {
    "type": "object",
    "properties": {"thing": {"type": "string", "enum": ["cat", "dog"]}},
    "required": ["thing"],
    "additionalProperties": False,
}


def check(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    text = client.completions.create(model="demo", prompt="Once", max_tokens=8, seed=1)
    assert text.usage is not None and text.usage.completion_tokens <= 8
    chat = client.chat.completions.create(
        model="demo", messages=CHAT, max_completion_tokens=12, seed=1
    )
    said = chat.choices[0].message.content
    assert said and chat.choices[0].finish_reason in ("stop", "length")
    chunks = list(
        client.chat.completions.create(
            model="demo",
            messages=CHAT,
            max_completion_tokens=12,
            seed=1,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == said
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens > 0
    check_responses(client)
    try:
        client.chat.completions.create(model="demo", messages=CHAT, max_tokens=-7)
    except openai.BadRequestError as error:
        assert error.param == "max_tokens"
    else:
        raise AssertionError("a bad field was taken")


def check_responses(client: openai.OpenAI) -> None:
    fields = {"model": "demo", "max_output_tokens": 12, "extra_body": {"seed": 1}}
    whole = client.responses.create(input="Tell me a story", instructions="Be brief", **fields)
    assert whole.output_text and whole.status in ("completed", "incomplete")
    assert whole.usage is not None and whole.usage.output_tokens <= 12
    with client.responses.stream(
        input="Tell me a story", instructions="Be brief", **fields
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert final.output_text == whole.output_text
    follow_up = [
        {"role": "user", "content": "Hi"},
        *[item.model_dump(exclude_none=True) for item in whole.output],
        {"role": "user", "content": "Go on"},
    ]
    assert client.responses.create(input=follow_up, **fields).output_text
    tool = {"type": "function", "name": "look", "parameters": THING, "strict": True}
    with client.responses.stream(
        model="demo", input="Look", tools=[tool], tool_choice="required", max_output_tokens=400
    ) as stream:
        call = stream.get_final_response().output[-1]
    assert call.type == "function_call" and call.name == "look"
    assert json.loads(call.arguments)["thing"] in ("cat", "dog")
    asked = [
        {"role": "user", "content": "Look"},
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "a cat"},
    ]
    assert client.responses.create(input=asked, tools=[tool], **fields).status
    form = {"type": "json_schema", "name": "thing", "schema": THING, "strict": True}
    made = client.responses.create(
        model="demo", input="Make one up", text={"format": form}, max_output_tokens=400
    )
    assert json.loads(made.output_text)["thing"] in ("cat", "dog")
    try:
        client.responses.create(input="Hi", previous_response_id="resp_1", model="demo")
    except openai.BadRequestError as error:
        assert error.param == "previous_response_id"
    else:
        raise AssertionError("a stored response was looked for")


async def check_async(url: str, key: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key) as client:
        answers = await asyncio.gather(
            *(
                client.chat.completions.create(model="demo", messages=CHAT, max_tokens=8, seed=seed)
                for seed in (1, 1, 2)
            )
        )
        assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
        text = ""
        stream = await client.responses.create(
            model="demo", input="Hi", max_output_tokens=8, stream=True
        )
        async for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.completed":
                assert event.response.output_text == text
        assert text


def main(url: str, key: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key) as client:
        check(client)
    with openai.OpenAI(base_url=f"{url}/v1", api_key="wrong") as stranger:
        try:
            stranger.models.list()
        except openai.AuthenticationError:
            pass
        else:
            raise AssertionError("a wrong key was taken")
    asyncio.run(check_async(url, key))


if __name__ == "__main__":
    main(*sys.argv[1:3])
