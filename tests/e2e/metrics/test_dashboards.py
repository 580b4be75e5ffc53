"""Every expression of the dashboard and of the alerts, asked of a real Prometheus that scrapes a
server under load: none may be wrong, and none may have nothing to show."""

import json
import math
import re
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.support.monitoring.prometheus import (
    DEPLOYED,
    Prometheus,
    needs_prometheus,
    scraping,
    wait_until,
)
from tests.support.nvml.library import FakeNvml
from tests.support.server import Server, serving

pytestmark = needs_prometheus
DASHBOARD = DEPLOYED.parent / "grafana" / "dashboards" / "unpaced.json"
_CANARY = "CANARY5f1c"
_COMPARISON = re.compile(r"(==|>|<)(?= )")
_VARIABLES = {"$instance": ".*", "$model": ".*", "$__rate_interval": "10s"}


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def server(nvml: FakeNvml) -> Iterator[Server]:
    flags = ("--gpu-metrics", "on", "--gpu-metrics-interval", "0.5")
    with serving("-c", "1024", "-np", "2", *flags, env=nvml.environment) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraping(server.url, tmp_path_factory.mktemp("prometheus")) as api, under_load(server.url):
        yield api


@contextmanager
def under_load(url: str) -> Iterator[None]:
    """Answers, streams that are left, and requests that are refused, until the end."""
    is_over = threading.Event()

    def ask(client: httpx.Client, i: int) -> None:
        body = {"prompt": f"Once upon a {_CANARY} {i % 3}", "max_tokens": 24, "model": _CANARY}
        headers = {"x-canary": _CANARY, "authorization": f"Bearer {_CANARY}"}
        client.post("/v1/completions", json=body, headers=headers)
        client.get(f"/{_CANARY}?{_CANARY}={_CANARY}")
        with client.stream("POST", "/completion", json=body | {"stream": True}) as answer:
            next(answer.iter_lines())  # and leave

    def work() -> None:
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            for i in range(10**9):
                if is_over.wait(0.05):
                    return
                ask(client, i)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def with_values(expression: str) -> str:
    """An expression of the dashboard as Grafana would send it."""
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def dashboard_expressions() -> list[str]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [with_values(target["expr"]) for panel in panels for target in panel.get("targets", ())]


def has_figures(prometheus: Prometheus, expression: str) -> bool:
    """Whether an expression gives a number. Raises: AssertionError if it is wrong."""
    try:
        found = prometheus.series(expression)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{expression}: {error.read().decode()}") from None
    return any(math.isfinite(float(series["value"][1])) for series in found)


def wait_for_figures(prometheus: Prometheus, expressions: list[str]) -> float:
    """Seconds until each of them has given a number once. Raises: AssertionError after 40."""
    began, left = time.monotonic(), set(expressions)
    while left:
        left -= {each for each in left if has_figures(prometheus, each)}
        assert time.monotonic() - began < 40, "nothing to show:\n" + "\n".join(sorted(left))
        time.sleep(0.2)
    return time.monotonic() - began


def test_every_panel_has_figures(server: Server, prometheus: Prometheus) -> None:
    expressions = dashboard_expressions()
    assert len(expressions) > 60
    seconds = wait_for_figures(prometheus, expressions)
    print(f"{len(expressions)} expressions have figures {seconds:.1f} s after Prometheus is ready")
    text = server.client.get("/metrics").text
    assert "unpaced_gpu_up" in text
    assert _CANARY not in text and _CANARY.lower() not in text.lower()


def test_every_alert_is_evaluated_and_none_fires(prometheus: Prometheus) -> None:
    wait_until(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()), "alerts")
    rules = prometheus.rules()
    assert len(rules) == (DEPLOYED / "alerts.yml").read_text().count("- alert:")
    # Without its comparison an alert has a value whether it fires or not.
    wait_for_figures(prometheus, [_COMPARISON.sub(r"\1 bool", rule["query"]) for rule in rules])
    assert {rule["name"]: rule["state"] for rule in rules if rule["state"] != "inactive"} == {}


def test_what_the_variables_offer_is_there(prometheus: Prometheus) -> None:
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    queries = [each["query"]["query"] for each in variables if each["type"] == "query"]
    assert len(queries) == 2
    for query in queries:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert found is not None
        wait_until(lambda name=found[1]: prometheus.series(name), query)
        assert all(found[2] in series["metric"] for series in prometheus.series(found[1]))


def test_a_lost_gpu_raises_its_alert(nvml: FakeNvml, prometheus: Prometheus) -> None:
    def states() -> dict[str, str]:
        return {rule["name"]: rule["state"] for rule in prometheus.rules()}

    nvml.become("lost")
    wait_until(lambda: states()["UnpacedGpuLost"] == "pending", "the alert")
    nvml.become("ok")
    wait_until(lambda: states()["UnpacedGpuLost"] == "inactive", "the alert's end")
