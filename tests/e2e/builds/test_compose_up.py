"""`docker compose up` with deploy/compose.yaml: the server's image, and a Prometheus beside it.

Docker Compose speaks to podman. What no registry of packages has is replaced: Prometheus' image by
Debian's Prometheus in an image of its own; Grafana is left out. As slow as test_image.py, which
builds the image: `pytest -m packaging tests/e2e/builds`, as root, after `make test-deploy`.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.bench.rig.server_process import free_port
from tests.support.docker_compose import docker_compose
from tests.support.image import (
    BASE,
    IMAGE,
    ROOT,
    build_image,
    make_base,
    podman_command,
    tool,
    why_not,
    with_storage,
)
from tests.support.monitoring.prometheus import Prometheus
from tests.support.patience import patience
from tests.support.repeatedly import repeatedly
from unpaced.cli.chat.own_server import short_folder
from unpaced.settings.model import DEMO_MODEL

PROMETHEUS: Final = "localhost/unpaced-test-prometheus"
NETWORKS: Final = ("netavark", "aardvark-dns")


def missing() -> str:
    """What is not here; empty: nothing."""
    lacking = [name for name in NETWORKS if not Path("/usr/lib/podman", name).exists()]
    lacking += [name for name in ("prometheus",) if shutil.which(name) is None]
    return why_not() or (f"no {', '.join(lacking)} (Debian has them)" if lacking else "")


pytestmark = [
    pytest.mark.packaging,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(missing() != "", reason=missing()),
]


@dataclass(frozen=True)
class Project:
    """The services of deploy/compose.yaml, under names and ports of this test's own."""

    name: str
    files: tuple[Path, Path]
    ports: dict[str, int]
    env: dict[str, str]

    def compose(self, *arguments: str) -> str:
        """`docker compose ARGUMENTS`; what it printed. Raises: AssertionError with its errors."""
        files = [word for file in self.files for word in ("-f", str(file))]
        command = [docker_compose(), "-p", self.name, *files, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **self.env}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state(self, service: str) -> dict[str, Any]:
        """What `docker compose ps` says of a service."""
        told = self.compose("ps", "--all", "--format", "json", service)
        state: dict[str, Any] = json.loads(told.splitlines()[0])
        return state


def make_prometheus_image() -> None:
    """Debian's program where the official image has it, with its arguments."""
    make_base()
    container = tool("buildah", "from", BASE).stdout.strip()
    program = str(shutil.which("prometheus"))
    tool("buildah", "copy", container, program, "/bin/prometheus", stdout=subprocess.DEVNULL)
    arguments = ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
    tool(
        *("buildah", "config", "--entrypoint", json.dumps(["/bin/prometheus"])),
        *("--cmd", " ".join(arguments), "--workingdir", "/prometheus", container),
    )
    tool("buildah", "commit", "--rm", "--quiet", container, PROMETHEUS)


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[dict[str, str]]:
    """podman as a Docker engine; the variables with which programs find it."""
    settings = folder / "containers.conf"
    settings.write_text('[network]\nnetwork_backend = "netavark"\n')
    socket = folder / "engine"
    env = {"CONTAINERS_CONF": str(settings), "DOCKER_HOST": f"unix://{socket}"}
    arguments = ("system", "service", "--time", "0", f"unix://{socket}")
    command = with_storage(*podman_command(), *arguments)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + patience(20)
        while not socket.exists():
            assert time.monotonic() < deadline and process.poll() is None, folder / "log"
            time.sleep(0.05)
        yield env
    finally:
        process.terminate()
        process.wait(30)


def health_checks(env: dict[str, str]) -> AbstractContextManager[None]:
    """Each container's HEALTHCHECK once a second, as systemd's timers have podman do it."""
    ask = {"check": False, "env": {**os.environ, **env}, "stderr": subprocess.DEVNULL}

    def check() -> None:
        for name in tool("podman", "ps", "--quiet", **ask).stdout.split():
            tool("podman", "healthcheck", "run", name, **ask)

    return repeatedly(check, every_s=1)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    build_image()
    make_prometheus_image()
    folder = tmp_path_factory.mktemp("compose")
    (folder / "models").mkdir()
    shutil.copy(DEMO_MODEL, folder / "models" / "any.gguf")
    ports = {"unpaced": free_port(), "prometheus": free_port()}
    limits = "{nofile: 1024, nproc: 4096}"  # they may not be raised everywhere
    here = folder / "here.yaml"
    here.write_text(f"""
services:
  unpaced:
    image: {IMAGE}
    pull_policy: never
    environment:
      LLAMA_ARG_THREADS: 1
      LLAMA_ARG_CONTEXT_SHIFT: 1  # a stream may be as long as a stop takes to come
    ports: !override ["127.0.0.1:{ports["unpaced"]}:8080"]
    volumes: !override ["{folder}/models:/models:ro"]
    ulimits: {limits}
  prometheus:
    image: {PROMETHEUS}
    pull_policy: never
    ports: !override ["127.0.0.1:{ports["prometheus"]}:9090"]
    ulimits: {limits}
""")
    files = (ROOT / "deploy" / "compose.yaml", here)
    with tempfile.TemporaryDirectory(dir=short_folder()) as sockets, engine(Path(sockets)) as env:
        env["UNPACED_MODEL"] = "/models/any.gguf"
        made = Project(f"unpaced-test-{ports['unpaced']}", files, ports, env)
        try:
            with health_checks(env):
                began = time.monotonic()
                made.compose("up", "--detach", "--no-build", "unpaced", "prometheus")
                print(f"compose up returned after {time.monotonic() - began:.1f} s")
                yield made
        finally:
            made.compose("down", "--volumes", "--timeout", "10")


@pytest.fixture(scope="module")
def client(project: Project) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{project.ports['unpaced']}", timeout=60) as made:
        yield made


def test_the_server_is_healthy_and_streams_the_model_of_the_folder(
    project: Project, client: httpx.Client
) -> None:
    assert project.state("unpaced")["Health"] == "healthy"
    (model,) = client.get("/v1/models").json()["data"]
    assert model["id"] == "/models/any.gguf"
    body = {"prompt": "Once upon a time", "max_tokens": 16, "ignore_eos": True, "stream": True}
    told = client.post("/v1/completions", json=body).text
    assert told.count("data: ") >= 16 and told.endswith("data: [DONE]\n\n")


def test_prometheus_started_after_it_and_has_its_figures(project: Project) -> None:
    assert project.state("prometheus")["State"] == "running"
    prometheus = Prometheus(f"http://127.0.0.1:{project.ports['prometheus']}")
    began, deadline = time.monotonic(), time.monotonic() + patience(60)
    while not prometheus.query('unpaced_engine_state{job="unpaced"}'):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    print(f"Prometheus had figures {time.monotonic() - began:.1f} s later")
    assert prometheus.query('up{job="unpaced"}') == {"up": 1}
    alerts = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    assert {rule["name"] for rule in prometheus.rules()} == set(
        re.findall(r"- alert: (\w+)", alerts)
    )


def test_a_stop_lets_a_stream_come_to_its_end(project: Project, client: httpx.Client) -> None:
    def is_ready() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return client.get("/health/ready").status_code == 200
        return False

    n_left = 0  # events that came when the stop had
    body = {"prompt": "Once upon a time", "max_tokens": 10000, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as answer:
        stopping = threading.Thread(target=project.compose, args=("stop", "unpaced"))
        stopping.start()
        told = []
        for line in filter(None, answer.iter_lines()):
            told.append(line)
            if n_left or (len(told) % 100 == 0 and not is_ready()):
                n_left += 1
    stopping.join(patience(90))
    assert n_left > 2
    assert told[-1] == "data: [DONE]" and '"finish_reason":"length"' in told[-2]
    assert project.state("unpaced")["ExitCode"] == 0
