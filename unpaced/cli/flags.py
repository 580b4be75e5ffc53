"""Command-line flags made from the settings, and settings made from the command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from unpaced.cli.llama_flags.judge import add_llama_flags, judge_llama_flags
from unpaced.settings import Settings, SettingsError
from unpaced.settings.options.option import Option, is_switch, option_of
from unpaced.settings.options.origin import name_origin, origin_of
from unpaced.settings.options.suggestion import did_you_mean

Action = Literal["serve", "version", "list-devices", "print-config", "dry-run"]

_ACTIONS: Final[dict[Action, tuple[str, str]]] = {
    "version": ("--version", "say which build this is, and exit"),
    "list-devices": ("--list-devices", "list the devices of this build, and exit"),
    "print-config": ("--print-config", "print the settings in force as TOML, and exit"),
    "dry-run": ("--dry-run", "say what would be loaded where, and how much memory, and exit"),
}

_EXAMPLES = """examples:
  unpaced serve                                    the built-in demo model on 127.0.0.1:8080
  unpaced serve -m model.gguf -c 4096 --port 9000  any GGUF that llama.cpp loads
  unpaced model.gguf -c 4096 --port 9000           the same; a MODEL comes first
  unpaced USER/REPO:QUANT                          the same as unpaced serve -hf USER/REPO:QUANT
  LLAMA_ARG_MODEL=model.gguf unpaced serve         llama-server's environment works too
  unpaced serve --config unpaced.toml              so does a file: ctx-size = 4096

Every flag is also UNPACED_<FLAG>, such as UNPACED_CTX_SIZE, and a key of the --config file. The
command line wins over the environment, that over the file. _ and - are the same in long flags.
"""


class FlagParser(argparse.ArgumentParser):
    """An argument parser that exits with 1, as llama-server does, and says what a wrong flag may
    have meant."""

    def read(self, arguments: Sequence[str]) -> dict[str, Any]:
        """What was given, by field. Raises: SystemExit."""
        namespace, left = self.parse_known_args(list(arguments))
        if left:
            self.error(self._unknown(left[0].partition("=")[0]))
        return vars(namespace)

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            hint = f"; did you mean -m {word}?" if word.endswith(".gguf") else ""
            return f"unexpected argument {word!r}{hint}"
        named = [action for action in self._actions if action.help != argparse.SUPPRESS]
        known = [flag for action in named for flag in action.option_strings]
        return f"unknown flag {word}{did_you_mean(word, known)}"

    def error(self, message: str) -> NoReturn:
        """One line on stderr, exit status 1."""
        self.exit(1, f"{self.prog}: error: {message}\n{self.prog} --help lists the flags\n")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line asks for; `notices` are lines about flags that do nothing."""

    settings: Settings
    action: Action
    notices: list[str]


def claimed_flags() -> frozenset[str]:
    """Every spelling that a setting has."""
    options = [option_of(info) for info in Settings.model_fields.values()]
    return frozenset(flag for option in options for flag in option.flags + option.off_flags)


def serve_parser() -> FlagParser:
    """`unpaced serve`'s flags, grouped, from the settings' fields."""
    parser = FlagParser(
        prog="unpaced serve",
        usage="unpaced serve [MODEL] [FLAG ...]",
        description="Serve a GGUF model over llama-server's and OpenAI's HTTP API.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        add_help=False,
    )
    actions = parser.add_argument_group("Instead of serving")
    actions.add_argument("-h", "--help", "--usage", action="help", help="show this, and exit")
    for action, (flag, text) in _ACTIONS.items():
        actions.add_argument(flag, dest="action", action="store_const", const=action, help=text)
    groups: dict[str, argparse._ArgumentGroup] = {}
    for owner in reversed(Settings.__mro__):
        title = vars(owner).get("group")
        if isinstance(title, str):
            group = groups[title] = parser.add_argument_group(title)
            for name in vars(owner)["__annotations__"]:
                if name in Settings.model_fields:
                    info = Settings.model_fields[name]
                    _add_flag(group, name, info, option_of(info))
    add_llama_flags(parser, claimed_flags())
    return parser


def _add_flag(group: "argparse._ArgumentGroup", name: str, info: FieldInfo, option: Option) -> None:
    text = _help(info, option).replace("%", "%%")
    if is_switch(info):
        group.add_argument(*option.flags, dest=name, action="store_const", const=True, help=text)
        if option.off_flags:
            off = f"not {option.name}"
            group.add_argument(
                *option.off_flags, dest=name, action="store_const", const=False, help=off
            )
        return
    if option.bare is not None:
        group.add_argument(
            *option.flags,
            dest=name,
            nargs="?",
            const=option.bare,
            metavar=option.metavar,
            help=text,
        )
        return
    action = "append" if option.many else "store"
    group.add_argument(*option.flags, dest=name, action=action, metavar=option.metavar, help=text)


def _help(info: FieldInfo, option: Option) -> str:
    text = option.help
    default = info.default
    for name in option.env_names("")[1:]:
        text += f" [{name}]"
    has_default = isinstance(default, int | float | str) and not isinstance(default, bool)
    if has_default and default != "" and "default" not in text:
        text += f" (default: {default})"
    return text


def read_command_line(arguments: Sequence[str]) -> CommandLine:
    """What a command line, the environment and the config file ask for.

    Raises: SettingsError, one sentence that names the flag; SystemExit for --help and bad flags.
    """
    given = serve_parser().read([_dashes(argument) for argument in arguments])
    action = cast(Action, given.pop("action", "serve"))
    notices = judge_llama_flags(given, claimed_flags())
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise SettingsError(_sentence(error, values)) from None
    return CommandLine(settings, action, notices + settings.notices())


def _dashes(argument: str) -> str:
    """`--foo_bar=x_y` to `--foo-bar=x_y`."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


def _sentence(error: ValidationError, on_command_line: dict[str, Any]) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not first["loc"]:
        return name_origin(message, Settings.model_fields, on_command_line)
    origin = origin_of(str(first["loc"][0]), Settings.model_fields, on_command_line)
    return f"{origin}: {message}, but got {first['input']!r}"
