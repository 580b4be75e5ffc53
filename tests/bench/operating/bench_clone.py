#!/usr/bin/env python3
"""From `git clone` to the first streamed token, as one run: `make build`, `make serve`, curl.

`python -m tests.bench.operating.bench_clone FOLDER --out docs/bench`; the clone is made in FOLDER,
which must not exist, and stays there. It is of this checkout's commit. Nothing is cached: no
ccache, no packages of pip. Wall times of one run; the load average says what ran beside it.
"""

import argparse
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import free_port

ROOT: Final = Path(__file__).resolve().parents[3]
_BODY: Final = '{"prompt": "Once upon a time", "n_predict": 32, "stream": true}'


def environment() -> dict[str, str]:
    """Ours less what would bring caches or another build along."""
    ours = ("CCACHE_", "CMAKE_", "MAKE", "PIP_CACHE_DIR", "UNPACED_", "LLAMA_ARG_", "VIRTUAL_ENV")
    return {name: text for name, text in os.environ.items() if not name.startswith(ours)}


def build(folder: Path) -> Iterator[tuple[str, float]]:
    """`make build`: each of its steps, as it calls them, and the seconds until the next one began.

    Raises: subprocess.CalledProcessError.
    """
    command = ["make", "build"]
    began, step = time.monotonic(), "make"
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            # Further in, how far a step is; llama.cpp's begin with the part's name.
            begun = line.split()[0] if line.startswith(" ") else line.strip()
            if begun == step or not begun[:1].isalpha():
                continue
            now = time.monotonic()
            yield step, now - began
            began, step = now, begun
    yield step, time.monotonic() - began
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def first_token(folder: Path) -> dict[str, float]:
    """Seconds from `make serve` until /health is 200, and until curl has a token after that."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    began = time.monotonic()
    server = subprocess.Popen(
        ["make", "serve", f"ARGS=--port {port}"],
        cwd=folder,
        env=environment(),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while subprocess.run(["curl", "-sf", "-o", "/dev/null", f"{url}/health"]).returncode:
            if server.poll() is not None or time.monotonic() - began > 120:
                raise RuntimeError("the server did not start")
            time.sleep(0.02)
        healthy = time.monotonic()
        with subprocess.Popen(
            ["curl", "-sN", f"{url}/completion", "-d", _BODY], stdout=subprocess.PIPE, text=True
        ) as curl:
            assert curl.stdout is not None
            for line in curl.stdout:
                if re.search(r'"content":"[^"]', line):
                    break
            else:
                raise RuntimeError("no token came")
            came = time.monotonic()
        return {"health_s": healthy - began, "first_token_s": came - healthy}
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def measure(folder: Path) -> dict[str, Any]:
    """Everything, in order."""
    load = os.getloadavg()[0]
    began = time.monotonic()
    clone = ["git", "clone", "--quiet", "--no-local", str(ROOT), str(folder)]
    subprocess.run(clone, check=True)
    steps = {"git clone": time.monotonic() - began}
    for step, seconds in build(folder):
        steps[step] = steps.get(step, 0.0) + seconds
    served = first_token(folder)
    return {
        "hardware": describe_hardware(),
        "load": [load, os.getloadavg()[0]],
        "commit": subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True)[:12],
        "steps_s": {step: round(seconds, 1) for step, seconds in steps.items()},
        "serve_s": {name: round(seconds, 2) for name, seconds in served.items()},
        "total_s": round(sum(steps.values()) + sum(served.values()), 1),
    }


def main() -> None:
    """Print the figures; with --out write results/first_steps.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operating.bench_clone")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    report = measure(given.folder)
    for name, figures in report.items():
        print(f"{name}: {figures}")
    if given.out is not None:
        save_figures(given.out, "first_steps", report)


if __name__ == "__main__":
    main()
