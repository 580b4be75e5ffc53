"""Keeps processes of the test suite from making the same file at the same time."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from filelock import FileLock

_FOLDER = Path(__file__).resolve().parents[2] / ".build" / "tests"
_LOCK = FileLock(_FOLDER / "lock")  # one that its holder may take again
_P = ParamSpec("_P")
_T = TypeVar("_T")


def one_at_a_time(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Calls in other processes wait for the end of this one, calls of other functions too."""

    @wraps(function)
    def alone(*arguments: _P.args, **named: _P.kwargs) -> _T:
        _FOLDER.mkdir(parents=True, exist_ok=True)
        with _LOCK:
            return function(*arguments, **named)

    return alone
