"""Installs the wheel that fits this Python, as its user would, serves with it and asks it once.

    python scripts/wheels/try_wheel.py FOLDER_OR_WHEEL [--limit 60] [--extra PIP_OPTION]...
        [--serve SERVE_OPTION]...

Makes an environment in a temporary folder, runs `pip install`, `unpaced --version` and `unpaced
serve`, and completes a prompt with the demo model. Prints how long each took; exit 1 if one fails
or if all together take longer than the limit in seconds. Needs nothing but Python with venv: it
runs on the machines that a wheel is for. A wheel with CUDA, where there is no card:
`--serve=-ngl --serve=0`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path
from typing import Any

PROMPT = {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}


def main() -> int:
    """0, or 1 with a sentence on standard error."""
    parser = argparse.ArgumentParser(prog="try_wheel.py")
    parser.add_argument("wheel", type=Path, help="a wheel, or a folder with wheels")
    parser.add_argument("--limit", type=float, default=60, help="seconds for everything (60)")
    parser.add_argument("--extra", action="append", default=[], help="an option for pip")
    parser.add_argument("--serve", action="append", default=[], help="an option for unpaced serve")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            _try(options.wheel, Path(folder), options.extra, options.serve)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"The wheel does not work here: {error}", file=sys.stderr)
            return 1
    took = time.monotonic() - started
    print(f"from nothing to an answer: {took:.1f} s, {options.limit:.0f} s at most")
    return 1 if took > options.limit else 0


def _try(wheel: Path, folder: Path, extra: list[str], serve: list[str]) -> None:
    step = _Steps()
    venv.create(folder / "env", with_pip=True)
    python, unpaced = folder / "env/bin/python", folder / "env/bin/unpaced"
    step.done("python -m venv")
    pip = [python, "-m", "pip", "install", "--quiet", *extra]
    if wheel.is_dir():  # of its wheels pip takes the one that fits; what that needs comes after
        _run([*pip, "--no-index", "--no-deps", "--find-links", wheel, "unpaced"])
    _run([*pip, "unpaced" if wheel.is_dir() else wheel])
    step.done("pip install")
    print(_run([unpaced, "--version"]).strip())
    step.done("unpaced --version")
    # A folder of its own: nothing of a checkout or of a build is near.
    with open(folder / "log", "w") as log:
        command = [unpaced, "serve", "--port", "0", *serve]
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        url = _url(server, folder / "log")
        text = _ask(url + "/v1/completions", PROMPT)["choices"][0]["text"]
        step.done("unpaced serve")
        props = _ask(url + "/props")["unpaced"]
        print(f"answer: {text!r}; {props['cpu_library']}")
        server.terminate()
        if server.wait(30) != 0:
            raise RuntimeError(f"the server ended with {server.returncode}")
    finally:
        server.kill()
        server.wait()


class _Steps:
    def __init__(self) -> None:
        self._last = time.monotonic()

    def done(self, name: str) -> None:
        now = time.monotonic()
        print(f"{name}: {now - self._last:.1f} s", flush=True)
        self._last = now


def _run(command: list[object]) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def _url(server: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, by its first log line, once /health answers 200."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}: {log.read_text()}")
        words = log.read_text().replace('"', " ").replace("=", " ").split()
        for word in words:
            if word.startswith("http://") and _is_healthy(word.rstrip(",")):
                return word.rstrip(",")
        time.sleep(0.1)
    raise RuntimeError(f"the server is not ready: {log.read_text()}")


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _ask(url: str, body: dict[str, object] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main())
