"""`unpaced serve` with faults on demand: a line on the Unix socket UNPACED_FAULTS is a fault.

`occupy MS`: the GPU does nothing else for so long. `break`: its context is of no use any more.
`refuse CALL N`: the engine's next N calls of this function of CUDA's runtime fail for want of
memory. The answer is a line with the C function's result.

UNPACED_GPU_PROGRAMS names the build folder of tests/gpu/cpp; `libcuda_refusals.so` of it must be in
LD_PRELOAD.
"""

import ctypes
import os
import socket
import sys
import threading
from pathlib import Path

from server.cli.main import main

PROGRAMS = Path(os.environ.get("UNPACED_GPU_PROGRAMS", "."))


def make_fault(line: str) -> int:
    """Have the fault happen. Returns the C function's result."""
    kind, *arguments = line.split()
    if kind == "refuse":
        refusals = ctypes.CDLL(str(PROGRAMS / "libcuda_refusals.so"))
        return int(refusals.cuda_refuse(arguments[0].encode(), ctypes.c_int64(int(arguments[1]))))
    faults = ctypes.CDLL(str(PROGRAMS / "libgpu_faults.so"))
    if kind == "occupy":
        return int(faults.gpu_occupy(int(arguments[0])))
    assert kind == "break"
    return int(faults.gpu_break())


def serve_faults(listener: socket.socket) -> None:
    """Forever."""
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as lines:
            for line in lines:
                print(make_fault(line), file=lines, flush=True)


if __name__ == "__main__":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.environ["UNPACED_FAULTS"])
    listener.listen()
    threading.Thread(target=serve_faults, args=(listener,), daemon=True).start()
    sys.exit(main(sys.argv[1:]))
