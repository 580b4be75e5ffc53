"""--traces: spans of a real server's requests, as a collector gets them over OTLP."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.bench.rig.server_process import free_port
from tests.support.monitoring.otlp_receiver import Receiver, attributes, receiving
from tests.support.patience import patience
from tests.support.server import UNPACED, Server, serving

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def env_for(receiver: Receiver) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "NO_PROXY": "127.0.0.1",
    }


def n_spans(server: Server, result: str) -> int:
    return int(server.metric(f'unpaced_spans_total{{result="{result}"}}'))


def test_a_request_s_spans_join_the_client_s_trace() -> None:
    with receiving() as receiver:
        env = env_for(receiver) | {
            "OTEL_SERVICE_NAME": "stories",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-team=night",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        }
        with serving("-c", "512", "--traces", env=env) as server:
            before_ns = time.time_ns()
            server.client.headers["traceparent"] = f"00-{TRACE}-{SPAN}-01"
            told = server.complete(
                "/v1/chat/completions",
                messages=[{"role": "user", "content": "Tell me a story"}],
                max_tokens=9,
                temperature=0.5,
                top_k=7,
            )
            after_ns = time.time_ns()
            spans = {span.name: span for span in receiver.wait(4)}
            assert set(spans) == {"POST /v1/chat/completions", "queue", "prefill", "decode"}
            root = spans.pop("POST /v1/chat/completions")
            assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, SPAN)
            assert {span.parent_span_id for span in spans.values()} == {root.span_id}
            assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
            said = attributes(root)
            expected = {
                "http.request.method": "POST",
                "http.route": "/v1/chat/completions",
                "http.response.status_code": 200,
                "gen_ai.operation.name": "chat",
                "gen_ai.response.id": told["id"],
                "gen_ai.response.model": told["model"],
                "gen_ai.usage.input_tokens": told["usage"]["prompt_tokens"],
                "gen_ai.usage.output_tokens": 9,
                "gen_ai.request.max_tokens": 9,
                "gen_ai.request.temperature": 0.5,
                "gen_ai.request.top_k": 7.0,
                "gen_ai.response.finish_reasons": ["length"],
                "gen_ai.request.stream": False,
            }
            assert {key: said[key] for key in expected} == expected
            # One after the other, within what the client has waited.
            queue, prefill, decode = (spans[name] for name in ("queue", "prefill", "decode"))
            times = [
                *(before_ns - 1_000_000, root.start_time_unix_nano, queue.start_time_unix_nano),
                *(queue.end_time_unix_nano, prefill.end_time_unix_nano),
                *(decode.end_time_unix_nano, root.end_time_unix_nano),
            ]
            assert times == sorted(times)
            assert root.end_time_unix_nano < after_ns + patience(1) * 1e9
            assert queue.end_time_unix_nano == prefill.start_time_unix_nano
            assert prefill.end_time_unix_nano == decode.start_time_unix_nano
            (first,) = root.events
            assert (first.name, first.time_unix_nano) == ("first token", prefill.end_time_unix_nano)
            waited_s = (first.time_unix_nano - queue.start_time_unix_nano) / 1e9
            assert said["gen_ai.response.time_to_first_chunk"] == pytest.approx(waited_s, abs=2e-6)
            predicted_ms = (decode.end_time_unix_nano - decode.start_time_unix_nano) / 1e6
            assert predicted_ms == pytest.approx(told["timings"]["predicted_ms"], abs=1e-3)
            assert (
                receiver.resources[0].items()
                >= {
                    "service.name": "stories",
                    "deployment.environment.name": "test",
                }.items()
            )
            assert (
                receiver.headers[0].items()
                >= {
                    "x-team": "night",
                    "content-encoding": "gzip",
                }.items()
            )
            # Whose client decided against a span gets none; probes have none.
            server.client.headers["traceparent"] = f"00-{TRACE}-{SPAN}-00"
            server.complete(prompt="x", n_predict=1)
            server.client.get("/health")
            del server.client.headers["traceparent"]
            assert server.post("/v1/completions", {"prompt": 5}).status_code == 400
            spans = {span.name: span for span in receiver.wait(5)}
            refused = spans["POST /v1/completions"]
            assert attributes(refused)["http.response.status_code"] == 400
            assert refused.parent_span_id == b"" and refused.trace_id.hex() != TRACE
            server.until(lambda: n_spans(server, "sent") == 5, 10)
            assert n_spans(server, "lost") == 0
            # What waits when the server stops is sent.
            server.complete(prompt="x", n_predict=1)
        assert len(receiver.spans) == 9


def test_each_choice_and_a_client_that_leaves_are_told_of() -> None:
    with receiving() as receiver, serving("--traces", env=env_for(receiver)) as server:
        server.complete("/v1/completions", prompt="x", max_tokens=3, n=2, ignore_eos=True)
        spans = receiver.wait(7)
        assert sorted(attributes(span).get("unpaced.choice", -1) for span in spans) == (
            [-1] + [0] * 3 + [1] * 3
        )
        with server.open_request("/completion", prompt="x", ignore_eos=True, n_predict=900):
            server.until(lambda: server.metric("unpaced_requests_running") == 1, 10)
        root = next(span for span in receiver.wait(8) if span.name == "POST /completion")
        said = attributes(root)
        assert said["unpaced.aborted"] == "disconnect"
        assert said["gen_ai.response.finish_reasons"] == ["cancelled"]


def test_probes_of_a_server_that_is_not_ready_have_no_span() -> None:
    body = {"prompt": "x", "ignore_eos": True, "n_predict": 900, "stream": True}
    with (
        receiving() as receiver,
        serving("--traces", env=env_for(receiver)) as server,
        server.open_request("/completion", **body) as stream,
    ):
        assert stream.recv(1 << 16)
        os.kill(server.process.pid, signal.SIGTERM)
        server.until(lambda: server.client.get("/health/ready").status_code == 503, 10)
        while stream.recv(1 << 16):
            pass
        assert server.process.wait(20) == 0
        names = {span.name for span in receiver.wait(4)}
    assert names == {"POST /completion", "queue", "prefill", "decode"}


def test_a_collector_that_hangs_or_is_gone_costs_spans_alone() -> None:
    with receiving() as receiver:
        receiver.is_silent = True
        env = env_for(receiver) | {"OTEL_BSP_MAX_QUEUE_SIZE": "8"}
        env["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] = "4"
        with serving("--traces", "-c", "512", env=env) as server:
            started = time.monotonic()
            for _ in range(30):
                server.complete(prompt="x", n_predict=2, ignore_eos=True)
            assert time.monotonic() - started < 15
            # 4 of each request; 8 wait, 4 are on their way.
            assert n_spans(server, "lost") >= 30 * 4 - 12
            assert n_spans(server, "sent") == 0
            stopping = time.monotonic()
            os.kill(server.process.pid, signal.SIGTERM)
            server.process.wait(20)
            assert time.monotonic() - stopping < 8
    gone = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "NO_PROXY": "127.0.0.1",
    }
    with serving("--traces", "-c", "512", env=gone) as server:
        server.complete(prompt="x", n_predict=2, ignore_eos=True)
        server.until(lambda: n_spans(server, "lost") == 4, 20)
        server.complete(prompt="x", n_predict=2, ignore_eos=True)


def lines_of_requests(server: Server) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    # Who waited for the model asked for /health: refused until it was there, which has a line.
    return [e for e in lines if e["event"] == "request" and e["path"] != "/health"]


@pytest.mark.parametrize("is_on", [True, False])
def test_a_log_line_leads_to_its_trace(is_on: bool) -> None:
    with receiving() as receiver:
        flags = ("-c", "512", "--log-jsonl", *(["--traces"] if is_on else []))
        with serving(*flags, env=env_for(receiver)) as server:
            server.complete(prompt="x", n_predict=1)
            headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=b"}
            server.client.headers.update(headers)
            server.complete(prompt="x", n_predict=1)
            assert server.client.get("/nowhere").status_code == 404
            # A good GET has no span: with it the client's is told.
            assert server.client.get("/v1/models").status_code == 200
            server.client.headers["traceparent"] = f"00-{TRACE}-{SPAN}-01 and more"
            server.complete(prompt="x", n_predict=1)
            server.until(lambda: len(lines_of_requests(server)) == 4)
            alone, joined, lost, wrong = lines_of_requests(server)
        roots = {(s.trace_id.hex(), s.span_id.hex()) for s in receiver.spans if s.kind == 2}
    assert not any("a=b" in str(line) for line in (alone, joined, lost, wrong))
    if is_on:
        told = [(line["trace_id"], line["span_id"]) for line in (alone, joined, lost, wrong)]
        assert set(told) == roots and len(roots) == 4
        assert [trace == TRACE for trace, _ in told] == [False, True, True, False]
    else:
        assert joined["trace_id"] == lost["trace_id"] == TRACE
        assert joined["span_id"] == lost["span_id"] == SPAN
        assert all("trace_id" not in line and "span_id" not in line for line in (alone, wrong))
        assert receiver.spans == []


@pytest.mark.parametrize(
    ("told", "n_alone", "n_joined"),
    [
        ({}, 4, 4),
        ({"OTEL_SDK_DISABLED": "true"}, 0, 0),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, 0, 0),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, 0, 4),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.0"}, 0, 0),
        ({"OTEL_PROPAGATORS": "none"}, 8, 0),
    ],
    ids=lambda case: "-".join(case) if isinstance(case, dict) else str(case),
)
def test_the_sdks_variables_are_heeded(told: dict[str, str], n_alone: int, n_joined: int) -> None:
    """Two requests, the second with a client's trace: spans of traces of their own, and of its."""
    with receiving() as receiver:
        with serving("-c", "256", "--traces", env=env_for(receiver) | told) as server:
            server.complete(prompt="x", n_predict=1)
            server.client.headers["traceparent"] = f"00-{TRACE}-{SPAN}-01"
            server.complete(prompt="x", n_predict=1)
        joined = [span.trace_id.hex() == TRACE for span in receiver.spans]  # sent at the stop
    assert (joined.count(False), joined.count(True)) == (n_alone, n_joined)


def test_off_it_is_not_even_imported() -> None:
    with serving("-c", "256", env={"PYTHONPROFILEIMPORTTIME": "1"}) as server:
        server.complete(prompt="x", n_predict=1)
        assert "unpaced_spans" not in server.client.get("/metrics").text
        log = server.log.read_text()
    assert "unpaced.http.middleware" in log
    assert "opentelemetry" not in log and "unpaced.traces" not in log


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is grpc"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER is console"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "many"}, "OTEL_BSP_MAX_QUEUE_SIZE is 'many'"),
        ({"OTEL_PROPAGATORS": "nobodys"}, "Propagator nobodys not found"),
        ({"PYTHONPATH": "."}, "is not installed: pip install 'unpaced[otel]'"),
    ],
)
def test_what_is_not_there_is_said(env: dict[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").touch()  # in PYTHONPATH: hides the real one
    done = subprocess.run(
        [str(UNPACED), "--traces", "--port", str(free_port())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **env},
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "--traces" in done.stderr
