"""Which build of llama.cpp is installed and where, read without loading it.

A checkout has it in the llama_cpp package, which engine_ext/llama_build made and installed. A wheel
brings the same libraries in a folder of its own and looks at no llama_cpp package: the registry's,
if somebody has it installed, is neither used nor changed.
"""

import importlib.metadata
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECORD_NAME: Final = "unpaced_build.json"
"""What a build of ours leaves in the llama_cpp package, and beside the libraries of a wheel."""

BUNDLE: Final = Path(__file__).resolve().parents[1] / "lib"
"""The libraries' folder in a wheel (csrc/CMakeLists.txt: UNPACED_BUNDLE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInfo:
    """`profile` names the build flags (engine_ext/profiles); "unknown" for a foreign build.

    `gpu` is CUDA, Vulkan or ROCm, empty for a build for the CPU and for a foreign one.
    """

    version: str
    llama_commit: str
    profile: str
    gpu: str


_GPU_DEFINES: Final = {"GGML_CUDA": "CUDA", "GGML_VULKAN": "Vulkan", "GGML_HIP": "ROCm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaPlace:
    """`libraries`: the folder of libllama. `record`: None for a foreign build."""

    libraries: Path
    record: Path | None
    is_bundled: bool


def find_llama() -> LlamaPlace | None:
    """Read the installed build; None if no llama.cpp is installed."""
    if (BUNDLE / RECORD_NAME).is_file():
        return LlamaPlace(libraries=BUNDLE, record=BUNDLE / RECORD_NAME, is_bundled=True)
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        return None
    package = Path(spec.submodule_search_locations[0])
    record = package / RECORD_NAME
    return LlamaPlace(
        libraries=package / "lib",
        record=record if record.is_file() else None,
        is_bundled=False,
    )


def read_build_info() -> BuildInfo:
    """What `unpaced --version` shows. Fields of a missing or foreign build say so."""
    profile, commit, gpu = "not installed", "none", ""
    place = find_llama()
    if place is not None:
        profile, commit = "unknown", "unknown"
        if place.record is not None:
            record = json.loads(place.record.read_text(encoding="utf-8"))
            profile, commit = record["profile"], record["llama_cpp_commit"]
            defines: dict[str, str] = record["cmake_defines"]
            gpu = "".join(gpu for name, gpu in _GPU_DEFINES.items() if defines.get(name) == "ON")
    return BuildInfo(
        version=importlib.metadata.version("unpaced"),
        llama_commit=commit,
        profile=profile,
        gpu=gpu,
    )
