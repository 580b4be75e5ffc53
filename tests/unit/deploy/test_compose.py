"""Docker Compose itself reads the compose files of deploy/, and what it makes fits the server.

It needs no engine for that: `make test-deploy` installs the program.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.docker_compose import docker_compose
from unpaced.settings import Settings

ROOT: Final = Path(__file__).resolve().parents[3]
CPU: Final = ("deploy/compose.yaml",)
GPU: Final = ("deploy/compose.yaml", "deploy/compose.gpu.yaml")


def asked(files: tuple[str, ...], **variables: str) -> subprocess.CompletedProcess[str]:
    """`docker compose config` with these files; skips without the program."""
    named = [word for file in files for word in ("-f", file)]
    command = [docker_compose(), *named, "config", "--format", "json"]
    env = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


def services(files: tuple[str, ...], **variables: str) -> dict[str, Any]:
    """The services with everything filled in; nothing may be complained of."""
    done = asked(files, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    made: dict[str, Any] = json.loads(done.stdout)["services"]
    return made


@pytest.mark.parametrize("files", [CPU, GPU])
def test_the_server_is_locked_down_and_on_this_machine_alone(files: tuple[str, ...]) -> None:
    made = services(files)
    server = made["unpaced"]
    assert server["read_only"] is True and server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]
    (port,) = server["ports"]
    assert (port["host_ip"], port["target"]) == ("127.0.0.1", Settings().port)
    assert all(one["host_ip"] == "127.0.0.1" for each in made.values() for one in each["ports"])


def test_what_is_mounted_is_there() -> None:
    mounts = [mount for each in services(CPU).values() for mount in each["volumes"]]
    bound = {Path(mount["source"]) for mount in mounts if mount["type"] == "bind"}
    assert ROOT / "models" in bound
    assert [path for path in bound - {ROOT / "models"} if not path.exists()] == []
    assert all(mount["read_only"] for mount in mounts if mount["type"] == "bind")


def test_the_image_is_built_from_the_checkout_with_arguments_that_it_has() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    for files, profile in ((CPU, "cpu-portable"), (GPU, "cuda-portable")):
        build = services(files)["unpaced"]["build"]
        assert (build["context"], build["dockerfile"]) == (str(ROOT), "Dockerfile")
        assert build["args"]["PROFILE"] == profile
        for name in build["args"]:
            assert re.search(rf"^ARG {name}\b", dockerfile, re.MULTILINE), name
        assert (ROOT / "engine_ext" / "profiles" / f"{profile}.toml").is_file()


def test_a_stop_waits_longer_than_the_server_drains() -> None:
    grace = services(CPU)["unpaced"]["stop_grace_period"]
    drain, stop = Settings().drain_timeout, Settings().stop_timeout
    minutes, seconds = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", grace).groups()  # type: ignore[union-attr]
    assert 60 * int(minutes or 0) + int(seconds or 0) > drain + stop


def test_prometheus_waits_for_a_server_that_is_healthy() -> None:
    """The image's HEALTHCHECK says when."""
    waits = services(CPU)["prometheus"]["depends_on"]["unpaced"]
    assert waits["condition"] == "service_healthy"
    assert "HEALTHCHECK" in (ROOT / "Dockerfile").read_text()


def test_variables_choose_the_model_and_the_cards() -> None:
    assert services(CPU)["unpaced"]["environment"] == {"UNPACED_MODEL": ""}
    made = services(GPU, UNPACED_MODEL="/models/any.gguf", UNPACED_GPUS="2")["unpaced"]
    assert made["environment"] == {"UNPACED_MODEL": "/models/any.gguf"}
    (cards,) = made["deploy"]["resources"]["reservations"]["devices"]
    assert (cards["driver"], cards["capabilities"], cards["count"]) == ("nvidia", ["gpu"], 2)
    (every,) = services(GPU)["unpaced"]["deploy"]["resources"]["reservations"]["devices"]
    assert every["count"] == -1  # its word for all


def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    done = asked(GPU, UNPACED_GPUS="many")
    assert done.returncode != 0 and "count" in done.stderr
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((ROOT / CPU[0]).read_text().replace("read_only:", "readonly:"))
    done = asked((str(wrong),))
    assert done.returncode != 0 and "readonly" in done.stderr
