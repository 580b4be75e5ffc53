"""A real Prometheus scrapes a real server with the configuration of deploy/."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bench.rig.server_process import free_port, running, unpaced_command
from unpaced.settings.model import DEMO_MODEL

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "prometheus.yml"

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no prometheus on the PATH (Debian: apt-get install prometheus); .ci/run installs it",
)


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    log = tmp_path_factory.mktemp("server") / "log"
    with running(unpaced_command(port, DEMO_MODEL), {}, port, log):
        yield f"http://127.0.0.1:{port}"


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

    def query(self, expression: str) -> dict[str, float]:
        """Value of each series, by metric name."""
        found = self._get("query", query=expression)["result"]
        return {series["metric"].get("__name__", ""): float(series["value"][1]) for series in found}

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("targets")["activeTargets"]
        return found

    def help_texts(self) -> dict[str, str]:
        return {name: entries[0]["help"] for name, entries in self._get("metadata").items()}

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]


@pytest.fixture(scope="module")
def prometheus(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The deployed configuration but for the target's address and a scrape every second."""
    folder = tmp_path_factory.mktemp("prometheus")
    text = DEPLOYED.read_text()
    for deployed, here in (
        ("unpaced:8080", server_url.removeprefix("http://")),
        ("scrape_interval: 5s", "scrape_interval: 1s"),
        ("scrape_timeout: 4s", "scrape_timeout: 1s"),
    ):
        assert deployed in text
        text = text.replace(deployed, here)
    (folder / "prometheus.yml").write_text(text)
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


def samples(server_url: str) -> dict[str, float]:
    """What the server says now: value of a series by metric name."""
    lines = httpx.get(f"{server_url}/metrics").text.splitlines()
    return {
        re.split(r"[{ ]", line, maxsplit=1)[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


def wait_until(condition: Any, what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.1)


def test_deployed_configuration_is_valid() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", str(DEPLOYED)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_our_metrics_follow_the_naming_rules(server_url: str) -> None:
    lines = httpx.get(f"{server_url}/metrics").text.splitlines(keepends=True)
    # llama-server's names are its own: they have colons, which the rules keep for recorded rules.
    ours = "".join(line for line in lines if "llamacpp:" not in line)
    assert "unpaced_" in ours
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=ours, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_scrape_reads_every_sample(server_url: str, prometheus: Prometheus) -> None:
    wait_until(lambda: prometheus.query('up{job="unpaced"}').get("up") == 1, "a good scrape")
    assert [target["lastError"] for target in prometheus.targets()] == [""]

    names = samples(server_url).keys()
    assert "unpaced_inter_token_seconds_bucket" in names
    assert names <= prometheus.query('{job="unpaced"}').keys()
    for name, text in prometheus.help_texts().items():
        assert text or not name.startswith("unpaced_"), f"{name} has no help text"


def test_counters_reach_prometheus(server_url: str, prometheus: Prometheus) -> None:
    usage = httpx.post(
        f"{server_url}/v1/completions",
        json={"prompt": "Once upon a time", "max_tokens": 16, "ignore_eos": True},
        timeout=60,
    ).json()["usage"]
    assert usage["completion_tokens"] == 16

    counters = samples(server_url)
    names = ("unpaced_generated_tokens_total", "unpaced_engine_tokens_decoded_total")
    expected = {name: counters[name] for name in names}
    assert all(count >= 16 for count in expected.values()), expected
    wait_until(
        lambda: expected.items() <= prometheus.query('{job="unpaced"}').items(),
        f"scrape of {expected}",
    )
