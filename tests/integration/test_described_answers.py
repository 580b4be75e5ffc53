"""GET /openapi.json against the real server: answers and streams are what it says."""

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pytest

from tests.fuzz.good_bodies import GOOD_BODIES, kind_of
from tests.support.openapi import Description
from tests.support.server import Server, serving

COMPLETIONS: Final = ("/completion", "/completions", "/v1/completions")
CHATS: Final = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
ANSWERED: Final = (
    *("/apply-template", "/v1/chat/completions/input_tokens", "/v1/responses/input_tokens"),
    *("/v1/messages/count_tokens", "/tokenize", "/detokenize", "/v1/streams/lookup"),
    *("/v1/chat/completions/control",),
)
MORE: Final[list[dict[str, Any]]] = [
    {},
    {"n": 2},
    {"verbose": True},
    {"timings_per_token": True, "return_progress": True},
    {"n_probs": 2, "post_sampling_probs": True},
    {"return_tokens": True, "stop": ["a"]},
    {"stream_options": {"include_usage": True}},
]
OPENAI_MORE: Final[list[dict[str, Any]]] = [{"logprobs": 2}, {"echo": True, "logprobs": 1}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("slots")
    with serving("-t", "1", "-np", "2", "--slot-save-path", str(folder), "--props") as running:
        yield running


@pytest.fixture(scope="module")
def description(server: Server) -> Description:
    return Description(server.client.get("/openapi.json").json())


def events_of(content: bytes) -> list[Any]:
    lines = [line for line in content.split(b"\n") if line.startswith(b"data: ")]
    data = [line.removeprefix(b"data: ") for line in lines]
    return [orjson.loads(each) for each in data if each != b"[DONE]"]


def check(
    server: Server, description: Description, method: str, path: str, body: Any = None
) -> int:
    target = re.sub(r"{\w+}", "0", path)
    name = path.partition("?")[0]
    content = None if body is None else orjson.dumps(body)
    response = server.client.request(method.upper(), target, content=content)
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        value: Any = events_of(response.content)
        assert value
    elif kind.startswith("application/json"):
        value = response.json()
    else:
        value = response.text or None
    faults = description.answer_faults(method, name, response.status_code, kind, value)
    assert not faults, (path, body, faults)
    return response.status_code


def test_all_that_is_got(server: Server, description: Description) -> None:
    n_answered = 0
    for method, path, _ in description.operations():
        if method != "post":
            n_answered += check(server, description, method, path) == 200
    assert n_answered >= 11
    model = server.client.get("/v1/models").json()["data"][0]["id"]
    response = server.client.get(f"/v1/models/{model}")
    kind = response.headers["content-type"]
    assert not description.answer_faults(
        "get", "/v1/models/{model}", response.status_code, kind, response.json()
    )
    assert response.status_code == 200
    assert check(server, description, "delete", "/v1/stream?conv_id=a") == 204


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", COMPLETIONS)
def test_completions(server: Server, description: Description, path: str, stream: bool) -> None:
    bodies = [{"prompt": "Once", "n_predict": 6} | more for more in MORE]
    if path == "/v1/completions":
        bodies += [{"prompt": "Once", "n_predict": 3} | more for more in OPENAI_MORE]
    for body in bodies:
        assert check(server, description, "post", path, body | {"stream": stream}) == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", CHATS)
def test_chats(server: Server, description: Description, path: str, stream: bool) -> None:
    plain = {"max_tokens": 6, "max_output_tokens": 6} | (
        {"input": "Hi"}
        if path.endswith("responses")
        else {"messages": [{"role": "user", "content": "Hi"}]}
    )
    bodies = [*GOOD_BODIES[kind_of(path)], plain]
    if kind_of(path) == "chat":
        bodies += [plain | more for more in MORE]
        bodies.append(plain | {"logprobs": True, "top_logprobs": 2})
    n_answered = 0
    for body in bodies:
        # Logprobs do not go with tools in a stream.
        left_out = ("logprobs", "top_logprobs") if stream and "tools" in body else ()
        sent = {key: value for key, value in body.items() if key not in left_out}
        n_answered += check(server, description, "post", path, sent | {"stream": stream}) == 200
    assert n_answered == len(bodies)


@pytest.mark.parametrize("path", ANSWERED)
def test_what_does_not_generate(server: Server, description: Description, path: str) -> None:
    for body in GOOD_BODIES[kind_of(path)]:
        assert check(server, description, "post", path, body) == 200


def test_slots_and_adapters(server: Server, description: Description) -> None:
    path = "/slots/{slot}"
    assert check(server, description, "post", "/completion", {"prompt": "a", "n_predict": 2}) == 200
    for action in ("save", "restore", "erase"):
        target = f"{path}?action={action}"
        assert check(server, description, "post", target, {"filename": "a.bin"}) == 200
    assert check(server, description, "get", "/slots?queue=1") == 200
    assert check(server, description, "post", "/lora-adapters", []) == 200
    assert check(server, description, "post", "/props", {}) == 200
    for other in ("/tools", "/v1/embeddings", "/infill", "/tokenizer_info"):
        check(server, description, "post", other, {"input_prefix": "a", "input_suffix": "b"})


def test_an_answer_that_is_not_described_would_be_found(description: Description) -> None:
    kind = "application/json"
    assert not description.answer_faults("get", "/health", 200, kind, {"status": "ok"})
    assert description.answer_faults("get", "/health", 200, kind, {"status": "ok", "more": 1})
    assert description.answer_faults("get", "/health", 200, kind, {"status": 5})
    assert description.answer_faults("get", "/health", 418, kind, {"status": "ok"})
    assert description.answer_faults("get", "/health", 200, "text/plain", "ok")
