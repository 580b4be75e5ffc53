"""Fetches the one file of vLLM that vllm_bench.py needs: `python vllm_file.py DESTINATION`.

The package is large and its wheels larger still, so pip unpacks the source distribution, whose hash
is pinned, and no more: asking it for metadata fails where torch is not installed, as expected.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "0.33.0"
SDIST_SHA256 = "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"
FILE = "vllm/benchmarks/lib/endpoint_request_func.py"
FILE_SHA256 = "cf023e66b586f49a74042a2669814a5d7215d9972be9f94177d7501934f2fad9"


def is_right(path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == FILE_SHA256


def main(destination: Path) -> int:
    if is_right(destination):
        return 0
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        folder = Path(scratch)
        requirement = folder / "requirement.txt"
        requirement.write_text(f"vllm=={VERSION} --hash=sha256:{SDIST_SHA256}\n")
        options = ["--no-clean", "--no-deps", "--no-binary=:all:", "--no-build-isolation"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder)]
        done = subprocess.run(
            [*command, "--requirement", str(requirement)],
            env=os.environ | {"TMPDIR": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        found = [path for path in folder.glob(f"*/vllm_*/{FILE}") if is_right(path)]
        if not found:
            print(done.stdout[-2000:], f"vllm {VERSION}: no {FILE} with the pinned hash", sep="\n")
            return 1
        shutil.copyfile(found[0], destination)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
