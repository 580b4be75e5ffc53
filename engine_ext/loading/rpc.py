"""llama.cpp's RPC: a model's layers on devices of other machines.

Its protocol has neither authentication nor encryption, and llama.cpp ends a process whose worker is
lost in the middle.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from engine_ext.base.errors import EngineError
from engine_ext.base.native import load_native

if TYPE_CHECKING:
    from engine_ext import _native
else:
    _native = load_native()

_TIMEOUT_S: Final = 5.0


def use_rpc_workers(endpoints: Sequence[str]) -> None:
    """Devices of the workers, each "HOST:PORT", count as this machine's from now on.

    A worker serves one process at a time; the others wait for it.

    Raises: EngineError if one cannot be reached, or if this build has no RPC.
    """
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_TIMEOUT_S).close()
        except OSError as error:
            raise EngineError(f"the RPC worker {endpoint} cannot be reached: {error}") from None
    if not endpoints:
        return
    try:
        _native.add_rpc_workers(list(endpoints))
    except RuntimeError as error:
        raise EngineError(str(error)) from None


def run_rpc_worker(endpoint: str, *, n_threads: int, devices: Sequence[str] = ()) -> None:
    """Compute for one server at a time, until the process ends; returns if it cannot begin.

    `devices`: their names; none: all but the CPU, or the CPU where there is no other.

    Raises: EngineError if this build has no RPC or no such device.
    """
    try:
        _native.run_rpc_worker(endpoint, n_threads, list(devices))
    except RuntimeError as error:
        raise EngineError(str(error)) from None
