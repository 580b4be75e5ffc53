"""What this build can compute on here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_ext.base.native import load_native

if TYPE_CHECKING:
    from engine_ext import _native
else:
    _native = load_native()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device other than the CPU. Sizes are bytes."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int


def cpu_library() -> str:
    """File name of the library that computes on the CPU: a portable build has several, and takes
    the one for this processor's instructions. Raises: RuntimeError if none fits."""
    library: str = _native.cpu_library()
    return library


def list_devices() -> list[Device]:
    """Devices that this build can use, the CPU left out."""
    return [Device(**device) for device in _native.list_devices()]
