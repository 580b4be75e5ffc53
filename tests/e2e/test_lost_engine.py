"""A decode thread that hangs: every client is told, and the process ends by itself."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.support.faults.frozen_thread import CannotFreeze, exit_status, frozen, thread_of
from tests.support.server import Server, serving
from unpaced.process.engine_watch import ENGINE_LOST

# For all that takes time beside the limits, on a busy machine.
MARGIN_S = 20.0


@dataclass
class HungServer:
    """A server whose decode thread stands still in the midst of `stream`."""

    server: Server
    thread: int
    stream: socket.socket

    def end(self, limit_s: float) -> tuple[int, float]:
        """Its exit status, and the seconds it took to end."""
        return exit_status(self.server.process.pid, self.thread, limit_s)


@contextlib.contextmanager
def hung_server(*arguments: str) -> Iterator[HungServer]:
    with serving("-t", "1", "-np", "1", *arguments, is_child=True) as server:
        stream = server.open_request(
            "/completion", prompt="Once upon a time", n_predict=-1, ignore_eos=True, stream=True
        )
        read(stream, until=b"data: ")
        thread = thread_of(server.process.pid, "decode")
        try:
            with frozen(thread):
                yield HungServer(server, thread, stream)
        except CannotFreeze as error:
            pytest.skip(f"no ptrace here: {error}")
        finally:
            stream.close()


def read(connection: socket.socket, *, until: bytes = b"\0") -> bytes:
    """What comes until then, or until the end."""
    text = b""
    while until not in text and (data := connection.recv(4096)):
        text += data
    return text


def test_a_hung_decode_thread_is_found_told_and_ends_the_process() -> None:
    with hung_server("--stall-timeout", "2", "--stop-timeout", "2") as hung:
        with hung.server.open_request("/completion", prompt="Hello", n_predict=4) as waiting:
            # The stream's last event is an error, as is the answer to who waited for the slot.
            text = read(hung.stream)
            answer = read(waiting)
        assert b'"error"' in text
        assert b"the engine failed after" in text
        assert b"[DONE]" not in text
        assert answer.startswith(b"HTTP/1.1 50")
        assert b'"error"' in answer
        status, seconds = hung.end(2 + 2 + MARGIN_S)
        assert status == ENGINE_LOST
        log = hung.server.log.read_text()
        assert "the decode thread has not moved for" in log
        assert "Traceback" not in log
        assert seconds < 2 + 2 + MARGIN_S


def test_a_decode_thread_that_hangs_while_idle_is_found_by_the_next_request() -> None:
    with serving(
        "-t", "1", "-np", "1", "--stall-timeout", "2", "--stop-timeout", "2", is_child=True
    ) as server:
        server.complete(prompt="Hello", n_predict=1)
        thread = thread_of(server.process.pid, "decode")
        try:
            with frozen(thread):
                time.sleep(3)  # with nothing to do it is no fault
                assert server.client.get("/health/ready").status_code == 200
                with server.open_request("/completion", prompt="Hello", n_predict=4) as waiting:
                    answer = read(waiting)
                status, _ = exit_status(server.process.pid, thread, 2 + 2 + MARGIN_S)
        except CannotFreeze as error:
            pytest.skip(f"no ptrace here: {error}")
    assert answer.startswith(b"HTTP/1.1 50")
    assert b'"error"' in answer
    assert status == ENGINE_LOST


def test_readiness_says_so_until_the_end() -> None:
    with hung_server("--stall-timeout", "8", "--stop-timeout", "3") as hung:
        statuses = set()
        with contextlib.suppress(httpx.TransportError):
            while True:
                statuses.add(hung.server.client.get("/health/ready").status_code)
                time.sleep(0.02)
        assert statuses == {200, 503}
        assert hung.end(8 + 3 + MARGIN_S)[0] == ENGINE_LOST


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_does_not_wait_for_a_hung_decode_thread(signals: int) -> None:
    with hung_server("--stall-timeout", "0", "--drain-timeout", "1", "--stop-timeout", "1") as hung:
        for _ in range(signals):
            os.kill(hung.server.process.pid, signal.SIGTERM)
            time.sleep(0.3)
        if signals == 1:
            assert b"the server is stopping" in read(hung.stream)
        status, _ = hung.end(1 + 1 + MARGIN_S)
        assert status == (ENGINE_LOST if signals == 1 else 128 + signal.SIGTERM)


def test_a_process_that_was_stopped_as_a_whole_goes_on() -> None:
    with serving("-t", "1", "-np", "1", "--stall-timeout", "1", is_child=True) as server:
        stream = server.open_request(
            "/completion", prompt="Once upon a time", n_predict=-1, ignore_eos=True, stream=True
        )
        read(stream, until=b"data: ")
        for _ in range(2):
            os.kill(server.process.pid, signal.SIGSTOP)
            time.sleep(4)
            os.kill(server.process.pid, signal.SIGCONT)
            assert b"data: " in read(stream, until=b"data: ")
        stream.close()
        assert server.complete(prompt="x", n_predict=4, ignore_eos=True)["tokens_predicted"] == 4
        assert "the engine is lost" not in server.log.read_text()
