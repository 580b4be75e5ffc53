"""What a build says of itself, for each of its profiles."""

import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from engine_ext.base import build_info
from engine_ext.llama_build.profile import PROFILES, Profile

GPUS = {
    "cuda": "CUDA",
    "cuda-portable": "CUDA",
    "cuda-rpc": "CUDA",
    "vulkan": "Vulkan",
    "rocm": "ROCm",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.toml")))
def test_a_profile_names_its_kind_of_gpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {
        "profile": name,
        "llama_cpp_commit": "abc",
        "cmake_defines": Profile.load(name).defines,
    }
    (tmp_path / build_info.RECORD_NAME).write_text(json.dumps(record))
    spec = ModuleSpec("llama_cpp", None)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    assert build_info.read_build_info().gpu == GPUS.get(name, "")
