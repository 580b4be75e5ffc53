"""A GGML abort ends the process; its last words name the step and the requests."""

import re
import signal
import subprocess
import sys
from pathlib import Path

MODEL = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"
SCRIPT = """
import asyncio, ctypes, sys
from pathlib import Path
from engine_ext import Engine, EngineConfig, SequenceRequest, SamplingParams
import llama_cpp

async def main():
    async with Engine(EngineConfig(model_path=Path(sys.argv[1]), n_threads=1)) as engine:
        endless = SamplingParams(temperature=0, ignore_eos=True)
        stream = engine.submit(SequenceRequest(prompt=[0], sampling=endless))
        await stream.read()
        library = Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"
        ctypes.CDLL(str(library)).ggml_abort(b"somewhere.c", 7, b"GGML_ASSERT(%s) failed", b"a < b")

asyncio.run(main())
"""


def test_an_abort_names_the_step_and_the_request() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(MODEL)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGABRT
    assert "fatal error in llama.cpp: somewhere.c:7: GGML_ASSERT(a < b) failed" in ended.stderr
    assert re.search(
        r"at step \d+: \[slot 0: request 1, \d+ cells, \d+ tokens decoded\]", ended.stderr
    )
