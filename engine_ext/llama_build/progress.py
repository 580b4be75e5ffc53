"""How far ninja is, and when it will be done."""

import re
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

# Seconds of one core for each kind of file, .cu files for one architecture; the first that fits
# counts. Measured on two cores of an Intel Xeon, both at work (docs/build-profiles.md).
_SECONDS = (
    (re.compile(r"unity_mmq"), 100.0),
    (re.compile(r"unity_fattn-mma"), 90.0),
    (re.compile(r"unity_mmf"), 56.0),
    (re.compile(r"mmvq|fattn-tile|fattn-vec"), 40.0),
    (re.compile(r"(/mat_vec/.*|sample_kernels|llama_bridge|head_attention)\.cu\.o$"), 16.0),
    (re.compile(r"(step|device)_kernels.*\.cu\.o$"), 4.0),
    (re.compile(r"\.cu\.o$"), 20.0),
    (re.compile(r"unity_"), 8.0),
    (re.compile(r""), 2.0),
)
# So long a machine is taken for that one: its first files tell little of the others.
_BELIEF_S = 60.0
_TERMINAL_EVERY_S, _LOG_EVERY_S = 1.0, 30.0


class Forecast:
    """What is left, by weight: a few dear files take most of the time, minutes each, and a count
    of files would promise another end with each that ends."""

    def __init__(self, build: str, n_jobs: int, now: float) -> None:
        """Args:
        build: ninja's build file; where it is "" each file counts the same.
        n_jobs: as many are compiled at a time.
        now: seconds, as those of the other calls.
        """
        flags = re.search(r"^ *FLAGS = .*arch=compute_.*$", build, re.MULTILINE)
        n_architectures = flags[0].count("arch=compute_") if flags else 1
        outputs = re.findall(r"^build (\S+\.o):", build, re.MULTILINE)
        self._left = {output: _weight(output, n_architectures) for output in outputs}
        self._total = sum(self._left.values())
        self._n_jobs = n_jobs
        self._begin = self._last = now
        self._count = ""
        self._n_done = self._n_all = self._n_nested = 0

    def feed(self, line: str, now: float) -> bool:
        """Whether the line is one of ninja's: `[n/m] Building ...`, or `[n/m]` and the command."""
        found = re.match(r"\[(\d+)/(\d+)\]", line)
        if found is None or self._is_nested(int(found[1]), int(found[2])):
            return False
        if output := re.search(r" (?:-o|Building \w+ object) (\S+)", line):
            self._left.pop(output[1], None)
        self._count, self._last = found[0], now
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
        seconds = self._seconds_left(now)
        share = self._n_done / max(self._n_all, 1)
        if self._total > 0:
            share = 1 - sum(self._left.values()) / self._total
        left = f", about {_span(seconds)} left" if share < 1 and seconds > 0 else ""
        return f"{self._count} {int(100 * share)} %{left}"

    def _seconds_left(self, now: float) -> float:
        if self._total == 0:
            return (now - self._begin) * (self._n_all / max(self._n_done, 1) - 1)
        left = sum(self._left.values())
        # Those that are compiled now are half done, all but the one that begins.
        under_way = min(self._n_jobs - 1, len(self._left)) / 2 * left / max(len(self._left), 1)
        done = self._total - left + under_way
        took = self._last - self._begin
        rate = (done + self._n_jobs * _BELIEF_S) / (took + _BELIEF_S)
        # Nothing is known of how far a file is: it goes on as it went, but is not over.
        return max((left - under_way) / rate - (now - self._last), left / rate / 10)


class Display:
    """Shows a forecast: in one place of a terminal, a line every half minute elsewhere."""

    def __init__(
        self, step: str, build_file: Path | None, n_jobs: int, out: TextIO = sys.stdout
    ) -> None:
        self._step, self._build_file, self._n_jobs, self._out = step, build_file, n_jobs, out
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
        line = line.lstrip()  # pip indents what it is told
        with self._lock:
            # ninja's file is written when CMake is done: before its first line.
            if self._forecast is None and line.startswith("["):
                path = self._build_file
                build = path.read_text() if path and path.is_file() else ""
                self._forecast = Forecast(build, self._n_jobs, time.monotonic())
            if self._forecast is not None:
                self._forecast.feed(line, time.monotonic())

    def _show_on_time(self) -> None:
        while not self._ended.wait(self._every_s):
            with self._lock:
                text = self._forecast.text(time.monotonic()) if self._forecast else ""
            if text and self._terminal:
                print(f"\r\033[K  {self._step:<10} {text}", end="", file=self._out, flush=True)
            elif text:
                print(f"  {self._step:<10} {text}", file=self._out, flush=True)


def _weight(output: str, n_architectures: int) -> float:
    seconds = next(seconds for pattern, seconds in _SECONDS if pattern.search(output))
    return seconds * n_architectures if output.endswith(".cu.o") else seconds


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
