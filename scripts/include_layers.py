"""Checks who includes whom in csrc/.

`python scripts/include_layers.py [CSRC]` says what is wrong; exit 1 if anything is.

Every folder has its layer in one table, from below. A file includes files of its own folder and of
lower layers, never of its own layer's other folders or of higher ones; files include one another in
no circle. Only bindings/ knows Python, only one header llama.cpp's internals.
"""

import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CSRC = Path(__file__).resolve().parents[1] / "csrc"
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)

LAYERS = (
    ("base",),
    ("backend", "connections", "log", "sampling/arithmetic", "vocabulary"),
    ("sampling/candidates",),
    ("sampling/row",),
    ("sampling/chain",),
    ("request", "sampling"),
    ("cells", "grammar", "slots", "streams"),
    ("kept",),
    ("decode",),
    ("model",),
    ("host", "device/state", "device/graph"),
    ("device/launch",),
    ("device/draw", "device/kernels", "device/llama"),
    ("device/kernels/experts", "device/kernels/rows", "device/kernels/weights"),
    ("device/kernels/mat_vec/block",),
    ("device/lane", "device/card", "device/kernels/attention", "device/kernels/mat_vec"),
    ("device/phases", "device/kernels/mat_mat", "device/kernels/mat_vec/pairs"),
    ("device/kernels/mat_mat/pairs", "device/phases/trials"),
    ("device/loop",),
    ("device/loop/self_test", "device/prompt"),
    ("device/stepper",),
    ("engine",),
    ("bindings",),
)
LAYER_OF = {folder: layer for layer, folders in enumerate(LAYERS) for folder in folders}

PYTHON_FOLDER = "bindings"
# llama.cpp's interface: what its include folders hold.
PUBLIC = {"llama.h", "ggml.h", "ggml-backend.h", "ggml-cpu.h", "ggml-cuda.h", "gguf.h"}
# The others: all for the CUDA build's one header, ggml-cuda's for kernels, a draft of an interface.
INTERNALS: dict[str, set[str] | None] = {
    "device/llama/llama_internals.cuh": None,
    "device/kernels/ggml_device.cuh": {
        f"ggml-cuda/{name}.cuh" for name in ("common", "convert", "unary")
    },
    "backend/rpc_backend.cpp": {"ggml-rpc.h"},
    "model/memory_plan.cpp": {"llama-ext.h"},
    "model/residency.cpp": {"../src/llama-ext.h"},
}


def main() -> int:
    """0, or 1 if something is wrong; it is printed."""
    csrc = Path(sys.argv[1]) if len(sys.argv) > 1 else CSRC
    faults = [*faults_of(read_includes(csrc))]
    for fault in faults:
        print(f"csrc/{fault}")
    return 1 if faults else 0


def read_includes(csrc: Path) -> dict[str, list[str]]:
    """File -> what it includes, both from csrc/; what is not a file there begins with '<'."""
    files = sorted(path for path in csrc.rglob("*") if path.suffix in SUFFIXES)
    names = {path.relative_to(csrc).as_posix() for path in files}
    includes: dict[str, list[str]] = {}
    for path in files:
        found = INCLUDE.findall(path.read_text(encoding="utf-8"))
        includes[path.relative_to(csrc).as_posix()] = [
            name if quote == '"' and name in names else f"<{name}" for quote, name in found
        ]
    return includes


def faults_of(includes: dict[str, list[str]]) -> Iterator[str]:
    """Sentences that begin with the file at fault."""
    for file, included in includes.items():
        if folder_of(file) not in LAYER_OF:
            yield f"{file}: its folder has no layer in scripts/include_layers.py"
            continue
        for name in included:
            fault = outer_fault(file, name[1:]) if name[0] == "<" else inner_fault(file, name)
            if fault:
                yield f"{file} includes {name.removeprefix('<')}: {fault}"
    try:
        TopologicalSorter(includes).prepare()
    except CycleError as error:
        yield " includes ".join(reversed(error.args[1]))


def folder_of(file: str) -> str:
    """`a/b` of `a/b/c.h`."""
    return file.rpartition("/")[0]


def inner_fault(file: str, name: str) -> str:
    """What is wrong with including a file of csrc/; "" if nothing is."""
    here, there = folder_of(file), folder_of(name)
    if here == there or LAYER_OF.get(there, -1) < LAYER_OF[here]:
        return ""
    return f"{there}/ is not below {here}/"


def outer_fault(file: str, name: str) -> str:
    """What is wrong with including another file; "" if nothing is."""
    if name.startswith("nanobind/") or name == "Python.h":
        return "" if folder_of(file) == PYTHON_FOLDER else f"only {PYTHON_FOLDER}/ knows Python"
    is_llama = re.match(r"(.*/)?(llama|ggml|gguf)\b.*", name)
    if not is_llama or name in PUBLIC:
        return ""
    allowed = INTERNALS.get(file, set())
    if allowed is None or name in allowed:
        return ""
    return "llama.cpp's internals are for device/llama/llama_internals.cuh alone"


if __name__ == "__main__":
    sys.exit(main())
