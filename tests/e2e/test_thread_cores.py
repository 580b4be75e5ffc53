"""Threads stay on the cores that /props names, whatever the flags and however many requests."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.costly_requests import HELLO, slow_schema
from tests.support.server import Server, serving
from unpaced.settings.cores import cores_of_range

CORES = sorted(os.sched_getaffinity(0))
LAST = f"{CORES[-1]}-{CORES[-1]}"
FLAGS = (
    "",
    "-t 1",
    "-t 2",
    "-t 1 -tb 2",
    "-t 2 -tb 1",
    "-tb 1",
    "-t 2 --poll 0 --poll-batch 50",
    f"--decode-core {CORES[0]}",
    "--no-pin",
    "--no-pin -t 1 -tb 2",
    "--no-pin -t 2 -tb 2 --cpu-strict 1",
    f"-Cr {LAST}",
    f"-C {1 << CORES[-1]:x} --no-pin",
    f"-t {2 * len(CORES)}",
    f"-t 1 -tb {2 * len(CORES)} --no-pin",
    f"-t 2 -Cr {LAST}",
)


def threads_of(server: Server) -> list[tuple[str, frozenset[int]]]:
    """Name and cores of every thread."""
    threads = []
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            status = (task / "status").read_text()
            cores = re.search(r"Cpus_allowed_list:\s+(\S+)", status)
            assert cores is not None
            parts = cores[1].split(",")
            ranges = (cores_of_range(part if "-" in part else f"{part}-{part}") for part in parts)
            threads.append(((task / "comm").read_text().strip(), frozenset().union(*ranges)))
    return threads


def ask_fifty_things(server: Server) -> None:
    """Short and long prompts, alone and four at once."""

    def ask(number: int) -> None:
        words = "some words of a text " * (1 if number % 3 else 10)
        answer = server.complete(prompt=f"{number} {words}", n_predict=1 + number % 4)
        assert answer["tokens_predicted"] > 0

    for number in range(10):
        ask(number)
    with ThreadPoolExecutor(4) as clients:
        list(clients.map(ask, range(10, 50)))


def assert_as_props_say(server: Server) -> None:
    facts: dict[str, Any] = server.client.get("/props").json()["unpaced"]
    cores = facts["cores"]
    threads = threads_of(server)
    decode = [where for name, where in threads if name == "decode"]
    assert decode == [frozenset(cores["decode"])]
    # One pool, or one for steps and one for prompts: the workers' cores begin anew with each.
    workers = Counter(where for name, where in threads if name == "ggml")
    n_workers = {facts["n_threads"] - 1, facts["n_threads_batch"] - 1}
    expected = [[frozenset(each) for each in cores["workers"][:n]] for n in n_workers]
    if len(expected) == 1 and workers.total() > len(expected[0]):
        expected *= 2  # the pools differ in something else
    assert workers == Counter(each for pool in expected for each in pool)
    others = {where for name, where in threads if name not in ("decode", "ggml")}
    assert others == {frozenset(cores["front_end"])}
    if facts["is_pinned"]:
        for pool in expected:
            spinners = [*decode, *pool]
            assert all(len(where) == 1 for where in spinners)
            assert len(set(spinners)) == len(spinners)
        assert not decode[0] & frozenset(cores["front_end"])


@pytest.mark.parametrize("flags", FLAGS)
def test_every_thread_is_where_props_say(flags: str) -> None:
    default = {"LLAMA_ARG_THREADS": "-1"}
    with serving("-c", "1024", "--poll", "1", *flags.split(), env=default) as server:
        assert_as_props_say(server)
        ask_fifty_things(server)
        assert_as_props_say(server)


def test_the_defaults_have_a_thread_for_every_core() -> None:
    with serving("-c", "64", env={"LLAMA_ARG_THREADS": "-1"}) as server:
        facts = server.client.get("/props").json()["unpaced"]
    assert facts["n_threads"] == facts["n_threads_batch"]
    assert facts["is_pinned"] == (len(CORES) > 1)
    used = [*facts["cores"]["decode"], *(core for (core,) in facts["cores"]["workers"])]
    assert len(used) == facts["n_threads"] <= len(CORES)


def test_more_threads_than_cores_are_as_many_as_cores_and_said_to_be() -> None:
    # Where threads shared cores a token took a second: a hundred waits, a kernel's turn each.
    with serving("-c", "64", "-t", str(2 * len(CORES))) as server:
        facts = server.client.get("/props").json()["unpaced"]
        assert facts["n_threads"] == facts["n_threads_batch"] == len(CORES)
        workers = [where for name, where in threads_of(server) if name == "ggml"]
        assert len(workers) == len(CORES) - 1
        assert "no more threads than cores" in server.logged()


def test_the_front_end_takes_short_turns_and_leaves_its_helpers_as_they_are() -> None:
    def slices(server: Server) -> dict[int, str]:
        found = {}
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            if slice_ns := re.search(r"se\.slice\s+:\s+(\d+)", (task / "sched").read_text()):
                found[int(task.name)] = slice_ns[1]
        return found

    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 12):
        pytest.skip("Linux has slices of one length")
    with serving("-c", "64") as server:
        server.complete(prompt="x", n_predict=2)
        by_thread = slices(server)
    if not by_thread:
        pytest.skip("this kernel does not show slices")
    assert by_thread.pop(server.process.pid) == "1200000"
    assert by_thread and "1200000" not in by_thread.values()


def test_who_computes_has_long_turns_that_others_may_end() -> None:
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 12):
        pytest.skip("Linux has slices of one length")

    def slices(server: Server, name: str) -> set[str]:
        found = set()
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            slice_ns = re.search(r"se\.slice\s+:\s+(\d+)", (task / "sched").read_text())
            if slice_ns and (task / "comm").read_text().strip() == name:
                found.add(slice_ns[1])
        return found

    with serving("-c", "1024", "-t", "2") as server, ThreadPoolExecutor(1) as client:
        server.complete(prompt="x", n_predict=2)
        if not (asleep := slices(server, "decode")):
            pytest.skip("this kernel does not show slices")
        # It begins at once when it wakes up, beside whatever computes.
        assert asleep == {"300000"}
        assert slices(server, "ggml") <= {"6000000"}
        awake = set()
        answer = client.submit(server.complete, prompt="x", n_predict=900, ignore_eos=True)
        while not answer.done():
            awake |= slices(server, "decode")
            time.sleep(0.002)
    assert "6000000" in awake


def may_run_in_real_time() -> bool:
    """Whether a process may have SCHED_FIFO."""
    command = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return subprocess.run([sys.executable, "-c", command], capture_output=True).returncode == 0


def is_in_real_time(thread: int) -> bool:
    """Whether it never gives way to its equals."""
    return os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO


@pytest.mark.skipif(not may_run_in_real_time(), reason="no right to SCHED_FIFO")
@pytest.mark.parametrize("flags", ["", "--no-pin", "-tb 1"])
def test_a_priority_in_real_time_begins_when_every_thread_has_its_core(flags: str) -> None:
    # Threads that spin keep a core from their equals: one start of four never came to an end.
    for _ in range(4):
        with serving("-c", "64", "-t", "2", "--prio", "2", *flags.split()) as server:
            assert_as_props_say(server)
            server.complete(prompt="some words of a text " * 8, n_predict=8)
            in_real_time = Counter(
                (task / "comm").read_text().strip()
                for task in Path(f"/proc/{server.process.pid}/task").iterdir()
                if is_in_real_time(int(task.name))
            )
            n_workers = sum(name == "ggml" for name, _ in threads_of(server))
            assert in_real_time == {"decode": 1, "ggml": n_workers}
            assert n_workers >= 1


@pytest.mark.parametrize("flags", ["-t 2", "-t 2 --no-pin", "-t 2 --prio -1"])
def test_workers_let_others_go_first(flags: str) -> None:
    with serving("-c", "64", *flags.split()) as server:
        nice: dict[str, set[int]] = {}
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                name = (task / "comm").read_text().strip()
                nice.setdefault(name, set()).add(os.getpriority(os.PRIO_PROCESS, int(task.name)))
    (of_decode,) = nice["decode"]
    assert nice["ggml"] == {min(19, of_decode + 5)}


@pytest.mark.skipif(len(CORES) < 2, reason="one core is everybody's")
def test_compilers_are_nice_and_leave_the_decode_core_alone() -> None:
    with serving("-t", "1", "-np", "2") as server:
        body = HELLO | {"json_schema": slow_schema(0)}
        assert server.post("/completion", body).status_code in (200, 400)
        (decode,) = server.client.get("/props").json()["unpaced"]["cores"]["decode"]
        compilers = []
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == "task":
                niceness = os.getpriority(os.PRIO_PROCESS, int(task.name))
                compilers.append((niceness, os.sched_getaffinity(int(task.name))))
        ours = os.getpriority(os.PRIO_PROCESS, server.process.pid)
        assert any(niceness == min(19, ours + 10) for niceness, _ in compilers), compilers
        assert all(decode not in cores for _, cores in compilers), compilers
