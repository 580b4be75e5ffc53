"""`make dist` starts with what `make build` installs, and nothing else of this environment."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("requirements.lock", "requirements-build.lock")
RUN = """
import runpy, sys
for name in {missing!r}:
    sys.modules[name] = None
sys.argv = ["make_dist.py", "--help"]
runpy.run_path({script!r}, run_name="__main__")
"""


def test_it_starts_with_the_packages_of_a_build_alone() -> None:
    locked = {
        _plain(name)
        for lock in LOCKS
        for name in re.findall(r"^([\w.-]+)==", (ROOT / lock).read_text(), re.MULTILINE)
    } | {"pip", "setuptools", "unpaced"}
    missing = [
        module
        for module, owners in packages_distributions().items()
        if not any(_plain(owner) in locked for owner in owners)
    ]
    assert "pytest" in missing
    script = str(ROOT / "scripts" / "wheels" / "make_dist.py")
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN.format(missing=missing, script=script)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Builds Unpaced's wheels" in done.stdout


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
