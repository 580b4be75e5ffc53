"""`unpaced rpc-worker`: this machine's devices for a model larger than another machine."""

import argparse
import ipaddress
import os
import signal
import sys
from collections.abc import Sequence


def rpc_worker_parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="unpaced rpc-worker",
        description="Compute a part of the model of `unpaced serve --rpc HOST:PORT` by llama.cpp's "
        "RPC, for one server at a time. It asks for no key and encrypts nothing: whoever reaches "
        "the port may read and write this process's memory. Builds of the profiles cpu-rpc and "
        "cuda-rpc have it.",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="IPv4 address; default: %(default)s"
    )
    parser.add_argument("--port", type=int, default=50052, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "-t", "--threads", type=int, metavar="N", help="where the CPU computes; default: its cores"
    )
    parser.add_argument(
        "-dev", "--device", default="", metavar="LIST",
        help="names as `unpaced serve --list-devices` has them, or CPU; default: all but the CPU, "
        "the CPU where there is no other",
    )  # fmt: skip
    return parser


def rpc_worker(arguments: Sequence[str]) -> int:
    """Serve until a signal; 1 if it cannot begin."""
    parser = rpc_worker_parser()
    given = parser.parse_args(arguments)
    if not 0 < given.port < 65536:
        parser.error("--port: 1 to 65535")
    if given.threads is not None and given.threads < 1:
        parser.error("--threads: 1 at least")
    try:
        is_own = ipaddress.IPv4Address(given.host).is_loopback
    except ValueError:
        parser.error("--host: an IPv4 address of this machine, or 0.0.0.0")
    from engine_ext import EngineError, run_rpc_worker

    if not is_own:
        print(
            f"unpaced rpc-worker: warning: whoever reaches {given.host}:{given.port} may read and "
            "write this process's memory; no key, no encryption",
            file=sys.stderr,
        )
    # llama.cpp waits where Python's handlers do not get a turn.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    devices = [name.strip() for name in given.device.split(",") if name.strip()]
    n_threads = given.threads or len(os.sched_getaffinity(0))
    try:
        run_rpc_worker(f"{given.host}:{given.port}", n_threads=n_threads, devices=devices)
    except EngineError as error:
        print(f"unpaced rpc-worker: error: {error}", file=sys.stderr)
    return 1
