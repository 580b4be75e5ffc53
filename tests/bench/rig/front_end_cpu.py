"""The processor time of a server that is not its decode thread's."""

from tests.bench.rig.server_process import ServerProcess
from tests.support.faults.frozen_thread import thread_of


def front_end_cpu_s(process: ServerProcess) -> float:
    """Seconds so far of all threads but the decode thread: the event loop's, its helpers' and those
    of exporters. With one thread to decode (LLAMA_ARG_THREADS=1) ggml has none of its own."""
    decode = thread_of(process.pid, "decode")
    return sum(s for thread, s in process.thread_cpu_s().items() if thread != decode)
