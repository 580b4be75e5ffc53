"""Runs a program of tests/gpu/cpp.

UNPACED_GPU_PROGRAMS names the build folder that has them (CMake option of the same name).
"""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

PROGRAMS = os.environ.get("UNPACED_GPU_PROGRAMS", "")
NO_SUCH_CODE = 3
"""Status of device_sampling_test where this card's code does not have what it is asked for."""

needs_gpu_programs = pytest.mark.skipif(PROGRAMS == "", reason="UNPACED_GPU_PROGRAMS is not set")


def run_gpu_program(name: str, *arguments: str | Path, may_lack_code: bool = False) -> str:
    """What it printed. With `may_lack_code` the status NO_SUCH_CODE skips the test.

    Raises: AssertionError with the checks that failed and the end of what it printed, unless it
    ends with status 0.
    """
    done = subprocess.run(
        [Path(PROGRAMS) / name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    print(done.stdout[-6000:])
    if may_lack_code and done.returncode == NO_SUCH_CODE:
        pytest.skip(f"not with this card's code: {done.stdout.strip()[-200:]}")
    failed = "\n".join(line for line in done.stdout.splitlines() if "FAILED" in line)
    assert done.returncode == 0, f"status {done.returncode}\n{failed}\n{done.stdout[-6000:]}"
    return done.stdout


async def await_gpu_program(name: str, *arguments: str | Path) -> None:
    """The same, while others go on."""
    await asyncio.to_thread(run_gpu_program, name, *arguments)
