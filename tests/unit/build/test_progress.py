"""What the user sees of a long compilation."""

import io
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine_ext.llama_build import progress
from engine_ext.llama_build.progress import Display, Forecast

ROOT = Path(__file__).resolve().parents[3]
_NINJA = """
build ggml/a.cpp.o: CXX_COMPILER a.cpp
build ggml/b.cu.o: CUDA_COMPILER b.cu
build ggml/unity_fattn-mma_0_cu.cu.o: CUDA_COMPILER c.cu
build ggml/libggml.so: LINKER ggml/a.cpp.o ggml/b.cu.o
"""


def forecast_of(build: str = _NINJA, n_jobs: int = 1) -> Forecast:
    return Forecast(build, n_jobs, 100.0)


def test_the_dearest_files_weigh_most() -> None:
    forecast = forecast_of()
    assert forecast.text(100.0) == ""
    assert forecast.feed("[1/4] Building CXX object ggml/a.cpp.o\n", 102.0)
    assert forecast.feed("[2/4] Building CUDA object ggml/b.cu.o\n", 120.0)
    assert forecast.text(120.0) == "[2/4] 19 %, about 88 s left"
    command = "nvcc -O3 -MF a.d -x cu -c c.cu -o ggml/unity_fattn-mma_0_cu.cu.o"
    assert forecast.feed(f"[3/4] ccache {command}\n", 180.0)  # as `ninja -v` has it
    assert forecast.text(180.0) == "[3/4] 100 %"


def test_each_architecture_takes_its_time() -> None:
    flags = "".join(f' "--generate-code=arch=compute_{n},code=[sm_{n}]"' for n in (75, 80, 86))
    forecast = forecast_of(f"  FLAGS = -O1{flags}\n{_NINJA}")
    assert forecast.feed("[1/4] Building CXX object ggml/a.cpp.o\n", 102.0)
    assert forecast.text(102.0).endswith("about 6 min left")


def recorded() -> list[tuple[float, str]]:
    """When each file of llama.cpp's for one architecture was compiled, in seconds, on two cores."""
    lines = (Path(__file__).parent / "cuda_build.txt").read_text().splitlines()
    return [(float(second), name) for second, name in map(str.split, lines)]


@pytest.mark.parametrize("slowness", [1, 2])
def test_a_recorded_build_ends_when_it_was_told(slowness: float) -> None:
    files = [(second * slowness, name) for second, name in recorded()]
    build = "".join(f"build {name}: X a\n" for _, name in files)
    forecast = Forecast(build, 2, 0.0)
    end = files[-1][0]
    to_come = list(enumerate(files, 1))
    for now in range(120 * int(slowness), int(end) - 120, 30):
        while to_come[0][1][0] <= now:
            number, (second, name) = to_come.pop(0)
            forecast.feed(f"[{number}/{len(files)}] Building CUDA object {name}", second)
        said = re.search(r"about (\d+) (s|min) left", forecast.text(now))
        assert said is not None
        left = int(said[1]) * (60 if said[2] == "min" else 1)
        assert left == pytest.approx(end - now, rel=0.4, abs=60)


def test_without_ninjas_file_every_file_counts_the_same() -> None:
    forecast = forecast_of("")
    assert forecast.feed("[1/4] Building CXX object ggml/a.cpp.o\n", 110.0)
    assert forecast.text(200.0) == "[1/4] 25 %, about 5 min left"


def test_what_is_not_ninjas_changes_nothing() -> None:
    forecast = forecast_of()
    for line in ("", "[x/y] Building", "warning: [1/2] of a line", "In file included from a.h\n"):
        assert not forecast.feed(line, 101.0)
    assert forecast.text(101.0) == ""


def test_a_build_within_the_build_is_not_counted() -> None:
    forecast = forecast_of()
    assert forecast.feed("[1/5] Creating directories for 'vulkan-shaders-gen'\n", 101.0)
    assert forecast.feed("[2/5] Performing build step for 'vulkan-shaders-gen'\n", 102.0)
    for i in (1, 2, 3, 4):
        assert not forecast.feed(f"[{i}/4] Building CXX object a{i}.cpp.o\n", 103.0)
    assert forecast.feed("[3/5] Building CXX object ggml/a.cpp.o\n", 104.0)
    assert forecast.text(110.0).startswith("[3/5] 1 %")
    # ninja may find that it has more to do.
    assert forecast.feed("[4/6] Building CUDA object ggml/b.cu.o\n", 120.0)
    assert forecast.text(120.0).startswith("[4/6] 19 %")


@pytest.fixture
def build_file(tmp_path: Path) -> Path:
    path = tmp_path / "build.ninja"
    path.write_text(_NINJA)
    return path


def test_a_log_gets_a_line_each_interval(build_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LOG_EVERY_S", 0.02)
    out = io.StringIO()
    with Display("compile", build_file, 1, out) as display:
        display.feed("CMake's own lines\n")
        display.feed("  [1/4] Building CXX object ggml/a.cpp.o\n")  # as pip has it
        until = time.monotonic() + 10
        while out.getvalue().count("\n") < 2 and time.monotonic() < until:
            time.sleep(0.01)
    lines = out.getvalue().splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("  compile    [1/4] 1 %") for line in lines)


_STEP = ["sh", "scripts/step.sh"]
_COMMAND = 'for i in 1 2 3 4; do echo "[$i/4] Building"; sleep 0.3; done; echo end'


def test_a_step_tells_how_far_it_is(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.log"
    done = subprocess.run(
        [*_STEP, str(log), "The title", "sh", "-c", _COMMAND],
        cwd=ROOT,
        env={**os.environ, "STEP_EVERY_S": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "The title"
    assert lines[-1] == "  [4/4] 100 %"
    assert log.read_text() == "".join(f"[{i}/4] Building\n" for i in (1, 2, 3, 4)) + "end\n"
    quiet = subprocess.run(
        [*_STEP, str(log), "The title", "sh", "-c", _COMMAND],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert quiet.stdout == "The title\n"  # over before the first half minute


def test_a_step_rewrites_its_line_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        command = [*_STEP, str(tmp_path / "log"), "The title", "sh", "-c", _COMMAND]
        process = subprocess.Popen(command, cwd=ROOT, stdout=theirs)
        os.close(theirs)
        shown = b""
        try:
            while chunk := screen.read(1024):
                shown += chunk
        except OSError:  # how the end of a terminal reads
            pass
    assert process.wait() == 0
    assert shown.count(b"\r\x1b[K  [") == 4
    assert shown.endswith(b"[4/4] 100 %\r\n")


def test_a_step_that_fails_shows_the_end_of_its_log(tmp_path: Path) -> None:
    done = subprocess.run(
        [*_STEP, str(tmp_path / "log"), "The title", sys.executable, "-c", "raise SystemExit(3)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "That step failed (exit 3): The title." in done.stderr
