"""A real Prometheus with the configuration of deploy/, and its HTTP API."""

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bench.rig.server_process import free_port

DEPLOYED = Path(__file__).resolve().parents[3] / "deploy" / "prometheus"

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no prometheus on the PATH (Debian: apt-get install prometheus); .ci/run installs it",
)


class Prometheus:
    """Prometheus's HTTP API."""

    def __init__(self, url: str) -> None:
        self._url = url

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def series(self, expression: str) -> list[dict[str, Any]]:
        """What an expression gives now: objects with `metric` and `value`. Raises: HTTPError."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def query(self, expression: str) -> dict[str, float]:
        """Value of each series, by metric name."""
        found = self.series(expression)
        return {series["metric"].get("__name__", ""): float(series["value"][1]) for series in found}

    def rules(self) -> list[dict[str, Any]]:
        """The alerts, as Prometheus has evaluated them."""
        groups: list[dict[str, Any]] = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("targets")["activeTargets"]
        return found

    def help_texts(self) -> dict[str, str]:
        return {name: entries[0]["help"] for name, entries in self._get("metadata").items()}

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]


@contextmanager
def scraping(server_url: str, folder: Path) -> Iterator[Prometheus]:
    """The deployed configuration and alerts, but for the target's address; it scrapes and
    evaluates every second."""
    text = (DEPLOYED / "prometheus.yml").read_text()
    for deployed, here in (
        ("unpaced:8080", server_url.removeprefix("http://")),
        ("scrape_interval: 5s", "scrape_interval: 1s"),
        ("scrape_timeout: 4s", "scrape_timeout: 1s"),
        ("evaluation_interval: 15s", "evaluation_interval: 1s"),
    ):
        assert deployed in text
        text = text.replace(deployed, here)
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(DEPLOYED / "alerts.yml", folder)
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        api = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(api.is_ready, f"Prometheus to start, see {folder / 'log'}")
        yield api
    finally:
        process.terminate()
        process.wait(20)


def wait_until(condition: Any, what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.1)
