"""docs/clients.md names the versions that are locked."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_table_has_the_locked_versions() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ([\d.]+) \|",
        (ROOT / "docs" / "clients.md").read_text(),
        re.MULTILINE,
    )
    locked = dict(
        re.findall(
            r"^([\w-]+)==([\w.]+)", (ROOT / "requirements-clients.lock").read_text(), re.MULTILINE
        )
    )
    packages = json.loads((ROOT / "tests/e2e/clients/package-lock.json").read_text())["packages"]
    for path, package in packages.items():
        locked[path.removeprefix("node_modules/") + " (npm)"] = package.get("version")
    file = (ROOT / "tests/e2e/clients/vllm_file.py").read_text()
    locked["vllm"] = re.findall(r'^VERSION = "(.*)"', file, re.MULTILINE)[0]
    assert len(rows) >= 10
    for name, version in rows:
        assert locked[name] == version, name


def test_the_npm_lock_names_no_host() -> None:
    lock = (ROOT / "tests/e2e/clients/package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert all("registry" not in line for line in lock.splitlines())
