"""What the memory plan counts for the GPU's decode loop, beside what the loop takes."""

import os
import subprocess
import sys

import pytest

from engine_ext import EngineConfig, MemoryPlan, plan_memory
from tests.gpu.one_card import one_card
from tests.gpu.test_device_loop import MODEL, Loop, has_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

MIB = 1 << 20
# Graphs for so many cells are made at the start.
N_CTX = 4096

# Device and host memory that a loop has taken when it is ready.
SCRIPT = """
import asyncio, ctypes, sys
from pathlib import Path
from engine_ext import Engine, EngineConfig

runtime = ctypes.CDLL("libcudart.so.13")

def free_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value

def host_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = dict(line.split(":") for line in lines if line.startswith("Rss"))
    return sum(int(sizes[name].split()[0]) for name in ("RssAnon", "RssShmem")) << 10

async def main(model, loop, n_ctx):
    before = free_bytes()
    config = EngineConfig(model_path=Path(model), decode_loop=loop, n_ctx=int(n_ctx), n_threads=1)
    async with Engine(config) as engine:
        assert engine.decode_loop.loop == loop
        print(before - free_bytes(), host_bytes(), engine.stats().n_window_graphs)

asyncio.run(main(*sys.argv[1:]))
"""


def taken(loop: Loop, n_ctx: int) -> tuple[int, int, int]:
    """Bytes of the device, bytes of the host, graphs."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(MODEL), loop, str(n_ctx)],
        env=os.environ | one_card(),
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    device, host, n_graphs = map(int, ended.stdout.split())
    return device, host, n_graphs


def plan(loop: Loop, n_ctx: int) -> MemoryPlan:
    return plan_memory(
        EngineConfig(model_path=MODEL, decode_loop=loop, n_ctx=n_ctx, n_gpu_layers=99)
    )


def loop_bytes(plan: MemoryPlan, *, is_host: bool) -> int:
    return sum(use.loop_bytes for use in plan.uses if use.is_host == is_host)


def test_the_plan_counts_what_a_loop_takes() -> None:
    loops: tuple[Loop, ...] = ("ahead", "device")
    host_loop = taken("host", N_CTX)
    for loop in loops:
        planned = plan(loop, N_CTX)
        device, host, n_graphs = taken(loop, N_CTX)
        for is_host, n_bytes in (
            (False, device - host_loop[0]),
            (True, host - host_loop[1]),
        ):
            counted = loop_bytes(planned, is_host=is_host)
            where = "host" if is_host else "device"
            print(
                f"{MODEL.stem} {loop} {where}: {n_bytes / MIB:.1f} MiB with {n_graphs} graphs, "
                f"{counted / MIB:.1f} planned"
            )
            assert n_bytes <= counted
            # Graphs of short prompts are captured when they are wanted: few are there yet.
            assert counted <= 2 * n_bytes + 96 * MIB


def test_a_loop_on_the_host_takes_nothing() -> None:
    assert loop_bytes(plan("host", N_CTX), is_host=False) == 0
