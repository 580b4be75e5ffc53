"""Slot actions between the steps of a stream: in parts where cells can be cut by position, at once
where they cannot; and what comes in between: clients that leave, a full disk, a stop."""

import asyncio
import resource
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine_ext import (
    Engine,
    EngineConfig,
    EngineError,
    EventKind,
    SamplingParams,
    SequenceRequest,
)
from tests.gpu.random_model import write_random_model
from tests.support.server import Server, serving

pytestmark = pytest.mark.anyio

# Slot 0 keeps its cells when a stream begins in slot 1.
FLAGS = ("-c", "4096", "--no-cache-idle-slots", "--slot-save-path")
GREEDY = SamplingParams(temperature=0, ignore_eos=True)
PROMPT = [300 + i % 1000 for i in range(900)]


def fill(server: Server) -> Any:
    """Slot 0 holds the prompt."""
    return server.complete(prompt=PROMPT, n_predict=1, temperature=0, id_slot=0)["timings"]


def act(server: Server, action: str, name: str = "state") -> Any:
    response = server.post(f"/slots/0?action={action}", {"filename": name})
    assert response.status_code == 200, response.text
    return response.json()


class BusySlot:
    """A stream in slot 1, for as long as this is open."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.n_streams = 0

    def _run(self) -> None:
        body: dict[str, Any] = {"n_predict": 300, "ignore_eos": True, "id_slot": 1}
        while not self._is_over.is_set():
            events = self._server.stream(prompt=[5, 6, 7], **body)
            assert events[-1]["tokens_predicted"] == 300
            self.n_streams += 1

    def __enter__(self) -> None:
        self._thread.start()
        self._server.until(lambda: self._server.metric("unpaced_engine_slots_active") == 1)

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self.n_streams > 0


def test_actions_beside_a_stream(tmp_path: Path) -> None:
    with serving(*FLAGS, str(tmp_path)) as server:
        fill(server)
        with BusySlot(server):
            for _ in range(10):
                assert act(server, "save")["n_saved"] == len(PROMPT)
                assert act(server, "erase")["n_erased"] == len(PROMPT)
                assert act(server, "restore")["n_restored"] == len(PROMPT)
        assert fill(server)["cache_n"] == len(PROMPT) - 1
        assert server.metric("unpaced_engine_requests_failed_total") == 0


def test_clients_that_leave_before_their_action_is_over(tmp_path: Path) -> None:
    random = Random(1)
    with serving(*FLAGS, str(tmp_path)) as server:
        fill(server)
        act(server, "save", "kept")
        kept = (tmp_path / "kept").read_bytes()
        with BusySlot(server):
            for i in range(60):
                action, name = (("save", "left"), ("restore", "kept"))[i % 2]
                connection = server.open_request(f"/slots/0?action={action}", filename=name)
                connection.settimeout(random.random() / 50)
                try:
                    connection.recv(1)
                except TimeoutError:
                    pass
                finally:
                    connection.close()
        # Each was carried out, the last one with them, or never began.
        assert act(server, "restore", "kept")["n_restored"] == len(PROMPT)
        assert fill(server)["cache_n"] == len(PROMPT) - 1
        assert (tmp_path / "kept").read_bytes() == kept
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "left"]
        assert act(server, "restore", "left")["n_restored"] == len(PROMPT)


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path) -> None:
    with serving(*FLAGS, str(tmp_path)) as server:
        fill(server)
        act(server, "save")
        old = (tmp_path / "state").read_bytes()
        # No file may be longer: writing ends in the middle, as it does on a full disk.
        unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (len(old) // 2, unlimited[1]))
        for name in ("state", "new"):
            response = server.post("/slots/0?action=save", {"filename": name})
            assert response.status_code == 500
            assert response.json()["error"]["message"].startswith("Unable to save slot: ")
        assert [path.name for path in tmp_path.iterdir()] == ["state"]
        assert (tmp_path / "state").read_bytes() == old
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
        assert act(server, "restore")["n_restored"] == len(PROMPT)
        act(server, "save", "new")
        assert len((tmp_path / "new").read_bytes()) == len(old)


@asynccontextmanager
async def running_engine(model: Path) -> AsyncIterator[Engine]:
    config = EngineConfig(
        model_path=model,
        n_slots=2,
        n_ctx=4096,
        n_threads=1,
        kv_unified=True,
        cache_bytes_max=-1,
        cache_idle_slots=False,
    )
    async with Engine(config) as engine:
        yield engine


async def tokens_of(engine: Engine, prompt: list[int], slot: int, n: int) -> tuple[int, list[int]]:
    """How much of the prompt was reused, and what follows it."""
    request = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=n, id_slot=slot)
    events = [event async for event in engine.submit(request)]
    return events[0].n_cached, [e.token for e in events if e.kind == EventKind.TOKEN]


# A sliding window and recurrent state cannot be cut by position: these states go as a whole.
@pytest.mark.parametrize("architecture", ["llama", "gemma2", "mamba"])
async def test_every_kind_of_state_goes_on_in_another_slot(
    architecture: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    prompt = PROMPT[:600]  # longer than the window
    async with running_engine(model) as engine:
        _, tokens = await tokens_of(engine, prompt, 0, 8)
        held = prompt + tokens[:-1]
        assert (await engine.slots.save(0, tmp_path, "state")).n_tokens == len(held)
        n_cached, there = await tokens_of(engine, [*held, 9], 0, 8)
        assert n_cached == len(held)
        assert (await engine.slots.restore(1, tmp_path, "state")).n_tokens == len(held)
        n_cached, here = await tokens_of(engine, [*held, 9], 1, 8)
        assert n_cached == len(held)
        assert here == there


async def test_actions_when_the_engine_stops(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, "llama")
    async with running_engine(model) as engine:
        await tokens_of(engine, PROMPT * 3, 0, 1)
        actions = [
            asyncio.create_task(engine.slots.save(0, tmp_path, f"state{i}")) for i in range(4)
        ]
        await asyncio.sleep(0.002)
    for i, result in enumerate(await asyncio.gather(*actions, return_exceptions=True)):
        assert (tmp_path / f"state{i}").exists() != isinstance(result, EngineError)
