"""Whether one card or several are used is left open only where nothing was said about cards."""

import pytest

from tests.support.settings import read_settings
from unpaced.cli.flags import read_command_line
from unpaced.settings import SettingsError


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


def test_rpc_workers_are_addresses_each_once() -> None:
    settings = read_settings(["--rpc", "10.0.0.2:50052, gpu-box:1,10.0.0.2:50052"])
    assert settings.rpc_workers() == ("10.0.0.2:50052", "gpu-box:1")
    assert settings.engine_config().options.rpc_workers == settings.rpc_workers()
    # The layers are for all devices, and not for the one with most memory.
    assert settings.split_mode_in_force == "layer"
    assert read_settings([]).rpc_workers() == ()


@pytest.mark.parametrize("text", ["10.0.0.2", ":50052", "a:0", "a:65536", "a:b", "a:1,b"])
def test_an_rpc_worker_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--rpc: .* is not HOST:PORT"):
        read_settings(["--rpc", text])
