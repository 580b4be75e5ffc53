"""-hf and -mu against a hub on this machine: choice of file, resuming, offline."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gguf_files import split_model
from tests.support.hub import COMMIT, Hub, serving_hub
from tests.support.server import UNPACED, serving
from unpaced.download.hugging_face import fetch_from_hub
from unpaced.settings.model import DEMO_MODEL

DEMO = DEMO_MODEL.read_bytes()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving_hub(
        {
            "README.md": b"x",
            "demo-F16.gguf": b"not a model",
            "mmproj-demo-Q4_K_M.gguf": b"not a model",
            "demo-Q8_0.gguf": DEMO,
        }
    ) as hub:
        yield hub


@pytest.fixture
def env(hub: Hub, tmp_path: Path) -> dict[str, str]:
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
    }


def dry_run(*flags: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(UNPACED), "--dry-run", *flags],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )


def test_a_repository_is_downloaded_served_and_then_needs_no_network(
    hub: Hub, env: dict[str, str], tmp_path: Path
) -> None:
    early = dry_run("-hf", "user/repo", env=env)
    assert early.returncode == 1
    assert "user/repo is not in" in early.stderr
    flags = ("-hf", "user/repo", "-c", "64", "--hf-token", "secret")
    with serving(*flags, env=env) as server:
        log = server.logged()
        assert f"sha256 {hub.sha256('demo-Q8_0.gguf')}" in log
        assert "secret" not in log
        assert server.client.get("/models").json()["data"][0]["id"] == "user/repo"
        assert server.complete(prompt="x", n_predict=2, ignore_eos=True)["tokens_predicted"] == 2
    assert "Bearer secret" in hub.keys
    n_downloads = len(hub.ranges)
    with serving(*flags, env=env) as server:
        assert len(hub.ranges) == n_downloads
    with serving(*flags, "--offline", env=env | {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        pass
    done = dry_run("-hf", "user/repo:q8_0", env=env)
    assert done.returncode == 0, done.stderr
    assert COMMIT in done.stdout
    folder = tmp_path / "home" / "hub" / "models--user--repo"
    assert not (folder / "snapshots" / COMMIT / "demo-F16.gguf").exists()


def test_an_interrupted_download_goes_on(
    hub: Hub, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (env | {"LLAMA_CACHE": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    # The hub's library writes pieces of 10 MB; what came of a piece before the cut is lost.
    data = os.urandom(24_000_000)
    hub.files = {"big-Q4_K_M.gguf": data}
    hub.cut_after, hub.n_cuts = 21_000_000, 1
    path = fetch_from_hub("user/repo", "", "", token=None, offline=False)
    assert path.read_bytes() == data
    assert hub.ranges[0] is None
    assert hub.ranges[1] is not None and int(hub.ranges[1][6:].partition("-")[0]) >= 10_000_000


def test_a_split_model_comes_whole(env: dict[str, str], hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    split_model(folder)
    hub.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    with serving("-hf", "user/repo", "-c", "64", env=env) as server:
        assert server.complete(prompt="x", n_predict=2, ignore_eos=True)["tokens_predicted"] == 2
    assert len(hub.ranges) == 3


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("-hf", "user/repo:Q2_K"), "user/repo has no Q2_K file; there are: demo-F16.gguf"),
        (("-hf", "user/repo", "-hff", "x.gguf"), "user/repo has no file x.gguf"),
        (("-hf", "user/other"), "Hugging Face has no repository user/other"),
        (("-hf", "user/repo", "-m", "x.gguf"), "--model and --hf-repo name two models"),
        (("-hf", "repo"), "--hf-repo: must be USER/REPO"),
        (("-hff", "x"), "--hf-file: needs --hf-repo"),
        (("-hf", "user/repo", "--offline"), "user/repo is not in"),
        (("-mu", "ftp://x"), "--model-url: must begin with http"),
    ],
)
def test_what_cannot_be_had_is_said(env: dict[str, str], flags: tuple[str, ...], text: str) -> None:
    done = subprocess.run(
        [str(UNPACED), *flags],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode == 1
    assert text in done.stderr


def test_an_unreachable_hub_is_said_at_once(env: dict[str, str]) -> None:
    env["HF_ENDPOINT"] = "http://127.0.0.1:9"
    started = time.monotonic()
    done = subprocess.run(
        [str(UNPACED), "-hf", "user/repo"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )
    assert time.monotonic() - started < 15  # with the hub library's retries it were 23 more
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_network_the_cache_is_served_at_once(env: dict[str, str]) -> None:
    with serving("-hf", "user/repo", "-c", "64", env=env):
        pass
    started = time.monotonic()
    with serving("-hf", "user/repo", "-c", "64", env=env | {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        assert time.monotonic() - started < 15


def test_a_busy_hub_is_asked_again(hub: Hub, env: dict[str, str]) -> None:
    hub.n_busy = 1
    with serving("-hf", "user/repo", "-c", "64", env=env) as server:
        assert "the hub answers 503; again in 1 s" in server.logged()


def test_a_wrong_checksum_is_not_served(hub: Hub, env: dict[str, str], tmp_path: Path) -> None:
    hub.wrong_sha256 = True
    done = subprocess.run(
        [str(UNPACED), "-hf", "user/repo"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode == 1
    assert "has another sha256" in done.stderr
    assert not list((tmp_path / "home").rglob("demo-Q8_0.gguf"))


def test_a_url_is_downloaded_and_resumed(hub: Hub, env: dict[str, str], tmp_path: Path) -> None:
    hub.cut_after = 1_000_000
    url = f"{hub.url}/user/repo/resolve/main/demo-Q8_0.gguf"
    flags = ("-mu", url, "-c", "64", "--hf-token", "secret")
    with serving(*flags, env=env | {"LLAMA_CACHE": str(tmp_path)}) as server:
        assert f"sha256 {hub.sha256('demo-Q8_0.gguf')}" in server.logged()
        assert server.complete(prompt="x", n_predict=2, ignore_eos=True)["tokens_predicted"] == 2
    assert hub.ranges == [None, "bytes=1000000-"]
    assert hub.keys == {None}  # the token is for Hugging Face only
    assert (tmp_path / "demo-Q8_0.gguf").read_bytes() == DEMO
    assert [path.name for path in tmp_path.glob("*.partial*")] == []
    with serving(*flags, "-m", str(tmp_path / "demo-Q8_0.gguf"), env=env):
        assert len(hub.ranges) == 2
