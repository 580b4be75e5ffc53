"""Runs the programs of tests/gpu/cpp."""

import asyncio
import subprocess
from pathlib import Path


async def run_gpu_program(program: Path, *arguments: str) -> None:
    """Raises: AssertionError with the checks that failed and the end of what it printed, unless it
    ends with status 0.
    """
    done = await asyncio.to_thread(
        subprocess.run,
        [str(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    print(done.stdout[-6000:])
    failed = "\n".join(line for line in done.stdout.splitlines() if "FAILED" in line)
    assert done.returncode == 0, f"status {done.returncode}\n{failed}\n{done.stdout[-6000:]}"
