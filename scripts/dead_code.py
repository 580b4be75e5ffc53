"""Finds functions, classes, methods and imports that nobody uses: exit 1 if there are any.

What only tests use counts as unused in the program, and belongs to the tests. Fields are left out:
they are read by name, from JSON and by native code.
"""

import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ("unpaced", "engine_ext", "scripts")
KINDS = {"class", "function", "import", "method", "property", "unreachable_code"}
# Called by Python, pydantic, uvicorn, httptools, torch, http.server, pytest, Ray; by name.
CALLED_BY_NAME = [
    "__getattr__",
    "application",
    "capture_signals",
    "check_health",
    "connection_made",
    "data_received",
    "do_*",
    "eof_received",
    "forward",
    "log_message",
    "main_loop",
    "pytest_*",
    "test_*",
    "wait_closed",
]
DECORATORS = ["@field_validator*", "@model_validator*", "@pytest.fixture*"]


def main() -> int:
    """0, or 1 if something is unused; it is printed."""
    lines = [*unused(*PROGRAM), *unused(*PROGRAM, "tests", within="tests")]
    for line in lines:
        print(line)
    return 1 if lines else 0


def unused(*folders: str, within: str = "") -> list[str]:
    """What is unused by all of `folders`, a line each. `within`: the folder that is asked about."""
    vulture = Vulture(ignore_names=CALLED_BY_NAME, ignore_decorators=DECORATORS)
    vulture.scavenge([ROOT / folder for folder in folders])
    lines = []
    for item in vulture.get_unused_code():
        file = item.filename.relative_to(ROOT).as_posix()
        if item.typ in KINDS and file.startswith(within):
            lines.append(f"{file}:{item.first_lineno}: nobody uses {item.typ} {item.name}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
