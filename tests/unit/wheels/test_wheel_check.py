"""scripts/wheels/wheel_check.py finds what a wheel lacks, what is too much and where it points."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine_ext.base.build_info import find_llama

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "wheels" / "wheel_check.py"
METADATA = "unpaced-1.dist-info/METADATA"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """A wheel that is as it should be; its libraries are real ones, and small."""
    place = find_llama()
    assert place is not None
    names = ("libggml-base.so", "libggml-cpu.so", "libggml.so")
    if not (place.libraries / "libggml-cpu.so").is_file():
        pytest.skip("a portable build, whose libggml.so needs none of its libraries for processors")
    libraries = {name: (place.libraries / name).read_bytes() for name in names}
    needs_nothing = libraries["libggml-base.so"]
    texts = (
        "engine_ext/lib/llama.cpp-LICENSE",
        "engine_ext/lib/nanobind-LICENSE",
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
        "unpaced-1.dist-info/licenses/LICENSE",
    )
    return {
        **{f"engine_ext/lib/{name}": content for name, content in libraries.items()},
        "engine_ext/lib/libllama.so": needs_nothing,
        "engine_ext/_native.abi3.so": needs_nothing,
        **dict.fromkeys(texts, b"text"),
        METADATA: b"Name: unpaced\nRequires-Dist: uvicorn\n",
    }


def check(folder: Path, files: dict[str, bytes], *texts: str) -> list[str]:
    wheel = folder / "unpaced.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    options = [f"--not-in-it={text}" for text in ("/no/such/folder", *texts)]
    command = [sys.executable, str(SCRIPT), str(wheel), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    found = [line.removeprefix("unpaced.whl: ") for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (1 if found else 0, "")
    return found


def test_a_wheel_as_it_should_be_has_no_fault(tmp_path: Path, files: dict[str, bytes]) -> None:
    assert check(tmp_path, files) == []


def test_a_function_that_no_library_has_is_found(tmp_path: Path, files: dict[str, bytes]) -> None:
    name = "engine_ext/lib/libggml-cpu.so"
    found = check(tmp_path, {**files, name: files["engine_ext/lib/libggml-base.so"]})
    assert found == ["libggml.so needs ggml_backend_cpu_reg, which no library has that it names"]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("engine_ext/models/demo.gguf", "it lacks engine_ext/models/demo.gguf"),
        ("engine_ext/lib/llama.cpp-LICENSE", "it lacks engine_ext/lib/llama.cpp-LICENSE"),
        ("engine_ext/lib/libggml-base.so", "it lacks engine_ext/lib/libggml-base.so"),
    ],
)
def test_what_it_lacks_is_named(
    name: str, fault: str, tmp_path: Path, files: dict[str, bytes]
) -> None:
    found = check(tmp_path, {other: files[other] for other in files if other != name})
    assert fault in found
    # Another library needs one that is not there.
    assert len(found) > 1 if name.endswith(".so") else found == [fault]


@pytest.mark.parametrize(
    "name",
    [
        "tests/conftest.py",
        "llama_cpp/__init__.py",
        "engine_ext/models/training/verify.py",
        "engine_ext/models/train_demo.py",
        "engine_ext/build_llama.py",
        "unpaced/__pycache__/x.pyc",
        "engine_ext/lib/libllama.a",
        "include/llama.h",
    ],
)
def test_what_is_too_much_is_named(name: str, tmp_path: Path, files: dict[str, bytes]) -> None:
    assert check(tmp_path, {**files, name: b""}) == [f"it holds {name}"]


def test_a_folder_of_the_build_is_found(tmp_path: Path, files: dict[str, bytes]) -> None:
    holding = {**files, "engine_ext/lib/unpaced_build.json": b'{"compiler": "/home/me/bin/c++"}'}
    assert check(tmp_path, holding, "/home/me") == [
        "engine_ext/lib/unpaced_build.json holds /home/me"
    ]


def test_libraries_elsewhere_are_found(tmp_path: Path, files: dict[str, bytes]) -> None:
    name = "engine_ext/lib/libllama.so"
    moved = files[name].replace(b"\0$ORIGIN\0", b"\0/opt/me\0")
    assert moved != files[name]
    assert check(tmp_path, {**files, name: moved}) == [f"{name} looks for libraries in '/opt/me'"]
    foreign = files[name].replace(b"libm.so.6", b"libq.so.6").replace(b"libgcc_s", b"libgcc_q")
    assert check(tmp_path, {**files, name: foreign}) == [
        f"{name} needs libq.so.6",
        f"{name} needs libgcc_q.so.1",
    ]


def test_the_registrys_llama_cpp_is_no_dependency(tmp_path: Path, files: dict[str, bytes]) -> None:
    needing = {**files, METADATA: b"Name: unpaced\nRequires-Dist: llama-cpp-python==0.3.36\n"}
    assert check(tmp_path, needing) == ["it depends on llama-cpp-python, whose libraries it brings"]


def test_a_folder_in_the_notes_of_device_code_is_no_fault(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    name = "engine_ext/_native.abi3.so"
    found = {}
    for section in (".nv_fatbin", ".other"):
        (tmp_path / "note").write_bytes(b"-L /home/builder/cuda/lib64")
        (tmp_path / "library").write_bytes(files[name])
        added = f"--add-section={section}={tmp_path / 'note'}"
        subprocess.run(["objcopy", added, str(tmp_path / "library")], check=True)
        changed = {**files, name: (tmp_path / "library").read_bytes()}
        found[section] = check(tmp_path, changed, "/home/builder")
    assert found == {".nv_fatbin": [], ".other": [f"{name} holds /home/builder"]}


def test_cudas_libraries_are_for_cudas_wheel(tmp_path: Path, files: dict[str, bytes]) -> None:
    name = "engine_ext/lib/libggml-cuda.so"
    library = files["engine_ext/lib/libggml.so"]
    needing = library.replace(b"libgcc_s.so.1", b"libcuda.so.1\0")
    assert check(tmp_path, {**files, name: needing}) == [f"{name} needs libcuda.so.1"]
    toolkit = b"Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.2\n"
    cuda = {**files, METADATA: b"Name: unpaced\nVersion: 1.0+cu13\n" + toolkit}
    assert check(tmp_path, {**cuda, name: needing}) == []
    assert check(tmp_path, cuda) == [f"it lacks {name}"]
    cuda[METADATA] = cuda[METADATA].replace(toolkit, b"")
    assert check(tmp_path, {**cuda, name: needing}) == [
        "it does not depend on NVIDIA's packages, whose libraries it loads"
    ]
