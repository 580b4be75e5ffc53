"""What a stream loses while somebody looks: nobody, a scrape a second, what the page's live view
asks, the live view in a browser.

`python -m tests.bench.bench_live_view [--rounds N] [--seconds S] [--out FILE]`. A round has a turn
of each, in changing order, on one server and the demo model; one client streams all the time. The
browser, where there is one, runs on the front end's core, so that what it computes itself takes no
time from the decode thread's. "asked alone" is a plain client that asks what the page asks, at its
pace: what the server pays for a page that somebody looks at elsewhere.
"""

import argparse
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import orjson

from tests.bench.rig.front_end_cpu import front_end_cpu_s
from tests.bench.rig.hardware import describe_hardware
from tests.support.page.browser import Browser, browsing, why_no_browser
from tests.support.page.wanted_metrics import wanted_by_the_page
from tests.support.server import Server, serving

_BODY: Final = {"prompt": "Once", "n_predict": 900, "ignore_eos": True, "stream": True}
Turn = dict[str, float]  # tokens a second, by whose clock; microseconds a token


def main() -> int:
    """0; the figures are printed, and written with --out."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_live_view")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with serving("-np", "1") as server, contextlib.ExitStack() as stack:
        names = ["nobody", "scrape", "asked alone"]
        browser = None
        if not why_no_browser():
            browser = stack.enter_context(_browser_beside(server))
            names.append("live view")
        turns = _measure(server, browser, names, options.rounds, options.seconds)
        looks = {name: _cpu_of_looks(server, look) for name, look in _LOOKS.items()}
    print(describe_hardware())
    for figure in ("client", "engine", "front_end_us"):
        for name in names:
            part = _part(turns["nobody"], turns[name], figure)
            middle = median(turn[figure] for turn in turns[name])
            print(f"{figure}, {name}: {middle:.1f}, {part} of nobody's")
    for name, cpu_us in looks.items():
        print(f"{name}: {cpu_us:.0f} us of the server's processor for one look")
    if options.out:
        options.out.write_bytes(orjson.dumps({"turns": turns, "cpu_us_of_a_look": looks}))
    return 0


def _part(alone: list[Turn], watched: list[Turn], figure: str) -> float:
    """The median over rounds of what is left."""
    return round(median(b[figure] / a[figure] for a, b in zip(alone, watched, strict=True)), 4)


def _scrape(client: httpx.Client) -> None:
    client.get("/metrics").raise_for_status()


def _look(client: httpx.Client) -> None:
    """What live_view.js asks each second while requests run."""
    shown = client.get(wanted_by_the_page()).raise_for_status().text
    assert "unpaced_requests_running " in shown
    client.get("/slots").raise_for_status()


def _old_look(client: httpx.Client) -> None:
    """The same, had it not said which metrics it shows."""
    _scrape(client)
    client.get("/slots").raise_for_status()


_LOOKS: Final[dict[str, Callable[[httpx.Client], None]]] = {
    "scrape": _scrape,
    "asked alone": _look,
    "asked alone, all metrics": _old_look,
}
_N_LOOKS: Final = 200


def _cpu_of_looks(server: Server, look: Callable[[httpx.Client], None]) -> float:
    """Microseconds of the front end for one, of many on one connection to an idle server."""
    look(server.client)
    before_s = front_end_cpu_s(server.process)
    for _ in range(_N_LOOKS):
        look(server.client)
    return (front_end_cpu_s(server.process) - before_s) / _N_LOOKS * 1e6


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
    looker = threading.Thread(target=_each_second, args=(server.url, _LOOKS.get(name), is_over))
    looker.start()
    yield
    is_over.set()
    looker.join()


def _each_second(
    url: str, look: Callable[[httpx.Client], None] | None, is_over: threading.Event
) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        while not is_over.wait(1):
            if look is not None:
                look(client)


def _stream(server: Server, turn_s: float) -> Turn:
    """Tokens a second over whole answers for at least so long: as the client gets them, and on the
    decode thread's clock; the front end's microseconds of processor for each."""
    n_tokens, engine_ms, begin = 0, 0.0, time.monotonic()
    cpu_s = front_end_cpu_s(server.process)
    while time.monotonic() - begin < turn_s:
        with server.client.stream("POST", "/completion", json=_BODY) as response:
            *_, last = (line for line in response.iter_lines() if line)
        timings = orjson.loads(last.removeprefix("data: "))["timings"]
        n_tokens += timings["predicted_n"]
        engine_ms += timings["predicted_ms"]
    seconds = time.monotonic() - begin
    cpu_s = front_end_cpu_s(server.process) - cpu_s
    return {
        "client": n_tokens / seconds,
        "engine": n_tokens / engine_ms * 1000,
        "front_end_us": cpu_s / n_tokens * 1e6,
    }


if __name__ == "__main__":
    raise SystemExit(main())
