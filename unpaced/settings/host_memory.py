"""How much memory this process may still take."""

from pathlib import Path
from typing import Final

_UNLIMITED: Final = 1 << 62


def available_bytes(root: Path = Path("/")) -> int:
    """The least of what the host and the process's control groups leave, caches they can drop
    counted as free. `root` is for tests.
    """
    return max(0, min(_host_bytes(root), _cgroup2_bytes(root), _cgroup1_bytes(root)))


def _host_bytes(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return _UNLIMITED


def _cgroup2_bytes(root: Path) -> int:
    """Of the process's group and all above it: each has a limit of its own."""
    free = _UNLIMITED
    for line in _lines(root / "proc/self/cgroup"):
        if line.startswith("0::"):
            group = root / "sys/fs/cgroup" / line[3:].strip().lstrip("/")
            for folder in (group, *group.parents):
                free = min(free, _left(folder, "memory.max", "memory.current", "inactive_file"))
                if folder == root / "sys/fs/cgroup":
                    break
    return free


def _cgroup1_bytes(root: Path) -> int:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            # In a container the mount's root is the container's own group.
            for folder in (mount / path.strip().lstrip("/"), mount):
                if (folder / "memory.limit_in_bytes").exists():
                    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
                    return _left(folder, *names, "total_inactive_file")
    return _UNLIMITED


def _left(folder: Path, limit: str, usage: str, droppable: str) -> int:
    limits, used = _lines(folder / limit), _lines(folder / usage)
    if not limits or not used or limits[0] == "max":
        return _UNLIMITED
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == droppable:
            return int(limits[0]) - int(used[0]) + int(value)
    return int(limits[0]) - int(used[0])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
