"""Without --traces a request calls nothing of them."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from tests.support.monitoring.otlp_receiver import Receiver
from tests.support.scripted.asgi_client import post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app

pytestmark = pytest.mark.anyio
HEADERS = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


async def calls_of_a_request(**settings: Any) -> Counter[str]:
    """How often it called functions, by their package."""
    engine = FakeEngine()
    engine.answer = b"a story"
    app = make_app(engine, **settings)
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            name = str(frame.f_globals.get("__name__", ""))
            calls["traces" if name.startswith("unpaced.traces") else name.split(".")[0]] += 1

    sys.setprofile(count)
    try:
        answer = await post(app, "/v1/completions", {"prompt": "x"}, **HEADERS).done()
    finally:
        sys.setprofile(None)
    assert answer.status == 200
    return calls


async def test_off_a_request_calls_no_function_of_theirs(collector: Receiver) -> None:
    off, on = await calls_of_a_request(), await calls_of_a_request(traces=True)
    assert (off["traces"], off["opentelemetry"]) == (0, 0)
    assert on["traces"] > 0 and on["opentelemetry"] > 0
    assert off["unpaced"] > 50
