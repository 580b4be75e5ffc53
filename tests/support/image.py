"""The Dockerfile's image, built by buildah and run by podman: neither needs a daemon.

UNPACED_IMAGE names an image that is there already and is only run; UNPACED_IMAGE_PROFILE the build
profile (cpu-portable); UNPACED_IMAGE_BUILD more options of `buildah bud`. The base image's place is
taken by a Debian of debootstrap, so no registry of images is asked.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from tests.bench.rig.server_process import free_port
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("UNPACED_IMAGE_PROFILE", "cpu-portable")
BASE = "localhost/unpaced-test-base"
IMAGE = os.environ.get("UNPACED_IMAGE") or f"localhost/unpaced-test:{PROFILE}"
# Slower than overlay, but it needs nothing of the kernel.
_STORAGE = ("--storage-driver", os.environ.get("STORAGE_DRIVER", "vfs"))
_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def why_not() -> str:
    """What is missing here to build and run images; empty: nothing."""
    tools = [name for name in ("buildah", "podman", "debootstrap") if shutil.which(name) is None]
    if tools:
        return f"no {', '.join(tools)} on the PATH (Debian: apt-get install {' '.join(tools)})"
    return "" if os.geteuid() == 0 else "needs root: debootstrap does"


def with_storage(program: str, *arguments: str) -> list[str]:
    """Both programs have one place for images: they do not heed the same variables and files."""
    return [program, *_STORAGE, *arguments]


def tool(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs buildah or podman; its standard output is text.

    Raises: subprocess.CalledProcessError.
    """
    given = {"check": True, "text": True, "stdout": subprocess.PIPE} | options
    return subprocess.run(with_storage(*command), **given)


def build_image() -> None:
    """As `docker build` would, unless UNPACED_IMAGE names one. Minutes."""
    if "UNPACED_IMAGE" in os.environ:
        return
    make_base()
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as pip_conf:
        pip_conf.write(_pip_conf())
        pip_conf.flush()
        tool(
            *("buildah", "bud", "--isolation", "chroot", "--network", "host", "--pull=false"),
            *("--format", "docker", "--tag", IMAGE),  # the OCI's own has no HEALTHCHECK
            *("--build-arg", f"BASE={BASE}", "--build-arg", f"PROFILE={PROFILE}"),
            *("--build-arg", f"VERSION={version('unpaced')}"),
            *("--secret", f"id=pip,src={pip_conf.name}"),
            *("--volume", f"{_CA_BUNDLE}:{_CA_BUNDLE}:ro"),
            *shlex.split(os.environ.get("UNPACED_IMAGE_BUILD", "")),
            str(ROOT),
            stdout=None,
        )


def image_config() -> dict[str, Any]:
    """What the image says of itself: User, Entrypoint, Env and so on."""
    found = json.loads(tool("podman", "image", "inspect", IMAGE).stdout)[0]
    config: dict[str, Any] = found["Config"] | {"Healthcheck": found["Healthcheck"]}
    return config


class Container:
    """A container that runs; podman stands for docker."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)

    def execute(self, *command: str) -> str:
        """Standard output of a command in it that must succeed."""
        return tool("podman", "exec", self.name, *command).stdout

    def health(self) -> int:
        """Exit status of the HEALTHCHECK."""
        return tool("podman", "healthcheck", "run", self.name, check=False).returncode

    def wait_healthy(self) -> None:
        """Raises: TimeoutError with the log."""
        deadline = time.monotonic() + patience(60)
        while self.health() != 0:
            if time.monotonic() > deadline or not self._is_running():
                raise TimeoutError(self.log())
            time.sleep(0.2)

    def log(self) -> str:
        """What it wrote."""
        return tool("podman", "logs", self.name, stderr=subprocess.STDOUT).stdout

    def stop(self) -> int:
        """SIGTERM, as `docker stop` sends it; the exit status. Seconds that it had: 30."""
        tool("podman", "stop", "--time", "30", self.name)
        return int(tool("podman", "inspect", "--format", "{{.State.ExitCode}}", self.name).stdout)

    def _is_running(self) -> bool:
        state = tool("podman", "inspect", "--format", "{{.State.Running}}", self.name).stdout
        return state.strip() == "true"


@contextlib.contextmanager
def running(*arguments: str, options: tuple[str, ...] = ()) -> Iterator[Container]:
    """`docker run OPTIONS IMAGE ARGUMENTS` with the host's network and a free port."""
    port = free_port()
    name = f"unpaced-test-{port}"
    environment = ("--env", f"UNPACED_PORT={port}", "--env", "LLAMA_ARG_THREADS=1")
    command = [*run_command("--detach", "--name", name, *environment, *options), *arguments]
    tool(*command)
    container = Container(name, port)
    try:
        yield container
    finally:
        container.client.close()
        tool("podman", "rm", "--force", "--time", "5", name)


def run_command(*options: str) -> list[str]:
    """`podman run OPTIONS IMAGE` as far as this machine's kernel and rights allow it."""
    # Where cgroups are of both versions crun refuses to start; limits may not be raised everywhere.
    limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
    return [*podman_command(), "run", "--network", "host", *limits, *options, IMAGE]


def podman_command() -> list[str]:
    """podman with a runtime that starts on this machine."""
    runtime = ("--runtime", "runc", "--cgroup-manager", "cgroupfs") if shutil.which("runc") else ()
    return ["podman", *runtime]


def make_base() -> None:
    """A Debian with its own Python takes the place of python:3.x-slim; once for each store."""
    if not subprocess.run(with_storage("buildah", "inspect", BASE), capture_output=True).returncode:
        return
    suite = re.search(r"^ARG BASE=.*-(\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert suite is not None
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        packages = "--include=ca-certificates,python3,python3-dev,python3-venv"
        debian = ["debootstrap", "--variant=minbase", packages, suite[1], folder]
        subprocess.run(debian, check=True, stdout=subprocess.DEVNULL)
        (Path(folder) / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        shutil.rmtree(Path(folder) / "var/cache/apt/archives")
        container = tool("buildah", "from", "scratch").stdout.strip()
        mounted = tool("buildah", "mount", container).stdout.strip()
        subprocess.run(["cp", "-a", f"{folder}/.", mounted], check=True)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    tool("buildah", "config", "--env", f"PATH={path}", container)
    tool("buildah", "commit", "--rm", "--quiet", container, BASE)


def _pip_conf() -> str:
    """This machine's way to its registry of packages, but for folders that the build has not."""
    lines = ["[global]", f"cert = {_CA_BUNDLE}"]
    listed = subprocess.run(["pip", "config", "list"], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout"):
            urls = [word for word in value.strip("'").split() if not word.startswith("file:")]
            if urls:
                lines.append(f"{name} = {' '.join(urls)}")
    return "\n".join(lines) + "\n"
