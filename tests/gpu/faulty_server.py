"""`unpaced serve` with faults on demand: a line on the Unix socket UNPACED_FAULTS is a fault.

`occupy MS`: the GPU does nothing else for so long. `break`: its context is of no use any more.
`refuse CALL N`: the engine's next N calls of this function of CUDA's runtime or of ggml fail for
want of memory. `move_buffer`: the next decode graph that is made moves what all of them compute in.
`take_cell`: the first cell of the next launch is taken when that begins. The answer is a line with
the C function's result.

UNPACED_GPU_PROGRAMS names the build folder of tests/gpu/cpp; `libcall_faults.so` of it must be in
LD_PRELOAD.
"""

import ctypes
import os
import socket
import sys
import threading
from pathlib import Path

from unpaced.cli.main import main

PROGRAMS = Path(os.environ.get("UNPACED_GPU_PROGRAMS", "."))


def make_fault(line: str) -> int:
    """Have the fault happen. Returns the C function's result."""
    kind, *arguments = line.split()
    calls = ctypes.CDLL(str(PROGRAMS / "libcall_faults.so"))
    if kind == "refuse":
        return int(calls.fault_refuse(arguments[0].encode(), ctypes.c_int64(int(arguments[1]))))
    if kind == "move_buffer":
        return int(calls.fault_move_buffer())
    if kind == "take_cell":
        return int(calls.fault_take_cell())
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
