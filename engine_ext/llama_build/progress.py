"""How far ninja is, and when it will be done."""

import re
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

# Seconds of one core for each kind of file and one architecture; the first that fits counts. Only
# their proportions matter.
_SECONDS = (
    (re.compile(r"fattn-mma"), 50.0),
    (re.compile(r"mmq-instance|mmvq|fattn-tile"), 30.0),
    (re.compile(r"mmf-instance|fattn-vec"), 13.0),
    (re.compile(r"\.cu\.o$"), 8.0),
    (re.compile(r""), 5.0),
)
_TERMINAL_EVERY_S, _LOG_EVERY_S = 1.0, 30.0


class Forecast:
    """What is left, by weight: the dearest files come last, and a count of files would promise
    an end that comes much later."""

    def __init__(self, outputs: list[str], now: float) -> None:
        self._left = {output: _weight(output) for output in outputs}
        self._total = sum(self._left.values())
        self._begin = now
        self._share = 0.0
        self._count = ""
        self._n_done = self._n_all = self._n_nested = 0

    @classmethod
    def of(cls, build_file: Path | None, now: float) -> Self:
        """For ninja's build file; where there is none, each file counts the same."""
        text = build_file.read_text() if build_file and build_file.is_file() else ""
        return cls(re.findall(r"^build (\S+\.o):", text, re.MULTILINE), now)

    def feed(self, line: str) -> bool:
        """Whether the line is one of ninja's: `[n/m] Building ...`, or `[n/m]` and the command."""
        found = re.match(r"\[(\d+)/(\d+)\]", line)
        if found is None or self._is_nested(int(found[1]), int(found[2])):
            return False
        if output := re.search(r" (?:-o|Building \w+ object) (\S+)", line):
            self._left.pop(output[1], None)
        self._share = self._n_done / max(self._n_all, 1)
        if self._total > 0:
            self._share = 1 - sum(self._left.values()) / self._total
        self._count = found[0]
        return True

    def _is_nested(self, n_done: int, n_all: int) -> bool:
        """Whether a build within the build says so, as Vulkan's shader compiler has one: it counts
        from 1 to a number of its own."""
        if n_all != self._n_all:
            if n_all == self._n_nested or n_done != self._n_done + 1:
                self._n_nested = n_all
                return True
            self._n_all = n_all  # ninja has found more or less to do
        self._n_done = n_done
        return False

    def text(self, now: float) -> str:
        """Such as `[64/224] 21 %, about 14 min left`; "" before the first line."""
        if not self._count:
            return ""
        left = ""
        # The first files tell little of the others.
        if 0.03 < self._share < 1 and now > self._begin:
            left = f", about {_span((now - self._begin) * (1 / self._share - 1))} left"
        return f"{self._count} {int(100 * self._share)} %{left}"


class Display:
    """Shows a forecast: in one place of a terminal, a line every half minute elsewhere."""

    def __init__(self, step: str, build_file: Path | None, out: TextIO = sys.stdout) -> None:
        self._step, self._build_file, self._out = step, build_file, out
        self._terminal = out.isatty()
        self._every_s = _TERMINAL_EVERY_S if self._terminal else _LOG_EVERY_S
        self._forecast: Forecast | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._show_on_time, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._terminal and self._forecast is not None:
            print(file=self._out, flush=True)

    def feed(self, line: str) -> None:
        """One line of the command's output."""
        with self._lock:
            # ninja's file is written when CMake is done: before its first line.
            if self._forecast is None and line.startswith("["):
                self._forecast = Forecast.of(self._build_file, time.monotonic())
            if self._forecast is not None:
                self._forecast.feed(line)

    def _show_on_time(self) -> None:
        while not self._ended.wait(self._every_s):
            with self._lock:
                text = self._forecast.text(time.monotonic()) if self._forecast else ""
            if text and self._terminal:
                print(f"\r\033[K  {self._step:<10} {text}", end="", file=self._out, flush=True)
            elif text:
                print(f"  {self._step:<10} {text}", file=self._out, flush=True)


def _weight(output: str) -> float:
    return next(seconds for pattern, seconds in _SECONDS if pattern.search(output))


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
