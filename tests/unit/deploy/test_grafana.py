"""Grafana's files hold what Grafana reads, and compose puts them where they are looked for."""

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
GRAFANA = DEPLOY / "grafana"
# What Grafana's reader takes of a provisioned file; it passes over other keys and says nothing.
# Source: Grafana's documentation, "Provision Grafana".
PROVIDER_KEYS = {
    "name", "type", "orgId", "folder", "folderUid", "editable", "allowUiUpdates",
    "disableDeletion", "updateIntervalSeconds", "options",
}  # fmt: skip
DATASOURCE_KEYS = {
    "name", "type", "access", "orgId", "uid", "url", "user", "database", "basicAuth",
    "basicAuthUser", "withCredentials", "isDefault", "jsonData", "secureJsonData", "version",
    "editable", "correlations",
}  # fmt: skip


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "unpaced.json").read_text())
    return read


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    read: dict[str, Any] = read_yaml(DEPLOY / "compose.yaml")["services"]
    return read


def lost(given: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Places of `given` that `kept` has not, or has otherwise."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key in kept:
                yield from lost(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for i, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{path}[{i}]")
    elif given != kept:
        yield f"{path}: {given!r}, not {kept!r}"


def through_grafanas_types(dashboard: dict[str, Any]) -> Any:
    plugins.register_default_plugins()
    return json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(dashboard)))


def test_grafanas_own_types_know_every_field_of_the_dashboard(dashboard: dict[str, Any]) -> None:
    assert list(lost(dashboard, through_grafanas_types(dashboard))) == []


def test_a_field_that_grafana_does_not_know_would_be_seen(dashboard: dict[str, Any]) -> None:
    wrong = json.loads(json.dumps(dashboard))
    wrong["panels"][1]["gridpos"] = {}
    wrong["panels"][1]["options"]["colourMode"] = "value"
    wrong["templating"]["list"][1]["multiple"] = True
    places = list(lost(wrong, through_grafanas_types(wrong)))
    assert places == [
        ".templating.list[1].multiple",
        ".panels[1].options.colourMode",
        ".panels[1].gridpos",
    ]


def test_panels_have_their_own_numbers_and_places(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        apart = any(
            a[at] + a[size] <= b[at]
            for at, size in (("x", "w"), ("y", "h"))
            for a, b in ((one, other), (other, one))
        )
        assert apart, (one, other)


def test_the_data_source_is_the_prometheus_of_compose(
    dashboard: dict[str, Any], services: dict[str, Any]
) -> None:
    (source,) = read_yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yaml")[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in services
    variable = dashboard["templating"]["list"][0]
    assert variable["type"] == "datasource" and variable["query"] == source["type"]
    assert variable["current"]["value"] == source["uid"]
    scrape = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scrape


def test_grafana_takes_every_key_of_the_provisioned_files() -> None:
    provisioning = GRAFANA / "provisioning"
    dashboards = read_yaml(provisioning / "dashboards" / "unpaced.yaml")
    datasources = read_yaml(provisioning / "datasources" / "prometheus.yaml")
    assert dashboards.keys() == {"apiVersion", "providers"}
    assert datasources.keys() == {"apiVersion", "datasources"}
    assert dashboards["apiVersion"] == datasources["apiVersion"] == 1
    (provider,) = dashboards["providers"]
    assert provider.keys() <= PROVIDER_KEYS and provider["type"] == "file"
    assert provider["options"].keys() <= {"path", "foldersFromFilesStructure"}
    (source,) = datasources["datasources"]
    assert source.keys() <= DATASOURCE_KEYS
    assert source["access"] == "proxy"  # the browser does not reach compose's network


def mounts(service: dict[str, Any]) -> dict[PurePosixPath, Path]:
    """Folders and files of this checkout, by their places in the container."""
    parts = [volume.split(":") for volume in service["volumes"]]
    return {PurePosixPath(to): DEPLOY / here for here, to, *_ in parts if here.startswith(".")}


def test_compose_mounts_what_there_is_where_it_is_looked_for(services: dict[str, Any]) -> None:
    prometheus, grafana = mounts(services["prometheus"]), mounts(services["grafana"])
    for path in (*prometheus.values(), *grafana.values()):
        assert path.exists(), path
    home = PurePosixPath("/etc/prometheus")  # the image's
    rules = read_yaml(prometheus[home / "prometheus.yml"])["rule_files"]
    assert all(home / name in prometheus for name in rules)
    provisioning = grafana[PurePosixPath("/etc/grafana/provisioning")]  # the image's
    (provider,) = read_yaml(provisioning / "dashboards" / "unpaced.yaml")["providers"]
    folder = PurePosixPath(provider["options"]["path"])
    assert list(grafana[folder].glob("*.json")) == [GRAFANA / "dashboards" / "unpaced.json"]
    shown = PurePosixPath(
        services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    )
    assert (grafana[shown.parent] / shown.name).is_file()
