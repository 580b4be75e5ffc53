"""What is built where: the driver's answers are those of a library that is loaded for real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_ext.llama_build import choice as choice_module
from engine_ext.llama_build.architectures import architectures
from engine_ext.llama_build.choice import choose, driver_too_old
from engine_ext.llama_build.driver import Card, Driver, why_no_card
from engine_ext.llama_build.errors import BuildError
from engine_ext.llama_build.profile import PROFILES, Profile
from tests.support.nvidia_driver import make_driver

ROOT = Path(__file__).resolve().parents[3]
_ASK = """
import sys
from types import ModuleType
package = ModuleType("engine_ext")
package.__path__ = ["engine_ext"]
sys.modules["engine_ext"] = package
from engine_ext.llama_build.choice import choose
from engine_ext.llama_build.errors import BuildError
try:
    chosen = choose(*sys.argv[1:])
    print(chosen.profile.name, chosen.architectures or "-", chosen.line, sep="|")
except BuildError as error:
    print("refused", "-", error, sep="|")
"""


def ask(folder: Path | None, *arguments: str) -> tuple[str, str, str]:
    """Profile, architectures and line, of a process that finds its driver in `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK, *arguments],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder or "")},
        capture_output=True,
        text=True,
        check=True,
    )
    profile, found, line = done.stdout.rstrip("\n").split("|")
    return profile, found, line


def test_a_card_and_its_driver_are_taken(tmp_path: Path) -> None:
    make_driver(tmp_path, cards=[("NVIDIA GeForce RTX 3090", 8, 6)])
    assert ask(tmp_path, "auto") == (
        "cuda",
        "86-real",
        "Profile cuda: NVIDIA GeForce RTX 3090 (8.6), NVIDIA driver 580.95.05 "
        "(make PROFILE=cpu chooses otherwise).",
    )
    assert ask(tmp_path, "cuda") == ("cuda", "86-real", "")
    assert ask(tmp_path, "cuda_mmq_moe") == (
        "cuda",
        "86-real",
        "The profile cuda_mmq_moe is called cuda now.",
    )
    assert ask(tmp_path, "cuda", "89-real")[1] == "89-real"
    assert ask(tmp_path, "auto", "89-real")[1] == "89-real"
    assert ask(tmp_path, "cpu")[:2] == ("cpu", "-")


def test_cards_of_several_kinds_are_compiled_for_once_each(tmp_path: Path) -> None:
    cards = [("B", 8, 9), ("A", 8, 6), ("B", 8, 9), ("Old", 6, 1)]
    profile, found, line = ask(make_driver(tmp_path, cards=cards), "auto")
    assert (profile, found) == ("cuda", "86-real;89-real")
    assert line.startswith("Profile cuda: B (8.9), A (8.6), NVIDIA driver")


def test_a_driver_that_is_too_old_is_told_with_both_versions(tmp_path: Path) -> None:
    make_driver(tmp_path, cuda=12040, release="550.90.07")
    sentence = "the NVIDIA driver 550.90.07 runs CUDA 12.4, and CUDA 13.0 needs driver 580 or newer"
    assert ask(tmp_path, "auto") == (
        "cpu",
        "-",
        f"Profile cpu: {sentence} (make PROFILE=... chooses otherwise).",
    )
    refused, _, line = ask(tmp_path, "cuda")
    assert refused == "refused"
    assert line.startswith(f"The profile cuda is for the cards of this machine, but {sentence}.")
    assert ask(tmp_path, "cuda-portable")[0] == "cuda-portable"  # for other machines
    assert ask(tmp_path, "cuda", "86-real")[:2] == ("cuda", "86-real")


@pytest.mark.parametrize(
    ("cards", "status", "reason"),
    [
        ([("GPU", 8, 6)], 100, "the NVIDIA driver 580.95.05 shows no card (WHY)"),
        ([], 0, "the NVIDIA driver 580.95.05 shows no card (WHY)"),
        (
            [("GTX 1080", 6, 1)],
            0,
            "CUDA 13.0 serves compute capability 7.5 and later, not GTX 1080 (6.1)",
        ),
    ],
)
def test_without_a_card_that_serves_it_is_the_cpu(
    cards: list[tuple[str, int, int]], status: int, reason: str, tmp_path: Path
) -> None:
    make_driver(tmp_path, cards=cards, status=status)
    reason = reason.replace(
        "WHY", why_no_card(Driver(cuda=(13, 0), release="", cards=(), fault=status))
    )
    line = f"Profile cpu: {reason} (make PROFILE=... chooses otherwise)."
    assert ask(tmp_path, "auto") == ("cpu", "-", line)
    profile, found, line = ask(tmp_path, "cuda")
    assert profile == "cuda"
    assert found == Profile.load("cuda-portable").defines["CMAKE_CUDA_ARCHITECTURES"]
    assert line.startswith(f"No card for it is here ({reason}): compiling for all of 75-real;")
    # Who names cards wants CUDA: it is not dropped without a word.
    assert ask(tmp_path, "auto", "86-real") == (
        "cuda",
        "86-real",
        f"Profile cuda: CUDA_ARCHS names cards; here {reason}.",
    )


def test_why_a_driver_shows_no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(cuda=(13, 0), release="580.95.05", cards=(), fault=100)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert why_no_card(driver, tmp_path).startswith(f"there is no {tmp_path}/nvidia0")
    node = tmp_path / "nvidia0"
    node.touch()
    assert why_no_card(driver, tmp_path) == "CUDA's error 100"
    for hidden in ("", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-x"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert why_no_card(driver, tmp_path) == f"CUDA_VISIBLE_DEVICES is {hidden!r}"


@pytest.mark.parametrize("name", ["nvidia0", "nvidiactl", "nvidia-uvm"])
def test_a_card_that_this_user_may_not_open_is_named(name: str, tmp_path: Path) -> None:
    for node in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / node).touch(mode=0o666)
        (tmp_path / node).chmod(0 if node == name else 0o666)
    tmp_path.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from engine_ext.llama_build.driver import Driver, why_no_card\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"  # root may open anything
        "driver = Driver(cuda=(13, 0), release='', cards=(), fault=100)\n"
        "print(why_no_card(driver, Path()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == f"this user may not open {name}\n", done.stderr


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [("86-real;89-real", "86-real;89-real"), ("86, 89-virtual", "86;89-virtual"), ("120a", "120a")],
)
def test_architectures_are_cmakes(wanted: str, taken: str) -> None:
    assert choose("cuda-portable", wanted).architectures == taken


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ("sm_86", "CUDA_ARCHS has 'sm_86': it lists CMake's CUDA architectures"),
        ("8.6", "CUDA_ARCHS has '8.6': it lists CMake's CUDA architectures"),
        (
            "86-real;61-real",
            "CUDA_ARCHS has '61-real': CUDA 13.0 serves compute capability 7.5 and",
        ),
        ("70", "CUDA_ARCHS has '70': CUDA 13.0 serves compute capability 7.5 and later, not 7.0."),
    ],
)
def test_what_is_no_architecture_is_told_before_the_build(wanted: str, fault: str) -> None:
    with pytest.raises(BuildError) as caught:
        choose("cuda", wanted)
    assert str(caught.value).startswith(fault)


def test_a_library_that_is_no_driver_is_none(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"not a library")
    assert ask(tmp_path, "auto")[0] == "cpu"


def test_without_a_driver_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice_module, "find_driver", lambda: None)
    chosen = choose("auto")
    assert chosen.profile.name == "cpu"
    assert chosen.line == (
        "Profile cpu: there is no NVIDIA driver here (make PROFILE=... chooses otherwise)."
    )


def test_a_driver_of_the_same_or_a_later_version_is_new_enough() -> None:
    for cuda in ((13, 0), (13, 2), (14, 0)):
        assert driver_too_old(Driver(cuda=cuda, release="", cards=())) == ""


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((7, 5), "75-real"),
        ((9, 0), "90-real"),
        ((10, 3), "103-real"),
        ((12, 0), "120a-real"),  # as llama.cpp would make it of 120
        ((12, 1), "121a-real"),
        ((12, 7), "100-virtual"),  # later than the compiler: PTX
        ((15, 0), "100-virtual"),
        ((7, 0), ""),
    ],
)
def test_each_card_has_its_architecture(capability: tuple[int, int], expected: str) -> None:
    assert architectures([Card("GPU", capability)]) == expected


def test_a_name_that_is_no_profile_is_told_with_those_that_are() -> None:
    with pytest.raises(BuildError) as caught:
        choose("cudda")
    assert str(caught.value).startswith("There is no build profile 'cudda'; the profiles are: auto")
    for path in PROFILES.glob("*.toml"):
        assert path.stem in str(caught.value)
        assert choose(path.stem, "").profile.name == path.stem


def test_the_profile_that_is_gone_says_what_is_nearest() -> None:
    with pytest.raises(BuildError, match=r"cuda_cublas_dense is gone; cuda is the nearest"):
        choose("cuda_cublas_dense")


def test_architectures_are_for_cuda_alone() -> None:
    with pytest.raises(BuildError, match="The profile cpu compiles for no NVIDIA card"):
        choose("cpu", "86-real")


def test_every_profile_and_every_earlier_name_stands_on_the_users_page() -> None:
    page = (ROOT / "docs" / "build-profiles.md").read_text()
    names = [path.stem for path in PROFILES.glob("*.toml")]
    names += ["cpu_hybrid", "cuda_mmq_moe", "cuda_dense", "cuda_hybrid", "cpu_cuda_hybrid"]
    assert [name for name in [*names, "cuda_cublas_dense"] if f"`{name}`" not in page] == []
