"""Says what is wrong with a wheel of ours: what it lacks, what is too much, where it points.

`python scripts/wheels/wheel_check.py WHEEL... [--not-in-it TEXT]...`, exit 1 if anything is wrong.
Without a text it is this checkout's folder. Needs pyelftools.
"""

import argparse
import io
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile
from symbols import missing

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (
    "engine_ext/_native.*.so",
    "engine_ext/lib/llama.cpp-LICENSE",
    "engine_ext/lib/nanobind-LICENSE",
    "engine_ext/lib/libggml-base.so",
    "engine_ext/lib/libggml-cpu*.so",
    "engine_ext/lib/libggml.so",
    "engine_ext/lib/libllama.so",
    "engine_ext/lib/unpaced_build.json",
    "engine_ext/models/demo.gguf",
    "unpaced/__main__.py",
    "unpaced/page/index.html",
    "unpaced/page/main.js",
    "unpaced/page/style/base.css",
    "unpaced/page/vendor/highlight/LICENSE",
    "unpaced/page/vendor/markdown-it/LICENSE",
    "unpaced/page/vendor/markdown-it/markdown-it.mjs",
    "unpaced/page/vendor/temml/LICENSE",
    "unpaced-*.dist-info/licenses/LICENSE",
)
ALLOWED = r"(unpaced|engine_ext|unpaced-[^/]+\.dist-info)/"
TOO_MUCH = (
    r"(^|/)(tests?|csrc|docs|scripts|__pycache__|training)/",
    r"\.(a|c|cc|cpp|cu|cuh|h|hpp|o|py[co]|cmake)$",
    r"/build_llama\.py$",
    r"/train_",
)
# What every Linux of the wheel's tag has.
SYSTEM = (
    r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1"
)
# And for a wheel with CUDA the driver's library, and those of NVIDIA's packages.
CUDA = r"libcuda\.so\.1|lib(cudart|cublas|cublasLt)\.so\.\d+"
# Beside the library itself NVIDIA's packages of the same environment.
RPATH = r"\$ORIGIN(/lib|(/\.\.)+/nvidia/[\w./]+)?"


def faults_of(wheel: Path, not_in_it: tuple[str, ...]) -> list[str]:
    """A sentence for each fault. `not_in_it`: texts that no file may hold, folders of the build."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    faults = [*_list_faults([*contents]), *missing(contents)]
    brought = {Path(name).name for name in contents}
    metadata = next(text for name, text in contents.items() if name.endswith("/METADATA"))
    is_cuda = re.search(rb"^Version: \S+\+cu\d", metadata, re.MULTILINE) is not None
    system = f"{SYSTEM}|{CUDA}" if is_cuda else SYSTEM
    for name, content in contents.items():
        is_library = content.startswith(b"\x7fELF")
        words = _without_device_code(content) if is_library else content
        faults += [f"{name} holds {text}" for text in not_in_it if text.encode() in words]
        if is_library:
            faults += [f"{name} {fault}" for fault in _elf_faults(content, brought, system)]
    if is_cuda and "engine_ext/lib/libggml-cuda.so" not in contents:
        faults.append("it lacks engine_ext/lib/libggml-cuda.so")
    if is_cuda and b"\nRequires-Dist: cuda-toolkit[" not in metadata:
        faults.append("it does not depend on NVIDIA's packages, whose libraries it loads")
    if re.search(rb"^Requires-Dist: llama[-_]cpp[-_]python", metadata, re.MULTILINE):
        faults.append("it depends on llama-cpp-python, whose libraries it brings")
    return faults


def _without_device_code(content: bytes) -> bytes:
    """CUDA's linker writes its command line, with its folder, into what it links for the card."""
    section = ELFFile(io.BytesIO(content)).get_section_by_name(".nv_fatbin")
    if section is None:
        return content
    begin = section["sh_offset"]
    return content[:begin] + content[begin + section["sh_size"] :]


def _list_faults(names: list[str]) -> Iterator[str]:
    for pattern in NEEDED:
        if not any(Path(name).match(pattern) for name in names):
            yield f"it lacks {pattern}"
    for name in names:
        if not re.match(ALLOWED, name) or any(re.search(part, name) for part in TOO_MUCH):
            yield f"it holds {name}"


def _elf_faults(content: bytes, brought: set[str], system: str) -> Iterator[str]:
    dynamic = ELFFile(io.BytesIO(content)).get_section_by_name(".dynamic")
    for tag in dynamic.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED" and tag.needed not in brought:
            if not re.fullmatch(system, tag.needed):
                yield f"needs {tag.needed}"
        elif tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
            path = tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath
            for folder in path.split(":"):
                if not re.fullmatch(RPATH, folder):
                    yield f"looks for libraries in {folder!r}"


def main() -> int:
    """0, or 1 if something is wrong; it is printed."""
    parser = argparse.ArgumentParser(prog="wheel_check.py")
    parser.add_argument("wheel", nargs="+", type=Path)
    parser.add_argument("--not-in-it", action="append", metavar="TEXT")
    options = parser.parse_args()
    texts = tuple(options.not_in_it or [str(ROOT)])
    faults = [
        f"{wheel.name}: {fault}" for wheel in options.wheel for fault in faults_of(wheel, texts)
    ]
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
