"""The openai client, against a real process."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.support.server import Server, serving

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # One token a batch: a text on the cells of the request before is that of a cold prompt.
    with serving("-np", "1", "-t", "1", "-ub", "1", "--alias", "demo") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as made:
        yield made


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("org/other")
    assert caught.value.code == "model_not_found"


def test_a_completion_and_its_stream(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="demo", prompt=PROMPT, max_tokens=16, seed=1)
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(
        client.completions.create(model="demo", prompt=PROMPT, max_tokens=16, seed=1, stream=True)
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage or chunks[-1].usage is not None


def test_several_choices_logprobs_and_stops(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="demo", prompt=[PROMPT, PROMPT], n=2, max_tokens=8, seed=5, logprobs=2, stop=["\n\n"]
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text == answer.choices[2].text
    for choice in answer.choices:
        lists = choice.logprobs
        assert lists is not None
        assert lists.tokens is not None
        assert lists.top_logprobs is not None
        assert "".join(lists.tokens) == choice.text
        assert [len(top) >= 2 for top in lists.top_logprobs] == [True] * len(lists.tokens)
    echoed = client.completions.create(
        model="demo", prompt=PROMPT, max_tokens=0, logprobs=1, echo=True
    )
    logprobs = echoed.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert len(logprobs.tokens) == len(logprobs.token_logprobs)


def test_the_async_client_runs_requests_at_once(server: Server) -> None:
    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            answers = await asyncio.gather(
                *(
                    client.completions.create(model="demo", prompt=PROMPT, max_tokens=12, seed=i)
                    for i in range(6)
                )
            )
            text = ""
            stream = await client.completions.create(
                model="demo", prompt=PROMPT, max_tokens=12, seed=0, stream=True
            )
            async for chunk in stream:
                text += chunk.choices[0].text
            return [answer.choices[0].text for answer in answers] + [text]

    texts = asyncio.run(run())
    assert texts[0] == texts[-1]


def test_errors_have_their_types(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="max_tokens") as caught:
        client.completions.create(model="demo", prompt=PROMPT, max_tokens=-5)
    assert caught.value.param == "max_tokens"
    with pytest.raises(openai.BadRequestError, match="context size") as overflow:
        client.completions.create(model="demo", prompt="word " * 5000, max_tokens=1)
    assert overflow.value.code == "context_length_exceeded"
    with pytest.raises(openai.InternalServerError, match="does not support embeddings") as refused:
        client.embeddings.create(model="demo", input="x")
    assert refused.value.status_code == 501  # llama-server's answer without --embeddings
    with pytest.raises(openai.NotFoundError, match="there is no GET /v1/files"):
        client.files.list()


def test_a_full_queue_is_retried() -> None:
    busy_body = {"prompt": PROMPT, "max_tokens": -1, "ignore_eos": True, "stream": True, "n": 16}
    n_refused = 'unpaced_requests_rejected_total{reason="queue_full"}'
    with (
        serving("-t", "1", "-np", "1", "--max-queue-requests", "15", "--alias", "demo") as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as hasty,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=8) as patient,
        ThreadPoolExecutor(1) as thread,
    ):
        assert [model.id for model in hasty.models.list()] == ["demo"]
        with server.open_request("/v1/completions", **busy_body) as busy:
            assert busy.recv(100).startswith(b"HTTP/1.1 200")
            with pytest.raises(openai.InternalServerError, match="queue is full"):
                hasty.completions.create(model="demo", prompt=PROMPT, max_tokens=1, n=16)
            answering = thread.submit(
                patient.completions.create, model="demo", prompt=PROMPT, max_tokens=2, n=16
            )
            server.until(lambda: server.metric(n_refused) >= 2)
        assert len(answering.result(60).choices) == 16
