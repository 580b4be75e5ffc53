"""The commands that the pages show, as somebody would copy them into a shell."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    "README.md", "docs/quickstart.md", "docs/daily.md", "docs/operating.md", "docs/terminal.md",
    "docs/tuning.md", "docs/troubleshooting.md", "docs/migrating.md", "docs/api.md",
)  # fmt: skip
_BLOCK = re.compile(r"^( *)```(?:sh|bash|console)\n(.*?)^ *```$", re.M | re.S)
_ANY_BLOCK = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
_QUOTED = re.compile(r"`((?:\.venv/bin/)?(?:unpaced|curl|ln|make) [^`\n]+)`")


class Command(NamedTuple):
    """A line of a page. `page`: its path from the checkout's root."""

    page: str
    text: str


def shown_commands() -> list[Command]:
    """Every line of every block of shell, without its comment; and what stands in backticks in a
    line and begins with a program's name. Each once a page."""
    found: dict[Command, None] = {}
    for page in PAGES:
        text = (ROOT / page).read_text()
        for block in _BLOCK.finditer(text):
            for line in re.sub(r"\\\n\s*", "", block[2]).splitlines():
                command = re.sub(r"(^|\s+)#.*$", "", line).strip()
                if command:
                    found[Command(page, command)] = None
        for quote in _QUOTED.findall(_ANY_BLOCK.sub("", text)):
            found[Command(page, quote)] = None
    return list(found)
