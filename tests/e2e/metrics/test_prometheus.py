"""A real Prometheus scrapes a real server with the configuration of deploy/."""

import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from tests.bench.rig.server_process import free_port, running, unpaced_command
from tests.support.monitoring.prometheus import (
    DEPLOYED,
    Prometheus,
    needs_prometheus,
    scraping,
    wait_until,
)
from unpaced.settings.model import DEMO_MODEL

pytestmark = needs_prometheus


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    log = tmp_path_factory.mktemp("server") / "log"
    with running(unpaced_command(port, DEMO_MODEL), {}, port, log):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def prometheus(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraping(server_url, tmp_path_factory.mktemp("prometheus")) as api:
        yield api


def samples(server_url: str) -> dict[str, float]:
    """What the server says now: value of a series by metric name."""
    lines = httpx.get(f"{server_url}/metrics").text.splitlines()
    return {
        re.split(r"[{ ]", line, maxsplit=1)[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


def test_deployed_configuration_is_valid() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", str(DEPLOYED / "prometheus.yml")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_not_before() -> None:
    for command in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        done = subprocess.run(
            ["promtool", *command], cwd=DEPLOYED, capture_output=True, text=True, timeout=60
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


def test_the_autoscalers_query_gives_one_number_for_each_server(prometheus: Prometheus) -> None:
    """As prometheus-adapter fills it in, with what stands for a pod here."""
    read = yaml.safe_load(
        (DEPLOYED.parent / "kubernetes/autoscaling/adapter-rule.yaml").read_text()
    )
    (rule,) = read["rules"]["custom"]
    name = rule["name"]["as"]
    query = rule["metricsQuery"].replace("<<.Series>>", name).replace("<<.GroupBy>>", "instance")
    query = query.replace("<<.LabelMatchers>>", 'job="unpaced",instance=~".+"')
    assert "<<" not in query
    wait_until(lambda: prometheus.series(query), "its first samples")
    (series,) = prometheus.series(query)
    assert series["metric"].keys() == {"instance"} and float(series["value"][1]) == 0
    pods = rule["seriesQuery"].replace('namespace!="",pod!=""', 'job!="",instance!=""')
    assert {found["metric"]["__name__"] for found in prometheus.series(pods)} == {name}


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
