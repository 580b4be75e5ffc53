"""A Ray Serve of this machine with the configuration of deploy/."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import yaml  # type: ignore[import-untyped]

from tests.bench.rig.server_process import ServerProcess, free_port

DEPLOYED: Final = Path(__file__).resolve().parents[3] / "deploy" / "ray" / "unpaced.yaml"
# Where `ray` and `serve` are: this environment's, or that of UNPACED_RAY_BIN.
BIN: Final = Path(os.environ.get("UNPACED_RAY_BIN") or Path(sys.executable).parent)

HAS_HA_PROXY: Final = os.environ.get("RAY_SERVE_ENABLE_HA_PROXY") == "1"
"""Ray, started from here, puts HAProxy in front; it takes no router of sessions then."""


def why_no_ray() -> str:
    """Why there is none to test with; empty: there is one."""
    is_there = shutil.which("serve", path=str(BIN)) is not None
    return "" if is_there else 'no Ray Serve (pip install "ray[serve]"; UNPACED_RAY_BIN names it)'


class Cluster:
    """Replicas behind one address."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder

    def client(self) -> httpx.Client:
        """A client; close it."""
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def replicas(self) -> set[int]:
        """The process ids of this cluster's replicas."""
        found = set()
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                name = (process / "cmdline").read_bytes()
                ours = str(self._folder).encode() in (process / "environ").read_bytes()
                if re.match(rb"ray::ServeReplica:\w+:unpaced", name) and ours:
                    found.add(int(process.name))
        return found


@contextlib.contextmanager
def ray_serve(n_cpus: int = 4, **arguments: Any) -> Iterator[Cluster]:
    """`serve run` of the deployed file, but for the port and these `args`.

    Ray has `n_cpus` to give to replicas, more than the machine may have.
    """
    config = yaml.safe_load(DEPLOYED.read_text())
    port = free_port()
    config["http_options"]["port"] = port
    config["applications"][0]["args"] |= arguments
    # Ray's sockets lie in it: a long path is too long for them.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "serve.yaml").write_text(yaml.safe_dump(config))
        env = {
            "RAY_TMPDIR": name,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        ray = [str(BIN / "ray"), "start", "--head", f"--num-cpus={n_cpus}"]
        ray += ["--disable-usage-stats"]
        head = free_port()
        # By default its workers have ports of the same range as `free_port`.
        ray += ["--min-worker-port=0", "--max-worker-port=0"]
        ray += [f"--port={head}", "--include-dashboard=false", f"--temp-dir={name}"]
        subprocess.run(ray, check=True, capture_output=True, env=os.environ | env)
        command = [str(BIN / "serve"), "run", f"--address=127.0.0.1:{head}"]
        process = ServerProcess([*command, str(folder / "serve.yaml")], env, port, folder / "log")
        try:
            process.wait_healthy(120)
            yield Cluster(port, folder)
        finally:
            process.stop()
            _stop(folder)


def _stop(folder: Path) -> None:
    """End the processes of this cluster, and of no other."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if f"RAY_TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), 9)
