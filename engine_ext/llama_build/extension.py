"""What our own extension is compiled with, so that it fits the build of llama.cpp."""

from pathlib import Path

from .inputs import Inputs


def write_extension_cache(path: Path, inputs: Inputs) -> None:
    """A script for `cmake -C`. Left alone if it says the same, so that make sees no change."""
    values = {"UNPACED_CUDA": "OFF"}
    if inputs.toolkit is not None:
        values = {
            "UNPACED_CUDA": "ON",
            "UNPACED_CUDA_RUN_PATH": inputs.toolkit.run_path(1),
            "CMAKE_CUDA_ARCHITECTURES": inputs.defines["CMAKE_CUDA_ARCHITECTURES"],
            **inputs.toolkit.defines(),
        }
    # FORCE, since the build tree of another profile has other values in its cache.
    lines = [f'set({key} [==[{value}]==] CACHE STRING "" FORCE)' for key, value in values.items()]
    text = "\n".join(lines) + "\n"
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
