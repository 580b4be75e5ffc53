"""What of uvicorn is replaced, and that it still is what it was when its replacement was written.

A method that is replaced and not called does nothing of what a later uvicorn puts into it. Where a
digest below is wrong, read uvicorn's new method beside ours, mend ours, then take the new digest.
"""

import hashlib
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import FunctionType

import pytest
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import Server

from unpaced.http.wire.handed_over import HandedOverProtocol
from unpaced.http.wire.protocol import LimitedHttpProtocol
from unpaced.process.uvicorn_server import UvicornServer

ROOT = Path(__file__).resolve().parents[3]
REPLACED = {
    HttpToolsProtocol.connection_made: "6efb565ff3d36b91",
    HttpToolsProtocol.eof_received: "5652627579a02369",
    HttpToolsProtocol.data_received: "010a7ae59a5d3b1a",
    Server.main_loop: "afccb353a119333f",
    Server.capture_signals: "e1bbcd4770d1c887",
}
# Answers and bodies go past these: `_write` and `take_body` do the same.
COPIED = {
    RequestResponseCycle.send: "abdd8601b326a8da",
    RequestResponseCycle.receive: "8124ae006be71184",
}


def digest(method: FunctionType) -> str:
    return hashlib.sha256(inspect.getsource(method).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("method", "known"),
    [*REPLACED.items(), *COPIED.items()],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_it_is_what_was_replaced(method: FunctionType, known: str) -> None:
    assert digest(method) == known, f"{method.__qualname__} of uvicorn {version('uvicorn')}"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (LimitedHttpProtocol, HttpToolsProtocol),
        (HandedOverProtocol, LimitedHttpProtocol),
        (UvicornServer, Server),
    ],
)
def test_everything_replaced_is_listed(ours: type, theirs: type) -> None:
    for name, method in vars(ours).items():
        original = getattr(theirs, name, None)
        if original is None or not inspect.isfunction(method):
            continue
        calls_it = re.search(rf"super\(\)\.{name}\(", inspect.getsource(method))
        assert calls_it or original in REPLACED, f"{ours.__name__}.{name}"


def test_only_versions_that_were_looked_at_are_taken() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = map(Requirement, project["dependencies"])
    bounds = next(r.specifier for r in requirements if r.name == "uvicorn")
    assert {bound.operator for bound in bounds} == {">=", "<"}
    assert bounds.contains(version("uvicorn"))
