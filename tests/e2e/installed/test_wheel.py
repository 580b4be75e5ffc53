"""`make dist` makes a wheel that serves the demo model from an environment with nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def dist() -> Path:
    """The folder of the wheel for this Python; building it takes many minutes the first time."""
    subprocess.run(["make", "dist", f"PYTHONS={sys.executable}"], cwd=ROOT, check=True)
    return ROOT / "dist"


@pytest.mark.packaging
@pytest.mark.timeout(7200)
def test_a_wheel_is_installed_and_serves(dist: Path, tmp_path: Path) -> None:
    # A registry is asked for what it depends on; no compiler is in the path.
    (tmp_path / "python3").symlink_to(sys.executable)
    (tmp_path / "libllama.so").write_text("somebody else's")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "wheels" / "try_wheel.py", dist, "--limit", "120"],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "from nothing to an answer" in done.stdout
