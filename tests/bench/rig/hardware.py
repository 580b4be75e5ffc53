"""One line on the machine a figure was measured on."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path


def physical_cores(cores: Iterable[int]) -> list[list[int]]:
    """The cores by physical core, hyper-threads of one together."""
    groups: dict[str, list[int]] = {}
    for core in sorted(cores):
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        groups.setdefault(path.read_text() if path.exists() else str(core), []).append(core)
    return list(groups.values())


def gpu_names() -> str:
    """Name and driver of each NVIDIA GPU, empty without one. Source: nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return ""
    answer = subprocess.run(command, capture_output=True, text=True)
    return "" if answer.returncode else "; ".join(answer.stdout.splitlines())


def describe_hardware() -> str:
    """GPUs, CPU model, cores this process may use, memory, kernel, Python."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cards = f"{names}; " if (names := gpu_names()) else ""
    return (
        f"{cards}{model}, {len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )
