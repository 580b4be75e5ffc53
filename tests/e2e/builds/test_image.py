"""The image of the Dockerfile: built by buildah, run by podman as docs/docker.md runs it.

Slow, some minutes of compiling: `pytest -m packaging tests/e2e/builds/test_image.py`, as root.
tests/support/image.py has the variables that choose another profile or an image that is there.
"""

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.support.hub import serving_hub
from tests.support.image import (
    PROFILE,
    ROOT,
    build_image,
    image_config,
    run_command,
    running,
    tool,
    why_not,
)
from tests.support.monitoring.otlp_receiver import receiving
from unpaced.settings.model import DEMO_MODEL

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(why_not() != "", reason=why_not()),
]

LOCKED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
# A CUDA build starts without a driver when it is told to.
NO_GPU = ("-ngl", "0") if "cuda" in PROFILE else ()


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build_image()


def test_it_says_who_it_is() -> None:
    shown = tool(*run_command("--rm"), "--version").stdout
    assert shown.startswith("unpaced ")
    assert f"build profile {PROFILE}" in shown


def test_it_serves_locked_down_as_anybody_and_ends_with_status_0() -> None:
    options = (*LOCKED, "--user", "4321:4321")
    with running("serve", *NO_GPU, options=options) as container:
        container.wait_healthy()
        assert "Uid:\t4321" in container.execute("cat", "/proc/1/status")
        assert container.client.get("/health").json()["status"] == "ok"
        body = {"prompt": "Once upon a time", "n_predict": 8, "ignore_eos": True}
        answer = container.client.post("/completion", json=body).json()
        assert answer["tokens_predicted"] == 8
        assert answer["content"].strip()
        assert f'profile="{PROFILE}"' in container.client.get("/metrics").text
        assert container.stop() == 0


def test_it_can_send_traces() -> None:
    with receiving() as receiver:
        told = {"UNPACED_TRACES": "1", "OTEL_BSP_SCHEDULE_DELAY": "100"}
        told["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.url
        options = [word for item in told.items() for word in ("--env", "=".join(item))]
        with running("serve", *NO_GPU, options=(*LOCKED, *options)) as container:
            container.wait_healthy()
            answer = container.client.post("/completion", json={"prompt": "x", "n_predict": 2})
            assert answer.status_code == 200
            spans = {span.name for span in receiver.wait(4)}
            assert spans == {"POST /completion", "queue", "prefill", "decode"}


def test_nobody_needs_to_be_told_who_it_runs_as() -> None:
    with running("serve", *NO_GPU) as container:
        container.wait_healthy()
        assert "Uid:\t10001" in container.execute("cat", "/proc/1/status")
        assert container.stop() == 0


def test_it_is_ill_while_it_does_not_serve() -> None:
    with running(
        "-c", "import time; time.sleep(60)", options=("--entrypoint", "python")
    ) as container:
        assert container.health() == 1


def test_a_model_is_downloaded_into_the_volume_and_found_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    options = (*LOCKED, "--user", "4321:4321", "--volume", f"{tmp_path}:/cache")
    with serving_hub({"demo-Q8_0.gguf": DEMO_MODEL.read_bytes()}) as hub:
        hub_options = (*options, "--env", f"HF_ENDPOINT={hub.url}", "--env", "HF_HUB_DISABLE_XET=1")
        arguments = ("serve", "-hf", "user/repo", *NO_GPU)
        with running(*arguments, options=hub_options) as container:
            container.wait_healthy()
    assert [file.name for file in tmp_path.rglob("*.gguf")] == ["demo-Q8_0.gguf"]
    with running(*arguments, "--offline", options=options) as container:
        container.wait_healthy()


def test_it_holds_nothing_that_only_a_build_needs() -> None:
    look = "command -v gcc g++ c++ cc nvcc ninja cmake ccache make curl || true"
    assert tool(*run_command("--rm", "--entrypoint", "sh"), "-c", look).stdout == ""
    listed = tool(*run_command("--rm", "--entrypoint", "find"), "/opt/unpaced").stdout
    names = {Path(line).name for line in listed.splitlines()}
    packages = set(re.findall(r"/site-packages/([\w-]+)$", listed, re.MULTILINE))
    assert not packages & {"pip", "cmake", "ninja", "nanobind", "numpy", "tests", "csrc"}
    assert not names & {"nvcc", "cicc", "cublas_v2.h", "llama.h", "train_demo.py", "build_llama.py"}
    assert not [name for name in names if name.endswith((".a", ".cu", ".cpp"))]
    # Whoever gets the image gets the licenses of what is compiled into it.
    assert {"LICENSE", "llama.cpp-LICENSE", "nanobind-LICENSE"} <= names
    if "cuda" in PROFILE:
        assert re.search(r"/nvidia_cublas-[\d.]+\.dist-info/licenses/License\.txt$", listed, re.M)
        assert re.search(
            r"/nvidia_cuda_runtime-[\d.]+\.dist-info/licenses/License\.txt$", listed, re.M
        )
    # Each library of llama.cpp once, none in a wheel that was left behind.
    libraries = [line for line in listed.splitlines() if re.search(r"/lib(llama|ggml).*\.so", line)]
    assert len(libraries) == len({Path(line).name for line in libraries}) >= 4


def test_what_an_orchestrator_reads_of_it() -> None:
    config = image_config()
    assert config["User"] == "10001:10001"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "unpaced", "health", "--timeout", "2"]
    prefix = "org.opencontainers.image."
    labels = {
        key.removeprefix(prefix): text
        for key, text in config["Labels"].items()
        if key.startswith(prefix)
    }
    # Its own word for it, which has it from the same place.
    assert f"unpaced {labels['version']} " in tool(*run_command("--rm"), "--version").stdout
    assert labels["licenses"] == "MIT"
    assert {"title", "description", "revision", "source"} <= set(labels)
    # What NVIDIA's container toolkit looks for; without it they say nothing.
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= set(
        config["Env"]
    )


def commands_of_the_page() -> list[str]:
    """Every `docker run` of docs/docker.md that this profile is for."""
    text = (ROOT / "docs" / "docker.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^ *docker run (.*?)(?:\s+#.*)?$", text, re.MULTILINE)
    return [command for command in commands if ("--gpus" in command) == ("cuda" in PROFILE)]


@pytest.mark.parametrize("command", commands_of_the_page())
def test_a_command_of_the_page(command: str, tmp_path: Path) -> None:
    """Less what another machine is needed for: port mapping, a GPU, Hugging Face."""
    models, cache = tmp_path / "models", tmp_path / ".cache" / "huggingface"
    cache.mkdir(parents=True)
    models.mkdir()
    (models / "any.gguf").write_bytes(DEMO_MODEL.read_bytes())
    for folder in (tmp_path, cache):
        os.chown(folder, 4321, 4321)
    for told, here in (
        ("$PWD", str(tmp_path)),
        ("$HOME", str(tmp_path)),
        ("$(id -u):$(id -g)", "4321:4321"),
        ("--rm", ""),
        ("-p 8080:8080", ""),
        ("--gpus all", ""),
    ):
        command = command.replace(told, here)
    words = shlex.split(re.sub(r"-hf \S+", "-hf user/repo", command))
    at = next(i for i, word in enumerate(words) if word.startswith("unpaced") and "/" not in word)
    arguments = words[at + 1 :] or ["serve"]
    with serving_hub({"demo-Q8_0.gguf": DEMO_MODEL.read_bytes()}) as hub:
        options = (*words[:at], "--env", f"HF_ENDPOINT={hub.url}", "--env", "HF_HUB_DISABLE_XET=1")
        with running(*arguments, *NO_GPU, options=options) as container:
            container.wait_healthy()
            assert container.stop() == 0
    assert not [file for file in cache.rglob("*") if file.stat().st_uid != 4321]
