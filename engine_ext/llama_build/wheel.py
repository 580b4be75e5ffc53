"""The wheel: compiled from the prepared source, checked, installed."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from . import pins
from .errors import BuildError
from .inputs import Inputs
from .prefix_map import prefix_map
from .profile import Profile
from .source import Source
from .step import run, say

# The build backend's hook, called in the source tree; arguments: wheel folder, settings (JSON).
_HOOK = (
    "import json, sys; from scikit_build_core.build import build_wheel;"
    "build_wheel(sys.argv[1], json.loads(sys.argv[2]))"
)


class Wheel:
    """Lies in `.build/wheels/<digest of its inputs>/`."""

    def __init__(self, base: Path, inputs: Inputs) -> None:
        self._base, self._inputs = base, inputs
        self._folder = base / "wheels" / inputs.digest

    @property
    def path(self) -> Path | None:
        return next(self._folder.glob("*.whl"), None)

    def compile(self, source: Source, n_jobs: int) -> None:
        """Takes minutes. Raises BuildError if the build or the check of the wheel fails."""
        source.write_profile(self._inputs)
        settings = {f"cmake.define.{key}": value for key, value in self._defines(source).items()}
        settings["wheel.exclude"] = pins.WHEEL_EXCLUDE
        build = self._base / "llama" / self._inputs.digest
        settings["build-dir"] = str(build)
        partial = self._folder.with_name(self._folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        run(
            [sys.executable, "-P", "-c", _HOOK, str(partial), json.dumps(settings)],
            what="compiling llama.cpp",
            cwd=source.tree,
            log=self._base / "logs" / f"llama-{self._inputs.profile.name}.log",
            env=self._environment(n_jobs),
            build_file=build / "build.ninja",
            n_jobs=n_jobs,
        )
        check_wheel(next(partial.glob("*.whl")), self._inputs.profile)
        partial.rename(self._folder)

    def install(self) -> bool:
        """For the interpreter that runs this. False if this very build is installed already."""
        if self.path is None:
            raise BuildError("There is no wheel to install.")
        if _installed_digest() == self._inputs.digest:
            return False
        say("install", self.path.name)
        options = ["--quiet", "--no-deps", "--no-index", "--force-reinstall"]
        command = [sys.executable, "-P", "-m", "pip", "install", *options, str(self.path)]
        done = subprocess.run(command)
        if done.returncode != 0:
            raise BuildError(f"pip could not install {self.path.name} (exit {done.returncode}).")
        return True

    def _defines(self, source: Source) -> dict[str, str]:
        toolkit = self._inputs.toolkit
        here = toolkit.defines() if toolkit else {}
        languages = ("C", "CXX", "CUDA") if toolkit else ("C", "CXX")
        if ccache := shutil.which("ccache"):
            here |= {f"CMAKE_{language}_COMPILER_LAUNCHER": ccache for language in languages}
        if self._inputs.profile.is_portable:
            for language in languages:
                here[f"CMAKE_{language}_FLAGS"] = prefix_map(source.tree / "vendor", language)
        return self._inputs.defines | here

    def _environment(self, n_jobs: int) -> dict[str, str]:
        tools = str(Path(sys.executable).parent)
        ccache = str(self._base / "cache" / "ccache")
        return {
            "CCACHE_DIR": os.environ.get("CCACHE_DIR", ccache),
            "CMAKE_BUILD_PARALLEL_LEVEL": str(n_jobs),
            "CMAKE_GENERATOR": "Ninja",
            "GIT_CEILING_DIRECTORIES": str(self._base / "src"),
            "PATH": os.pathsep.join([tools, os.environ.get("PATH", os.defpath)]),
        }


def require_tools() -> None:
    """Raises BuildError unless this interpreter has the build's own tools."""
    lacking = [
        name
        for name in ("scikit_build_core", "cmake", "ninja")
        if importlib.util.find_spec(name) is None
    ]
    if lacking:
        raise BuildError(
            f"{sys.executable} lacks {', '.join(lacking)}: run `make build`, or install "
            "requirements-build.lock there."
        )


def check_wheel(wheel: Path, profile: Profile) -> None:
    """Raises BuildError unless each library is there once, no version in its name or its links."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        libraries = sorted(name for name in names if re.search(r"\.so(\.|$)", name))
        wrong = [name for name in names if not name.startswith(("llama_cpp/", "llama_cpp_python-"))]
        wrong += [name for name in libraries if not _fits(name, archive.read(name))]
        info = json.loads(archive.read(pins.INFO_FILE))
    needed = (*pins.LIBRARIES, "libggml-cuda.so") if profile.is_cuda else pins.LIBRARIES
    missing = {f"llama_cpp/lib/{name}" for name in needed} - set(libraries)
    missing |= {pins.LICENSE_FILE} - set(names)
    if not any(name.startswith("llama_cpp/lib/libggml-cpu") for name in libraries):
        missing.add("llama_cpp/lib/libggml-cpu*.so")
    if wrong or missing or len(set(names)) != len(names):
        raise BuildError(
            f"{wheel.name} must hold one unversioned copy of each library; "
            f"missing: {sorted(missing)}, wrong: {wrong}, all: {libraries}."
        )
    if info["profile"] != profile.name or f"-{profile.version}-" not in wheel.name:
        raise BuildError(f"{wheel.name} does not carry the profile {profile.name!r}.")
    say("check", f"{len(libraries)} libraries, one copy each")


def _fits(name: str, content: bytes) -> bool:
    versioned = re.search(rb"\0lib(?:llama|ggml)[\w-]*\.so\.\d", content)
    return bool(re.fullmatch(r"llama_cpp/lib/lib(llama|ggml(-\w+)*)\.so", name)) and not versioned


def _installed_digest() -> str | None:
    spec = importlib.util.find_spec("llama_cpp")  # located, not imported
    for folder in (spec.submodule_search_locations or []) if spec else []:
        with contextlib.suppress(OSError, ValueError, KeyError):
            info = json.loads((Path(folder) / Path(pins.INFO_FILE).name).read_text())
            return str(info["inputs"])
    return None
