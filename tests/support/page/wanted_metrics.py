"""What the live view asks of /metrics, read from its own file."""

import re
from pathlib import Path

_FILE = Path(__file__).resolve().parents[3] / "unpaced" / "page" / "live" / "wanted.js"


def wanted_names() -> list[str]:
    """The series' names."""
    text = re.sub(r"//.*", "", _FILE.read_text())
    ours, of_process = re.findall(r"const \w+ = \[(.*?)\];", text, re.DOTALL)
    names = [f"unpaced_{name}" for name in re.findall(r'"(\w+)"', ours)]
    return names + re.findall(r'"(\w+)"', of_process)


def wanted_by_the_page() -> str:
    """The path with its query."""
    return "/metrics?" + "&".join(f"name%5B%5D={name}" for name in wanted_names())
