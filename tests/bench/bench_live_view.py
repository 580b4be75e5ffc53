"""What a stream loses while somebody looks: nobody, a scrape a second, the page's live view.

`python -m tests.bench.bench_live_view [--rounds N] [--seconds S] [--out FILE]`. A round has a turn
of each, in changing order, on one server and the demo model; one client streams all the time. The
browser, where there is one, runs on the front end's core, so that what it computes itself takes no
time from the decode thread's.
"""

import argparse
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import orjson

from tests.support.page.browser import Browser, browsing, why_no_browser
from tests.support.server import Server, serving

_BODY: Final = {"prompt": "Once", "n_predict": 900, "ignore_eos": True, "stream": True}
Turn = dict[str, float]  # tokens a second, by whose clock


def main() -> int:
    """0; the figures are printed, and written with --out."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_live_view")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with serving("-np", "1") as server, contextlib.ExitStack() as stack:
        names = ["nobody", "scrape"]
        browser = None
        if not why_no_browser():
            browser = stack.enter_context(_browser_beside(server))
            names.append("live view")
        turns = _measure(server, browser, names, options.rounds, options.seconds)
    for clock in ("client", "engine"):
        for name in names:
            part = _part(turns["nobody"], turns[name], clock)
            speed = median(turn[clock] for turn in turns[name])
            print(f"{name}: {speed:.0f} tokens/s by the {clock}'s clock, {part} of nobody's")
    if options.out:
        options.out.write_bytes(orjson.dumps(turns))
    return 0


def _part(alone: list[Turn], watched: list[Turn], clock: str) -> float:
    """The median over rounds of what is left."""
    return round(median(b[clock] / a[clock] for a, b in zip(alone, watched, strict=True)), 4)


@contextlib.contextmanager
def _browser_beside(server: Server) -> Iterator[Browser]:
    cores = server.client.get("/props").json()["unpaced"]["cores"]["front_end"]
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # the browser's processes have it from here
    try:
        with browsing() as browser:
            yield browser
    finally:
        os.sched_setaffinity(0, mine)


def _measure(
    server: Server, browser: Browser | None, names: list[str], n_rounds: int, turn_s: float
) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    _stream(server, turn_s)
    for n in range(n_rounds):
        for name in names[n % len(names) :] + names[: n % len(names)]:
            with _watching(server, browser, name):
                turns[name].append(_stream(server, turn_s))
    return turns


@contextlib.contextmanager
def _watching(server: Server, browser: Browser | None, name: str) -> Iterator[None]:
    if browser is not None:
        browser.open(f"{server.url}/#live" if name == "live view" else "about:blank")
        time.sleep(1)  # the page is loaded
    is_over = threading.Event()
    scraper = threading.Thread(target=_scrape, args=(server.url, is_over))
    if name == "scrape":
        scraper.start()
    yield
    is_over.set()
    if name == "scrape":
        scraper.join()


def _scrape(url: str, is_over: threading.Event) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        while not is_over.wait(1):
            client.get("/metrics").raise_for_status()


def _stream(server: Server, turn_s: float) -> Turn:
    """Tokens a second over whole answers for at least so long: as the client gets them, and on the
    decode thread's clock."""
    n_tokens, engine_ms, begin = 0, 0.0, time.monotonic()
    while time.monotonic() - begin < turn_s:
        with server.client.stream("POST", "/completion", json=_BODY) as response:
            *_, last = (line for line in response.iter_lines() if line)
        timings = orjson.loads(last.removeprefix("data: "))["timings"]
        n_tokens += timings["predicted_n"]
        engine_ms += timings["predicted_ms"]
    seconds = time.monotonic() - begin
    return {"client": n_tokens / seconds, "engine": n_tokens / engine_ms * 1000}


if __name__ == "__main__":
    raise SystemExit(main())
