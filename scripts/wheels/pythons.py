"""The interpreters that wheels are built for, each with an environment of its own."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from engine_ext.llama_build.errors import BuildError
from engine_ext.llama_build.step import run, say

# The extension for 3.12 uses the stable ABI: it serves every later version too.
ABI3 = (3, 12)
_ASK = (
    "import sys, sysconfig, pathlib as p; print(*sys.version_info[:2],"
    "(p.Path(sysconfig.get_paths()['include']) / 'Python.h').is_file())"
)
_LOCKS = ("requirements-build.lock", "requirements-dist.lock")


@dataclass(frozen=True, slots=True)
class BuildPython:
    """`base`: the interpreter; `folder`: its environment, with what builds."""

    base: str
    version: tuple[int, int]
    folder: Path

    @property
    def tag(self) -> str:
        return f"cp{self.version[0]}{self.version[1]}"

    @property
    def title(self) -> str:
        later = " and later" if self.version >= ABI3 else ""
        return f"Python {self.version[0]}.{self.version[1]}{later}"

    @property
    def executable(self) -> str:
        return str(self.folder / "bin" / "python")

    def prepare(self, root: Path) -> None:
        """Makes the environment, or finds it up to date. Raises BuildError."""
        locks = [root / name for name in _LOCKS]
        state = "\n".join(path.read_text() for path in locks)
        mark = self.folder / "state"
        if mark.is_file() and mark.read_text() == state:
            return
        say("packages", f"for {self.title}: {', '.join(_LOCKS)}")
        shutil.rmtree(self.folder, ignore_errors=True)
        log = root / ".build" / "logs" / f"dist-env-{self.tag}.log"
        what = f"making an environment of {self.base}"
        run([self.base, "-m", "venv", str(self.folder)], what=what, cwd=root, log=log, env={})
        install = [self.executable, "-P", "-m", "pip", "install", "--no-deps", "--require-hashes"]
        for path in locks:
            install += ["-r", str(path)]
        run(install, what="installing what builds", cwd=root, log=log, env={})
        mark.write_text(state)


def found_pythons(wanted: list[str], work: Path) -> list[BuildPython]:
    """Those wanted, or python3.11 and the oldest later one that this machine has.

    Raises BuildError for a wanted one that is not there or lacks its headers, and if none is there.
    """
    if wanted:
        return [_made(name, work) for name in wanted]
    older = _first(["python3.11"], work)
    later = _first([f"python3.{minor}" for minor in range(ABI3[1], ABI3[1] + 4)], work)
    found = [python for python in (older, later) if python is not None]
    if not found:
        raise BuildError("No python3.11 or later with its headers is here (python3-dev).")
    if older is None:
        say("left out", "Python 3.11, which this machine does not have")
    if later is None:
        say("left out", "Python 3.12 and later, none of which this machine has")
    return found


def _first(names: list[str], work: Path) -> BuildPython | None:
    return next((python for name in names if (python := _ask(name, work)) is not None), None)


def _made(name: str, work: Path) -> BuildPython:
    python = _ask(name, work)
    if python is None:
        raise BuildError(f"{name} is not here, or lacks its headers (python3-dev).")
    return python


def _ask(name: str, work: Path) -> BuildPython | None:
    try:
        done = subprocess.run([name, "-c", _ASK], capture_output=True, text=True)
    except OSError:
        return None
    if done.returncode != 0:  # pyenv's stand-ins are there for versions that are not
        return None
    major, minor, has_headers = done.stdout.split()
    version = (int(major), int(minor))
    if has_headers != "True" or version < (3, 11):
        return None
    return BuildPython(name, version, work / f"python-{major}.{minor}")
