"""The bindings compile for Python's stable ABI, which builds by Python 3.12 and later have."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from engine_ext.llama_build.source import Source

ROOT = Path(__file__).resolve().parents[3]
CSRC = ROOT / "csrc"
# Python 3.11 has no more of it; nanobind's headers need what 3.12 added.
STABLE_ABI = "0x030B0000"
ADDED = """
#include <Python.h>
extern "C" PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
extern "C" PyObject *PyObject_VectorcallMethod(PyObject *, PyObject *const *, size_t, PyObject *);
"""


def test_the_bindings_call_the_stable_abi_alone(tmp_path: Path) -> None:
    source = tmp_path / "bindings.cpp"
    files = sorted((CSRC / "bindings").glob("*.cpp"))
    assert files
    source.write_text(ADDED + "".join(f'#include "{path}"\n' for path in files))
    llama = Source(ROOT / ".build").tree / "vendor" / "llama.cpp"
    nanobind = [sys.executable, "-m", "nanobind", "--include_dir"]
    includes = [
        sysconfig.get_paths()["include"],
        subprocess.run(nanobind, capture_output=True, text=True, check=True).stdout.strip(),
        llama / "include",
        llama / "ggml" / "include",
        CSRC,
    ]
    done = subprocess.run(
        [
            *("c++", "-std=c++20", "-fsyntax-only", "-w", f"-DPy_LIMITED_API={STABLE_ABI}"),
            *(f"-I{folder}" for folder in includes),
            str(source),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
