"""The log: lines of one form, none of a client's text, and what happens where nobody reads."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from engine_ext.base.native_log import LogTarget
from tests.support.scripted.asgi_client import post, turns
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.process.logs import configure_logs
from unpaced.settings import Settings


class Lines:
    """A log whose reader may be away."""

    def __init__(self) -> None:
        self.text = ""
        self.n_dropped = 0
        self.is_read = True

    def write(self, target: LogTarget, text: str) -> int:
        assert target is LogTarget.STDERR
        if not self.is_read:
            self.n_dropped += 1
            return -1
        self.text += text
        n_dropped, self.n_dropped = self.n_dropped, 0
        return n_dropped


@pytest.fixture
def log_lines() -> Iterator[Lines]:
    lines = Lines()
    root = logging.getLogger()
    before = root.handlers, root.level
    configure_logs(Settings(log_format="json"), lines)
    yield lines
    root.handlers, root.level = before[0], before[1]
    structlog.reset_defaults()


def test_events_and_records_are_lines_of_one_form(log_lines: Lines) -> None:
    log = structlog.stdlib.get_logger("unpaced.request")
    log.debug("not shown")
    log.info("request", path="/a b", status=503)
    logging.getLogger("uvicorn.error").warning("theirs")
    try:
        raise ValueError("bad")
    except ValueError:
        log.exception("fault")
    ours, theirs, fault = map(json.loads, log_lines.text.splitlines())
    del ours["timestamp"]
    assert ours == {"event": "request", "level": "info", "path": "/a b", "status": 503}
    assert theirs["event"] == "theirs" and theirs["level"] == "warning"
    assert fault["level"] == "error" and "ValueError: bad" in fault["exception"]


def test_what_cannot_be_a_line_ends_no_request(
    log_lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    log = structlog.stdlib.get_logger("unpaced.request")
    log.info("odd", value=Odd())
    log.info("next")
    assert [json.loads(line)["event"] for line in log_lines.text.splitlines()] == ["next"]
    assert "no text" in capsys.readouterr().err


def test_dropped_log_lines_are_told_of_once_somebody_reads(log_lines: Lines) -> None:
    log = logging.getLogger("unpaced")
    log_lines.is_read = False
    for _ in range(3):
        log.info("lost")
    log_lines.is_read = True
    log.info("first")
    log.info("second")
    events = [json.loads(line)["event"] for line in log_lines.text.splitlines()]
    told = "3 log lines were dropped: nobody read the log in time"
    assert events == ["first", told, "second"]


@pytest.mark.anyio
async def test_a_log_line_has_figures_and_none_of_the_clients_text(
    log_lines: Lines,
) -> None:
    engine = FakeEngine()
    engine.answer = b"xyz"
    body = {"prompt": "canary-secret", "user": "canary-secret", "stop": ["canary-secret"]}
    headers = {"authorization": "Bearer canary-secret", "x_request_id": "id-1"}
    await post(make_app(engine), "/v1/completions", body, **headers).done()
    await post(make_app(engine), "/v1/completions", b"canary-secret", **headers).done()
    text = log_lines.text
    assert "canary" not in text
    entries = [json.loads(line) for line in text.splitlines()]
    assert len(entries) == 2
    first = entries[0]
    assert (first["request_id"], first["status"], first["path"]) == ("id-1", 200, "/v1/completions")
    assert (first["n_prompt"], first["n_decoded"]) == (14, 3)
    assert first["duration_ms"] >= first["ttft_ms"] >= 0
    assert (first["queue_ms"], first["copy_ms"], first["cells_ms"]) == (0, 0, 0)


@pytest.mark.anyio
async def test_the_log_line_says_what_a_request_waited_for(log_lines: Lines) -> None:
    engine = FakeEngine()
    app = make_app(engine)
    first = post(app, "/completion", {"prompt": "a"})
    sequence = await engine.submitted()
    second = post(app, "/completion", {"prompt": ["b", "c"]})
    await turns(50)
    await asyncio.sleep(0.01)  # what the second one waits at least
    sequence.play(b"x")
    await first.done()
    for number, copy_us, cells_us in ((2, 2_500, 700), (3, 1_000, 4_200)):
        sequence = await engine.submitted(number)
        sequence.copy_us, sequence.cells_us = copy_us, cells_us
        sequence.play(b"x")
    await second.done()
    before, after = (json.loads(line) for line in log_lines.text.splitlines())
    assert before["queue_ms"] < after["queue_ms"] <= after["duration_ms"]
    assert after["ttft_ms"] <= after["duration_ms"]  # of several the earliest
    assert after["queue_ms"] >= 10
    assert (after["copy_ms"], after["cells_ms"]) == (2.5, 4.2)  # of several the longest
    assert "n_kept_copied" not in after


@pytest.mark.anyio
async def test_the_log_line_says_what_host_memory_had_of_a_prompt(log_lines: Lines) -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = post(app, "/completion", {"prompt": ["a", "b"]})
    for number, n_copied, n_computed in ((1, 700, 0), (2, 512, 90)):
        sequence = await engine.submitted(number)
        sequence.n_kept_copied, sequence.n_kept_computed = n_copied, n_computed
        sequence.play(b"x")
    await request.done()
    (entry,) = (json.loads(line) for line in log_lines.text.splitlines())
    assert (entry["n_kept_copied"], entry["n_kept_computed"]) == (1212, 90)
