"""The lock files: hashes for every package, the same versions in all, one release of CUDA."""

import re
from pathlib import Path

import pytest

from engine_ext.llama_build.choice import CUDA

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("requirements-cuda.lock", "requirements-cuda-build.lock")


def packages(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.glob("requirements*.lock")))
def test_every_package_of_every_lock_file_has_hashes(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.split(r"\n(?=\S)", text)
    entries = [entry for entry in entries if re.match(r"[\w.-]+==", entry)]
    assert entries
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text  # no registry's address


def test_what_a_server_loads_is_what_it_was_linked_to() -> None:
    loaded, built = (packages(name) for name in LOCKS)
    assert set(loaded) == {"nvidia-cublas", "nvidia-cuda-runtime"}
    assert loaded.items() <= built.items()
    assert {"nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl"} <= set(built)


def test_the_packages_are_of_the_release_that_drivers_are_asked_for() -> None:
    built = packages(LOCKS[1])
    built.pop("nvidia-cublas")  # it counts by itself
    assert {tuple(map(int, version.split(".")[:2])) for version in built.values()} == {CUDA}
    project = (ROOT / "pyproject.toml").read_text()
    pinned = set(re.findall(r"cuda-toolkit\[[\w,]+\]==(\d+\.\d+)", project))
    assert pinned == {".".join(map(str, CUDA))}


def test_the_image_s_traces_are_those_that_tests_run() -> None:
    traces, tested = packages("requirements-otel.lock"), packages("requirements-dev.lock")
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"} <= set(traces)
    assert traces.items() <= tested.items()
    shared = traces.keys() & packages("requirements.lock").keys()
    assert {name: traces[name] for name in shared}.items() <= packages("requirements.lock").items()
    # They reach the builder, which sees only what .dockerignore lets in.
    assert "-r requirements-otel.lock" in (ROOT / "Dockerfile").read_text()
    assert "!requirements-otel.lock" in (ROOT / ".dockerignore").read_text().splitlines()
