"""Whether one card or several are used is left open only where nothing was said about cards."""

import pytest

from tests.support.settings import read_settings


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ((), "auto"),
        (("-sm", "auto"), "auto"),
        (("-sm", "layer"), "layer"),
        (("-sm", "none", "-mg", "1"), "none"),
        (("-mg", "0"), "layer"),
        (("-ts", "3,1"), "layer"),
        (("-dev", "CUDA1"), "layer"),
        (("-dev", "CUDA0,CUDA1", "-sm", "row"), "row"),
    ],
)
def test_what_is_said_of_cards_is_llama_cpps(flags: tuple[str, ...], mode: str) -> None:
    assert read_settings([*flags]).model_options().split_mode == mode
