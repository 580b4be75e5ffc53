"""llama-server's own tests against `unpaced`: what passes for the real one must pass here."""

from typing import Final

import pytest

from tests.peer.run_suite import UNPACED, Result, read_baseline, read_exceptions, run_suite

PORT: Final = 18180
BASELINE: Final = read_baseline()
EXCEPTIONS: Final = read_exceptions()
PASSING: Final = sorted(case for case, real in BASELINE.items() if real.relaxed == "pass")
WANTED: Final = [case for case in PASSING if case not in EXCEPTIONS]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """The cases that are looked at, once, on two ports at a time."""
    return run_suite([str(UNPACED)], WANTED, port=PORT, n_workers=2, forked=True)


@pytest.mark.parametrize("case", PASSING)
def test_what_passes_for_the_real_server_passes_here(case: str, results: dict[str, Result]) -> None:
    if case in EXCEPTIONS:
        pytest.skip(EXCEPTIONS[case])
    real, ours = BASELINE[case], results.get(case, Result("absent", "absent"))
    assert ours.relaxed == "pass", ours.message
    if real.strict == "pass":
        assert ours.strict == "pass", ours.message


def test_every_exception_is_a_case_of_the_suite() -> None:
    assert set(EXCEPTIONS) <= set(BASELINE)
