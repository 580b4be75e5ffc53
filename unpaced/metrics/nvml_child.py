"""What NVML says of the GPUs: `python -m unpaced.metrics.nvml_child SECONDS`.

A process of its own, because a call of NVML may block for ever where a driver or a card is in
trouble, and nothing then ends the thread that made it. It writes a line of JSON every SECONDS to
standard output, a list with an object for each GPU, and ends with whoever reads it. Where NVML
cannot be used it writes {"error": text} and ends.

Source: NVML's API reference; nvidia-ml-py's pynvml.py calls the library by the same names.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import pynvml

_PR_SET_PDEATHSIG: Final = 1
_NICENESS: Final = 10


def main() -> int:
    """Write until nobody reads. Returns: the exit status."""
    every_s = float(sys.argv[1])
    # Without it a call that blocks would outlive the server.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICENESS)
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        _write({"error": str(error)})
        return 1
    while True:
        _write([_read(index, handle) for index, handle in enumerate(handles)])
        time.sleep(every_s)


def _write(line: Any) -> None:
    try:
        print(json.dumps(line), flush=True)
    except BrokenPipeError:
        os._exit(0)


def _read(index: int, handle: Any) -> dict[str, Any]:
    """One GPU's figures in base units; those that it has not are left out. `error`: why there are
    none at all."""
    read: dict[str, Any] = {"gpu": index}
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        read["memory_used_bytes"], read["memory_bytes"] = memory.used, memory.total
        for name, ask in _QUESTIONS.items():
            try:
                read[name] = ask(handle)
            except pynvml.NVMLError_NotSupported:
                continue
    except pynvml.NVMLError as error:  # "GPU is lost" and the like
        return {"gpu": index, "error": str(error)}
    return read


def _text(text: str | bytes) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text


_QUESTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "name": lambda gpu: _text(pynvml.nvmlDeviceGetName(gpu)),
    "uuid": lambda gpu: _text(pynvml.nvmlDeviceGetUUID(gpu)),
    "utilization_ratio": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "power_watts": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "power_limit_watts": lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "energy_joules": lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    "temperature_celsius": lambda gpu: pynvml.nvmlDeviceGetTemperature(
        gpu, pynvml.NVML_TEMPERATURE_GPU
    ),
    "clock_sm_hertz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    "clock_memory_hertz": lambda gpu: (
        pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM) * 1e6
    ),
}


if __name__ == "__main__":
    sys.exit(main())
