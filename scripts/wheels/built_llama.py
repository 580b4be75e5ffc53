"""The llama.cpp that goes into a wheel."""

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from engine_ext.llama_build import pins
from engine_ext.llama_build.cli import build
from engine_ext.llama_build.profile import Profile

BUILD = Path(__file__).resolve().parents[2] / ".build"


@dataclass(frozen=True, slots=True)
class BuiltLlama:
    """The compiled llama.cpp of a profile: its package's folder, unpacked, and its sources."""

    package: Path
    source: Path

    @classmethod
    def build(cls, profile: Profile, cuda_archs: str, n_jobs: int, work: Path) -> "BuiltLlama":
        """Takes minutes, the first time. Raises BuildError."""
        wheel = build(BUILD, profile.name, cuda_archs, n_jobs)
        folder = work / "llama" / profile.name
        shutil.rmtree(folder, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        source = BUILD / "src" / f"llama_cpp_python-{pins.VERSION}" / "vendor"
        return cls(folder / "llama_cpp", source / "llama.cpp")
