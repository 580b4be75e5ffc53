"""What a start says on a terminal and in a log."""

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from engine_ext import DecodeLoop
from unpaced.process.start_report import (
    LoadProgress,
    curl_line,
    tell_kernels,
    tell_loop,
    tell_memory,
)
from unpaced.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
MIB = 1024 * 1024


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def log() -> structlog.stdlib.BoundLogger:
    return structlog.stdlib.get_logger("test")


def loop(n_elsewhere: int = 0) -> DecodeLoop:
    return DecodeLoop(
        loop="host",
        reason="",
        device="",
        memory_bytes={
            "AMX": {"weights": 3 * MIB, "kv": 0, "compute": 0},
            "CPU": {"weights": MIB // 2, "kv": 2 * MIB, "compute": 0},
        },
        elsewhere=["blk.1"] * n_elsewhere,
        n_elsewhere=n_elsewhere,
        n_graph_nodes={},
        n_graph_splits=0,
        phases=[],
    )


def test_memory_is_one_line_that_can_be_read_and_the_rest_is_debug() -> None:
    with capture_logs() as lines:
        tell_memory(log(), loop(), 3)
        tell_memory(log(), loop(2), 3)
    first, detail, second, _ = lines
    assert (first["event"], first["log_level"]) == ("memory", "info")
    assert first["weights"] == "3.5 MiB (AMX 3.0, CPU 0.5)"
    assert first["kv"] == "2.0 MiB (CPU)"
    assert first["computing"] == "0.0 MiB"
    assert "not_on_gpu" not in first
    assert second["not_on_gpu"] == 2
    assert (detail["log_level"], detail["window_graphs"]) == ("debug", 3)
    assert not any(isinstance(value, dict | list) for value in first.values())


def test_whose_kernels_compute_a_step_is_one_line_and_each_shape_is_debug() -> None:
    phases: list[dict[str, str | int]] = [
        {"phase": "norm", "kernels": "own", "why": "", "n": 33},
        {"phase": "product", "kernels": "own", "why": "", "n": 16},
        {"phase": "ggml", "kernels": "ggml", "why": "attention", "n": 17},
    ]
    times = {"ggml_us": 9.7, "own_us": 7.5}
    trials: list[dict[str, str | int | float | bool]] = [
        {"phase": "product", "n": 17, "ms": 2.0, "measured": True, "remembered": False, **times},
        {"phase": "product", "n": 1, "ms": 0.25, "measured": False, "remembered": True},
        {"phase": "norm", "n": 33, "ms": 1.0, "measured": False, "remembered": False},
    ]
    told = replace(loop(), loop="device", phases=phases, phase_trials=trials)
    with capture_logs() as lines:
        tell_kernels(log(), loop(), "ggml")
        tell_kernels(log(), told, "auto")
        tell_kernels(log(), told, "own")
    automatic, first, _, _, own, *_ = lines
    assert automatic["log_level"] == "info"
    assert {name: automatic[name] for name in ("own", "ggml", "test_ms", "unmeasured")} == {
        "own": 49,
        "ggml": 17,
        "test_ms": 3.2,
        "unmeasured": 1,
    }
    assert (first["log_level"], first["phase"], first["own_us"]) == ("debug", "product", 7.5)
    assert "unmeasured" not in own


def card_loop(**changes: Any) -> DecodeLoop:
    return replace(
        replace(
            loop(),
            loop="device",
            device="NVIDIA H200",
            choice="the model goes to CUDA1, the emptiest of 2 cards; -sm layer splits it",
            cards=["CUDA1"],
        ),
        **changes,
    )


def test_a_card_that_was_chosen_is_named_with_what_chooses_otherwise() -> None:
    with capture_logs() as lines:
        tell_loop(log(), card_loop())
        tell_loop(log(), card_loop(loop="host", reason="LoRA adapters are loaded"))
    chosen, again, host = lines
    assert chosen["log_level"] == again["log_level"] == "info"
    assert chosen["event"].startswith("the model goes to CUDA1")
    assert (host["log_level"], host["event"]) == ("warning", "the token loop is: host")
    assert host["reason"] == "LoRA adapters are loaded"
    assert "cost" not in host


def test_kernels_that_the_driver_compiles_are_a_warning() -> None:
    with capture_logs() as lines:
        tell_loop(log(), card_loop(choice="", compiled_from="7.5"))
    (line,) = lines
    assert (line["log_level"], line["ptx_of"]) == ("warning", "7.5")
    assert "the first requests wait" in line["event"]


def test_a_model_on_several_cards_is_a_warning_with_cause_and_cost() -> None:
    split = {"loop": "host", "reason": "the model is split", "cards": ["CUDA0", "CUDA1"]}
    with capture_logs() as lines:
        tell_loop(log(), card_loop(**split))
        tell_loop(log(), replace(card_loop(**split), choice=""))  # as it was asked for
    found, asked = lines
    assert found["log_level"] == asked["log_level"] == "warning"
    assert found["cause"].startswith("the model goes to")
    assert found["cost"] == asked["cost"]
    assert "docs/gpu.md, Several cards" in found["cost"]
    assert "\n## Several cards\n" in (ROOT / "docs" / "gpu.md").read_text()
    # Figures are another machine's.
    assert re.search(r"\d", found["cost"]) is None
    assert "cause" not in asked


def test_a_terminal_has_a_line_that_redraws_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    with capture_logs() as lines:
        progress = LoadProgress(
            Settings(model=Path("folder/some-model.gguf")), log(), terminal.write
        )
        for fraction in (0.0, 0.5, 1.0):
            progress.show(fraction)
        progress.clear()
    assert lines == []
    assert "\n" not in terminal.getvalue()
    drawn = terminal.getvalue().split("\x1b[2K")
    assert drawn[0] == drawn[-1] == ""
    assert [len(re.findall("#", each)) for each in drawn[1:-1]] == [0, 15, 30]
    assert all(each.endswith("\r") and len(each) <= 60 for each in drawn[1:-1])
    assert "some" in drawn[1]
    assert " 50%" in drawn[2]


@pytest.mark.parametrize("settings", [{}, {"log_format": "json"}])
def test_elsewhere_it_is_lines_of_the_log(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal() if settings else io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    with capture_logs() as lines:
        progress = LoadProgress(Settings.model_validate(settings), log(), terminal.write)
        progress.show(0.25)
        progress.clear()
    assert [line["progress"] for line in lines] == ["25%"]
    assert terminal.getvalue() == ""


def test_the_curl_line_hints_at_a_key_and_never_shows_it(tmp_path: Path) -> None:
    url = "http://127.0.0.1:8080"
    assert "Authorization" not in curl_line(url, Settings())
    file = tmp_path / "keys"
    file.write_text("secret\n")
    for settings in (Settings(api_key=("secret",)), Settings(api_key_file=file)):
        line = curl_line(url, settings)
        assert "-H 'Authorization: Bearer YOUR-API-KEY'" in line
        assert "secret" not in line
