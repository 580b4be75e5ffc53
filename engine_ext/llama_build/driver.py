"""The NVIDIA driver of this machine, asked through its own library: no toolkit, no nvidia-smi."""

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

# WSL2 has it in a folder of its own, which a distribution's loader need not know.
_LIBRARIES = ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

Version = tuple[int, int]
"""Major and minor number; ordered as versions are."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU that the driver lets this process see."""

    name: str
    capability: Version

    def __str__(self) -> str:
        return f"{self.name} ({dotted(self.capability)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """`cuda` is the newest CUDA version that it runs; `release` its own number, "" if unknown.

    `fault` is cuInit's status: 0, or why there are no cards (100: it sees none).
    """

    cuda: Version
    release: str
    cards: tuple[Card, ...]
    fault: int = 0

    def __str__(self) -> str:
        return f"NVIDIA driver {self.release}".rstrip()


def find_driver() -> Driver | None:
    """Ask the driver; None if there is none. Its library is loaded, and no context is made."""
    for name in _LIBRARIES:
        try:
            return _ask(ctypes.CDLL(name))
        except (OSError, AttributeError):  # not there, or not what it is called
            continue
    return None


def why_no_card(driver: Driver, devices: Path = Path("/dev")) -> str:
    """Why `driver` shows none, as far as this process can tell: a part of a sentence."""
    cards = [*devices.glob("nvidia[0-9]*"), *devices.glob("dxg")]  # dxg: WSL2's
    if not cards:
        return f"there is no {devices / 'nvidia0'}, which --gpus all gives to a container"
    for path in (*sorted(cards), devices / "nvidiactl", devices / "nvidia-uvm"):
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            return f"this user may not open {path}"
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return f"CUDA_VISIBLE_DEVICES is {visible!r}"
    return f"CUDA's error {driver.fault}"


def dotted(version: Version) -> str:
    """The capability as people write it: 8.6."""
    return f"{version[0]}.{version[1]}"


def _ask(library: ctypes.CDLL) -> Driver:
    number = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(number))
    cuda = (number.value // 1000, number.value % 1000 // 10)
    fault = int(library.cuInit(0))
    cards = _cards(library) if fault == 0 else ()
    return Driver(cuda=cuda, release=_release(), cards=cards, fault=fault)


def _cards(library: ctypes.CDLL) -> tuple[Card, ...]:
    count = ctypes.c_int(0)
    library.cuDeviceGetCount(ctypes.byref(count))
    return tuple(_card(library, index) for index in range(count.value))


def _card(library: ctypes.CDLL, index: int) -> Card:
    device, name = ctypes.c_int(0), ctypes.create_string_buffer(256)
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(name, len(name), device)
    capability = []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        value = ctypes.c_int(0)
        library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability.append(value.value)
    return Card(name.value.decode(errors="replace"), (capability[0], capability[1]))


def _release() -> str:
    # The loaded file's name ends with it: libcuda.so.580.95.05. WSL2's does not.
    maps = Path("/proc/self/maps").read_text(errors="replace")
    found = re.search(r"/libcuda\.so\.(\d{3,}\.[\d.]*\d)$", maps, re.MULTILINE)
    return found[1] if found else ""
