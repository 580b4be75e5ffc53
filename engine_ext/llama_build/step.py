"""Runs one command of the build: everything to a log, only progress to the user."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .errors import BuildError
from .progress import Display


def say(step: str, text: str) -> None:
    """One line of progress."""
    print(f"  {step:<10} {text}", flush=True)


def relative(path: Path) -> str:
    """The command as the user would type it."""
    return os.path.relpath(path)


def run(
    command: list[str],
    *,
    what: str,
    cwd: Path,
    log: Path,
    env: Mapping[str, str],
    build_file: Path | None = None,
    n_jobs: int = 1,
) -> None:
    """Raises BuildError with the end of the log if the command fails; `what` ends "Failed ...".

    `build_file` is ninja's, where the command runs it with `n_jobs` at a time: the forecast knows
    all files from there.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w") as lines,
        subprocess.Popen(
            command,
            cwd=cwd,
            env=os.environ | env,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as job,
        Display("compile", build_file, n_jobs) as display,
    ):
        assert job.stdout is not None
        for line in job.stdout:
            lines.write(line)
            display.feed(line)
    if job.returncode != 0:
        tail = "".join(f"    {line}\n" for line in log.read_text().splitlines()[-15:])
        raise BuildError(f"{tail}Failed {what} (exit {job.returncode}). Whole log: {relative(log)}")
