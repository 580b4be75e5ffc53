"""The servers that tests start end with the test run, even with one that is killed."""

import os
import select
import subprocess
import sys
from pathlib import Path

from tests.bench.rig.server_process import free_port

ROOT = Path(__file__).resolve().parents[2]

# Its output is the process id of its server, which it does not stop.
RUN = """
import sys, time
from pathlib import Path
from tests.bench.rig.server_process import running
from tests.support.forked_process import ForkedProcess
port, log = int(sys.argv[1]), Path(sys.argv[2])
with running(["unpaced", "serve", "--port", str(port)], {}, port, log, ForkedProcess) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""


def test_servers_of_a_killed_run_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(free_port()), str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        ended = os.pidfd_open(int(run.stdout.readline()))
        run.kill()
    try:
        assert select.select([ended], [], [], 30)[0], "it still runs"
    finally:
        os.close(ended)
