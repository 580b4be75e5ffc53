"""No client can add a series, and nothing that a client sends is in one."""

import random
import string

import pytest
from starlette.applications import Starlette

from tests.support.monitoring.otlp_receiver import Receiver
from tests.support.scripted.asgi_client import get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app

pytestmark = pytest.mark.anyio
N_REQUESTS = 10_000
KEY = "canary-key"
_COMPAT = "llamacpp,vllm"


async def page(app: Starlette) -> str:
    return (await get(app, "/metrics", authorization=f"Bearer {KEY}").done()).body.decode()


def series(text: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def word(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_letters + string.digits + "-_.%", k=12))


async def ask(app: Starlette, chance: random.Random, i: int) -> None:
    """One request with everything random that a client chooses."""
    headers = {
        "authorization": f"Bearer {KEY}",
        "x_request_id": word(chance),
        "user_agent": word(chance),
        f"x_{word(chance)}": word(chance),
    }
    match i % 5:
        case 0:
            path = f"/v1/completions?{word(chance)}={word(chance)}"
            body: dict[str, object] = {"prompt": "a", "model": word(chance)}
            body[word(chance)] = word(chance)
            await post(app, path, body, **headers).done()
        case 1:
            await get(app, f"/{word(chance)}/{word(chance)}", **headers).done()
        case 2:
            await get(app, f"/v1/models/{word(chance)}", **headers).done()
        case 3:
            headers["authorization"] = f"Bearer {word(chance)}"
            await get(app, "/v1/models", **headers).done()
        case 4:
            body = {"prompt": "a", "n_predict": word(chance), "model": [word(chance)]}
            await post(app, "/completion", body, **headers).done()


async def test_ten_thousand_odd_requests_add_no_series(collector: Receiver) -> None:
    engine = FakeEngine()
    engine.answer = b"ab"
    app = make_app(engine, api_key=(KEY,), metrics_compat=_COMPAT, traces=True)
    chance = random.Random(15)
    for i in range(5):  # each kind once, and a scrape
        await ask(app, chance, i)
    await page(app)
    before = series(await page(app))
    for i in range(N_REQUESTS):
        await ask(app, chance, i)
        engine.sequences.clear()
    after = await page(app)
    assert series(after) == before
    assert "_created" not in after
    assert "unpaced_spans_total" in after
    assert len(before) > 500
    assert len(collector.spans) > 500


async def test_a_completion_counts_under_the_name_that_it_asks_for() -> None:
    engine = FakeEngine()
    engine.answer = b"abc"
    app = make_app(engine, alias="small,large")
    for model in ("small", "large", "large", "unheard-of", None, 7):
        await post(app, "/v1/completions", {"prompt": "x", "model": model}).done()
    text = (await get(app, "/metrics").done()).body.decode()
    # `large` is the first by the alphabet: what is unheard of counts under it.
    assert 'unpaced_completions_finished_total{model="large",reason="length"} 5.0' in text
    assert 'unpaced_completions_finished_total{model="small",reason="length"} 1.0' in text
    assert 'unpaced_generated_tokens_total{model="small"} 3.0' in text
    assert 'unpaced_inter_token_seconds_count{model="small"} 2.0' in text
    assert "llamacpp:tokens_predicted_total 18" in text


async def test_a_canary_is_in_no_metric() -> None:
    canary = "CANARYdfe1"
    engine = FakeEngine()
    engine.answer = canary.encode()
    app = make_app(engine, api_key=(KEY, f"{canary}-key"), metrics_compat=_COMPAT)
    headers = {"authorization": f"Bearer {canary}-key", "user_agent": canary, f"x_{canary}": canary}
    body = {"prompt": canary, "model": canary, "stop": [canary + "x"], canary: canary}
    for path in ("/v1/completions", "/completion"):
        answer = await post(app, f"{path}?{canary}={canary}", body, **headers).done()
        assert answer.status == 200 and canary in answer.body.decode()
    await post(app, "/v1/completions", {"prompt": [canary]} | {"n": canary}, **headers).done()
    await get(app, f"/{canary}", **headers).done()
    await get(app, f"/v1/models/{canary}", **headers).done()
    text = await page(app)
    assert 'unpaced_http_requests_total{route="/v1/completions",status="200"} 1.0' in text
    assert canary not in text
    assert KEY not in text
