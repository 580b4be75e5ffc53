"""What deploy/kubernetes makes: by kubectl's kustomize, and by Helm's own library."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

KUBERNETES: Final = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
OVERLAYS: Final = ("base", "gpu", "monitoring", "autoscaling")
Manifest = dict[str, Any]


def read(path: str) -> list[Manifest]:
    """The documents of a file below deploy/kubernetes."""
    return [one for one in yaml.safe_load_all((KUBERNETES / path).read_text()) if one]


def built(overlay: str) -> list[Manifest]:
    """A folder's manifests, as `kubectl apply -k` would send them; skips without kubectl."""
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if kubectl is None:
        pytest.skip("no kubectl (make test-deploy installs it)")
    command = [kubectl, "kustomize", str(KUBERNETES / overlay)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def rendered(values: Manifest) -> list[Manifest]:
    """The chart's manifests, as `helm template` has them; skips without Helm's library."""
    helm = pytest.importorskip("helm_python", reason="no helm_python (make test-deploy)")
    with helm.Chart.load(str(KUBERNETES / "chart")) as chart:
        files = chart.render(values, name="unpaced", namespace="default")
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one manifest of this kind."""
    found = [one for one in manifests if one["kind"] == kind]
    assert len(found) == 1, f"{len(found)} of {kind}"
    return found[0]


def container(deployment: Manifest) -> Manifest:
    """The server's container."""
    containers: list[Manifest] = deployment["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1
    return containers[0]
