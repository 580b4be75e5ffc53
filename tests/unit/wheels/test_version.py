"""The version stands in pyproject.toml alone; what shows one reads the installed package's."""

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import orjson
import pytest

from engine_ext import read_build_info
from tests.support.scripted.asgi_client import get
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Records of what was seen, other programs' versions, and what a version could look like.
ELSEWHERE = re.compile(
    r"\.lock$|^docs/bench/|^docs/docker\.md$|^CHANGELOG\.md$|package(-lock)?\.json$"
)
# These cannot ask for it: how each says it.
REPEATING = {
    "deploy/kubernetes/base/kustomization.yaml": r"newTag: (\S+)",
    "deploy/kubernetes/chart/Chart.yaml": r"(?:v|appV)ersion: (\S+)",
    "docs/kubernetes.md": r"/unpaced:(\S+)",
}


def test_the_command_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert version("unpaced") == PROJECT["version"]
    assert read_build_info().version == PROJECT["version"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"unpaced {PROJECT['version']} (llama.cpp ")


@pytest.mark.anyio
async def test_the_description_and_props_show_it() -> None:
    app = make_app(FakeEngine())
    described = await get(app, "/openapi.json").done()
    props = await get(app, "/props").done()
    assert orjson.loads(described.body)["info"]["version"] == PROJECT["version"]
    assert orjson.loads(props.body)["unpaced"]["version"] == PROJECT["version"]


def test_no_other_file_repeats_it() -> None:
    found = subprocess.run(
        ["git", "grep", "-lFIw", "--untracked", PROJECT["version"]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = [name for name in found.stdout.split() if not ELSEWHERE.search(name)]
    assert named == [*REPEATING, "pyproject.toml"]


@pytest.mark.parametrize("file", REPEATING)
def test_files_that_must_repeat_it_name_no_other(file: str) -> None:
    named = re.findall(REPEATING[file], (ROOT / file).read_text())
    assert len(named) == 2 - file.endswith("kustomization.yaml")
    assert set(named) == {PROJECT["version"]}


def test_the_changelog_knows_it() -> None:
    """It has a section of its own, or is the version in the making."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    is_in_the_making = f"The version in the making is {PROJECT['version']}." in text
    assert (PROJECT["version"] in headings) != is_in_the_making
