"""Whether one card or several are used is left open only where nothing was said about cards."""

import pytest

from tests.support.settings import read_settings
from unpaced.cli.flags import read_command_line


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


@pytest.mark.parametrize(
    ("flags", "notice"),
    [
        (("-mg", "1"), "--main-gpu has no effect: --split-mode none uses it, and here it is layer"),
        (("-mg", "0", "-sm", "row"), "--main-gpu has no effect"),
        (("-ts", "3,1", "-sm", "none"), "--tensor-split has no effect"),
        (("-mg", "1", "-sm", "none"), ""),
        (("-ts", "3,1"), ""),
        ((), ""),
    ],
)
def test_what_does_nothing_is_told(flags: tuple[str, ...], notice: str) -> None:
    notices = read_command_line([*flags]).notices
    assert [line[: len(notice)] for line in notices] == ([notice] if notice else [])
