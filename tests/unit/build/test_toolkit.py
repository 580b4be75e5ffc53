"""Which toolkit a CUDA build takes: folders as toolkits are, with an nvcc that has a version."""

import importlib.metadata
import os
from pathlib import Path

import pytest

from engine_ext.llama_build import cuda_packages, driver_library, system_toolkit
from engine_ext.llama_build.errors import BuildError
from engine_ext.llama_build.toolkit import Toolkit, check_compiler, find_toolkit

_FILES = (
    "include/cublas_v2.h",
    "include/cuda_runtime.h",
    "lib64/libcublas.so",
    "lib64/libcudart.so",
    "lib64/libcudadevrt.a",
)
_NVCC = """#!/bin/sh
case $1 in
--version) echo 'Cuda compilation tools, release {release}, V{release}.88' ;;
--dryrun) echo '#$ TOP={root}' >&2 ;;
*) echo '{root}/host_config.h:1:2: error: #error -- unsupported GNU version!' >&2; exit 1 ;;
esac
"""


def make_toolkit(root: Path, release: str, lacking: str = "") -> Path:
    for name in _FILES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name != lacking:
            path.write_text("")
    nvcc = root / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(_NVCC.format(release=release, root=root))
    nvcc.chmod(0o755)
    return root


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No toolkit but those of a test."""
    for name in ("CUDACXX", "CUDAHOSTCXX", "CUDAToolkit_ROOT", "CUDA_HOME", "CUDA_PATH", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        system_toolkit,
        "_candidates",
        lambda real=system_toolkit._candidates: (
            path for path in real() if path.is_relative_to(tmp_path)
        ),
    )
    # cuda_driver.c takes cuda.h, which these toolkits lack.
    monkeypatch.setattr(driver_library, "compiled", lambda base, include: base / "libcuda.a")


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT"])
def test_a_toolkit_that_is_named_and_fits_is_taken(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = make_toolkit(tmp_path / "cuda", "13.1")
    monkeypatch.setenv(variable, str(root))
    found = find_toolkit(tmp_path, is_portable=False, driver=(13, 1))
    assert (found.root, found.version) == (root, "13.1.88")
    assert found.run_path(2) == str(root / "lib64")
    assert found.defines()["CMAKE_CUDA_COMPILER"] == str(root / "bin" / "nvcc")


def test_the_nvcc_on_the_path_is_asked_where_it_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = make_toolkit(tmp_path / "cuda", "13.0")
    wrapper = tmp_path / "bin" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {root}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    assert find_toolkit(tmp_path, is_portable=False, driver=None).root == root


@pytest.mark.parametrize(
    ("release", "lacking", "driver", "reason"),
    [
        ("12.8", "", (13, 0), "it is CUDA 12.8"),
        ("14.0", "", None, "it is CUDA 14.0"),
        ("13.2", "", (13, 0), "CUDA 13.2 is newer than the driver's 13.0"),
        ("13.0", "include/cublas_v2.h", (13, 0), "it lacks cublas_v2.h"),
        ("13.0", "lib64/libcublas.so", None, "it lacks libcublas.so"),
    ],
)
def test_one_that_does_not_fit_gives_way_to_the_packages(
    release: str,
    lacking: str,
    driver: tuple[int, int] | None,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = make_toolkit(tmp_path / "cuda", release, lacking)
    monkeypatch.setenv("CUDA_HOME", str(root))
    found = find_with_packages(monkeypatch, tmp_path, is_portable=False, driver=driver)
    assert found.libraries is None
    assert f"({root} does not fit: {reason})" in capsys.readouterr().out


def test_a_portable_build_takes_the_packages_always(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "cuda", "13.0")))
    found = find_with_packages(monkeypatch, tmp_path, is_portable=True, driver=None)
    assert found.run_path(2) == "$ORIGIN/../../nvidia/cu13/lib"
    assert found.run_path(1) == "$ORIGIN/../nvidia/cu13/lib"


def find_with_packages(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    is_portable: bool,
    driver: tuple[int, int] | None,
) -> Toolkit:
    """With folders in the place of the packages: they are half a gigabyte."""
    packages = tmp_path / "site-packages" / "nvidia" / "cu13"
    for name in ("bin/nvcc", "bin/nvcc.profile", "include/cuda.h", "nvvm/bin/cicc"):
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (packages / "lib").mkdir()
    for name in ("libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13", "libcudadevrt.a"):
        (packages / "lib" / name).write_text("")
    record = packages.parents[1] / "nvidia_cuda_nvcc-13.0.88.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Name: nvidia-cuda-nvcc\nVersion: 13.0.88\n")
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda name: importlib.metadata.Distribution.at(record)
    )
    monkeypatch.setattr(cuda_packages, "are_installed", lambda wanted: False)
    monkeypatch.setattr(cuda_packages, "install", lambda base: None)
    found = find_toolkit(tmp_path / "build", is_portable=is_portable, driver=driver)
    assert (found.root / "lib64" / "libcudart.so").resolve().name == "libcudart.so.13"
    assert (found.root / "lib" / "libcublas.so.13").is_file()
    assert (found.root / "include" / "cuda.h").is_file()
    # nvcc looks beside the folder that it lies in: that has to be ours, not the packages'.
    assert not (found.root / "bin").is_symlink()
    return found


def test_another_source_of_the_drivers_functions_is_another_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "libcuda.a"
    taken = Toolkit(root=tmp_path, version="13.0.88", libraries=None, driver_library=library)
    moved = Toolkit(root=tmp_path / "b", version="13.0.88", libraries=None, driver_library=library)
    before = taken.identity
    assert before == moved.identity
    source = tmp_path / "cuda_driver.c"
    source.write_text("// another function")
    monkeypatch.setattr(driver_library, "SOURCE", source)
    assert taken.identity != before


def test_a_compiler_that_is_too_new_is_told_before_the_build(tmp_path: Path) -> None:
    root = make_toolkit(tmp_path / "cuda", "13.0")
    library = tmp_path / "libcuda.a"
    taken = Toolkit(root=root, version="13.0.88", libraries=None, driver_library=library)
    with pytest.raises(BuildError) as caught:
        check_compiler(taken, "86-real;89-real")
    assert "#error -- unsupported GNU version!" in str(caught.value)
    assert "CXX=g++-14 make build" in str(caught.value)
    assert "\n" not in str(caught.value)
