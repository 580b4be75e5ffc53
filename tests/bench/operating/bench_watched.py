"""What a stream loses while it is watched, and what metrics and a log cost it, in the same run.

`python -m tests.bench.operating.bench_watched [--pairs N] [--out docs/bench [--add]]`. Pairs of
servers with the demo model make short streams in turn. "off" has `--no-metrics --log-disable`, and
nobody looks. The other one has its defaults, which are metrics and a log with a line a request. It
streams with nobody who looks ("on"), and "watched": every second a process scrapes it, and asks
what its live view asks, as a page on another machine would. With --add the pairs of
results/watched.json count, too.
"""

import argparse
import contextlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.looker import Looker, looker
from tests.bench.rig.results import save_figures
from tests.support.page.wanted_metrics import wanted_by_the_page
from tests.support.server import Server, serving

_NAME: Final = "watched"
_N_TOKENS: Final = 200
_N_ROUNDS: Final = 48  # of a pair of servers
_BODY: Final = {"prompt": "Once", "n_predict": _N_TOKENS, "ignore_eos": True, "stream": True}
_OFF: Final = ("--no-metrics", "--log-disable")
_CLOCKS: Final = ("client", "engine")
Round = dict[str, dict[str, float]]  # seconds of a stream of each kind, by whose clock; who asked
Interval = tuple[float, float, float]  # middle, lower end, upper end

_PAGE: Final = """# A stream that is watched

`python -m tests.bench.operating.bench_watched --out docs/bench`, demo model,
{hardware}.

{n_pairs} pairs of servers, one where all is off and one where all is on. In each of {n} rounds the
second one made a stream of {tokens} tokens with nobody who looked and one that was watched; before
each the first one made one. The load average was {load} when runs began. Ratios are medians over
the rounds; with 95 % the true one lies in the interval (order statistics);
[every round](results/{name}.json).

| ratio of tokens/s | rounds | the client's clock | interval | the decode thread's | interval |
|---|---|---|---|---|---|
{rows}

* off: `--no-metrics --log-disable`, and nobody looks; {rate:.0f} tokens/s in the median, by the
  client's clock.
* on: the defaults, so metrics and a log with a line a request, and nobody looks. Two processes of
  the same program differ by some percents here, whatever their flags: its ratio to off is the
  median over the pairs, of what each pair's rounds come to. For a token a server does the same with
  these flags.
* watched: on, a scrape every second, and every second what an open live view asks. The processes
  are those of "on", which leaves the difference between processes out. Who asks is a process of its
  own on the front end's core, as the client is; no page is drawn.
* Most streams are too short to see anybody ask, and the median of all would not show those that do:
  each kind has its own median, and they count by their parts of the rounds. The interval of all
  takes the kinds as independent.
"""


def main() -> int:
    """0; the page is printed, and with --out written with results/watched.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operating.bench_watched")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--add", action="store_true")
    given = parser.parse_args()
    load = [round(os.getloadavg()[0], 1)]
    pairs = [measure(is_off_first=n % 2 == 0) for n in range(given.pairs)]
    if given.add:
        before = orjson.loads((given.out / "results" / f"{_NAME}.json").read_bytes())
        load, pairs = before["load"] + load, before["pairs"] + pairs
    report = {"hardware": describe_hardware(), "load": load, "pairs": pairs}
    print(page_of(report))
    if given.out is not None:
        save_figures(given.out, _NAME, report)
        (given.out / f"{_NAME}.md").write_text(page_of(report))
    return 0


def measure(*, is_off_first: bool) -> list[Round]:
    """The rounds of a pair."""
    groups = [["/metrics"], [wanted_by_the_page(), "/slots"]]
    with (
        serving("-np", "1", *(_OFF if is_off_first else ())) as first,
        serving("-np", "1", *(() if is_off_first else _OFF)) as second,
    ):
        off, on = (first, second) if is_off_first else (second, first)
        with _beside_the_front_end(on), looker(on.port, groups) as looks:
            for server in (off, on):
                _stream(server)  # the first one is slower
            return [_round(off, on, looks, n) for n in range(_N_ROUNDS)]


@contextlib.contextmanager
def _beside_the_front_end(server: Server) -> Iterator[None]:
    """This process, and those that it starts, keep off the decode thread's core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, server.client.get("/props").json()["unpaced"]["cores"]["front_end"])
    yield
    os.sched_setaffinity(0, before)


def _round(off: Server, on: Server, looks: Looker, n: int) -> Round:
    # The other server's stream before it leaves either kind the same caches.
    before, taken = [], {}
    for kind in ("on", "watched") if n % 2 else ("watched", "on"):
        before.append(_stream(off))
        if kind == "on":
            taken["on"] = _stream(on)
            continue
        with looks.looking() as n_asked:
            taken["watched"] = _stream(on)
    taken["off"] = {clock: (before[0][clock] + before[1][clock]) / 2 for clock in _CLOCKS}
    taken["asked"] = dict(zip(("scrape", "live view"), n_asked, strict=True))
    return taken


def _stream(server: Server) -> dict[str, float]:
    """Seconds of one: as the client sees it, and on the decode thread's clock."""
    began = time.monotonic()
    with server.client.stream("POST", "/completion", json=_BODY) as response:
        *_, last = (line for line in response.iter_lines() if line)
    seconds = time.monotonic() - began
    timings = orjson.loads(last.removeprefix("data: "))["timings"]
    assert timings["predicted_n"] == _N_TOKENS
    return {"client": seconds, "engine": timings["predicted_ms"] / 1e3}


def median_with_interval(ratios: Sequence[float]) -> Interval:
    """The median, and the order statistics between which the true one lies with 95 %.

    Whatever the distribution: how many of n lie below the true median is binomial with 1/2.
    """
    ordered, n = sorted(ratios), len(ratios)
    at, chance = -1, 0.0  # that no more than `at + 1` lie below
    while chance + math.comb(n, at + 1) / 2**n <= 0.025:
        at += 1
        chance += math.comb(n, at) / 2**n
    at = max(at, 0)  # too few: all of them
    return median(ordered), ordered[at], ordered[n - 1 - at]


def weighted(parts: Sequence[tuple[int, Interval]]) -> Interval:
    """The mean of independent medians, each of which counts so often."""
    n = sum(count for count, _ in parts)
    middle = sum(count * each[0] for count, each in parts) / n
    below = math.hypot(*(count * (each[0] - each[1]) / n for count, each in parts))
    above = math.hypot(*(count * (each[2] - each[0]) / n for count, each in parts))
    return middle, middle - below, middle + above


def page_of(report: dict[str, Any]) -> str:
    """docs/bench/watched.md."""
    pairs: list[list[Round]] = report["pairs"]
    rounds = [each for pair in pairs for each in pair]
    of_pairs = {
        clock: median_with_interval([_ratio(pair, "off", "on", clock) for pair in pairs])
        for clock in _CLOCKS
    }
    kinds: dict[str, list[Round]] = {}
    for each in rounds:
        asked = " and ".join(name for name, n in each["asked"].items() if n) or "nobody"
        kinds.setdefault(f"watched / on: {asked} asked", []).append(each)
    found = {
        name: {
            clock: median_with_interval([_ratio([each], "on", "watched", clock) for each in some])
            for clock in _CLOCKS
        }
        for name, some in sorted(kinds.items())
    }
    total = {
        clock: weighted([(len(kinds[name]), by_clock[clock]) for name, by_clock in found.items()])
        for clock in _CLOCKS
    }
    rows = [_row("on / off", f"{len(pairs)} pairs", of_pairs)]
    rows += [_row(name, str(len(kinds[name])), by_clock) for name, by_clock in found.items()]
    rows.append(_row("**watched / on: all**", str(len(rounds)), total))
    return _PAGE.format(
        hardware=report["hardware"],
        load=", ".join(map(str, report["load"])),
        n_pairs=len(pairs),
        n=len(rounds),
        tokens=_N_TOKENS,
        name=_NAME,
        rows="\n".join(rows),
        rate=median(_N_TOKENS / each["off"]["client"] for each in rounds),
    )


def _ratio(rounds: Sequence[Round], base: str, kind: str, clock: str) -> float:
    """Of the rates of two kinds of streams: the median."""
    return median(each[base][clock] / each[kind][clock] for each in rounds)


def _row(name: str, count: str, by_clock: dict[str, Interval]) -> str:
    cells = [name, count]
    for clock in _CLOCKS:
        middle, low, high = by_clock[clock]
        cells += [f"{middle:.4f}", f"{low:.4f} to {high:.4f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    raise SystemExit(main())
