"""Flags, environment and file: one meaning each, in this order; errors that name the culprit."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.settings import read_settings
from unpaced.cli.flags import serve_parser
from unpaced.settings import Settings, SettingsError
from unpaced.settings.model import DEMO_MODEL
from unpaced.settings.options.option import option_of


def test_what_the_shell_has_set_for_a_server_is_none_of_the_tests() -> None:
    names = ("LLAMA_ARG_THREADS", "LLAMA_ARG_NO_CONTEXT_SHIFT", "UNPACED_PORT", "HF_TOKEN")
    code = f"import os, tests.conftest; print([name for name in {names} if name in os.environ])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | dict.fromkeys(names, "7"),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_defaults_are_llama_servers() -> None:
    settings = read_settings([])
    assert settings.model == DEMO_MODEL
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    sampling = settings.sampling_defaults()
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (
        0.8, 40, 0.95, 0.05,
    )  # fmt: skip
    assert sampling.seed == 0xFFFFFFFF
    assert settings.engine_config().n_ctx == 0


def test_command_line_wins_over_environment_over_file_over_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "unpaced.toml"
    file.write_text(
        'ctx-size = 1\nport = 1\ntop_k = 1\ntemperature = 0.5\nreverse-prompt = ["a"]\n'
    )
    monkeypatch.setenv("UNPACED_PORT", "2")
    monkeypatch.setenv("LLAMA_ARG_TOP_K", "2")
    settings = read_settings(["--config", str(file), "--top-k", "3"])
    assert (settings.ctx_size, settings.port, settings.top_k) == (1, 2, 3)
    assert (settings.temp, settings.reverse_prompt) == (0.5, ("a",))


def test_our_environment_names_win_over_llama_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "1")
    monkeypatch.setenv("UNPACED_PORT", "2")
    assert read_settings([]).port == 2


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("LLAMA_ARG_CACHE_PROMPT", "off", False),
        ("LLAMA_ARG_CACHE_PROMPT", "1", True),
        ("LLAMA_ARG_NO_CACHE_PROMPT", "1", False),
    ],
)
def test_switches_in_the_environment(
    variable: str, value: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert read_settings([]).cache_prompt is expected


def test_the_config_file_may_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("port = 7\n")
    monkeypatch.setenv("UNPACED_CONFIG", str(file))
    assert read_settings([]).port == 7


def test_llama_servers_spellings() -> None:
    settings = read_settings(
        shlex.split(
            "-m x.gguf -c 64 -n 5 -np 3 -t 2 -b 64 -ub 32 --temperature 0 -s -1 --n_predict 6 "
            "--repeat_penalty=1.5 -ctk q8_0 -fa on -to 9 -r A -r B --no-warmup -l 5-inf -l 7+1.5 "
            "--sampler-seq kt"
        )
    )
    config = settings.engine_config()
    assert (config.n_ctx, config.n_slots, config.n_threads, config.n_batch) == (64, 3, 2, 64)
    assert (config.cache_type_k, config.flash_attn, config.warmup) == ("q8_0", "on", False)
    assert (settings.n_predict, settings.send_timeout) == (6, 9)
    assert settings.reverse_prompt == ("A", "B")
    sampling = settings.sampling_defaults()
    assert sampling.logit_bias == ((5, float("-inf")), (7, 1.5))
    assert (sampling.samplers, sampling.repeat_penalty) == (("top_k", "temperature"), 1.5)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--port", "99999"], "--port"),
        (["--ctx-size", "many"], "--ctx-size"),
        (["-fa", "maybe"], "--flash-attn"),
        (["--repeat-penalty", "0"], "--repeat-penalty"),
        (["--temp", "nan"], "--temp"),
        (["--samplers", "bogus"], "--samplers"),
        (["--sampler-seq", "z"], "--sampling-seq"),
        (["--logit-bias", "x"], "--logit-bias"),
        (["--api-prefix", "x"], "--api-prefix"),
        (["--config", "/no/such/file"], "/no/such/file"),
        (["-np", "300"], "--parallel"),
        (["-np", "64", "-b", "32"], "--batch-size"),
    ],
)
def test_a_bad_value_names_its_flag(arguments: list[str], text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(arguments)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_config_file_names_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("no-such-key = 1\n")
    with pytest.raises(SettingsError, match="no-such-key"):
        read_settings(["--config", str(file)])
    file.write_text("port = = 1\n")
    with pytest.raises(SettingsError, match="not TOML"):
        read_settings(["--config", str(file)])


def test_a_bad_switch_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNPACED_METRICS", "perhaps")
    with pytest.raises(SettingsError, match="UNPACED_METRICS"):
        read_settings([])


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("LLAMA_ARG_CTX_SIZE", "abc", "LLAMA_ARG_CTX_SIZE: input should be a valid integer"),
        ("UNPACED_PORT", "tcp://10.0.0.1:8080", "UNPACED_PORT: input should be a valid integer"),
        ("UNPACED_REPEAT_PENALTY", "0", "UNPACED_REPEAT_PENALTY: input should be greater than 0"),
        ("UNPACED_SAMPLERS", "bogus", "UNPACED_SAMPLERS: unknown sampler"),
        ("LLAMA_ARG_N_PARALLEL", "0", "LLAMA_ARG_N_PARALLEL: must be -1 or at least 1"),
    ],
)
def test_a_bad_value_of_a_variable_or_a_file_names_that(
    variable: str, value: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        read_settings([])
    assert str(caught.value).startswith(text)
    monkeypatch.delenv(variable)
    file = tmp_path / "c.toml"
    file.write_text("ctx-size = 'abc'\n")
    with pytest.raises(SettingsError, match=r"c\.toml: ctx-size: input should be") as caught:
        read_settings(["--config", str(file)])
    # The command line wins, and then it is to blame.
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "512")
    with pytest.raises(SettingsError) as caught:
        read_settings(["--config", str(file), "-c", "x"])
    assert str(caught.value).startswith("--ctx-size: ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--ctx-siez", "4096"], "unknown flag --ctx-siez; did you mean --ctx-size?"),
        (["--ctx_siez=4096"], "unknown flag --ctx-siez; did you mean --ctx-size?"),
        (["--slot-save"], "unknown flag --slot-save; did you mean --slot-save-path?"),
        (["--temprature", "1"], "unknown flag --temprature; did you mean --temperature?"),
        (["--zzzzzz"], "unknown flag --zzzzzz\n"),
        (["model.gguf"], "unexpected argument 'model.gguf'; did you mean -m model.gguf?"),
        (["-m", "x.gguf", "4096"], "unexpected argument '4096'\n"),
    ],
)
def test_an_unknown_flag_suggests_a_known_one(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        read_settings(arguments)
    assert caught.value.code == 1
    assert text in capsys.readouterr().err


def test_an_unknown_key_of_the_file_suggests_a_known_one(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("ctx_siez = 1\n")
    with pytest.raises(SettingsError, match=r"unknown key 'ctx_siez'; did you mean ctx-size\?"):
        read_settings(["--config", str(file)])


def test_an_unknown_flag_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read_settings(["--no-such-flag"])
    assert caught.value.code == 1
    assert "--no-such-flag" in capsys.readouterr().err


def test_every_setting_has_a_flag_and_a_help_text() -> None:
    text = serve_parser().format_help()
    for info in Settings.model_fields.values():
        option = option_of(info)
        assert option.help
        for flag in (*option.flags, *option.off_flags):
            assert flag in text


def test_no_mixin_hides_what_another_one_has() -> None:
    """Validators of one name in two mixins: only one of them would run."""
    owners: dict[str, type] = {}
    for owner in Settings.__mro__:
        if "group" in vars(owner):
            for name in vars(owner):
                if not name.startswith("__") and not name.startswith(("model_", "_abc", "group")):
                    assert owners.setdefault(name, owner) is owner, (name, owners[name], owner)


def test_a_chat_template_with_a_fault_is_refused_at_the_start(tmp_path: Path) -> None:
    broken = "{% for message in messages %}{{ message.content"
    with pytest.raises(SettingsError, match="--chat-template: is no template: line 1: "):
        read_settings(["--chat-template", broken])
    path = tmp_path / "template.jinja"
    path.write_text(broken)
    with pytest.raises(SettingsError, match="--chat-template-file: is no template: line 1: "):
        read_settings(["--chat-template-file", str(path)])
    path.write_text("{% generation %}{{ messages[0].content }}{% endgeneration %}{# } #}")
    assert read_settings(["--chat-template-file", str(path)]).chat_template_file == path
    assert read_settings(["--chat-template", "chatml"]).chat_template == "chatml"
