#!/usr/bin/env python3
"""Run llama-server's own tests against a command that takes its flags, and compare with it.

The suite is that of the pinned source distribution. `baseline.tsv` is what the real server makes of
it under the same plugin; `--record` writes it.

    python -m tests.peer.run_suite                                  # ours
    python -m tests.peer.run_suite --server llama-server --record   # the real one
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.llama_source import llama_source, vocabulary
from tests.support.tiny_model import write_tiny_model

HERE: Final = Path(__file__).resolve().parent
BASELINE: Final = HERE / "baseline.tsv"
EXCEPTIONS: Final = HERE / "exceptions.tsv"
UNPACED: Final = Path(sys.executable).with_name("unpaced")
# pytest's exit statuses: all passed, some failed, and none was left for this worker.
_RAN: Final = (0, 1, 5)


@dataclass(frozen=True, slots=True)
class Result:
    """One case. `relaxed`: pass, FAIL, skip or absent; `strict` counts the checks of texts too."""

    relaxed: str
    strict: str
    message: str = ""
    seconds: float = 0.0


def read_baseline() -> dict[str, Result]:
    """The real server's results by case, `test_file::test_name[parameters]`."""
    rows = [line.split("\t") for line in BASELINE.read_text().splitlines() if line[0] != "#"]
    return {case: Result(relaxed, strict) for relaxed, strict, case in rows}


def read_exceptions() -> dict[str, str]:
    """Cases that may fail here although they pass for the real server, and why."""
    rows = [line.split("\t") for line in EXCEPTIONS.read_text().splitlines() if line[0] != "#"]
    return {case: reason for case, reason in rows}


def run_suite(
    server: Sequence[str], cases: Sequence[str], *, port: int, n_workers: int, forked: bool = False
) -> dict[str, Result]:
    """Results by case. Each worker takes the next case that none has; its port is `port` plus i.

    `forked`: whatever `server` is, ours is forked from a process that has imported what it needs.

    Raises: RuntimeError with pytest's output if a worker did not get as far as a result.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = folder / "tiny.gguf"
        write_tiny_model(model, vocabulary("llama-spm"), fim=True)
        executable = folder / "server"
        executable.write_text(f'#!/bin/sh\nexec {shlex.join(server)} "$@"\n')
        executable.chmod(0o755)
        wanted, claims = folder / "cases", folder / "claims"
        wanted.write_text("\n".join(cases))
        claims.mkdir()
        files = sorted({case.partition("::")[0] for case in cases})
        env = {
            "LLAMA_SERVER_BIN_PATH": str(executable),
            "UNPACED_SUITE_MODEL": str(model),
            "UNPACED_SUITE_CASES": str(wanted),
            "UNPACED_SUITE_CLAIMS": str(claims),
            # ggml's threads wait for one another by spinning: beside other workers' they had better
            # have a core each. Both servers know this variable.
            "LLAMA_ARG_THREADS": str(max(1, len(os.sched_getaffinity(0)) // n_workers)),
        }
        if forked:
            env["UNPACED_SUITE_FORKED"] = "1"
        with ThreadPoolExecutor(n_workers) as workers:
            runs = [
                workers.submit(_run_worker, files, folder / str(i), {"PORT": str(port + i)} | env)
                for i in range(n_workers)
            ]
            results: dict[str, Result] = {}
            for finished in runs:
                results |= finished.result()
    return results


def _run_worker(files: Sequence[str], folder: Path, more: dict[str, str]) -> dict[str, Result]:
    folder.mkdir()
    results = folder / "results"
    results.touch()
    suite = llama_source() / "tools" / "server" / "tests"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "suite_plugin", "-p", "no:cacheprovider"]
    command += ["-p", "no:timeout", "-c", "pytest.ini", *(f"unit/{name}.py" for name in files)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= more | {
        "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1]}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "LLAMA_CACHE": str(folder / "cache"),
        "UNPACED_SUITE_RESULTS": str(results),
    }
    done = subprocess.run(
        command, cwd=suite, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode not in _RAN:
        raise RuntimeError(f"the suite did not run:\n{done.stdout[-3000:]}")
    found: dict[str, Result] = {}
    for line in results.read_text().splitlines():
        entry = json.loads(line)
        # A failing teardown comes after the call's result and overrules it.
        relaxed = entry["status"]
        strict = "FAIL" if relaxed == "pass" and entry["texts"] else relaxed
        message = entry["message"] or "; ".join(entry["texts"])
        found[entry["case"]] = Result(relaxed, strict, message, entry["seconds"])
    return found


def below(
    results: dict[str, Result], baseline: dict[str, Result], exceptions: dict[str, str]
) -> list[str]:
    """A line for each case that passes for the real server and not here, exceptions aside."""
    lines = []
    for case, real in sorted(baseline.items()):
        ours = results.get(case, Result("absent", "absent"))
        for kind in ("relaxed", "strict"):
            if getattr(real, kind) == "pass" and getattr(ours, kind) != "pass":
                if case not in exceptions:
                    lines.append(f"{kind} {getattr(ours, kind)}\t{case}\t{ours.message}")
                break
    return lines


def summary(results: dict[str, Result]) -> str:
    """How many passed."""
    relaxed = sum(result.relaxed == "pass" for result in results.values())
    strict = sum(result.strict == "pass" for result in results.values())
    return f"{strict} of {len(results)} pass, {relaxed} with the checks of texts relaxed"


def write_baseline(results: dict[str, Result]) -> None:
    """Record the real server's results."""
    head = "# relaxed, strict, case: llama-server of llama.cpp 0c1e57098 (run_suite.py --record)\n"
    rows = [f"{r.relaxed}\t{r.strict}\t{case}\n" for case, r in sorted(results.items())]
    BASELINE.write_text(head + "".join(rows))


def main() -> int:
    """Command line. Exit status 1 if a case is below the real server's result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default=str(UNPACED), help="executable, or a command line")
    parser.add_argument("--port", type=int, default=18180)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="write baseline.tsv instead")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--dump", type=Path, help="write every result as a table")
    options = parser.parse_args()
    baseline = read_baseline()
    cases = [case for case in baseline if options.only in case]
    results = run_suite(
        shlex.split(options.server), cases, port=options.port, n_workers=options.workers
    )
    if options.dump:
        rows = [
            f"{r.strict}\t{r.relaxed}\t{r.seconds}\t{case}\t{r.message}\n"
            for case, r in sorted(results.items())
        ]
        options.dump.write_text("".join(rows))
    if options.record:
        write_baseline(results)
        print(summary(results))
        return 0
    wanted = {case: baseline[case] for case in cases}
    lines = below(results, wanted, read_exceptions())
    print("\n".join(lines))
    print(f"here: {summary(results)}")
    print(f"the real server: {summary(wanted)}; {len(lines)} below it")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
