"""Writes docs/flags.md from the settings and the table of llama-server's other flags.

`python scripts/flags_page.py` rewrites the page; `--check` only says whether it is up to date
(exit 1 if not).
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from unpaced.cli.flags import claimed_flags  # noqa: E402
from unpaced.cli.llama_flags.flag import LlamaFlag  # noqa: E402
from unpaced.cli.llama_flags.judge import llama_flags  # noqa: E402
from unpaced.settings import Settings  # noqa: E402
from unpaced.settings.model import DEMO_MODEL  # noqa: E402
from unpaced.settings.options.option import option_of  # noqa: E402

PAGE = ROOT / "docs" / "flags.md"
INTRO = """# Flags

Written by `scripts/flags_page.py` from the settings; `unpaced serve --help` says the same.

`unpaced -m model.gguf --port 9000` takes llama-server's command line: the name of the program is
all that changes. Every flag that llama-server 0c1e57098 lists in its help is here, in one of three
ways:

* **honoured**: it is a setting, below, under all of llama-server's spellings and variables;
* **without effect**: answers are the same with and without it; one line at start says why;
* **refused**: answers would be others than asked for; the server does not start, and says why.

`_` and `-` are the same in long flags. Every setting is also `UNPACED_<NAME>` and a key of the
`--config` file. The command line wins over the environment, that over the file. Where a setting can
be switched off, `LLAMA_ARG_NO_<NAME>` does so too.

Instead of serving: `--print-config` prints the settings in force as a `--config` file that means
the same, without secrets and with the defaults as comments; `--dry-run` says what would be loaded
where and how much memory that takes, and loads nothing; `--list-devices` names what `-dev` takes;
`--version`, `--help`.

## Honoured
"""


def cell(text: str) -> str:
    """Text for a table."""
    return text.replace("|", "\\|").replace("\n", "\\n")


def show_default(value: object) -> str:
    """A default, in a form that does not depend on the machine."""
    if value is None or value == "" or value == ():
        return ""
    if value == DEMO_MODEL:
        return "the demo model"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return cell(" ".join(f"`{item!r}`" for item in value))
    return f"`{cell(str(value))}`"


def honoured() -> list[str]:
    """A table for each group of settings."""
    lines = []
    for owner in reversed(Settings.__mro__):
        title = vars(owner).get("group")
        if not isinstance(title, str):
            continue
        lines += [f"### {title}", "", "| flags | default | what | variables |", "|---|---|---|---|"]
        for name in vars(owner)["__annotations__"]:
            if name not in Settings.model_fields:
                continue
            info = Settings.model_fields[name]
            option = option_of(info)
            flags = " ".join(f"`{flag}`" for flag in option.flags + option.off_flags)
            value = f" `{option.metavar}`" if option.metavar else ""
            variables = " ".join(f"`{variable}`" for variable in option.env_names(name)[1:])
            row = (flags + value, show_default(info.default), cell(option.help), variables)
            lines.append("| " + " | ".join(row) + " |")
        lines.append("")
    return lines


def others(title: str, flags: list[LlamaFlag]) -> list[str]:
    """A table of flags that set nothing, by their reasons."""
    by_reason: dict[str, list[str]] = {}
    for flag in flags:
        by_reason.setdefault(flag.reason, []).append(" ".join(f"`{name}`" for name in flag.flags))
    lines = [f"## {title}", "", "| flags | why |", "|---|---|"]
    lines += [
        f"| {', '.join(names)} | {cell(reason)} |"
        for reason, names in sorted(by_reason.items(), key=lambda item: item[1])
    ]
    return [*lines, ""]


def page() -> str:
    """The whole page."""
    known = list(llama_flags(claimed_flags()))
    quiet = [flag for flag in known if flag.is_quiet]
    noticed = [flag for flag in known if not flag.is_quiet and not flag.is_refused]
    refused = [flag for flag in known if flag.is_refused]
    lines = [
        *honoured(),
        *others("Taken silently: it is so anyway", quiet),
        *others("Without effect", noticed),
        *others("Refused", refused),
    ]
    return INTRO + "\n" + "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """0, or with --check 1 if the page is not up to date."""
    made = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != made:
            print("docs/flags.md is not up to date: run python scripts/flags_page.py")
            return 1
        return 0
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
