"""llama-server and llama-bench of the same llama.cpp commit, run with the libraries that we use.

The binaries come from a build of the pinned source distribution's vendor/llama.cpp, with shared
libraries (`cmake --build . --target llama-server llama-bench`). They are started with our build's
libllama and libggml in place of their own, so that both sides run the same kernels.
"""

import importlib.util
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def our_libraries() -> Path:
    """Folder of the libllama that the engine loads."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("llama_cpp is not installed: run `make build`")
    return Path(spec.submodule_search_locations[0]) / "lib"


def layers_as_ours() -> list[str]:
    """Flags with which the peer, whose build has CUDA, computes where our build does."""
    return [] if (our_libraries() / "libggml-cuda.so").exists() else ["-ngl", "0"]


@dataclass(frozen=True, slots=True)
class Peer:
    """A folder with llama-server, llama-bench and their libraries; `shim` is a scratch folder."""

    folder: Path
    shim: Path

    def env(self) -> dict[str, str]:
        """Environment in which the peer's binaries load our build of the shared libraries."""
        self.shim.mkdir(parents=True, exist_ok=True)
        ours = our_libraries()
        for library in [*ours.glob("libggml*.so"), ours / "libllama.so"]:
            # The peer's build has versioned names, ours has none.
            for name in (library.name, f"{library.name}.0"):
                link = self.shim / name
                link.unlink(missing_ok=True)
                link.symlink_to(library)
        folders = [self.shim, self.folder, self.folder / "lib", self.folder / "bin"]
        path = [str(folder) for folder in folders] + [os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": ":".join(filter(None, path))}

    def own_env(self) -> dict[str, str]:
        """Environment in which they load the libraries that they were built with."""
        folders = [self.folder, self.folder / "lib", self.folder / "bin"]
        path = [*map(str, folders), os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": ":".join(filter(None, path))}

    def binary(self, name: str) -> Path:
        """The ELF file, not a wrapper that would choose its own libraries."""
        for folder in (self.folder / "bin", self.folder):
            if (folder / name).is_file():
                return folder / name
        raise FileNotFoundError(f"{name} is not in {self.folder}")

    def default_command(self, port: int, model: Path, *arguments: str) -> list[str]:
        """llama-server with its own defaults, but for the arguments."""
        command = [str(self.binary("llama-server")), "-m", str(model), "--port", str(port)]
        return [*command, *arguments]

    def server_command(self, port: int, model: Path, *arguments: str) -> list[str]:
        """llama-server, one slot unless the arguments say otherwise."""
        return self.default_command(port, model, "-np", "1", *arguments)

    def bench_tokens_per_s(self, model: Path, n_tokens: int, *arguments: str) -> float:
        """llama-bench's tg: tokens/s of one repetition of `n_tokens`."""
        command = [str(self.binary("llama-bench")), "-m", str(model), "-p", "0", "-o", "json"]
        command += ["-n", str(n_tokens), "-r", "1", *arguments]
        out = subprocess.run(
            command, env={**os.environ, **self.env()}, capture_output=True, check=True, text=True
        )
        rows: list[dict[str, Any]] = json.loads(out.stdout)
        return float(rows[0]["avg_ts"])
