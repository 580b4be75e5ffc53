"""An assertion that fails within ggml: clients are told, and the process ends with status 70."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.bench.rig.server_process import free_port
from tests.e2e.test_lost_engine import MARGIN_S, read
from tests.support.faults.wrong_tokens import wrong_tokens_environment, wrong_tokens_library
from tests.support.server import UNPACED, serving
from unpaced.process.engine_watch import ENGINE_LOST

ASSERTION = "fatal error in llama.cpp: "
CONDITION = "GGML_ASSERT(i01 >= 0 && i01 < ne01) failed"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wrong_tokens_library(tmp_path_factory.mktemp("wrong_tokens"))


# With one thread the decode thread computes by itself; of two the other one has a batch's end.
@pytest.mark.parametrize("n_threads", ["1", "2"])
def test_an_assertion_that_fails_is_told_and_ends_the_process(
    n_threads: str, library: Path, tmp_path: Path
) -> None:
    switch = tmp_path / "wrong"
    env = wrong_tokens_environment(library, switch, 2)
    with serving("-t", n_threads, "-np", "2", "--stop-timeout", "3", env=env) as server:
        assert server.complete(prompt="x", n_predict=4, ignore_eos=True)["tokens_predicted"] == 4
        with server.open_request(
            "/completion", prompt="Once upon a time", n_predict=-1, ignore_eos=True, stream=True
        ) as stream:
            read(stream, until=b"data: ")
            started = time.monotonic()
            switch.touch()
            with server.open_request("/completion", prompt="There was a", n_predict=4) as other:
                text, answer = read(stream), read(other)
        assert b'"error"' in text
        assert b"the engine failed after" in text
        assert b"[DONE]" not in text
        assert answer.startswith(b"HTTP/1.1 500")
        assert b'"error"' in answer
        assert server.process.wait(3 + MARGIN_S) == ENGINE_LOST
        assert time.monotonic() - started < 3 + MARGIN_S
        log = server.log.read_text()
    assert log.count(ASSERTION) == 1
    assert CONDITION in log
    assert "the engine is lost" in log
    assert "Traceback" not in log


def test_an_assertion_that_fails_while_the_model_loads(library: Path, tmp_path: Path) -> None:
    switch = tmp_path / "wrong"
    switch.touch()
    env = wrong_tokens_environment(library, switch, 1)
    ended = subprocess.run(
        [str(UNPACED), "serve", "--port", str(free_port()), "-t", "2"],
        env=env,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert ended.returncode == ENGINE_LOST
    assert ended.stderr.count(ASSERTION) == 1
    assert CONDITION in ended.stderr
    assert "Traceback" not in ended.stderr
