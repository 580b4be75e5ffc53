"""The manifests of deploy/kubernetes fit the server, each other, and Kubernetes' own schemas.

The last part needs kubectl, Helm's library and the schemas: `make test-deploy` installs them.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import UNPACED
from tests.unit.deploy.manifests import OVERLAYS, Manifest, built, container, only, read, rendered
from unpaced.http.middleware import ALWAYS, PUBLIC
from unpaced.process.app import _ROUTES
from unpaced.process.uvicorn_server import GRACEFUL_S
from unpaced.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
ALL_ON = {
    "gpu": {"enabled": True},
    "serviceMonitor": {"enabled": True, "keySecret": {"name": "scrape", "key": "key"}},
    "autoscaling": {"enabled": True},
}
# Kubernetes' own versions: of 2023 and the latest that the schemas have.
VERSIONS = ("1.27", "1.37")
FOREIGN = {"ServiceMonitor", "Kustomization"}  # no kinds of Kubernetes' own


def deployment() -> Manifest:
    return only(read("base/deployment.yaml"), "Deployment")


def settings_of(overlay: str) -> dict[str, str]:
    (file,) = read(f"{overlay}/kustomization.yaml")
    (generated,) = file["configMapGenerator"]
    return dict(literal.split("=", 1) for literal in generated["literals"])


def paths() -> set[str]:
    """Every path that the server has a route for."""
    return {route.path for module in _ROUTES for route in module.routes.served("")}


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_ask_routes_that_need_no_key_and_no_model(probe: str) -> None:
    asked = container(deployment())[probe]["httpGet"]
    assert asked["path"] in paths() & PUBLIC & ALWAYS
    assert asked["port"] == "http"


def test_a_stalled_engine_is_not_the_liveness_probes_to_end() -> None:
    """It looks at the event loop alone: a load of an hour must not end the pod."""
    assert container(deployment())["livenessProbe"]["httpGet"]["path"] == "/health/live"


def test_the_grace_is_longer_than_the_servers_own_end() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    command = container(deployment())["lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] == "sleep"
    defaults = Settings()
    longest_s = float(command[1]) + defaults.drain_timeout + defaults.stop_timeout + GRACEFUL_S
    assert pod["terminationGracePeriodSeconds"] > longest_s


def test_ports_are_the_servers() -> None:
    (port,) = container(deployment())["ports"]
    assert (port["name"], port["containerPort"]) == ("http", Settings().port)
    (served,) = only(read("base/service.yaml"), "Service")["spec"]["ports"]
    assert (served["name"], served["targetPort"]) == ("http", "http")
    monitor = only(read("monitoring/service-monitor.yaml"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == "http" and endpoint["path"] in paths()


def test_the_user_is_the_images_and_the_root_is_read_only() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):\d+$", dockerfile, re.M)
    assert f"EXPOSE {Settings().port}" in dockerfile
    pod = deployment()["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container(deployment())["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    written = {mount["mountPath"] for mount in container(deployment())["volumeMounts"]}
    assert written == {"/cache", "/tmp"}


def test_selectors_find_the_pods() -> None:
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    found = [
        deployment()["spec"]["selector"]["matchLabels"],
        only(read("base/service.yaml"), "Service")["spec"]["selector"],
        only(read("base/disruption.yaml"), "PodDisruptionBudget")["spec"]["selector"][
            "matchLabels"
        ],
    ]
    monitor = only(read("monitoring/service-monitor.yaml"), "ServiceMonitor")
    found.append(monitor["spec"]["selector"]["matchLabels"])
    assert all(selector.items() <= labels.items() for selector in found)
    claim = only(read("base/models.yaml"), "PersistentVolumeClaim")
    volumes = deployment()["spec"]["template"]["spec"]["volumes"]
    assert {"claimName": claim["metadata"]["name"]} in [
        volume.get("persistentVolumeClaim") for volume in volumes
    ]


def test_the_autoscaler_looks_at_a_metric_that_there_is() -> None:
    autoscaler = only(read("autoscaling/autoscaler.yaml"), "HorizontalPodAutoscaler")
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment()["metadata"]["name"]
    (asked,) = autoscaler["spec"]["metrics"]
    name = asked["pods"]["metric"]["name"]
    (rule,) = read("autoscaling/adapter-rule.yaml")[0]["rules"]["custom"]
    assert rule["name"] == {"as": name} and rule["seriesQuery"].startswith(name + "{")
    assert rule.keys() == {"seriesQuery", "resources", "name", "metricsQuery"}
    # How the adapter knows which pod a series is of: the labels that the operator gives it.
    pods = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
    assert rule["resources"] == {"overrides": pods}
    sources = [file.read_text() for file in (ROOT / "unpaced" / "metrics").glob("*.py")]
    assert any(f'"{name.removeprefix("unpaced_")}"' in source for source in sources)


def printed(variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(UNPACED), "serve", "--print-config"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **variables}
    )


@pytest.mark.parametrize("overlay", ["base", "gpu"])
def test_every_variable_is_a_flag_of_the_server(overlay: str) -> None:
    default = printed({}).stdout
    for name, value in settings_of(overlay).items():
        shown = printed({name: value})
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout != default, f"{name} changes nothing"


def test_services_are_not_in_the_environment() -> None:
    """One named unpaced would be UNPACED_PORT=tcp://..., with which the server does not start."""
    assert deployment()["spec"]["template"]["spec"]["enableServiceLinks"] is False
    assert printed({"UNPACED_PORT": "tcp://10.0.0.1:8080"}).returncode != 0


def test_the_gpu_variant_asks_for_a_card() -> None:
    pods = only(built("gpu"), "Deployment")
    assert container(pods)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container(pods)["image"].endswith(":cuda")
    assert pods["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert pods["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True


def _comparable(manifest: Manifest) -> Any:
    """Without what the two tools add: hashes of the settings, in names and annotations."""
    text = re.sub(r"unpaced-[a-z0-9]{10}(?=')", "unpaced", repr(manifest))
    text = re.sub(r", 'annotations': {'checksum/settings': '\w+'}", "", text)
    text = text.replace(", 'imagePullPolicy': 'IfNotPresent'", "")
    return eval(text, {"__builtins__": {}})


def test_the_chart_makes_what_the_base_makes() -> None:
    ours = {one["kind"]: _comparable(one) for one in built("base")}
    charts = {one["kind"]: _comparable(one) for one in rendered({})}
    assert charts.keys() == ours.keys()
    ours["ConfigMap"]["metadata"]["labels"] = charts["ConfigMap"]["metadata"]["labels"]
    for kind, manifest in ours.items():
        assert charts[kind] == manifest


def test_the_charts_switches_do_what_they_say() -> None:
    manifests = rendered({**ALL_ON, "drainSeconds": 120, "startupSeconds": 60})
    pods = only(manifests, "Deployment")
    assert "replicas" not in pods["spec"]
    assert pods["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 150
    assert container(pods)["startupProbe"]["failureThreshold"] == 12
    assert container(pods)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    data = only(manifests, "ConfigMap")["data"]
    assert (data["UNPACED_DRAIN_TIMEOUT"], data["UNPACED_GPU_LAYERS"]) == ("120", "-2")
    assert printed(data).returncode == 0
    (endpoint,) = only(manifests, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "scrape", "key": "key"}}


@pytest.mark.parametrize(
    ("overlay", "kind"),
    [("monitoring", "ServiceMonitor"), ("autoscaling", "HorizontalPodAutoscaler")],
)
def test_the_chart_makes_what_the_overlays_add(overlay: str, kind: str) -> None:
    switches = {"serviceMonitor": {"enabled": True}, "autoscaling": {"enabled": True}}
    assert only(rendered(switches), kind) == only(built(overlay), kind)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"gpu": {"enable": True}}, "/gpu"),
        ({"setings": {}}, "setings"),
        ({"drainSeconds": "two minutes"}, "/drainSeconds"),
        # Helm would write a number from a million on as 1e+06.
        ({"settings": {"UNPACED_CTX_SIZE": 1048576}}, "/settings/UNPACED_CTX_SIZE"),
        ({"serviceMonitor": {"keySecret": {"name": "scrape"}}}, "/serviceMonitor/keySecret"),
    ],
)
def test_the_chart_refuses_values_that_it_does_not_know(values: Manifest, place: str) -> None:
    helm = pytest.importorskip("helm_python", reason="no helm_python (make test-deploy)")
    with pytest.raises(helm.HelmValuesError, match=re.escape(place)):
        rendered(values)


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    """It reads Chart.yaml strictly and holds values.yaml against the schema."""
    helm = pytest.importorskip("helm_python", reason="no helm_python (make test-deploy)")
    report = helm.lint(str(ROOT / "deploy" / "kubernetes" / "chart"), ALL_ON, strict=True)
    assert report["total_charts_linted"] == 1 and report["errors"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_own_schemas_take_all_of_them(version: str) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="no kubernetes_validate (make test-deploy)"
    )
    manifests = [one for overlay in OVERLAYS for one in built(overlay)]
    manifests += rendered({}) + rendered(ALL_ON)
    checked = [one for one in manifests if one["kind"] not in FOREIGN]
    assert len(checked) > 15
    for manifest in checked:
        assert kubernetes_validate.validate(manifest, version, strict=True) == version
    wrong = only(checked[:5], "Deployment")
    container(wrong)["readinessProbe"]["periodSecond"] = 5
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)
