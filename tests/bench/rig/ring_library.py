"""bench_ring.cpp, with the engine's ring and wake-up, as a library typed for ctypes."""

import ctypes
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class ThroughputResult(ctypes.Structure):
    """bench_ring.cpp's struct of that name."""

    _fields_ = (
        ("seconds", ctypes.c_double),
        ("n_lost", ctypes.c_uint64),
        ("n_reordered", ctypes.c_uint64),
        ("n_torn", ctypes.c_uint64),
    )


def compile_library(folder: Path) -> ctypes.CDLL:
    """bench_ring.cpp with the engine's sources, optimised as the engine is."""
    library = folder / "libbench_ring.so"
    csrc = ROOT / "csrc"
    sources = [
        ROOT / "tests/bench/rig/bench_ring.cpp",
        csrc / "base/wakeup.cpp",
        csrc / "base/cpu_affinity.cpp",
    ]
    flags = ["-std=c++20", "-O3", "-DNDEBUG", "-march=native", "-fPIC", "-shared", "-pthread"]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, *flags, f"-I{csrc}", *map(str, sources), "-o", str(library)], check=True
    )
    native = ctypes.CDLL(str(library))
    u64, i64, i32, pointer = ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
    native.bench_throughput.argtypes = [u64, u64, u64, i32, i32]
    native.bench_throughput.restype = ThroughputResult
    native.bench_round_trips.argtypes = [u64, i32, i32, ctypes.POINTER(i64)]
    native.bench_round_trips.restype = None
    native.bench_clock_ns.argtypes = [u64]
    native.bench_clock_ns.restype = ctypes.c_double
    native.paced_writer_start.argtypes = [u64, u64, i64, i32]
    native.paced_writer_start.restype = pointer
    native.paced_writer_on_readable.argtypes = [pointer, i64]
    native.paced_writer_on_readable.restype = i64
    for name, restype in (("fd", ctypes.c_int), ("n_writes", u64), ("n_read", u64)):
        getattr(native, f"paced_writer_{name}").argtypes = [pointer]
        getattr(native, f"paced_writer_{name}").restype = restype
    native.paced_writer_n_out_of_order.argtypes = [pointer]
    native.paced_writer_n_out_of_order.restype = u64
    native.paced_writer_join.argtypes = [pointer]
    native.paced_writer_join.restype = None
    return native
