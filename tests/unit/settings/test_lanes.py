"""How many requests the GPU's loop decodes together."""

from pathlib import Path

import pytest

from engine_ext import EngineConfig
from tests.support.settings import read_settings
from unpaced.settings import SettingsError


@pytest.mark.parametrize(
    ("flags", "n"), [((), 32), (("-np", "16"), 32), (("--lanes", "1"), 1), (("--lanes", "8"), 8)]
)
def test_lanes_are_what_is_asked_for_and_else_as_many_as_there_can_be(
    flags: tuple[str, ...], n: int
) -> None:
    assert read_settings([*flags]).engine_config().n_lanes == n


@pytest.mark.parametrize("n", ["0", "33", "-1", "four"])
def test_others_are_refused_with_the_flags_name(n: str) -> None:
    with pytest.raises(SettingsError, match="--lanes"):
        read_settings(["--lanes", n])


@pytest.mark.parametrize("n", [0, 33])
def test_an_engine_takes_no_others(n: int) -> None:
    with pytest.raises(ValueError, match=f"n_lanes: must be 1 to 32, but got {n}"):
        EngineConfig(model_path=Path("model.gguf"), n_lanes=n)
