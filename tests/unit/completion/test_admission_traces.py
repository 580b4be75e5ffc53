"""The queue's policy over random histories; the server's own Admission is what is played.

UNPACED_TRACES: how many, 20 000 without it; of each seed one.
"""

import os
from typing import Final

import pytest

from tests.support.scheduling.queue_trace import QueueTrace

_N_TRACES: Final = int(os.environ.get("UNPACED_TRACES", "20000"))
_N_PARTS: Final = 20


@pytest.mark.parametrize("part", range(_N_PARTS))
def test_random_histories(part: int) -> None:
    for seed in range(part, _N_TRACES, _N_PARTS):
        try:
            QueueTrace(seed, n_events=6 + seed % 20).play()
        except AssertionError as error:
            raise AssertionError(f"QueueTrace({seed}, {6 + seed % 20}): {error}") from error
