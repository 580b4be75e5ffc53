"""llama-server's flags that set nothing here: accepted with a line, or refused with a reason."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.settings import read_settings
from unpaced.cli.flags import claimed_flags, read_command_line, serve_parser
from unpaced.cli.llama_flags.judge import llama_flags
from unpaced.settings import Settings, SettingsError
from unpaced.settings.options.escapes import read_escapes
from unpaced.settings.options.option import option_of

SUPPORT = Path(__file__).parents[2] / "support"


def test_a_harmless_flag_is_taken_and_said_to_do_nothing() -> None:
    command = read_command_line(["--threads-http", "4", "-c", "64", "--cont-batching", "-md", "x"])
    assert command.settings.ctx_size == 64
    assert [notice.partition(":")[0] for notice in command.notices] == [
        "--threads-http has no effect",
        "--spec-draft-model has no effect",
    ]


def test_underscores_and_llama_servers_environment_count_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLAMA_ARG_THREADS_HTTP", "4")
    monkeypatch.setenv("LLAMA_ARG_EMBEDDINGS", "0")
    notices = read_command_line(["--backend_sampling"]).notices
    assert notices[0].startswith("LLAMA_ARG_THREADS_HTTP has no effect: ")
    assert notices[1].startswith("--backend-sampling has no effect: ")
    monkeypatch.setenv("LLAMA_ARG_EMBEDDINGS", "1")
    with pytest.raises(SettingsError, match="LLAMA_ARG_EMBEDDINGS: embeddings and reranking"):
        read_command_line([])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--embeddings"],
        ["--mmproj", "x"],
        ["--models-dir", "x"],
        ["--draft-max", "3"],
        ["--mcp-servers-json", "{}"],
        ["--log-prompts-dir", "x"],
    ],
)
def test_what_would_change_answers_is_refused_by_name(arguments: list[str]) -> None:
    with pytest.raises(SettingsError, match=rf"{arguments[0]}.*: \w+"):
        read_command_line(arguments)


def test_a_value_that_asks_for_nothing_is_taken() -> None:
    assert read_command_line(["--adaptive-target", "-1", "--no-mmproj"]).notices == []


def test_older_scripts_bare_flash_attn() -> None:
    assert read_settings(["-fa", "-c", "64"]).flash_attn == "on"
    assert read_settings(["-fa", "off"]).flash_attn == "off"


def test_origins_are_local_where_tools_are_asked_for() -> None:
    assert read_settings(["--tools", "all"]).allowed_origins == "localhost"
    assert read_settings(["--tools", "all", "--cors-origins", "*"]).allowed_origins == "*"
    assert read_settings([]).allowed_origins == "*"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (r"a\nb\t\r", "a\nb\t\r"),
        (r"\\n", r"\n"),
        (r"\'\"", "'\""),
        (r"\x41\xc3\xa9", "Aé"),
        (r"\xff", "�"),
        (r"\q\xZZ", r"\q\xZZ"),
        ("end\\", "end\\"),
    ],
)
def test_escapes_of_stop_strings_are_read(text: str, meaning: str) -> None:
    assert read_escapes(text) == meaning
    assert read_settings(["-r", text]).reverse_prompt == (meaning,)
    assert read_settings(["--no-escape", "-r", text]).reverse_prompt == (text,)


def test_no_sequence_breaker() -> None:
    settings = read_settings(["--dry-sequence-breaker", "none", "--dry-multiplier", "1"])
    assert settings.sampling_defaults().dry_sequence_breakers == ("",)


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        ([], "info"),
        (["-v"], "debug"),
        (["-lv", "0"], "error"),
        (["--verbosity", "2"], "warning"),
        (["--log-verbosity", "5"], "debug"),
        (["-lv", "99"], "debug"),
        (["--log-level", "error"], "error"),
    ],
)
def test_log_levels(arguments: list[str], level: str) -> None:
    assert read_settings(arguments).level == level


def llama_server_options() -> list[tuple[list[str], int, list[str]]]:
    """Spellings, number of values and variables of every option of the real server's --help."""
    options = []
    for line in (SUPPORT / "llama_server_flags.txt").read_text().splitlines():
        if not line.startswith("#"):
            words = line.split()
            flags = [word for word in words if word.startswith("-")]
            options.append((flags, int(words[len(flags)]), words[len(flags) + 1 :]))
    return options


def test_the_list_of_flags_is_whole() -> None:
    options = llama_server_options()
    assert (len(options), sum(len(flags) for flags, _, _ in options)) == (255, 412)


def test_no_flag_of_llama_server_is_unknown() -> None:
    parser = serve_parser()
    for flags, n_values, _ in llama_server_options():
        for flag in flags:
            action = parser._option_string_actions.get(flag)
            assert action is not None, f"{flag} is unknown"
            takes = {None: 1, "?": 1, 0: 0}.get(action.nargs, action.nargs)
            assert takes == n_values, f"{flag} takes {takes} values, not {n_values}"


def test_no_variable_of_llama_server_is_unknown() -> None:
    known = {
        name
        for field, info in Settings.model_fields.items()
        for name in option_of(info).env_names(field)
    }
    known |= {name for flag in llama_flags(claimed_flags()) for name in flag.envs}
    asked = {name for _, _, names in llama_server_options() for name in names}
    assert asked - known == set()


def test_spellings_of_one_option_mean_one_thing() -> None:
    """All spellings of an option are honoured, or none: an alias must not do something else."""
    claimed = claimed_flags()
    for flags, _, _ in llama_server_options():
        kept = [flag in claimed for flag in flags]
        assert all(kept) or not any(kept), flags


def test_the_page_of_flags_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, SUPPORT.parents[1] / "scripts" / "flags_page.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["--load-mode", "dio", "--mlock"], ["--rope-scale", "2", "--rope-freq-scale", "0.5"]],
)
def test_two_flags_that_say_different_things_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SettingsError, match=f"{arguments[0]}: cannot be combined with"):
        read_settings(arguments)


@pytest.mark.parametrize(
    ("arguments", "cores"),
    [
        (["-C", "0x5"], {0, 2}),
        (["-C", "f0"], {4, 5, 6, 7}),
        (["-Cr", "1-3"], {1, 2, 3}),
        (["-Cr", "-1", "-C", "8"], {0, 1, 3}),
        ([], set()),
    ],
)
def test_cores_of_masks_and_ranges(arguments: list[str], cores: set[int]) -> None:
    assert read_settings(arguments).allowed_cores() == cores


@pytest.mark.parametrize(
    "arguments", [["-C", "xyz"], ["-Cr", "3"], ["-Cr", "3-1"], ["-Cr", "0-600"]]
)
def test_what_names_no_cores_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SettingsError, match=r"--cpu-(mask|range): must be"):
        read_settings(arguments)
