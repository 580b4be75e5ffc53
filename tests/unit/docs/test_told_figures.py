"""Figures that a page repeats are those of the file that it repeats them from."""

import json
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
DOCS: Final = ROOT / "docs"
METRICS: Final = " ".join((DOCS / "metrics.md").read_text(encoding="utf-8").split())
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "dashboards" / "unpaced.json"
ALERTS: Final = ROOT / "deploy" / "prometheus" / "alerts.yml"


def figures(name: str) -> dict[str, Any]:
    """What a benchmark left."""
    found: dict[str, Any] = json.loads((DOCS / "bench" / "results" / f"{name}.json").read_bytes())
    return found


def n_expressions(part: Any) -> int:
    """Expressions of a dashboard's panels, in rows too."""
    children = part.get("panels", [])
    return len(part.get("targets", [])) + sum(n_expressions(child) for child in children)


def test_what_a_scrape_costs() -> None:
    flags = figures("scrape")["flags"]
    making = flags["default"]["inside_ms"]["making"]
    page, nothing = (flags["default"]["wall_ms"][path] for path in ("/metrics", "/health/live"))
    for part in (
        f"takes {making['median']:.1f} ms of processor time in the median and "
        f"{making['p95']:.1f} ms in 95 of 100",
        f"answered after {page['median']:.1f} ms in the median and {page['p95']:.1f} ms in 95",
        f"makes nothing, takes {nothing['median']:.1f} and {nothing['p95']:.1f} ms",
        f"are answered after {flags['both names']['wall_ms']['/metrics']['p95']:.1f} ms",
    ):
        assert part in METRICS, part


def test_how_many_expressions_and_alerts_there_are() -> None:
    n = n_expressions(json.loads(DASHBOARD.read_bytes()))
    assert f"evaluates all {n} expressions of the dashboard" in METRICS
    alerts = set(re.findall(r"alert: (\w+)", ALERTS.read_text(encoding="utf-8")))
    assert alerts == set(re.findall(r"\| `(Unpaced\w+)` \|", METRICS))


def test_limits_hold_in_the_last_run() -> None:
    """A scrape within 5 ms; a hundred restarts, each within the time of a start and 2 s."""
    for one in figures("scrape")["flags"].values():
        assert one["wall_ms"]["/metrics"]["p95"] <= 5
    restarts = figures("restarts")
    assert len(restarts["ready_after_end_s"]) == restarts["n"] == 100
    assert max(restarts["ready_after_end_s"]) <= restarts["load_s"] + 2
