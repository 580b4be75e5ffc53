"""Everything that decides what a wheel contains, and its hash."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import pins
from .choice import Choice
from .errors import BuildError
from .profile import Profile
from .toolkit import Toolkit


@dataclass(frozen=True, slots=True)
class Inputs:
    """Equal inputs share one wheel."""

    profile: Profile
    defines: dict[str, str]
    compiler: str  # first line of `c++ --version`
    cpu: str  # the processor's features if the profile compiles for them, else ""
    toolkit: Toolkit | None  # CUDA's, for a profile that needs one

    @classmethod
    def collect(cls, choice: Choice, toolkit: Toolkit | None) -> "Inputs":
        """Raises BuildError without a C++ compiler."""
        defines = pins.COMMON_DEFINES | choice.profile.defines
        if toolkit is not None:
            defines |= pins.CUDA_DEFINES
            defines |= {
                "CMAKE_CUDA_ARCHITECTURES": choice.architectures,
                "UNPACED_RUN_PATH": f"$ORIGIN;{toolkit.run_path(2)}",
            }
        cpu = "" if choice.profile.is_portable else _cpu_features()
        return cls(choice.profile, defines, _compiler_version(), cpu, toolkit)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits."""
        parts = (
            pins.VERSION,
            pins.SDIST_SHA256,
            pins.PATCHES,
            pins.WHEEL_EXCLUDE,
            pins.LICENSE_FILE,
            pins.FILES_OF_OTHERS,
            self.profile.name,
            self.profile.description,
            self.profile.notes,
            self.defines,
            self.compiler,
            self.cpu,
            self.toolkit.identity if self.toolkit else "",
        )
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def info(self) -> dict[str, Any]:
        """What the installed package says about itself (`unpaced --version`, /props)."""
        return {
            "profile": self.profile.name,
            "description": self.profile.description,
            "notes": self.profile.notes,
            "version": self.profile.version,
            "llama_cpp_commit": pins.LLAMA_COMMIT,
            "sdist_sha256": pins.SDIST_SHA256,
            "compiler": self.compiler,
            "cuda": self.toolkit.version if self.toolkit else "",
            "cmake_defines": self.defines,
            "inputs": self.digest,
        }


def _compiler_version() -> str:
    command = (
        shlex.split(os.environ.get("CXX", ""))
        or [found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))][:1]
    )
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(
            "There is no C++ compiler: install one (Debian: apt-get install g++) or set CXX."
        ) from error
    return done.stdout.splitlines()[0].strip()


def _cpu_features() -> str:
    """With GGML_NATIVE they decide the code: a checkout on another machine builds anew."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return " ".join(sorted(found.group(1).split())) if found else ""
