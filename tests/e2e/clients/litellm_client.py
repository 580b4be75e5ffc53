"""litellm: chat, text, streams with usage, and Anthropic's API through it."""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it fetches one

import litellm

CHAT = [{"role": "user", "content": "Tell me a story"}]


def main(url: str, key: str) -> None:
    base = {"api_base": f"{url}/v1", "api_key": key, "max_tokens": 12}
    whole = litellm.completion(model="openai/demo", messages=CHAT, seed=1, **base)
    said = whole.choices[0].message.content
    assert said and whole.usage.completion_tokens <= 12
    chunks = list(
        litellm.completion(
            model="openai/demo",
            messages=CHAT,
            seed=1,
            stream=True,
            stream_options={"include_usage": True},
            **base,
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == said
    assert any(getattr(chunk, "usage", None) for chunk in chunks)
    text = litellm.text_completion(model="text-completion-openai/demo", prompt="Once", **base)
    assert text.choices[0].text
    base["api_base"] = url
    message = litellm.completion(model="anthropic/demo", messages=CHAT, **base)
    assert message.choices[0].message.content
    pieces = litellm.completion(model="anthropic/demo", messages=CHAT, stream=True, **base)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
    try:
        litellm.completion(model="openai/demo", messages=[], api_base=f"{url}/v1", api_key="wrong")
    except litellm.AuthenticationError:
        return
    raise AssertionError("a wrong key was taken")


if __name__ == "__main__":
    main(*sys.argv[1:3])
