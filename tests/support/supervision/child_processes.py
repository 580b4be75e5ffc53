"""The processes that a process has started, whichever of its threads did."""

import contextlib
from pathlib import Path


def child_processes(pid: int) -> set[int]:
    """Their ids. A thread that ends meanwhile leaves its children to another one."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, (task / "children").read_text().split()))
    return found
