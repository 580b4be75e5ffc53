"""Runs one command of the build: everything to a log, only progress to the user."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .errors import BuildError


def say(step: str, text: str) -> None:
    """One line of progress."""
    print(f"  {step:<10} {text}", flush=True)


def relative(path: Path) -> str:
    """As the user would type it."""
    return os.path.relpath(path)


def run(command: list[str], *, what: str, cwd: Path, log: Path, env: Mapping[str, str]) -> None:
    """Raises BuildError with the end of the log if the command fails; `what` ends "Failed ..."."""
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
    ):
        assert job.stdout is not None
        progress = _Progress()
        for line in job.stdout:
            lines.write(line)
            progress.feed(line)
        progress.close()
    if job.returncode != 0:
        tail = "".join(f"    {line}\n" for line in log.read_text().splitlines()[-15:])
        raise BuildError(f"{tail}Failed {what} (exit {job.returncode}). Whole log: {relative(log)}")


class _Progress:
    """ninja's `[n/m]`: rewritten in place on a terminal, a line every tenth elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._shown = -1

    def feed(self, line: str) -> None:
        found = re.match(r"\[(\d+)/(\d+)\]", line)
        if not found:
            return
        percent = 100 * int(found[1]) // max(int(found[2]), 1)
        if percent == self._shown or not (self._terminal or percent // 10 > self._shown // 10):
            return
        self._shown = percent
        end = "\r" if self._terminal else "\n"
        print(f"  {'compile':<10} {found[0]} {percent} %", end=end, flush=True)

    def close(self) -> None:
        if self._terminal and self._shown >= 0:
            print(flush=True)
