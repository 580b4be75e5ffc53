"""The folder that keeps what --kernels auto has measured."""

from pathlib import Path

import pytest

from engine_ext import StepKernels
from unpaced.settings import Settings


def folder(kernels: StepKernels) -> Path | None:
    settings = Settings(model=Path("model.gguf"), kernels=kernels)
    return settings.engine_config().kernel_choices


def test_only_what_is_measured_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert folder("auto") == Path("/cache/unpaced/kernels")
    assert folder("own") is None
    assert folder("ggml") is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert folder("auto") == Path("/home/somebody/.cache/unpaced/kernels")


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert folder("auto") is None
