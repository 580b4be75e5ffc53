"""What a start tells whoever has typed it: progress, where memory went, a request to try."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

import structlog

from engine_ext import DecodeLoop, Placement
from unpaced.settings import Settings

_MIB: Final = 1024 * 1024
_KINDS: Final = {"weights": "weights", "kv": "kv", "compute": "computing"}
_BAR_WIDTH: Final = 30
_COST_OF_A_SPLIT: Final = (
    "one card computes after the other and the host decodes token by token: slower, and with much "
    "more CPU time a token (docs/gpu.md, Several cards)"
)
_LOG_EVERY_S: Final = 0.5
_DRAW_EVERY_S: Final = 0.1


class LoadProgress:
    """How much of the model is loaded: a line that redraws itself on a terminal, else log lines.

    `draw` writes to the terminal and does not wait for it: a stopped one would stop the server.
    """

    def __init__(
        self, settings: Settings, log: structlog.stdlib.BoundLogger, draw: Callable[[str], object]
    ) -> None:
        self._log = log
        self._draw = draw
        self._name = settings.model.name
        self._started = time.monotonic()
        is_quiet = settings.log_disable or settings.logs_json
        self._is_drawn = sys.stderr.isatty() and not is_quiet
        self.every_s = _DRAW_EVERY_S if self._is_drawn else _LOG_EVERY_S

    def show(self, fraction: float) -> None:
        """Call it every `every_s`."""
        if not self._is_drawn:
            self._log.info("loading", progress=f"{fraction:.0%}")
            return
        full = round(fraction * _BAR_WIDTH)
        bar = "#" * full + "." * (_BAR_WIDTH - full)
        seconds = time.monotonic() - self._started
        line = f"loading [{bar}] {fraction:4.0%} {seconds:4.0f} s  {self._name}"
        width = shutil.get_terminal_size().columns - 1
        # The cursor waits at the start, so that a log line in between writes over the bar.
        self._draw(f"\x1b[2K{line[:width]}\r")

    def clear(self) -> None:
        """The line is gone from the terminal."""
        if self._is_drawn:
            self._draw("\x1b[2K")


def tell_loop(log: structlog.stdlib.BoundLogger, loop: DecodeLoop) -> None:
    """Which card was chosen, and who runs the token loop if it is not that card."""
    if loop.choice and len(loop.cards) <= 1:
        log.info(loop.choice)
    if loop.compiled_from:
        log.warning(
            "the driver compiles this build's kernels for the card, at their first use: the first "
            "requests wait for it, and would not with a build for this card (docs/gpu.md)",
            ptx_of=loop.compiled_from,
        )
    if loop.loop == "device":
        return
    more = {}
    if len(loop.cards) > 1:
        more = {"cause": loop.choice} if loop.choice else {}
        more["cost"] = _COST_OF_A_SPLIT
    log.warning(f"the token loop is: {loop.loop}", reason=loop.reason, **more)


def tell_kernels(log: structlog.stdlib.BoundLogger, loop: DecodeLoop, kernels: str) -> None:
    """One line about whose kernels compute a step; what each shape's test took for who debugs.

    `kernels` is the setting: with auto the shapes that there was no time to measure are counted.
    """
    if not loop.phase_trials:
        return
    counts = Counter[str]()
    for phase in loop.phases:
        counts[str(phase["kernels"])] += int(phase["n"])
    unmeasured = sum(not (t["measured"] or t["remembered"]) for t in loop.phase_trials)
    log.info(
        "kernels of a step's phases",
        own=counts["own"],
        ggml=counts["ggml"],
        test_ms=round(sum(float(trial["ms"]) for trial in loop.phase_trials), 1),
        **({"unmeasured": unmeasured} if kernels == "auto" and unmeasured else {}),
    )
    for trial in loop.phase_trials:
        log.debug("phases of one shape", **trial)
    for step in loop.lane_steps:
        log.debug("steps of several requests", **step)
    for length in loop.prompt_lengths:
        log.debug("prompts of one length", **length)


def tell_memory(log: structlog.stdlib.BoundLogger, loop: DecodeLoop, n_window_graphs: int) -> None:
    """One line about where the model lies; the parts of it for who debugs."""
    elsewhere = {"not_on_gpu": loop.n_elsewhere} if loop.n_elsewhere else {}
    log.info("memory", **memory_by_kind(loop.memory_bytes), **elsewhere)
    card = {} if loop.card is None else asdict(loop.card)
    log.debug(
        "residency",
        card=card,
        bytes={name: dict(use) for name, use in loop.memory_bytes.items()},
        decode_nodes=dict(loop.n_graph_nodes),
        splits=loop.n_graph_splits,
        window_graphs=n_window_graphs,
        elsewhere=list(loop.elsewhere),
    )


def tell_threads(log: structlog.stdlib.BoundLogger, placement: Placement) -> None:
    """A line where there are fewer threads than somebody asked for."""
    if placement.has_fewer_threads:
        log.warning(
            "no more threads than cores: threads that share one wait for one another",
            asked=placement.n_threads_asked,
            threads=placement.n_threads,
            threads_batch=placement.n_threads_batch,
        )


def memory_by_kind(memory_bytes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """weights="7.2 MiB (AMX 3.8, CPU 3.4)" and the like: what each takes, and on which devices."""
    shown = {}
    for kind, name in _KINDS.items():
        parts = {place: use[kind] for place, use in memory_bytes.items() if use.get(kind)}
        total = f"{sum(parts.values()) / _MIB:.1f} MiB"
        places = list(parts)
        if len(parts) > 1:
            places = [f"{place} {n_bytes / _MIB:.1f}" for place, n_bytes in parts.items()]
        shown[name] = f"{total} ({', '.join(places)})" if parts else total
    return shown


def curl_line(url: str, settings: Settings) -> str:
    """A request that works as it stands, but for a key, which is never shown."""
    if url.startswith("unix:"):
        prefix = settings.api_prefix
        url = f"--unix-socket {url.removeprefix('unix:')} http://localhost{prefix}"
    elif url.startswith("https:"):
        url = f"-k {url}"
    key = " -H 'Authorization: Bearer YOUR-API-KEY'" if settings.read_api_keys() else ""
    return (
        f"\n  curl -N {url}/v1/completions{key} -H 'Content-Type: application/json' "
        '-d \'{"prompt": "Once upon a time", "max_tokens": 64, "stream": true}\'\n'
    )
