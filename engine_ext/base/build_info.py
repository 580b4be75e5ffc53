"""Which build of llama.cpp is installed, read without loading it."""

import importlib.metadata
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECORD_NAME: Final = "unpaced_build.json"
"""What a build of ours leaves in the llama_cpp package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInfo:
    """`profile` names the build flags (engine_ext/profiles); "unknown" for a foreign build."""

    version: str
    llama_commit: str
    profile: str


def read_build_info() -> BuildInfo:
    """What `unpaced --version` shows. Fields of a missing or foreign build say so."""
    profile, commit = "not installed", "none"
    spec = importlib.util.find_spec("llama_cpp")
    if spec is not None and spec.submodule_search_locations:
        profile, commit = "unknown", "unknown"
        file = Path(spec.submodule_search_locations[0]) / RECORD_NAME
        if file.is_file():
            record = json.loads(file.read_text(encoding="utf-8"))
            profile, commit = record["profile"], record["llama_cpp_commit"]
    return BuildInfo(
        version=importlib.metadata.version("unpaced"), llama_commit=commit, profile=profile
    )
