"""Compiles fake_nvml.c to a libnvidia-ml.so.1 that NVML's Python binding loads."""

import os
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("fake_nvml.c")


class FakeNvml:
    """A driver with two GPUs, in `folder`. `environment` has a process use it."""

    def __init__(self, folder: Path) -> None:
        """Raises: subprocess.CalledProcessError if it does not compile."""
        self._state = folder / "state"
        self.become("ok")
        target = folder / "libnvidia-ml.so.1"
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra"]
        subprocess.run([*command, "-Werror", str(_SOURCE), "-o", str(target)], check=True)
        self.environment = {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(self._state)}

    def become(self, state: str) -> None:
        """ok, lost (GPU 1), hang or none, from the next question on."""
        self._state.write_text(state)
