"""Ctrl-C in `unpaced complete`, at moments when the program is at something else."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.patience import patience
from tests.support.server import UNPACED, Server, serving

# Ctrl-C where the Nth block is entered, once the streaming begins: behind `__enter__` comes what
# `__exit__` belongs to, such as the release of a lock.
_PROGRAM = """
import os, signal, sys
from unpaced.cli import complete, main

wanted, n_blocks = int(sys.argv[1]), 0

def trace(frame, event, _):
    global n_blocks
    if frame.f_code.co_name != "__enter__" or frame.f_code.co_filename.startswith("<frozen"):
        return None  # the other blocks are those of imports
    if event == "return":
        n_blocks += 1
        if n_blocks == wanted:
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGINT)
    return trace

stream = complete._print_stream

def traced(*given):
    sys.settrace(trace)
    return stream(*given)

complete._print_stream = traced
sys.exit(main.main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # No text has an end of its own.
    with serving("-np", "4", "--context-shift", "--ignore-eos") as running:
        yield running


def until_idle(server: Server) -> None:
    server.until(lambda: server.metric("unpaced_requests_running") == 0, 10)


def test_between_a_lock_and_its_release(server: Server) -> None:
    ask = ("complete", "x", "-n", "100000", "--url", server.url)

    def status(block: int) -> int:
        command = [sys.executable, "-c", _PROGRAM, str(block), *ask]
        return subprocess.run(
            command, stdout=subprocess.DEVNULL, timeout=patience(20), check=False
        ).returncode

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(status, range(1, 37)))
    assert statuses == [-signal.SIGINT] * 36
    until_idle(server)


def test_while_the_text_comes(server: Server) -> None:
    command = [str(UNPACED), "complete", "x", "-n", "100000", "--url", server.url]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            os.read(process.stdout.fileno(), 1)
            process.send_signal(signal.SIGINT)
            assert process.wait(patience(20)) == -signal.SIGINT
    until_idle(server)


def test_where_ctrl_c_is_ignored_it_stays_so(server: Server) -> None:
    # A shell's job in the background has it so.
    command = [str(UNPACED), "complete", "x", "-n", "2000", "--url", server.url]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(patience(20)) == 0
