"""How the C++ tests are compiled: those of arithmetic as for users, the others quickly."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LLAMA = sorted(ROOT.glob(".build/src/llama_cpp_python-*/vendor/llama.cpp"))
CMAKE = Path(sys.executable).parent / "cmake"

pytestmark = pytest.mark.skipif(not LLAMA, reason="llama.cpp's sources are not unpacked here")


@pytest.mark.parametrize(("sanitizer", "for_users"), [("", "-O3"), ("address", "-Og")])
def test_the_last_optimisation_of_each_target_is_meant(
    tmp_path: Path, sanitizer: str, for_users: str
) -> None:
    folder = tmp_path.parent  # CMake warns of long paths
    options = {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_MAKE_PROGRAM": str(CMAKE.with_name("ninja")),
        "Python_EXECUTABLE": sys.executable,
        "UNPACED_BUILD_PYTHON": "OFF",
        "UNPACED_BUILD_TESTS": "ON",
        "UNPACED_LLAMA_SRC": str(LLAMA[-1]),
        "UNPACED_SANITIZE": sanitizer,
    }
    command = [str(CMAKE), "-S", str(ROOT / "csrc"), "-B", str(folder), "-G", "Ninja"]
    command += [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(command, check=True, capture_output=True)
    last = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        if target := re.search(r"CMakeFiles/(\w+)\.dir/", entry["output"]):
            last[target[1]] = re.findall(r" (-O\S+)", entry["command"])[-1]
    as_for_users = {"checked_sampling", "exact_tests", "sampler_test"}
    assert {target: last[target] for target in as_for_users} == dict.fromkeys(
        as_for_users, for_users
    )
    quickly = set(last) - as_for_users - {"engine_core", "sampling", "sampling_capi", "ring_model"}
    assert len(quickly) > 15
    assert {last[target] for target in quickly} == {"-Og"}
