"""`unpaced serve --print-config`: the settings in force, as a file for --config."""

import json
from collections.abc import Iterable
from pathlib import Path

from unpaced.settings import Settings
from unpaced.settings.options.option import option_of


def print_config(settings: Settings) -> int:
    """TOML on standard output. What nobody has set is a comment, with its default: some settings
    follow from others as long as nobody sets them. Secrets are comments, too."""
    for owner in reversed(Settings.__mro__):
        title = vars(owner).get("group")
        if not isinstance(title, str):
            continue
        print(f"\n# {title}")
        for name in vars(owner)["__annotations__"]:
            if name in Settings.model_fields and name != "config":
                print(_line(settings, name))
    return 0


def _line(settings: Settings, name: str) -> str:
    option = option_of(Settings.model_fields[name])
    key = option.name.lstrip("-")
    value = getattr(settings, name)
    is_set = name in settings.model_fields_set
    if name == "escape" and _has_backslash(settings):
        value, is_set = False, True  # escapes were read when the settings were
    if option.secret and value:
        return f"# {key}: set, not shown"
    if value is None or value == () or (isinstance(value, str) and option.secret):
        return f"# {key}: not set"
    return f"{'' if is_set else '# '}{key} = {_toml(value)}"


def _has_backslash(settings: Settings) -> bool:
    texts = (getattr(settings, name) for name in settings.model_fields_set)
    return any("\\" in text for value in texts for text in _texts(value))


def _texts(value: object) -> Iterable[str]:
    return [str(item) for item in value] if isinstance(value, tuple) else [str(value)]


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, float):
        return repr(value)
    # JSON's strings, booleans and integers are TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
