"""Timings, histogram, logprob entries, generation settings, log lines."""

import json
import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from engine_ext import SamplingParams
from engine_ext.base.native_log import LogTarget
from server.completion.logprobs import token_probs, whole_text
from server.completion.timings import Timings
from server.metrics.histogram import Histogram
from server.process.logs import configure_logs
from server.request.effective_params import EffectiveParams
from server.settings import Settings
from server.settings.sampling import parse_bias
from tests.support.scripted.asgi_client import post
from tests.support.scripted.fake_engine import FakeEngine, FakeEvent
from tests.support.scripted.server_app import make_app

# Recorded from llama-server at 0c1e57098.
GENERATION_SETTINGS_KEYS = (
    "seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma "
    "xtc_probability xtc_threshold typical_p repeat_last_n repeat_penalty presence_penalty "
    "frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
    "dry_sequence_breakers mirostat mirostat_tau mirostat_eta adaptive_target adaptive_decay stop "
    "max_tokens n_predict n_keep n_discard ignore_eos stream logit_bias n_probs min_keep grammar "
    "grammar_lazy grammar_triggers preserved_tokens chat_format reasoning_format "
    "reasoning_in_content generation_prompt samplers speculative.types timings_per_token "
    "post_sampling_probs backend_sampling lora"
)
PROPS_PARAMS_KEYS = (
    "seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma "
    "xtc_probability xtc_threshold typical_p repeat_last_n repeat_penalty presence_penalty "
    "frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n mirostat "
    "mirostat_tau mirostat_eta adaptive_target adaptive_decay max_tokens n_predict n_keep "
    "n_discard ignore_eos stream n_probs min_keep chat_format reasoning_format "
    "reasoning_in_content generation_prompt samplers speculative.types timings_per_token "
    "post_sampling_probs backend_sampling lora"
)


def test_generation_settings_have_llama_servers_keys_in_its_order() -> None:
    settings = EffectiveParams(SamplingParams(logit_bias=((5, 1.5),), ignore_eos=True))
    body = settings.to_json(eog_tokens=[2, 7])
    assert " ".join(body) == GENERATION_SETTINGS_KEYS
    assert " ".join(settings.to_defaults_json()) == PROPS_PARAMS_KEYS
    assert body["logit_bias"] == [
        {"bias": 1.5, "token": 5},
        {"bias": None, "token": 2},
        {"bias": None, "token": 7},
    ]


@pytest.mark.parametrize(
    "timings",
    [
        Timings(),
        Timings(start_us=5, n_prompt=3),
        Timings(
            start_us=5,
            first_token_us=5,
            last_token_us=5,
            n_prompt=3,
            n_cached=3,
            n_processed=3,
            n_decoded=1,
        ),
        Timings(start_us=5, first_token_us=9, last_token_us=99, n_prompt=3, n_decoded=10),
    ],
)
def test_timings_are_finite(timings: Timings) -> None:
    body = timings.to_json()
    assert all(math.isfinite(value) and value >= 0 for value in body.values())
    if timings.n_decoded == 1:
        assert body["predicted_per_second"] == body["predicted_per_token_ms"] == 0.0
    if timings.n_decoded == 10:
        assert body["predicted_per_second"] == pytest.approx(1e6 * 9 / 90)


@given(st.lists(st.floats(0, 10), max_size=50))
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    histogram = Histogram((0.5, 1.0, 5.0))
    for value in values:
        histogram.observe(value)
    buckets = dict(histogram.cumulative())
    for bound in (0.5, 1.0, 5.0):
        assert buckets[repr(bound)] == sum(value <= bound for value in values)
    assert buckets["+Inf"] == len(values)
    assert histogram.total == pytest.approx(sum(values))


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (b"abc", "abc"),
        ("é€😀".encode(), "é€😀"),
        ("a€".encode()[:-1], "a"),
        ("😀".encode()[:3], ""),
        (b"a\xe2", "a"),
        (b"\x82", "\ufffd"),
        (b"", ""),
    ],
)
def test_a_tokens_text_leaves_out_an_unfinished_character(piece: bytes, text: str) -> None:
    assert whole_text(piece) == text


def test_probabilities_without_a_logarithm_are_the_lowest_float() -> None:
    event: Any = FakeEvent(
        kind=2, token=97, logprob=-math.inf, top_logprobs=[(98, -0.5), (99, -math.inf)]
    )
    pieces = [bytes([i]) for i in range(256)]
    entry = token_probs(event, pieces, 2, post_sampling=False)
    assert entry["logprob"] == entry["top_logprobs"][1]["logprob"] == -3.4028234663852886e38
    event.top_logprobs = [(98, 0.75), (99, 0.0)]
    event.logprob = 0.25
    entry = token_probs(event, pieces, 2, post_sampling=True)
    assert (entry["prob"], len(entry["top_probs"])) == (0.25, 1)


def test_biases_of_the_command_line() -> None:
    assert parse_bias("15043+1") == (15043, 1.0)
    assert parse_bias("15043-inf") == (15043, -math.inf)
    for bad in ("x", "5", "-5+1", "5+x", ""):
        with pytest.raises(ValueError, match=r"ID\+BIAS|float"):
            parse_bias(bad)


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
