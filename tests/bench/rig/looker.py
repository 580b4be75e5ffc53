"""A process that asks a server for some paths every second, while it is told to.

`python -m tests.bench.rig.looker PORT GROUPS`, GROUPS a JSON list of lists of paths: each group
once a second, spread over it. A line on standard input lets it begin, the next one pause, and so
on; it answers each with a line, to a pause with how often it has asked since, by group. Time goes
on where it stopped.
"""

import contextlib
import http.client
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence


class Looker:
    """The process, as who started it sees it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @contextlib.contextmanager
    def looking(self) -> Iterator[list[int]]:
        """It looks within the block; thereafter the list has how often, by group."""
        n_asked: list[int] = []
        self._tell()
        yield n_asked
        n_asked += json.loads(self._tell())

    def _tell(self) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the looker has ended")
        return answer


@contextlib.contextmanager
def looker(port: int, groups: Sequence[Sequence[str]]) -> Iterator[Looker]:
    """One that pauses."""
    command = [sys.executable, "-m", "tests.bench.rig.looker", str(port), json.dumps(groups)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Looker(process)
        process.kill()


def main(port: int, groups: Sequence[Sequence[str]]) -> None:
    """Until standard input ends."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    turn, left_s = 0, 0.5 / len(groups)
    while sys.stdin.readline():
        print(flush=True)
        n_asked = [0] * len(groups)
        while True:
            began = time.monotonic()
            if select.select([sys.stdin], [], [], max(0.0, left_s))[0]:
                left_s -= time.monotonic() - began
                break
            for path in groups[turn % len(groups)]:
                client.request("GET", path)
                answer = client.getresponse()
                assert answer.read() and answer.status == 200
            n_asked[turn % len(groups)] += 1
            turn += 1
            left_s += 1 / len(groups) - (time.monotonic() - began)
        sys.stdin.readline()
        print(json.dumps(n_asked), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
