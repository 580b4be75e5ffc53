"""`--print-config` says every setting, and as a file it means what was printed."""

import contextlib
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic.fields import FieldInfo

from engine_ext import EngineConfig
from tests.support.settings import read_settings
from unpaced.cli.flags import serve_parser
from unpaced.cli.print_config import print_config
from unpaced.settings import Settings, SettingsError
from unpaced.settings.options.option import is_switch, option_of

_VALUES = ("1", "2", "0.5", "x", "on", "0", "-1", "a.b=CPU", "5+1", "0-1", "1,2", "tests")
_PAIRS = (
    ["-np", "4"],
    ["-np", "4", "-kvu"],
    ["--no-kv-unified"],
    ["--tools", "all"],
    ["-c", "0"],
    ["-m", "some/model.gguf"],
    ["--no-escape", "-r", r"a\nb"],
    ["-r", r"a\nb", "-r", r"\\n", "-r", 'quote " and é'],
    ["--sampler-seq", "kt"],
    ["--temp", "0.1", "--seed", "7"],
    ["-t", "2", "-fa", "-ot", r"blk\.1\.=CPU"],
)


def reread(arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Raises: AssertionError unless the printed file gives the same settings, printed alike."""
    first = read_settings(arguments)
    print_config(first)
    printed = capsys.readouterr().out
    file = folder / "c.toml"
    file.write_text(printed)
    second = read_settings(["--config", str(file)])
    free = {"config", "escape"}
    assert second.model_fields_set - free == first.model_fields_set - free
    assert second.model_dump(exclude=free) == first.model_dump(exclude=free)
    assert engine_config(second) == engine_config(first)
    assert second.allowed_origins == first.allowed_origins
    print_config(second)
    assert capsys.readouterr().out == printed


def engine_config(settings: Settings) -> EngineConfig:
    """Without what depends on the memory that is free just now."""
    return replace(settings.engine_config(), fit_host_bytes=0, cache_bytes_max=0)


def arguments_of(name: str, info: FieldInfo) -> list[list[str]]:
    """Ways to set a field, some of them refused."""
    option = option_of(info)
    if option.secret or name == "config":
        return []
    if is_switch(info):
        return [[flags[0]] for flags in (option.flags, option.off_flags) if flags]
    values = [str(value) for value in get_args(info.annotation)] or list(_VALUES)
    return [[option.name, value] for value in values]


@pytest.fixture(autouse=True)
def one_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making it takes longer than all that is done with it here."""
    parser = serve_parser()
    monkeypatch.setattr("unpaced.cli.flags.serve_parser", lambda: parser)


def test_any_setting_alone_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = set()
    for name, info in Settings.model_fields.items():
        for arguments in arguments_of(name, info):
            with contextlib.suppress(SettingsError):
                read_settings(arguments)
                taken.add((name, *arguments))
    for name in Settings.model_fields:
        for _, *arguments in sorted(each for each in taken if each[0] == name)[:1]:
            reread(arguments, tmp_path, capsys)
    # The others need a file, or another flag.
    assert len({name for name, *_ in taken}) > 0.8 * len(Settings.model_fields)


@pytest.mark.parametrize("arguments", _PAIRS)
def test_settings_that_follow_from_others_still_do(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reread(arguments, tmp_path, capsys)


def test_what_nobody_set_is_a_comment_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    print_config(read_settings(["--top-k", "40"]))
    printed = capsys.readouterr().out
    table: dict[str, Any] = tomllib.loads(printed)
    assert table == {"top-k": 40}
    for name, info in Settings.model_fields.items():
        key = option_of(info).name.lstrip("-")
        assert name == "config" or f"{key}: not set" in printed or f"{key} = " in printed
