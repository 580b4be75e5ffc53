"""Compiles the sampling core and llama.cpp's samplers into one C library, for tests and benchmarks.

The library (tests/unit/cpp/sampling/sampling_capi.cpp) goes to `.build/tests/`, anew when a source
changes. It links the libllama of the installed llama_cpp package, and the sampling core that the
engine was linked with, unless a source is newer than that.
"""

import hashlib
import importlib.util
import os
import subprocess
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine_ext.llama_build import pins
from tests.support.one_at_a_time import one_at_a_time

_ROOT = Path(__file__).resolve().parents[3]
_BUILD = _ROOT / ".build"
_LLAMA = _BUILD / "src" / f"llama_cpp_python-{pins.VERSION}" / "vendor" / "llama.cpp"
_ARCHIVE = _BUILD / "sdist" / f"llama_cpp_python-{pins.VERSION}.tar.gz"
_CAPI = _ROOT / "tests" / "unit" / "cpp" / "sampling"

# As in csrc/sampling/CMakeLists.txt.
_FLAGS = "-std=c++20 -O3 -ffp-contract=off -fPIC"


def _sources() -> list[Path]:
    return [_CAPI / "sampling_capi.cpp", *sorted((_ROOT / "csrc" / "sampling").rglob("*.cpp"))]


def _engines_core(sources: list[Path]) -> Path | None:
    """The archive that `make build` made, if it is of these sources."""
    changed = max(source.stat().st_mtime for source in sources)
    for archive in (_BUILD / "extension").glob("*/sampling/libsampling.a"):
        if archive.stat().st_mtime > changed:
            return archive
    return None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"sampling_capi does not compile:\n{done.stderr}")


@one_at_a_time
def compiled_library() -> Path:
    """The library, compiled now if it is stale (up to half a minute of CPU).

    Raises: FileNotFoundError if `make build` is needed first, RuntimeError if it does not compile.
    """
    if not (_LLAMA / "include" / "llama.h").is_file():
        raise FileNotFoundError(f"{_LLAMA}: llama.cpp's headers are not there; run `make build`")
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("llama_cpp is not installed; run `make build`")
    libraries = Path(spec.origin).parent / "lib"
    compiler = os.environ.get("CXX", "c++")
    headers_of_llama = [_LLAMA / "include", _LLAMA / "ggml" / "include"]
    includes = [_ROOT / "csrc", _CAPI.parent / "support", *headers_of_llama]
    link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lllama", "-lggml", "-lggml-base"]
    digest = hashlib.sha256(repr((compiler, _FLAGS, libraries)).encode())
    headers = sorted([*(_ROOT / "csrc").rglob("*.h"), *(_CAPI.parent / "support").glob("*.h")])
    read = [*_sources(), *headers, *(_ROOT / "csrc").rglob("*.inc")]
    for path in read:
        digest.update(path.read_bytes())
    core = _engines_core([path for path in read if _ROOT / "csrc" in path.parents])
    sources = _sources() if core is None else _sources()[:1]
    target = _BUILD / "tests" / f"sampling_capi-{digest.hexdigest()[:16]}.so"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        command = [compiler, *_FLAGS.split(), *(f"-I{path}" for path in includes)]
        with (
            tempfile.TemporaryDirectory(dir=target.parent) as folder,
            ThreadPoolExecutor(os.cpu_count()) as pool,
        ):
            objects = [Path(folder) / f"{source.stem}.o" for source in sources]
            commands = [
                [*command, "-c", str(source), "-o", str(made)]
                for source, made in zip(sources, objects, strict=True)
            ]
            for _ in pool.map(_run, commands):
                pass
            objects += [] if core is None else [core]
            _run([*command, "-shared", *map(str, objects), "-o", str(partial), *link])
        for stale in target.parent.glob("sampling_capi-*.so"):
            stale.unlink()
        partial.rename(target)
    return target


@one_at_a_time
def vocabulary_file(name: str) -> Path:
    """A vocabulary of llama.cpp's source distribution, e.g. "llama-spm", as a vocab-only GGUF."""
    target = _BUILD / "tests" / f"ggml-vocab-{name}.gguf"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(_ARCHIVE) as archive:
            for member in archive:
                if member.name.endswith(f"vendor/llama.cpp/models/{target.name}"):
                    content = archive.extractfile(member)
                    assert content is not None
                    target.write_bytes(content.read())
                    return target
        raise FileNotFoundError(f"{target.name} is not in {_ARCHIVE}")
    return target
