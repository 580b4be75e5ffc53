"""Pytest plugin under which llama-server's own tests run here: local model, no downloads.

Loaded with `-p suite_plugin` by run_suite.py, in the suite's folder. Environment:

UNPACED_SUITE_MODEL    GGUF file that stands in for every model of a hub
UNPACED_SUITE_CASES    file with the cases to run, one a line
UNPACED_SUITE_CLAIMS   folder that several runs share: a case is run by who makes its file there
UNPACED_SUITE_RESULTS  file for the results, one JSON object a line
UNPACED_SUITE_FORKED   set: the servers are ours, forked from a process that has imported all

The suite checks some texts against what one small model would say. Ours says something else, so
every such check passes and is noted: a case is "strict" if all of its texts would have passed, too.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any

import pytest

from tests.support.forked_process import ForkedProcess


def _refuse(*_: object, **__: object) -> None:
    raise RuntimeError("the suite downloads nothing here")


def _lock(*_: object, **__: object) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


# Both serve downloads of models only, so neither need be installed.
for _name, _member, _value in (("wget", "download", _refuse), ("filelock", "FileLock", _lock)):
    _module = ModuleType(_name)
    setattr(_module, _member, _value)
    sys.modules[_name] = _module

_utils: Any = importlib.import_module("utils")
_start = _utils.ServerProcess.start
_request = _utils.ServerProcess.make_request
_match = _utils.match_regex
_model = os.environ["UNPACED_SUITE_MODEL"]
_claims = Path(os.environ["UNPACED_SUITE_CLAIMS"])
_misses: list[str] = []


def _start_local(server: Any, *arguments: Any, **options: Any) -> None:
    if server.model_hf_repo or server.model_hf_file:
        server.model_hf_repo = server.model_hf_file = None
        server.model_file = _model
    server.offline = False
    _start(server, *arguments, **options)


def _note_match(regex: str, text: str) -> bool:
    if not _match(regex, text):
        _misses.append(f"{regex!r} is not in {text[:60]!r}")
    return True


def _request_logged(server: Any, *arguments: Any, **options: Any) -> Any:
    """Both servers write their logs beside the answers, lines in their order: where a case reads
    the log, it finds what came before the answer."""
    response = _request(server, *arguments, **options)
    if server.log_path and server.debug:
        path = f"/{uuid.uuid4()}"
        _request(server, "GET", path)
        deadline = time.monotonic() + 5
        while path not in Path(server.log_path).read_text() and time.monotonic() < deadline:
            time.sleep(0.005)
    return response


_utils.ServerProcess.start = _start_local
_utils.ServerProcess.make_request = _request_logged
_utils.ServerPreset.load_all = staticmethod(lambda: None)
_utils.download_file = lambda *_, **__: _model
_utils.match_regex = _note_match


def _forked(
    command: Sequence[str], *, stdout: IO[str], env: dict[str, str], **_: object
) -> ForkedProcess:
    """Stands in for Popen. What goes to no file of its own is not kept."""
    with open(os.devnull, "w") as nowhere:
        output = stdout if Path(stdout.name).is_file() else nowhere
        return ForkedProcess(command, env, output.fileno())


if "UNPACED_SUITE_FORKED" in os.environ:
    _utils.subprocess = SimpleNamespace(Popen=_forked, TimeoutExpired=subprocess.TimeoutExpired)


def _name_of(item: pytest.Item) -> str:
    return f"{item.path.stem}::{item.name}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the wanted cases."""
    wanted = set(Path(os.environ["UNPACED_SUITE_CASES"]).read_text().splitlines())
    kept = [item for item in items if not wanted or _name_of(item) in wanted]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the cases that no other run has taken. One is taken ahead: fixtures outlive a case if
    the next one has them, too."""
    if session.testsfailed:
        raise session.Interrupted("not everything could be collected")
    items = _unclaimed(session.items)
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following
    return True


def _unclaimed(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    for number, item in enumerate(items):
        try:
            (_claims / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Write a case's result once it is known."""
    report = yield
    if call.when == "setup":
        _misses.clear()
    if report.failed or call.when == "call" or (call.when == "setup" and report.skipped):
        status = "skip" if report.skipped else "pass" if report.passed else "FAIL"
        message = "" if call.excinfo is None or report.skipped else call.excinfo.exconly()
        entry = {
            "case": _name_of(item),
            "status": status,
            "texts": list(_misses),
            "message": " ".join(message.split())[:200],
            "seconds": round(call.duration, 2),
        }
        with open(os.environ["UNPACED_SUITE_RESULTS"], "a") as results:
            results.write(json.dumps(entry) + "\n")
    return report
